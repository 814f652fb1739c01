//! Width of the terminal.

use std::io;

/// Least number of columns that lines are made to fit.
const MIN_COLUMNS: usize = 20;

/// Returns the number of columns of the terminal at standard output.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width >= MIN_COLUMNS)
}
