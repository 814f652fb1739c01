//! Goroutines of the threads that are read.

use super::Collector;
use crate::reader::Reader;

impl Collector<'_> {
    /// Takes what threads have left of goroutines.
    pub(super) fn gather_goroutines(&mut self) {
        for reader in self.readers.iter_mut().flatten().filter(|reader| !reader.of_go.is_empty()) {
            let (process, events) = (reader.process, &mut reader.of_go);
            self.goroutines.take(process, events, &mut self.next_thread, &mut self.output);
        }
    }

    /// The same of a thread that has ended.
    pub(super) fn take_goroutines_of(&mut self, reader: &mut Reader) {
        let events = &mut reader.of_go;
        self.goroutines.take(reader.process, events, &mut self.next_thread, &mut self.output);
    }

    /// Pairs what goroutines have done until now, whichever threads have it.
    pub(super) fn read_goroutines(&mut self) {
        if self.overwrite || !self.goroutines.are_known() {
            return;
        }
        let now = self.now();
        self.read_until(now);
        self.goroutines.release(now, &mut self.output);
    }

    /// All threads are read to their ends.
    pub(super) fn end_goroutines(&mut self) {
        self.goroutines.release(u64::MAX, &mut self.output);
        let all = self.goroutines.end(&mut self.output);
        self.totals.events = self.totals.events.saturating_add(all.entries).saturating_add(all.exits);
    }
}
