//! Tests that need what this machine does not have.

use std::io::Write;

/// Says that something could not be tested here, past the capture of the test harness.
pub fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
