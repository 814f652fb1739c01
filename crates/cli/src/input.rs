//! Opens the trace that a command reads: a file, or a pipe, which is copied to a temporary file.

use crate::command_line::arguments::is_standard;
use anyhow::{Context, Result, anyhow, bail};
use calltap_trace::TraceReader;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a trace, and prints its complaints; `-` is standard input.
pub fn open(path: &Path) -> Result<TraceReader> {
    let reader = open_quietly(path)?;
    tell_complaints(&reader, path);
    Ok(reader)
}

/// Prints what is wrong with a trace.
pub fn tell_complaints(reader: &TraceReader, path: &Path) {
    for complaint in reader.complaints() {
        tell!("calltap: {}: {complaint}", path.display());
    }
}

fn open_quietly(path: &Path) -> Result<TraceReader> {
    let is_standard = is_standard(path);
    if is_standard && io::stdin().is_terminal() {
        bail!(
            "-: standard input is a terminal; a trace comes from a file or a pipe: calltap record -p PID -o - | calltap report -"
        );
    }
    let is_pipe = is_standard || fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    if !is_pipe {
        return TraceReader::open(path).map_err(|error| anyhow!("{error}{}", instead_of(path)));
    }
    let path = if is_standard { Path::new("standard input") } else { path };
    let file = || -> io::Result<File> {
        let from =
            if is_standard { io::stdin().as_fd().try_clone_to_owned()?.into() } else { File::open(path)? };
        whole(from)
    };
    Ok(TraceReader::of_file(file().with_context(|| path.display().to_string())?, path)?)
}

/// Returns what to do about a path that is no trace, if that is known.
fn instead_of(path: &Path) -> String {
    let shown = path.display();
    let is_file_name = || shown.to_string().contains(['/', '.']);
    let mut first = [0; 10];
    let is_other = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    if is_other {
        return String::new();
    }
    match File::open(path).and_then(|mut file| file.read(&mut first)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_file_name() => {
            numbered(path).unwrap_or_else(|| "; 'calltap record -- PROGRAM' makes a trace".to_owned())
        }
        Ok(_) if first.starts_with(b"\x7fELF") => {
            format!("; it is a program or library, and 'calltap record -- {shown}' records a program")
        }
        Ok(_) if first.starts_with(b"\x17\x08\x44tracing") => {
            format!("; 'calltap import {shown}' converts it")
        }
        _ => String::new(),
    }
}

/// Names the traces of several processes, runs or snapshots that have a number behind this path.
fn numbered(path: &Path) -> Option<String> {
    let start = format!("{}.", path.file_name()?.to_str()?);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names =
        fs::read_dir(directory).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_number = |name: &String| name.strip_prefix(&start).is_some_and(|rest| rest.parse::<u32>().is_ok());
    let mut found: Vec<String> = names.filter(is_number).collect();
    found.sort_unstable();
    let first = found.first()?;
    let more = if found.len() > 1 { format!(" and {} more", found.len() - 1) } else { String::new() };
    let first = path.with_file_name(first);
    Some(format!("; there is {}{more}: a trace of each process, run or snapshot", first.display()))
}

/// Returns a file with all that can be read: the index of a trace is at its end.
fn whole(mut from: File) -> io::Result<File> {
    if from.metadata()?.is_file() {
        return Ok(from);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut from, &mut copy)?;
    Ok(copy)
}
