//! What a question is about: a program, a process, or a trace.

use crate::arguments::Arguments;
use crate::processes;
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
        match (command.is_empty(), processes::one(arguments)?, arguments.path("input")) {
            (false, None, None) => Ok(Of::Program(command)),
            (true, Some(pid), None) => Ok(Of::Process(pid)),
            (true, None, Some(path)) => Ok(Of::File(path)),
            (true, None, None) => match take_trace(words) {
                Some(path) => Ok(Of::File(path)),
                None => bail!("what to look at: '-p PID', '-- PROGRAM' or FILE, a trace"),
            },
            _ => bail!("one of '-p PID', '-- PROGRAM' and FILE, a trace"),
        }
    }
}

/// Takes the last word, if it names a trace.
pub fn take_trace(words: &mut Vec<OsString>) -> Option<PathBuf> {
    let last = Path::new(words.last()?);
    // One that is not there is missed by its own name.
    let is_named = last.extension().is_some_and(|extension| extension == EXTENSION);
    (is_named || TraceReader::is_trace(last)).then(|| words.pop().unwrap_or_default().into())
}
