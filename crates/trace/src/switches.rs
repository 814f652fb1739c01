//! The context switches of threads, as they are gathered, written and read.
//!
//! A chunk of switches has the states of its thread from the chunk's lowest to its highest time
//! only: between two chunks, and behind the last one, the state is not known.

use crate::chunk::Kind;
use crate::codec::Damage;
use crate::codec::sealed::Span;
use crate::codec::streams::{Cursor, put_varint};
use crate::meta::ThreadId;
use std::collections::BTreeMap;

/// The state of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RunState {
    /// Running on a processor.
    Running = 0,
    /// Preempted, or has yielded: the thread is ready to run and has no processor.
    Runnable = 1,
    /// Asleep: in a system call, or for a page. This includes the wait for a processor after it
    /// was woken, as context switches do not tell when that was.
    Blocked = 2,
    /// The state was not recorded.
    Unknown = 3,
    /// calltap has stopped it, or it waits for calltap: the program itself would not have waited.
    Tracing = 4,
}

impl RunState {
    /// All states, by number.
    pub const ALL: [RunState; 5] =
        [Self::Running, Self::Runnable, Self::Blocked, Self::Unknown, Self::Tracing];

    /// Returns the name in JSON and in views.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Runnable => "runnable",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
            Self::Tracing => "tracing",
        }
    }
}

/// A change of a thread's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Time: nanoseconds of CLOCK_MONOTONIC where switches are written, ticks of the trace's clock
    /// where they are read.
    pub at: u64,
    /// State from then on.
    pub to: RunState,
}

/// Switches of a thread that are not in a chunk yet.
#[derive(Clone)]
struct Gathered {
    /// Time from which the states are known, in nanoseconds.
    low: u64,
    /// State at that time.
    first: RunState,
    /// Switches since.
    switches: Vec<Switch>,
    /// Time until which the states are known.
    until: u64,
    /// Number of flushes since the last chunk.
    age: u32,
}

/// Bits of a state in a chunk of [`Kind::States`].
const BITS: u32 = 3;
/// Bits of a state in a chunk of [`Kind::Switches`].
const FORMER_BITS: u32 = 2;
/// The kinds of chunks that have switches.
pub(crate) const KINDS: [Kind; 2] = [Kind::Switches, Kind::States];

/// Number of a thread's switches from which a chunk is made.
const CHUNK_SWITCHES: usize = 4096;
/// Number of flushes after which it is written that a thread still sleeps, as a recorder that is
/// killed loses what is not written.
const OLD: u32 = 8;

/// A chunk of switches, or of another kind of the kernel's entries, that is ready to be compressed.
pub(crate) struct Payload {
    pub(crate) thread: ThreadId,
    pub(crate) span: Span,
    pub(crate) bytes: Vec<u8>,
}

/// Gathers the switches of all threads into chunks.
#[derive(Clone, Default)]
pub(crate) struct Gathering(BTreeMap<ThreadId, Gathered>);

impl Gathering {
    /// Adds the switches of `thread` until `until`, which are all. Returns a chunk if one is full.
    pub(crate) fn add(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Option<Payload> {
        let mut switches = switches.iter();
        let gathered = match self.0.entry(thread) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                // The state before the first switch is not known.
                let first = switches.next()?;
                let (low, first) = (first.at, first.to);
                entry.insert(Gathered { low, first, switches: Vec::new(), until: low, age: 0 })
            }
        };
        gathered.switches.extend(switches);
        gathered.until = until.max(gathered.until);
        (gathered.switches.len() >= CHUNK_SWITCHES).then(|| gathered.seal(thread))
    }

    /// Returns the chunks to write before the file is flushed: new switches, and that a thread
    /// runs, at once; that it sleeps, now and then.
    pub(crate) fn flush(&mut self) -> Vec<Payload> {
        let due = |(thread, gathered): (&ThreadId, &mut Gathered)| {
            gathered.age += 1;
            let is_new = !gathered.switches.is_empty() || gathered.first == RunState::Running;
            ((is_new || gathered.age >= OLD) && gathered.has_news()).then(|| gathered.seal(*thread))
        };
        self.0.iter_mut().filter_map(due).collect()
    }

    /// Returns the last chunk of a thread that has ended.
    pub(crate) fn end(&mut self, thread: ThreadId) -> Option<Payload> {
        let mut gathered = self.0.remove(&thread)?;
        gathered.has_news().then(|| gathered.seal(thread))
    }

    /// Returns the last chunks of all threads.
    pub(crate) fn finish(&mut self) -> Vec<Payload> {
        let all = std::mem::take(&mut self.0).into_iter();
        all.filter_map(|(thread, mut rest)| rest.has_news().then(|| rest.seal(thread))).collect()
    }
}

