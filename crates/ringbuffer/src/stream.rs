//! A stream of pages.

use crate::page::{MAX_RECORD_LEN, Page, SubBuffer};

/// The pages of one stream; the kernel has one for each processor. Its time does not run backwards.
#[derive(Default)]
pub struct Stream {
    page: SubBuffer,
    last: u64,
    missed: u64,
}

impl Stream {
    /// Creates a stream without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an event; `full` gets the page that became full, if one did. A record longer than
    /// [`MAX_RECORD_LEN`] is cut off there.
    pub fn push(&mut self, time: u64, record: &[u8], mut full: impl FnMut(&Page)) {
        let record = &record[..record.len().min(MAX_RECORD_LEN)];
        self.last = self.last.max(time);
        if self.missed > 0 {
            // Only a page can tell that events are missing, and only before its first one.
            self.finish(&mut full);
            self.page.miss(std::mem::take(&mut self.missed));
        }
        if !self.page.push(self.last, record) {
            self.finish(&mut full);
            self.page.push(self.last, record);
        }
    }

    /// Notes that events are missing here.
    pub fn miss(&mut self, events: u64) {
        self.missed = self.missed.saturating_add(events);
    }

    /// Whether events are missing, and no event has followed yet that could tell so.
    pub fn owes_missed(&self) -> bool {
        self.missed > 0
    }

    /// Hands out the page that is not full yet, if it has events.
    pub fn finish(&mut self, mut full: impl FnMut(&Page)) {
        if !self.page.is_empty() {
            full(self.page.page());
            self.page.clear();
        }
    }

    /// Resets the stream: the next event begins another one.
    pub fn restart(&mut self) {
        self.page.clear();
        (self.last, self.missed) = (0, 0);
    }
}
