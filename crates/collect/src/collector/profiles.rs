//! Writes the profile sums, and the number of calls that no thread entry counts.

use super::Collector;
use calltap_process::clock;
use calltap_trace::{Loss, Record, Thread, ThreadId};
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

    /// Counts the losses that no thread's counters have: of threads for which the thread table had
    /// no room, and of Go functions. They are those of a thread of their own.
    pub(super) fn add_uncounted(&mut self) {
        let control = self.shared.control();
        let unregistered = control.lost_unregistered.load(Relaxed);
        self.totals.without_room = control.lost_without_room.load(Relaxed);
        let kinds = [
            (
                unregistered,
                "[unregistered]",
                "calls or returns were lost in threads that could not be registered",
            ),
            (
                self.totals.without_room,
                "[no room]",
                "calls of Go functions were lost, as the goroutine's stack had no room for a hook",
            ),
        ];
        for (lost_entries, name, what) in kinds.into_iter().filter(|(lost, ..)| *lost > 0) {
            let thread = ThreadId(self.threads.next);
            self.threads.next += 1;
            let comm = name.to_owned();
            self.output.record(&Record::Thread(Thread {
                id: thread,
                process: 0,
                tid: 0,
                comm,
                goroutine: None,
                started: None,
            }));
            self.output.record(&Record::Loss(Loss { thread, lost_entries, ..Loss::default() }));
            self.totals.lost_entries = self.totals.lost_entries.saturating_add(lost_entries);
            self.output.record(&Record::Note { text: format!("{lost_entries} {what}") });
        }
    }
}
