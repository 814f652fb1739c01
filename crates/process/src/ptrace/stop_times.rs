//! How long threads of a process were stopped.

use std::time::Duration;

/// Durations of the stops of one attach or detach.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stops {
    /// The longest time that a single thread was stopped or worked for calltap.
    pub longest: Duration,
    /// Sum of all stops, which follow one another.
    pub total: Duration,
    /// Number of threads of the process.
    pub threads: usize,
}

impl Stops {
    /// Adds a stop.
    pub fn add(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        self.total += time;
    }
}
