//! The kernel's entries about one thread, as they are gathered, written and read.
//!
//! A chunk has all entries of its thread from the chunk's lowest to its highest time. What happened
//! between two chunks, before the first and behind the last is not known.

mod runs;

pub use runs::GoroutineRun;

use crate::chunk::Kind;
use crate::codec::Damage;
use crate::codec::sealed::Span;
use crate::codec::streams::{Cursor, put_varint};
use crate::meta::ThreadId;
use crate::switches::Payload;
use std::collections::BTreeMap;

/// An entry of the kernel about a thread.
pub(crate) trait Entry: Sized {
    /// Returns the time.
    fn at(&self) -> u64;
    /// Sets the time.
    fn set_at(&mut self, at: u64);
    /// Appends everything but the time.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads what [`Entry::put`] has written, with the time `at`.
    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<Self, Damage>;
}

/// The kernel's entries about a thread, and the times for which they are complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelLog<T> {
    /// The entries, oldest first.
    pub entries: Vec<T>,
    /// Start and end of the times for which all entries are there, oldest first; they do not
    /// overlap.
    pub known: Vec<(u64, u64)>,
}

impl<T> Default for KernelLog<T> {
    fn default() -> KernelLog<T> {
        KernelLog { entries: Vec::new(), known: Vec::new() }
    }
}

impl<T> KernelLog<T> {
    /// Whether all entries from `start` to `end` are there.
    pub fn knows(&self, start: u64, end: u64) -> bool {
        let at = self.known.partition_point(|(from, _)| *from <= start);
        at.checked_sub(1).and_then(|at| self.known.get(at)).is_some_and(|(_, to)| end <= *to)
    }
}

/// Entries of a thread that are not in a chunk yet.
struct Gathered {
    low: u64,
    until: u64,
    last: u64,
    entries: u32,
    bytes: Vec<u8>,
    age: u32,
}

/// Bytes of a chunk from which the next begins.
const FULL: usize = 256 << 10;
/// Number of flushes after which a chunk without entries is written.
const OLD: u32 = 8;

/// Gathers the entries of one kind of all threads into chunks.
pub(crate) struct Gatherer {
    kind: Kind,
    threads: BTreeMap<ThreadId, Gathered>,
}

impl Gatherer {
    pub(crate) fn new(kind: Kind) -> Gatherer {
        Gatherer { kind, threads: BTreeMap::new() }
    }

    /// Returns the kind of its chunks.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Adds the entries of `thread` from `from` to `until`, which are all of the kind. Returns
    /// chunks that are full.
    pub(crate) fn add<T: Entry>(
        &mut self,
        thread: ThreadId,
        from: u64,
        entries: &[T],
        until: u64,
    ) -> Vec<Payload> {
        let mut payloads = Vec::new();
        let new = |low| Gathered { low, until: low, last: low, entries: 0, bytes: Vec::new(), age: 0 };
        let gathered = self.threads.entry(thread).or_insert_with(|| new(from));
        if from > gathered.until {
            payloads.extend(gathered.seal(thread));
            *gathered = new(from);
        }
        for entry in entries {
            let at = entry.at().max(gathered.last);
            put_varint(&mut gathered.bytes, at - gathered.last);
            entry.put(&mut gathered.bytes);
            gathered.last = at;
            gathered.until = at.max(gathered.until);
            gathered.entries += 1;
            if gathered.bytes.len() >= FULL {
                payloads.extend(gathered.seal(thread));
            }
        }
        gathered.until = until.max(gathered.until);
        payloads
    }

    /// Returns the chunks to write before the file is flushed: new entries at once, and now and
    /// then that there are none.
    pub(crate) fn flush(&mut self) -> Vec<Payload> {
        let due = |(thread, gathered): (&ThreadId, &mut Gathered)| {
            gathered.age += 1;
            let is_due = gathered.entries > 0 || gathered.age >= OLD;
            is_due.then(|| gathered.seal(*thread)).flatten()
        };
        self.threads.iter_mut().filter_map(due).collect()
    }

    /// Returns the last chunk of a thread that has ended.
    pub(crate) fn end(&mut self, thread: ThreadId) -> Option<Payload> {
        self.threads.remove(&thread).and_then(|mut gathered| gathered.seal(thread))
    }

    /// Returns the last chunks of all threads.
    pub(crate) fn finish(&mut self) -> Vec<Payload> {
        let all = std::mem::take(&mut self.threads).into_iter();
        all.filter_map(|(thread, mut gathered)| gathered.seal(thread)).collect()
    }
}

impl Gathered {
    /// Makes a chunk of the gathered entries; the next chunk begins where it ends.
    fn seal(&mut self, thread: ThreadId) -> Option<Payload> {
        if self.until == self.low && self.entries == 0 {
            return None;
        }
        let span = Span { events: self.entries, low: self.low, high: self.until, max_site: 0 };
        let bytes = std::mem::take(&mut self.bytes);
        (self.low, self.last, self.entries, self.age) = (self.until, self.until, 0, 0);
        Some(Payload { thread, span, bytes })
    }
}

/// Adds a chunk to a log; its times are nanoseconds. A damaged chunk adds nothing.
pub(crate) fn add_chunk<T: Entry>(log: &mut KernelLog<T>, span: &Span, bytes: &[u8]) -> Result<(), Damage> {
    let start = log.entries.len();
    let read = read_chunk(log, span, bytes);
    if read.is_err() {
        log.entries.truncate(start);
        return read;
    }
    match log.known.last_mut() {
        Some((_, until)) if *until >= span.low => *until = span.high.max(*until),
        _ => log.known.push((span.low, span.high)),
    }
    Ok(())
}

