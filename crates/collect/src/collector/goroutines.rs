//! Collects the events of goroutines from the threads that run them, and has them paired.

use super::Collector;
use crate::reader::Reader;

impl Collector<'_> {
    /// Takes the events of goroutines from the readers of all threads.
    pub(super) fn gather_goroutines(&mut self) {
        for reader in self.readers.iter_mut().flatten().filter(|reader| !reader.of_go.is_empty()) {
            let (of, events) = ((reader.process, reader.totals.thread), &mut reader.of_go);
            self.goroutines.take(of, events, &mut self.threads.next, &mut self.output);
        }
    }

    /// Takes the events of goroutines from the reader of a thread that has ended.
    pub(super) fn take_goroutines_of(&mut self, reader: &mut Reader) {
        let (of, events) = ((reader.process, reader.totals.thread), &mut reader.of_go);
        self.goroutines.take(of, events, &mut self.threads.next, &mut self.output);
    }

    /// Pairs the events of goroutines until now. All threads are read until then first.
    pub(super) fn read_goroutines(&mut self) {
        if self.overwrite || !self.goroutines.are_known() {
            return;
        }
        let now = self.now();
        // A goroutine may run on in a thread that has begun since threads were last looked for.
        self.find_threads();
        self.read_until(now);
        self.goroutines.release(now, &mut self.output);
    }

    /// Pairs the rest of the goroutines' events, once all threads are read to their ends.
    pub(super) fn end_goroutines(&mut self) {
        self.goroutines.release(u64::MAX, &mut self.output);
        let all = self.goroutines.end(&mut self.output);
        self.totals.events = self.totals.events.saturating_add(all.entries).saturating_add(all.exits);
    }
}