impl Gathered {
    /// Whether there is a known state that is not in a chunk.
    fn has_news(&self) -> bool {
        self.until > self.low && (self.first != RunState::Unknown || !self.switches.is_empty())
    }

    /// Makes a chunk of the gathered switches; the next chunk begins where it ends.
    fn seal(&mut self, thread: ThreadId) -> Payload {
        let mut bytes = Vec::new();
        let mut before = self.low;
        for Switch { at, to } in
            std::iter::once(&Switch { at: self.low, to: self.first }).chain(&self.switches)
        {
            let at = (*at).max(before);
            put_varint(&mut bytes, (at - before) << BITS | *to as u64);
            before = at;
        }
        let until = self.until.max(before);
        let events = self.switches.len() as u32 + 1;
        let span = Span { events, low: self.low, high: until, max_site: 0 };
        self.first = self.switches.last().map_or(self.first, |switch| switch.to);
        self.switches.clear();
        (self.low, self.age) = (until, 0);
        Payload { thread, span, bytes }
    }
}

/// Joins the chunks of one thread, oldest first.
#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) switches: Vec<Switch>,
    until: Option<u64>,
}

impl Joined {
    /// Adds a chunk; its times are nanoseconds.
    pub(crate) fn add(&mut self, kind: Kind, span: &Span, bytes: &[u8]) -> Result<(), Damage> {
        let bits = if kind == Kind::Switches { FORMER_BITS } else { BITS };
        if self.until != Some(span.low) {
            self.end();
        }
        let start = self.switches.len();
        let (mut cursor, mut at) = (Cursor(bytes), span.low);
        for _ in 0..span.events {
            let result = cursor.varint().and_then(|word| {
                at = at
                    .checked_add(word >> bits)
                    .filter(|at| *at <= span.high)
                    .ok_or(Damage("a switch lies behind the end of its chunk"))?;
                let state = RunState::ALL.get((word & ((1 << bits) - 1)) as usize);
                state.copied().ok_or(Damage("unknown state of a thread"))
            });
            match result {
                Ok(to) => self.push(Switch { at, to }),
                Err(damage) => {
                    // An incomplete chunk is not shown as if it were whole.
                    self.switches.truncate(start);
                    self.end();
                    return Err(damage);
                }
            }
        }
        self.until = Some(span.high);
        Ok(())
    }

    /// Makes the state behind the last chunk unknown.
    pub(crate) fn end(&mut self) {
        if let Some(until) = self.until.take() {
            self.push(Switch { at: until, to: RunState::Unknown });
        }
    }

