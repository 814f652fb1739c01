//! The ring buffer of an instance: what was recorded, oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of data in a sub-buffer of the kernel's, of which `buffer_size_kb` is made up.
pub const SUBBUF: u64 = 4080;

/// Something that was recorded.
#[derive(Clone, Debug)]
pub struct Record {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub ns: u64,
    /// Thread id.
    pub tid: u32,
    /// What.
    pub what: What,
}

/// What was recorded. A site is a number in [`crate::symbols::Symbols`].
#[derive(Clone, Debug)]
pub enum What {
    /// The function tracer: a function was called.
    Function {
        /// The function.
        site: u32,
        /// Return address in the caller.
        parent: u64,
    },
    /// It was called so many times more, the last time then.
    Repeats {
        /// The function.
        site: u32,
        /// Return address in the caller.
        parent: u64,
        /// Calls.
        count: u32,
        /// When the last was.
        last_ns: u64,
    },
    /// The function_graph tracer: entered,
    Enter {
        /// The function.
        site: u32,
        /// Traced functions that it is inside of.
        depth: u16,
    },
    /// and returned.
    Exit {
        /// The function.
        site: u32,
        /// As in its entry.
        depth: u16,
        /// When it was entered.
        start_ns: u64,
    },
    /// Who called, innermost first; as far as it is known.
    Stack {
        /// The function.
        site: u32,
        /// Return address in the caller.
        parent: u64,
    },
    /// Somebody wrote to `trace_marker`,
    Mark(Arc<str>),
    /// or to `trace_marker_raw`.
    RawMark(Arc<[u8]>),
}

impl Record {
    /// Bytes that the kernel's record has, with its header.
    fn size(&self) -> u64 {
        let payload = match &self.what {
            What::Function { .. } => 24,
            What::Repeats { .. } => 32,
            What::Enter { .. } => 20,
            What::Exit { .. } => 40,
            What::Stack { .. } => 32,
            What::Mark(text) => 17 + text.len() as u64,
            What::RawMark(bytes) => 8 + bytes.len() as u64,
        };
        (4 + payload).next_multiple_of(4)
    }
}

/// The buffer.
#[derive(Debug)]
pub struct Ring {
    records: VecDeque<Record>,
    bytes: u64,
    capacity: u64,
    /// Written since it was cleared.
    written: u64,
    /// Oldest records that made room for others.
    overrun: u64,
    /// Records that found no room, or that the program's own buffer had none for.
    dropped: u64,
    /// Taken out by readers.
    read: u64,
    /// Lost since a reader last took something out.
    missed: u64,
    /// Counts what was cleared: a reader of something older has nothing more to read.
    pub generation: u64,
}

impl Ring {
    /// An empty one of so many bytes.
    pub fn new(capacity: u64) -> Ring {
        Ring {
            records: VecDeque::new(),
            bytes: 0,
            capacity,
            written: 0,
            overrun: 0,
            dropped: 0,
            read: 0,
            missed: 0,
            generation: 0,
        }
    }

    /// Adds a record; in a full buffer it takes the place of the oldest, or (`overwrite` off) is dropped.
    pub fn push(&mut self, record: Record, overwrite: bool) {
        let size = record.size();
        if !overwrite && self.bytes + size > self.capacity {
            self.dropped += 1;
            return;
        }
        self.bytes += size;
        self.written += 1;
        self.records.push_back(record);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.capacity
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.size();
            self.overrun += 1;
            self.missed += 1;
        }
    }

    /// Some were lost on their way here.
    pub fn lose(&mut self, count: u64) {
        self.dropped += count;
        self.missed += count;
    }

    /// Takes the oldest out, with how many were lost before it.
    pub fn take(&mut self) -> Option<(u64, Record)> {
        let record = self.records.pop_front()?;
        self.bytes -= record.size();
        self.read += 1;
        Some((std::mem::take(&mut self.missed), record))
    }

    /// Empties it.
    pub fn clear(&mut self) {
        *self = Ring { generation: self.generation + 1, ..Ring::new(self.capacity) };
    }

    /// Has another size from now on.
    pub fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shrink();
    }

    /// The newest, to be changed.
    pub fn last_mut(&mut self) -> Option<&mut Record> {
        self.records.back_mut()
    }

    /// All, oldest first.
    pub fn records(&self) -> &VecDeque<Record> {
        &self.records
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that are in it, and all that were since it was cleared.
    pub fn counts(&self) -> (u64, u64) {
        (self.records.len() as u64, self.written)
    }

    /// The file `stats`.
    pub fn stats(&self, now_ns: u64) -> String {
        let time = |ns: u64| format!("{:>5}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000);
        let oldest = self.records.front().map_or(0, |record| record.ns);
        format!(
            "entries: {}\noverrun: {}\ncommit overrun: 0\nbytes: {}\noldest event ts: {}\nnow ts: {}\ndropped events: {}\nread events: {}\n",
            self.records.len(),
            self.overrun,
            self.bytes,
            time(oldest),
            time(now_ns),
            self.dropped,
            self.read
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(ns: u64) -> Record {
        Record { ns, tid: 1, what: What::Function { site: 0, parent: 0 } }
    }

    fn times(ring: &Ring) -> Vec<u64> {
        ring.records().iter().map(|record| record.ns).collect()
    }

    #[test]
    fn a_full_buffer_keeps_the_newest_and_says_what_was_lost() {
        let mut ring = Ring::new(28 * 3);
        (0..5).for_each(|ns| ring.push(call(ns), true));
        assert_eq!((times(&ring), ring.counts()), (vec![2, 3, 4], (3, 5)));
        assert_eq!(ring.take().map(|(lost, record)| (lost, record.ns)), Some((2, 2)));
        assert_eq!(ring.take().map(|(lost, record)| (lost, record.ns)), Some((0, 3)));
        assert!(ring.stats(0).contains("entries: 1\noverrun: 2\n"));
    }

    #[test]
    fn without_overwrite_the_oldest_stay() {
        let mut ring = Ring::new(28 * 3);
        (0..5).for_each(|ns| ring.push(call(ns), false));
        assert_eq!((times(&ring), ring.counts()), (vec![0, 1, 2], (3, 3)));
        assert!(ring.stats(0).contains("dropped events: 2\n"));
    }

    #[test]
    fn a_smaller_buffer_keeps_the_newest_and_a_larger_all() {
        let mut ring = Ring::new(28 * 4);
        (0..4).for_each(|ns| ring.push(call(ns), true));
        ring.resize(28 * 2);
        assert_eq!(times(&ring), [2, 3]);
        ring.resize(28 * 9);
        assert_eq!(times(&ring), [2, 3]);
        ring.clear();
        assert_eq!(ring.counts(), (0, 0));
    }
}
