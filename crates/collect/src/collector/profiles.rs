//! Writes the profile sums, and the number of calls that no thread entry counts.

use super::Collector;
use calltap_process::clock;
use calltap_trace::Record;
use std::sync::atomic::Ordering::Relaxed;

/// Rows of a profile in a record.
const ROWS: usize = 1024;

impl Collector<'_> {
    /// Writes the sums that the program's hooks made.
    pub(super) fn add_profile(&mut self) {
        // The pair does not go into the trace: two comparisons close together say little of a
        // clock's rate.
        let rows = match (self.sums.lock(), self.began) {
            (Ok(sums), Some(began)) => sums.rows(began, clock::pair()),
            _ => return,
        };
        for rows in rows.chunks(ROWS) {
            self.output.record(&Record::Profile { rows: rows.to_vec() });
        }
        let lost = self.shared.control().lost_profile.load(Relaxed);
        if lost > 0 {
            let text =
                format!("{lost} calls are missing in the profile: there was no memory to count them in");
            self.output.record(&Record::Note { text });
        }
    }

    /// Counts the events of threads for which the thread table had no room.
    pub(super) fn add_unregistered(&mut self) {
        let lost = self.shared.control().lost_unregistered.load(Relaxed);
        if lost > 0 {
            self.totals.lost_entries = self.totals.lost_entries.saturating_add(lost);
            let text = format!("{lost} calls or returns were lost in threads that could not be registered");
            self.output.record(&Record::Note { text });
        }
    }
}
