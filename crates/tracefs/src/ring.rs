//! The ring buffer of an instance: its records, oldest first.

use crate::stack::Level;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of data bytes in one of the kernel's sub-buffers, the unit of `buffer_size_kb`.
pub(crate) const SUBBUF: u64 = 4080;

/// A record of the buffer.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Time by the instance's clock.
    pub time: u64,
    /// Thread id.
    pub tid: u32,
    /// The contents.
    pub payload: Payload,
}

/// The contents of a record. A site is a number in [`crate::symbols::Symbols`].
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// A call, of the function tracer.
    Function {
        /// The function.
        site: u32,
        /// Return address in the caller.
        parent: u64,
    },
    /// Repetitions of the call before, with the same function and caller.
    Repeats {
        /// The function.
        site: u32,
        /// Return address in the caller.
        parent: u64,
        /// Number of repetitions.
        count: u32,
        /// Time of the last one.
        last: u64,
    },
    /// An entry, of the function_graph tracer.
    Enter {
        /// The function.
        site: u32,
        /// Number of recorded calls around it.
        depth: u16,
    },
    /// A return, of the function_graph tracer.
    Exit {
        /// The function.
        site: u32,
        /// Number of recorded calls around it, as in its entry.
        depth: u16,
        /// Duration of the call in nanoseconds.
        ns: u64,
    },
    /// A stack, innermost function first.
    Stack(Arc<[Level]>),
    /// A text written to `trace_marker`.
    Mark(Arc<str>),
    /// Bytes written to `trace_marker_raw`.
    RawMark(Arc<[u8]>),
}

impl Record {
    /// Returns the size of the kernel's record, with its header.
    fn size(&self) -> u64 {
        let payload = match &self.payload {
            Payload::Function { .. } => 24,
            Payload::Repeats { .. } => 32,
            Payload::Enter { .. } => 20,
            Payload::Exit { .. } => 40,
            Payload::Stack(levels) => 16 + 8 * levels.len() as u64,
            Payload::Mark(text) => 17 + text.len() as u64,
            Payload::RawMark(bytes) => 8 + bytes.len() as u64,
        };
        (4 + payload).next_multiple_of(4)
    }
}

/// Number of records of a chunk.
const CHUNK: usize = 4096;

/// A ring buffer. Its records lie in chunks, which readers share instead of copying them.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The full chunks.
    full: VecDeque<Arc<Vec<Record>>>,
    /// The chunk that is being filled.
    last: Vec<Record>,
    /// Number of records of the first chunk that were removed.
    out: usize,
    bytes: u64,
    capacity: u64,
    /// Records written since the buffer was cleared.
    written: u64,
    /// Records that were overwritten.
    overrun: u64,
    /// Records that were refused by the full buffer, or lost in the program's own buffer.
    dropped: u64,
    /// Records consumed by readers.
    read: u64,
    /// Records lost since a reader last consumed one.
    missed: u64,
}

impl Ring {
    /// Returns an empty buffer of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Ring {
        Ring {
            full: VecDeque::new(),
            last: Vec::new(),
            out: 0,
            bytes: 0,
            capacity,
            written: 0,
            overrun: 0,
            dropped: 0,
            read: 0,
            missed: 0,
        }
    }

    /// Adds a record. In a full buffer it overwrites the oldest, or is dropped if `overwrite` is
    /// off.
    pub(crate) fn push(&mut self, record: Record, overwrite: bool) {
        let size = record.size();
        if !overwrite && self.bytes + size > self.capacity {
            self.dropped += 1;
            return;
        }
        self.bytes += size;
        self.written += 1;
        if self.last.len() == CHUNK {
            let full = std::mem::replace(&mut self.last, Vec::with_capacity(CHUNK));
            self.full.push_back(Arc::new(full));
        }
        self.last.push(record);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.capacity && self.drop_first() {
            self.overrun += 1;
            self.missed += 1;
        }
    }

    fn oldest(&self) -> Option<&Record> {
        self.full.front().map_or(&self.last, |chunk| chunk.as_ref()).get(self.out)
    }

    /// Removes the oldest record. False if there is none.
    fn drop_first(&mut self) -> bool {
        let Some(size) = self.oldest().map(Record::size) else { return false };
        self.bytes -= size;
        self.out += 1;
        if self.out == CHUNK && self.full.pop_front().is_some() {
            self.out = 0;
        }
        if self.full.is_empty() && self.out == self.last.len() {
            self.last.clear();
            self.out = 0;
        }
        true
    }

    /// Counts records that were lost before they arrived here.
    pub(crate) fn lose(&mut self, count: u64) {
        self.dropped += count;
        self.missed += count;
    }

    /// Returns the oldest record, and the number of records lost before it.
    pub(crate) fn first(&self) -> Option<(u64, &Record)> {
        Some((self.missed, self.oldest()?))
    }

    /// Removes and returns the oldest record, with the number of records lost before it.
    pub(crate) fn take(&mut self) -> Option<(u64, Record)> {
        let record = self.oldest()?.clone();
        self.drop_first();
        self.read += 1;
        Some((std::mem::take(&mut self.missed), record))
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self) {
        *self = Ring::new(self.capacity);
    }

    /// Removes all records, and returns them as another buffer.
    pub(crate) fn put_aside(&mut self) -> Ring {
        let empty = Ring::new(self.capacity);
        std::mem::replace(self, empty)
    }

    /// Returns the size that the records would have in the kernel.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the size, and removes the oldest records that no longer fit.
    pub(crate) fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shrink();
    }

    /// Returns the newest record for changes.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Record> {
        self.last.last_mut()
    }

    /// Returns the present records.
    pub(crate) fn view(&self) -> View {
        let chunks = self.full.iter().cloned().chain([Arc::new(self.last.clone())]).collect();
        View { chunks, out: self.out, count: self.len() }
    }

    fn len(&self) -> usize {
        self.full.len() * CHUNK + self.last.len() - self.out
    }

    /// Whether there are no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    /// Returns the number of records present, and of all records since the buffer was cleared.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.len() as u64, self.written)
    }

    /// Returns the contents of the file `stats`. `in_ns`: times are nanoseconds.
    pub(crate) fn stats(&self, now: u64, in_ns: bool) -> String {
        let time = |time: u64| match in_ns {
            true => format!("{:>5}.{:06}", time / 1_000_000_000, time / 1000 % 1_000_000),
            false => time.to_string(),
        };
        let oldest = self.oldest().map_or(0, |record| record.time);
        format!(
            "entries: {}\noverrun: {}\ncommit overrun: 0\nbytes: {}\noldest event ts: {}\nnow ts: {}\ndropped events: {}\nread events: {}\n",
            self.len(),
            self.overrun,
            self.bytes,
            time(oldest),
            time(now),
            self.dropped,
            self.read
        )
    }
}

