//! Tests that need something this machine lacks.

use std::io::Write;

/// Reports that something was not tested, past the capture of the test harness.
pub fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Returns whether something was found; if not, reports what is therefore not tested.
pub fn found_or_skipped(is_found: bool, what: &str) -> bool {
    if !is_found {
        skipped(what);
    }
    is_found
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
