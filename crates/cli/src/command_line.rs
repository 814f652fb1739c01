//! The command line: the table of commands and flags, its parser, and the parsed values.

pub mod arguments;
pub mod grammar;
pub mod keep;
pub mod mistakes;
pub mod part;
pub mod processes;
pub mod select;
pub mod table;
pub mod values;
pub mod view_flags;

use calltap_trace::TraceReader;
use std::ffi::OsString;
use std::path::Path;

/// Returns the words of the command line, with the trace of `locks FILE --json` behind the options:
/// what follows a program is the program's, what follows a trace is calltap's.
pub fn words(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.collect();
    if let [_, command, first, option, ..] = &words[..]
        && command == "locks"
        && option.as_encoded_bytes().starts_with(b"-")
        && TraceReader::is_trace(Path::new(first))
    {
        words[2..].rotate_left(1);
    }
    words
}
