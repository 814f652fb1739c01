//! What a question is about: a program, a process, or a trace.

use crate::command_line::arguments::Arguments;
use crate::command_line::processes;
use anyhow::{Result, bail};
use calltap_trace::TraceReader;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What traces are called by default ends so.
const EXTENSION: &str = "data";

/// The process that is looked at.
pub enum Of {
    /// A program that is started.
    Program(Vec<OsString>),
    /// A running process.
    Process(u32),
    /// A recording.
    File(PathBuf),
}

impl Of {
    /// From the command line, on which this command stands. Of these words a trace may be the last, which is taken.
    pub fn new(arguments: &Arguments, words: &mut Vec<OsString>, command: Vec<OsString>) -> Result<Of> {
        let of = match (command.is_empty(), processes::one(arguments)?, arguments.path("input")) {
            (false, None, None) => Of::Program(command),
            (true, Some(pid), None) => {
                processes::tell_of_children(pid, arguments);
                Of::Process(pid)
            }
            (true, None, Some(path)) => Of::File(path),
            (true, None, None) => match take_trace(words) {
                Some(path) => Of::File(path),
                None => return missing(words),
            },
            _ => bail!("one of '-p PID', '-- PROGRAM' and FILE, a trace"),
        };
        match words.last().map(Path::new).filter(|word| TraceReader::is_trace(word)) {
            Some(another) => bail!("{}: one of '-p PID', '-- PROGRAM' and FILE, a trace", another.display()),
            None => Ok(of),
        }
    }
}

/// The error of a command line on which nothing is named to look at.
fn missing(words: &[OsString]) -> Result<Of> {
    const WANTED: &str = "what to look at: '-p PID', '-- PROGRAM' or FILE, a trace";
    match words {
        [_, .., last] if Path::new(last).exists() => bail!("{} is not a trace; {WANTED}", last.display()),
        _ => bail!(WANTED),
    }
}

/// Takes the last word, if it names a trace.
pub fn take_trace(words: &mut Vec<OsString>) -> Option<PathBuf> {
    let last = Path::new(words.last()?);
    // One that is not there is missed by its own name.
    let is_named = last.extension().is_some_and(|extension| extension == EXTENSION);
    (is_named || TraceReader::is_trace(last)).then(|| words.pop().unwrap_or_default().into())
}
