//! Progress of a recording: how long it has lasted, and how many calls it has.

use crate::options::{Recording, Subject};
use std::time::Instant;

/// Reports the progress to the user once a second.
pub(crate) struct ProgressReporter {
    /// None of a program that calltap has started: the terminal is the program's.
    tell: Option<fn(&Recording)>,
    /// When everything was enabled, and the last second that was reported.
    began: Option<Instant>,
    told: u64,
}

impl ProgressReporter {
    pub(crate) fn new(subject: &Subject, recording: fn(&Recording)) -> ProgressReporter {
        let tell = matches!(subject, Subject::Process { .. }).then_some(recording);
        ProgressReporter { tell, began: None, told: 0 }
    }

    /// Called every few milliseconds, from when everything is enabled.
    pub(crate) fn report(&mut self, calls: u64) {
        let Some(tell) = self.tell else { return };
        let elapsed = self.began.get_or_insert_with(Instant::now).elapsed();
        if elapsed.as_secs() > self.told {
            self.told = elapsed.as_secs();
            tell(&Recording { elapsed, calls });
        }
    }
}
