//! `calltap import`: converts a recording of another tracer into a trace.

use crate::command_line::arguments::Arguments;
use crate::terminal::trace_path;
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::units::counted;
use calltap_import::{Named, Summary, import};
use calltap_session::TraceFile;
use calltap_trace::TraceReader;
use std::fs::File;
use std::path::Path;

/// Writes the trace, and tells its contents and its gaps.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = arguments.path("operand").unwrap_or_default();
    let output = TraceFile::create(&trace_path::of(arguments)?)?;
    let summary = import_file(&path, output.path())?;
    output.keep();
    say(&summary, &output);
    Ok(())
}

/// Converts a `trace.dat` file into a trace.
pub fn import_file(path: &Path, output: &Path) -> Result<Summary> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        bail!("{name}: not a trace.dat of trace-cmd: not a regular file");
    }
    let named = Named { file: &name, calltap: env!("CARGO_PKG_VERSION") };
    if TraceReader::is_trace(path) {
        bail!("{name}: a trace of calltap already: 'calltap report {name}' shows it");
    }
    import(&file, named, output).map_err(|error| anyhow!("{name}: {error}"))
}

fn say(summary: &Summary, output: &TraceFile) {
    let (events, functions) = (counted(summary.events, "event"), counted(summary.functions, "function"));
    let threads = counted(summary.threads, "thread");
    tell!("calltap: {}: {events} of {functions} in {threads}", trace_path::name(output.path()));
    let sentences = summary.sentences().into_iter().chain(output.note());
    sentences.for_each(|sentence| tell!("calltap: import: {sentence}"));
}
