//! The time in which all functions of a question are on: enabling and disabling thousands of them
//! takes a while, in which some are on already, or still.

use super::question::Kind;
use calltap_process::clock::monotonic_ns;
use calltap_trace::Profile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Shortest pause between two readings of the program's sums, in nanoseconds.
const MIN_PAUSE_NS: u64 = 50_000_000;
/// Least ratio of that pause to the time that a reading takes.
const SHARE: u64 = 20;

/// The program's sums at a moment.
pub struct Reading {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
    pub rows: Vec<Profile>,
}

/// The window, seen from the thread that enables the functions.
#[derive(Default)]
pub struct Window {
    /// When all functions were on, in nanoseconds of CLOCK_MONOTONIC; 0 before.
    began: Arc<AtomicU64>,
    first: Option<Reading>,
    last: Option<Reading>,
    /// When the next reading is due.
    due: u64,
}

impl Window {
    /// Returns the beginning, for the collector's thread.
    pub fn beginning(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.began)
    }

    /// Takes notice that all functions are on; `sums` reads the program's sums.
    pub fn note_enabled(&mut self, kind: &Kind, sums: impl FnOnce() -> Vec<Profile>) {
        let at = monotonic_ns();
        let _ = self.began.compare_exchange(0, at, Relaxed, Relaxed);
        if !kind.sums() || at < self.due {
            return;
        }
        let reading = Some(Reading { at, rows: sums() });
        *if self.first.is_none() { &mut self.first } else { &mut self.last } = reading;
        let now = monotonic_ns();
        self.due = now + MIN_PAUSE_NS.max(SHARE * now.saturating_sub(at));
    }

    /// Returns the first and the last reading.
    pub fn readings(self) -> Option<[Reading; 2]> {
        Some([self.first?, self.last?])
    }
}
