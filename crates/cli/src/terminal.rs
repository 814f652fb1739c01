//! What the user sees: where output goes, and what stands on a terminal meanwhile.

/// Writes a line to standard error: like `eprintln`, but what calltap does goes on where that is closed, or its reader has ended.
macro_rules! tell {
    ($($part:tt)*) => { $crate::terminal::write_line(format_args!($($part)*)) };
}

pub mod output;
pub mod pager;
pub mod progress;
pub mod search;
pub mod started;
pub mod units;

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// What [`tell`] does.
pub fn write_line(line: Arguments<'_>) {
    // A process that is traced must not stay so for want of a reader.
    let _ = writeln!(stderr().lock(), "{line}");
}
