//! The subject of a question: a program, a process, or a trace.

use crate::command_line::arguments::{Arguments, is_standard};
use crate::command_line::processes;
use crate::command_line::table::RECORDING;
use anyhow::{Result, bail};
use calltap_trace::TraceReader;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Extension of a trace's default name.
const EXTENSION: &str = "data";

/// The subject of a question.
pub enum QuestionSubject {
    /// A program to start, with its arguments.
    Program(Vec<OsString>),
    /// A running process, by its id.
    Process(u32),
    /// A trace file.
    File(PathBuf),
}

impl QuestionSubject {
    /// Returns the subject that the command line names. `command` is the program with its
    /// arguments; if `words` ends with a trace, that word is removed from them.
    pub fn new(
        arguments: &Arguments,
        words: &mut Vec<OsString>,
        command: Vec<OsString>,
    ) -> Result<QuestionSubject> {
        let subject = match (command.is_empty(), processes::one(arguments)?, arguments.path("input")) {
            (false, None, None) => QuestionSubject::Program(command),
            (true, Some(pid), None) => {
                processes::tell_of_children(pid, arguments);
                QuestionSubject::Process(pid)
            }
            (true, None, Some(path)) => QuestionSubject::File(path),
            (true, None, None) => match take_trace(words) {
                Some(path) => QuestionSubject::File(path),
                None => return missing(words),
            },
            _ => bail!("more than one subject: name one of '-p PID', '-- PROGRAM' and FILE, a trace"),
        };
        if let QuestionSubject::File(path) = &subject {
            arguments.refuse_with_trace(RECORDING, path)?;
        }
        match words.last().map(Path::new).filter(|word| TraceReader::is_trace(word)) {
            Some(another) => bail!(
                "{}: more than one subject: name one of '-p PID', '-- PROGRAM' and FILE, a trace",
                another.display()
            ),
            None => Ok(subject),
        }
    }
}

/// Returns the error for a command line that names no subject.
fn missing(words: &[OsString]) -> Result<QuestionSubject> {
    const WANTED: &str = "no subject: name '-p PID', '-- PROGRAM' or FILE, a trace";
    let is_trace = |word: &&OsString| TraceReader::is_trace(Path::new(word));
    if let Some(trace) = words.iter().find(is_trace) {
        bail!("{}: FILE, a trace, is the last word, behind the functions", trace.display());
    }
    match words {
        [_, .., last] if Path::new(last).exists() => bail!("{} is not a trace: {WANTED}", last.display()),
        _ => bail!(WANTED),
    }
}

/// Removes and returns the last word, if it names a trace.
pub fn take_trace(words: &mut Vec<OsString>) -> Option<PathBuf> {
    let last = Path::new(words.last()?);
    // A missing file with a trace's extension counts as a trace, so that the error names the file.
    let is_named = last.extension().is_some_and(|extension| extension == EXTENSION);
    let is_standard = is_standard(last);
    (is_named || is_standard || TraceReader::is_trace(last)).then(|| words.pop().unwrap_or_default().into())
}