/// The records of a buffer at one moment, unaffected by later changes of the buffer.
#[derive(Default, Debug)]
pub(crate) struct View {
    chunks: Vec<Arc<Vec<Record>>>,
    out: usize,
    count: usize,
}

impl View {
    /// Returns the number of records.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the record at an index; the oldest has 0.
    pub(crate) fn get(&self, at: usize) -> Option<&Record> {
        let at = at + self.out;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(time: u64) -> Record {
        Record { time, tid: 1, payload: Payload::Function { site: 0, parent: 0 } }
    }

    fn times(ring: &Ring) -> Vec<u64> {
        let view = ring.view();
        (0..view.len()).filter_map(|at| view.get(at)).map(|record| record.time).collect()
    }

    #[test]
    fn full_buffer_keeps_newest_and_counts_lost() {
        let mut ring = Ring::new(28 * 3);
        (0..5).for_each(|time| ring.push(call(time), true));
        assert_eq!((times(&ring), ring.counts()), (vec![2, 3, 4], (3, 5)));
        assert_eq!(ring.take().map(|(lost, record)| (lost, record.time)), Some((2, 2)));
        assert_eq!(ring.take().map(|(lost, record)| (lost, record.time)), Some((0, 3)));
        assert!(ring.stats(0, true).contains("entries: 1\noverrun: 2\n"));
    }

    #[test]
    fn without_overwrite_the_oldest_stay() {
        let mut ring = Ring::new(28 * 3);
        (0..5).for_each(|time| ring.push(call(time), false));
        assert_eq!((times(&ring), ring.counts()), (vec![0, 1, 2], (3, 3)));
        assert!(ring.stats(0, true).contains("dropped events: 2\n"));
    }

    #[test]
    fn view_is_stable_at_any_chunk_size() {
        let mut ring = Ring::new(28 * 10_000);
        let mut expected = VecDeque::new();
        let mut next = 0;
        for round in 0..40_u64 {
            for _ in 0..round * 97 % 1500 {
                ring.push(call(next), true);
                expected.push_back(next);
                next += 1;
                if expected.len() > 10_000 {
                    expected.pop_front();
                }
            }
            let (before, view) = (times(&ring), ring.view());
            for _ in 0..round * 31 % 700 {
                assert_eq!(ring.take().map(|(_, record)| record.time), expected.pop_front());
            }
            assert!(times(&ring).iter().eq(&expected), "round {round}");
            assert_eq!((ring.is_empty(), ring.bytes()), (expected.is_empty(), 28 * expected.len() as u64));
            let seen: Vec<u64> =
                (0..view.len()).filter_map(|at| view.get(at)).map(|record| record.time).collect();
            assert_eq!(seen, before);
        }
    }

    #[test]
    fn a_smaller_buffer_keeps_the_newest_and_a_larger_all() {
        let mut ring = Ring::new(28 * 4);
        (0..4).for_each(|time| ring.push(call(time), true));
        ring.resize(28 * 2);
        assert_eq!(times(&ring), [2, 3]);
        ring.resize(28 * 9);
        assert_eq!(times(&ring), [2, 3]);
        ring.clear();
        assert_eq!(ring.counts(), (0, 0));
    }
}