/// Adds the entries of a chunk to a log, up to the damage if there is any.
fn read_chunk<T: Entry>(log: &mut KernelLog<T>, span: &Span, bytes: &[u8]) -> Result<(), Damage> {
    let (mut cursor, mut at) = (Cursor(bytes), span.low);
    if log.known.last().is_some_and(|(_, until)| *until > span.low) {
        return Err(Damage("chunks of the kernel's entries overlap"));
    }
    for _ in 0..span.events {
        let later = cursor.varint()?;
        at = at
            .checked_add(later)
            .filter(|at| *at <= span.high)
            .ok_or(Damage("a record lies behind the end of its chunk"))?;
        log.entries.push(T::get(at, &mut cursor)?);
    }
    Ok(())
}

/// Converts all times of a log.
pub(crate) fn convert<T: Entry>(mut log: KernelLog<T>, convert: impl Fn(u64) -> u64) -> KernelLog<T> {
    log.entries.iter_mut().for_each(|entry| entry.set_at(convert(entry.at())));
    log.known.iter_mut().for_each(|(from, to)| (*from, *to) = (convert(*from), convert(*to)));
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::{Incident, IncidentKind};
    use crate::wakings::{Edge, SystemCall, Waking};
    use std::fmt::Debug;

    fn waking(at: u64, tid: u32) -> Waking {
        Waking { at, interrupt: tid.is_multiple_of(2), pid: 7, tid, comm: "waker".to_owned() }
    }

    fn join(payloads: &[Payload]) -> KernelLog<Waking> {
        let mut log = KernelLog::default();
        payloads.iter().for_each(|payload| add_chunk(&mut log, &payload.span, &payload.bytes).unwrap());
        log
    }

    #[test]
    fn gathered_records_are_read_with_gaps() {
        let (mut gatherer, thread) = (Gatherer::new(Kind::Wakings), ThreadId(2));
        let mut payloads = gatherer.add(thread, 100, &[waking(110, 1), waking(120, 2)], 150);
        payloads.extend(gatherer.add(thread, 150, &[waking(160, 3)], 170));
        assert!(payloads.is_empty(), "they wait for more");
        payloads.extend(gatherer.add(thread, 300, &[waking(310, 4)], 400));
        payloads.extend(gatherer.finish());
        let log = join(&payloads);
        assert_eq!(log.entries, [waking(110, 1), waking(120, 2), waking(160, 3), waking(310, 4)]);
        assert_eq!(log.known, [(100, 170), (300, 400)]);
        assert!(log.knows(100, 170) && log.knows(350, 400) && !log.knows(160, 310) && !log.knows(99, 120));
    }

    #[test]
    fn chunks_without_a_gap_are_one_stretch() {
        let (mut gatherer, thread) = (Gatherer::new(Kind::Wakings), ThreadId(0));
        let mut payloads = gatherer.add::<Waking>(thread, 10, &[], 20);
        (0..OLD).for_each(|_| payloads.extend(gatherer.flush()));
        payloads.extend(gatherer.add(thread, 20, &[waking(25, 1)], 30));
        payloads.extend(gatherer.end(thread));
        assert_eq!((payloads.len(), join(&payloads).known), (2, vec![(10, 30)]));
    }

    /// Checks that entries from 1 to 10 are read as they were written, and that no part of their
    /// chunk is.
    #[track_caller]
    fn check_kept<E: Entry + Clone + PartialEq + Debug>(kind: Kind, entries: &[E]) {
        let mut gatherer = Gatherer::new(kind);
        gatherer.add(ThreadId(0), 1, entries, 10);
        let payload = gatherer.end(ThreadId(0)).unwrap();
        let mut log = KernelLog::<E>::default();
        add_chunk(&mut log, &payload.span, &payload.bytes).unwrap();
        assert_eq!(log.entries, entries);
        for cut in 0..payload.bytes.len() {
            let mut log = KernelLog::<E>::default();
            assert!(add_chunk(&mut log, &payload.span, &payload.bytes[..cut]).is_err());
            assert_eq!(log, KernelLog::default(), "half a chunk is not shown as if it were whole");
        }
    }

    #[test]
    fn system_calls_round_trip() {
        let calls = [
            SystemCall { at: 5, number: 202, edge: Edge::Enter([u64::MAX, 1, 2, 3, 1 << 47, 0]) },
            SystemCall { at: 9, number: 202, edge: Edge::Exit(-110) },
        ];
        check_kept(Kind::SystemCalls, &calls);
    }

    #[test]
    fn stays_round_trip() {
        check_kept(
            Kind::GoroutineRuns,
            &[3, 8].map(|at| GoroutineRun { at, on: ThreadId(at as u32 * 1000) }),
        );
    }

    #[test]
    fn incidents_round_trip() {
        let kinds = [
            IncidentKind::PageFault { address: u64::MAX, major: false },
            IncidentKind::PageFault { address: 0, major: true },
            IncidentKind::Signal { number: 64 },
            IncidentKind::Migration { from: 3, to: 4095 },
        ];
        let incidents: Vec<Incident> = (5..).zip(kinds).map(|(at, what)| Incident { at, what }).collect();
        check_kept(Kind::Incidents, &incidents);
    }
}
