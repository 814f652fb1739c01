//! Output for the user: where it goes, and the messages on a terminal.

/// Writes a line to standard error, like `eprintln`, but ignores errors: calltap goes on if
/// standard error is closed.
macro_rules! tell {
    ($($part:tt)*) => { $crate::terminal::write_line(format_args!($($part)*)) };
}

pub mod key_effect;
pub mod named_pipe;
pub mod output;
pub mod pager;
pub mod progress;
pub mod screen;
pub mod search;
pub mod started;
pub mod trace_path;
pub mod units;

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Writes the line of [`tell`].
pub fn write_line(line: Arguments<'_>) {
    // One write, so that output of the traced program does not come between its parts. A failure
    // to write must not leave a process traced.
    let _ = stderr().lock().write_all(format!("{line}\n").as_bytes());
}
