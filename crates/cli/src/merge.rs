//! `calltap merge`: joins several recordings of one machine into one trace.

use crate::command_line::arguments::{Arguments, is_same_file};
use crate::import;
use crate::input;
use crate::scratch;
use crate::terminal::trace_path;
use anyhow::{Result, anyhow, bail};
use calltap_analysis::units::counted;
use calltap_import::{Others, Recording, join};
use calltap_session::TraceFile;
use calltap_trace::TraceReader;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Writes the trace, and tells its contents.
pub fn run(arguments: &Arguments) -> Result<()> {
    let paths: Vec<PathBuf> = arguments.words("operand").into_iter().map(PathBuf::from).collect();
    if paths.len() < 2 {
        bail!(
            "merge: fewer than two recordings named: 'calltap merge calltap.data trace.dat -o merged.data'"
        );
    }
    for (n, path) in paths.iter().enumerate() {
        if let Some(same) = paths[..n].iter().find(|other| have_same_contents(path, other)) {
            bail!("merge: {} and {} are the same recording: name it once", same.display(), path.display());
        }
    }
    let wanted = trace_path::of(arguments)?;
    let output = TraceFile::create(&wanted)?;
    let mut imported = Vec::new();
    let mut recordings = Vec::new();
    for path in &paths {
        let name = path.display().to_string();
        let reader = if TraceReader::is_trace(path) {
            TraceReader::open_stored(path)?
        } else {
            let directory = scratch::directory(&place_beside(output.path()), ".calltap-merge.")?;
            let file = directory.path().join("imported");
            import::import_file(path, &file)?;
            let reader = TraceReader::open_stored(&file)?;
            imported.push(directory);
            reader
        };
        input::tell_complaints(&reader, path);
        recordings.push(Recording { name, reader });
    }
    let joined = join(&recordings, Others::Kept, output.path()).map_err(|error| anyhow!("{error}"));
    let joined = joined.inspect_err(|_| remove(output.path()))?;
    output.keep();
    let (events, threads) = (counted(joined.events, "event"), counted(joined.threads, "thread"));
    let nested = match joined.nested {
        0 => String::new(),
        nested => format!("; of {}, the kernel's calls are within the program's", counted(nested, "thread")),
    };
    tell!("calltap: {}: {events} in {threads}{nested}", trace_path::name(output.path()));
    joined.sentences().iter().chain(&output.note()).for_each(|sentence| tell!("calltap: merge: {sentence}"));
    Ok(())
}

/// Whether two paths name one file, or a file and its copy.
fn have_same_contents(one: &Path, other: &Path) -> bool {
    let size = |path: &Path| Some(fs::metadata(path).ok().filter(fs::Metadata::is_file)?.len());
    let bytes = |path: &Path| Some(BufReader::new(File::open(path).ok()?).bytes().map_while(Result::ok));
    is_same_file(one, other)
        || size(one).is_some_and(|own| size(other) == Some(own))
            && bytes(one).zip(bytes(other)).is_some_and(|(one, other)| one.eq(other))
}

/// Returns where recordings are converted: beside the output, or for a pipe where temporary files
/// belong.
fn place_beside(output: &Path) -> PathBuf {
    let is_file = fs::metadata(output).is_ok_and(|meta| meta.is_file());
    match output.parent().filter(|_| is_file) {
        Some(parent) if parent.as_os_str().is_empty() => ".".into(),
        Some(parent) => parent.to_owned(),
        None => std::env::temp_dir(),
    }
}

/// Removes the part of a trace that was written before an error.
fn remove(path: &Path) {
    if fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        let _ = fs::remove_file(path);
    }
}
