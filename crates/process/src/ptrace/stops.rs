//! How long threads of a process were stopped.

use std::time::Duration;

/// How long attaching or detaching stopped threads.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stops {
    /// The longest that a single thread was stopped or worked for calltap.
    pub longest: Duration,
    /// The sum of all stops, which follow one another.
    pub total: Duration,
    /// Threads of the process.
    pub threads: usize,
}

impl Stops {
    /// Another stop.
    pub fn add(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        self.total += time;
    }
}