    /// Adds a switch; times never go backwards, whatever the file contains.
    fn push(&mut self, switch: Switch) {
        let last = self.switches.last();
        if last.is_none_or(|last| last.to != switch.to) {
            let at = switch.at.max(last.map_or(0, |last| last.at));
            self.switches.push(Switch { at, ..switch });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RunState::*;
    use super::*;

    fn switch(at: u64, to: RunState) -> Switch {
        Switch { at, to }
    }

    fn join(payloads: &[Payload]) -> Vec<Switch> {
        let mut joined = Joined::default();
        payloads.iter().for_each(|payload| joined.add(Kind::States, &payload.span, &payload.bytes).unwrap());
        joined.end();
        joined.switches
    }

    #[test]
    fn gathered_switches_are_read_and_other_time_is_unknown() {
        let (mut gathering, thread) = (Gathering::default(), ThreadId(2));
        assert!(gathering.add(thread, &[], 50).is_none());
        assert!(gathering.add(thread, &[switch(100, Running), switch(150, Blocked)], 170).is_none());
        let mut payloads = vec![gathering.0.get_mut(&thread).unwrap().seal(thread)];
        gathering.add(thread, &[switch(200, Running)], 1000);
        payloads.extend(gathering.finish());
        let all = [switch(100, Running), switch(150, Blocked), switch(200, Running), switch(1000, Unknown)];
        assert_eq!(join(&payloads), all);
        // Without the first chunk, the second tells how it begins.
        assert_eq!(join(&payloads[1..]), [switch(170, Blocked), all[2], all[3]]);
    }

    #[test]
    fn first_switch_format_is_read() {
        let span = Span { events: 3, low: 100, high: 200, max_site: 0 };
        let mut joined = Joined::default();
        joined.add(Kind::Switches, &span, &[0, 20 << 2 | 2, 10 << 2 | 1]).unwrap();
        joined.end();
        let all = [switch(100, Running), switch(120, Blocked), switch(130, Runnable), switch(200, Unknown)];
        assert_eq!(joined.switches, all);
    }

    #[test]
    fn a_missing_chunk_leaves_its_time_unknown() {
        let (mut gathering, thread) = (Gathering::default(), ThreadId(0));
        let mut payloads = Vec::new();
        for at in [10, 20, 30] {
            gathering.add(thread, &[switch(at, Running), switch(at + 5, Runnable)], at + 9);
            payloads.push(gathering.0.get_mut(&thread).unwrap().seal(thread));
        }
        payloads.remove(1);
        let all = [switch(10, Running), switch(15, Runnable), switch(19, Unknown), switch(29, Runnable)];
        assert_eq!(join(&payloads)[..4], all);
    }

    #[test]
    fn damage_leaves_the_chunk_unknown() {
        let (mut gathering, thread) = (Gathering::default(), ThreadId(0));
        gathering.add(thread, &[switch(10, Running), switch(15, Blocked), switch(18, Running)], 20);
        let good = gathering.end(thread).unwrap();
        let mut joined = Joined::default();
        let cut = &good.bytes[..2];
        assert!(joined.add(Kind::States, &good.span, cut).is_err());
        assert!(joined.add(Kind::States, &good.span, &[0xff; 12]).is_err());
        assert!(joined.add(Kind::States, &good.span, &[5, 5, 5]).is_err(), "there is no state 5");
        joined.end();
        assert_eq!(joined.switches, []);
    }

    #[test]
    fn a_chunk_is_made_of_new_switches_or_of_time() {
        let (mut gathering, thread) = (Gathering::default(), ThreadId(0));
        let many: Vec<Switch> = (0..5000).map(|at| switch(at, RunState::ALL[at as usize % 3])).collect();
        assert_eq!(gathering.add(thread, &many, 5000).unwrap().span.events, 5000);
        gathering.add(thread, &[switch(5001, Blocked)], 6000);
        assert_eq!(gathering.flush().len(), 1, "a recorder that is killed has written it");
        gathering.add(thread, &[], 7000);
        assert!((1..OLD).all(|_| gathering.flush().is_empty()));
        assert_eq!(gathering.flush().len(), 1);
        assert!((0..3 * OLD).all(|_| gathering.flush().is_empty()), "no news");
        gathering.add(thread, &[switch(7001, Running)], 8000);
        assert_eq!(gathering.flush().len(), 1);
        gathering.add(thread, &[], 9000);
        assert_eq!(gathering.flush().len(), 1, "it has run on");
        assert!(gathering.finish().is_empty());
    }
}
