//! Hands wakings, system calls and incidents of the session's threads from the kernel to the
//! consumer.

use crate::output::Output;
use crate::shm::Shared;
use crate::waits::addresses::Addresses;
use crate::waits::thread_ids::ThreadIds;
use crate::waits::waker_ids::WakerIds;
use calltap_sched::{Change, Incidents, Names, Refused, Stream, ThreadEvent, ThreadEventKind, Timed};
use calltap_trace::{Edge, Incident, IncidentKind, KernelEvents, SystemCall, ThreadId, Waking};
use std::collections::{HashMap, VecDeque};

/// Maximum number of entries that are kept of threads that have recorded nothing yet, all together.
const UNCLAIMED: usize = 1 << 16;
/// Number of a thread's entries from which they are handed over at once.
const WAITING: usize = 1 << 16;

/// The tracepoints that are read, or why they are not.
#[derive(Default)]
pub struct Tracepoints {
    /// Wakings of threads; `None`: not requested.
    pub wakings: Option<Result<calltap_sched::Wakings, Refused>>,
    /// System calls; `None`: not requested.
    pub system_calls: Option<Result<Stream<SystemCall>, Refused>>,
    /// Page faults, signals and moves between processors; `None`: not requested.
    pub incidents: Option<Result<Incidents, Refused>>,
}

/// A stretch of time with all of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece<T> {
    from: u64,
    entries: Vec<T>,
    until: u64,
}

/// The entries of one of the session's threads that were not handed over.
#[derive(PartialEq, Eq, Debug)]
struct PendingRecords<T> {
    /// Pieces that a loss has ended.
    over: Vec<Piece<T>>,
    from: u64,
    entries: Vec<T>,
    /// Number of entries that were looked at.
    seen: usize,
}

impl<T> PendingRecords<T> {
    /// Ends the present piece at a loss, and begins the next behind it.
    fn lose(&mut self, from: u64, to: u64) {
        let entries = std::mem::take(&mut self.entries);
        self.seen = 0;
        let until = from.max(self.from);
        self.over.push(Piece { from: self.from, entries, until });
        self.from = to.max(until);
    }

    /// Removes and returns all pieces up to `at`, and keeps the later entries.
    fn split(&mut self, at: u64) -> Vec<Piece<T>>
    where
        T: Timed,
    {
        let later = self.entries.split_off(self.entries.partition_point(|entry| entry.at() <= at));
        let pieces = self.take(at);
        (self.entries, self.seen) = (later, 0);
        pieces
    }

    /// Removes and returns all pieces up to `until`.
    fn take(&mut self, until: u64) -> Vec<Piece<T>> {
        let mut pieces = std::mem::take(&mut self.over);
        if until > self.from {
            let entries = std::mem::take(&mut self.entries);
            self.seen = 0;
            pieces.push(Piece { from: self.from, entries, until });
            self.from = until;
        }
        pieces
    }
}

/// The entries of one stream, by thread.
struct Lanes<T> {
    stream: Stream<T>,
    lanes: HashMap<u32, PendingRecords<T>>,
    /// Entries of threads that have recorded nothing yet, with their thread ids.
    unclaimed: VecDeque<(u32, T)>,
    /// Time from which `unclaimed` is complete.
    unclaimed_since: u64,
    /// Time until which the stream was read.
    until: u64,
}

impl<T: Timed + Clone> Lanes<T> {
    fn new(stream: Stream<T>) -> Lanes<T> {
        let since = stream.since();
        Lanes {
            stream,
            lanes: HashMap::new(),
            unclaimed: VecDeque::new(),
            unclaimed_since: since,
            until: since,
        }
    }

    /// Notes that the thread is the session's.
    fn claim(&mut self, tid: u32) {
        // A program that a process executes keeps its thread's id, and continues with its entries.
        self.lanes.entry(tid).or_insert_with(|| {
            let own = self.unclaimed.iter().filter(|(of, _)| *of == tid).map(|(_, entry)| entry.clone());
            PendingRecords { over: Vec::new(), from: self.unclaimed_since, entries: own.collect(), seen: 0 }
        });
    }

    fn read(&mut self) {
        let Self { stream, lanes, unclaimed, unclaimed_since, until } = self;
        *until = stream.read(&mut |change| Self::change(lanes, unclaimed, unclaimed_since, change));
    }

    fn change(
        lanes: &mut HashMap<u32, PendingRecords<T>>,
        unclaimed: &mut VecDeque<(u32, T)>,
        since: &mut u64,
        change: Change<T>,
    ) {
        match change {
            Change::Of(tid, entry) => match lanes.get_mut(&tid) {
                Some(lane) => lane.entries.push(entry),
                None => {
                    if unclaimed.len() >= UNCLAIMED
                        && let Some((_, oldest)) = unclaimed.pop_front()
                    {
                        *since = oldest.at().saturating_add(1).max(*since);
                    }
                    unclaimed.push_back((tid, entry));
                }
            },
            Change::Lost { from, to } => {
                unclaimed.clear();
                *since = to.max(*since);
                lanes.values_mut().for_each(|lane| lane.lose(from, to));
            }
            Change::LostOf { tid, from, to } => {
                lanes.get_mut(&tid).into_iter().for_each(|lane| lane.lose(from, to));
            }
        }
    }

    fn is_full(&self) -> bool {
        self.lanes.values().any(|lane| lane.entries.len() >= WAITING)
    }

    /// Returns the entries of a thread up to `at`, after which they are another program's; the last
    /// ones of a thread that has ended if `at` is `None`.
    fn take(&mut self, tid: u32, at: Option<u64>) -> Vec<Piece<T>> {
        match at {
            Some(at) => self.lanes.get_mut(&tid).map(|lane| lane.split(at)).unwrap_or_default(),
            None => self.end(tid),
        }
    }

    /// Returns the last entries of a thread that has ended.
    fn end(&mut self, tid: u32) -> Vec<Piece<T>> {
        let Self { stream, lanes, unclaimed, unclaimed_since, .. } = self;
        stream.rest_of(tid, &mut |change| Self::change(lanes, unclaimed, unclaimed_since, change));
        let last = |lane: &PendingRecords<T>| lane.entries.last().map_or(0, Timed::at);
        let lane = lanes.remove(&tid);
        lane.map(|mut lane| lane.take(last(&lane).max(self.until))).unwrap_or_default()
    }
}

/// The processor on which each thread was last seen, by thread id.
#[derive(Default)]
struct Places(HashMap<u32, u32>);

/// Maximum number of threads in `Places`. Beyond them all are forgotten, and so is the next move of
/// each.
const PLACES: usize = 1 << 16;

impl Places {
    /// Converts an entry to an incident of the trace; a thread that appears on the same processor
    /// again makes none.
    fn see(&mut self, tid: u32, ThreadEvent { at, cpu: to, kind }: ThreadEvent) -> Option<Incident> {
        if self.0.len() >= PLACES && !self.0.contains_key(&tid) {
            self.0.clear();
        }
        let before = self.0.insert(tid, to);
        let what = match kind {
            ThreadEventKind::PageFault { address, major } => IncidentKind::PageFault { address, major },
            ThreadEventKind::Signal { number } => IncidentKind::Signal { number },
            ThreadEventKind::SwitchedIn => {
                let from = before.filter(|from| *from != to)?;
                IncidentKind::Migration { from, to }
            }
        };
        Some(Incident { at, what })
    }
}

/// Takes the tracepoints' entries of all threads, and hands those of the session's threads to the
/// consumer.
pub(crate) struct Kernel {
    wakings: Option<Lanes<Waking>>,
    calls: Option<Lanes<SystemCall>>,
    incidents: Option<Lanes<ThreadEvent>>,
    /// Whether `incidents` includes signals.
    has_signals: bool,
    places: Places,
    /// Threads of the session, and the index of the process of each.
    ids: ThreadIds<u32>,
    wakers: WakerIds,
    refused: Vec<String>,
    /// Names of the processes that have woken a thread.
    names: Names,
    addresses: Addresses,
}

impl Kernel {
    /// Opens the streams; returns `None` if none were requested.
    pub(crate) fn new(tracepoints: Tracepoints, shared: &Shared) -> Option<Kernel> {
        let Tracepoints { wakings, system_calls, incidents } = tracepoints;
        if wakings.is_none() && system_calls.is_none() && incidents.is_none() {
            return None;
        }
        let mut refused = Vec::new();
        let mut note = |error: Refused| refused.push(error.to_string());
        let wakings = wakings.and_then(|opened| opened.map_err(&mut note).ok());
        let names = wakings.as_ref().map(|wakings| wakings.names.clone()).unwrap_or_default();
        let wakings = wakings.map(|wakings| Lanes::new(wakings.stream));
        let calls = system_calls.and_then(|opened| opened.map_err(&mut note).ok()).map(Lanes::new);
        let incidents = incidents.and_then(|opened| opened.map_err(&mut note).ok());
        let has_signals = incidents.as_ref().is_some_and(|incidents| incidents.signals.is_none());
        let incidents = incidents.map(|Incidents { stream, signals }| {
            signals.into_iter().for_each(&mut note);
            Lanes::new(stream)
        });
        let addresses = Addresses::new(shared.inode());
        let (ids, places, wakers) = (ThreadIds::default(), Places::default(), WakerIds::default());
        Some(Kernel {
            wakings,
            calls,
            incidents,
            has_signals,
            places,
            ids,
            wakers,
            refused,
            names,
            addresses,
        })
    }

    /// Notes that a thread of a process (its index, and its id) has recorded events; the recorder
    /// knows the thread as `tid`. `own`: the ids of process and thread in
    /// the process's own namespace.
    pub(crate) fn claim(&mut self, thread: ThreadId, tid: u32, process: (u32, u32), own: (u32, u32)) {
        self.wakers.know((process.1, tid), own);
        self.ids.claim(thread, tid, process.0);
        self.addresses.know(process.0, process.1);
        self.wakings.iter_mut().for_each(|lanes| lanes.claim(tid));
        self.calls.iter_mut().for_each(|lanes| lanes.claim(tid));
        self.incidents.iter_mut().for_each(|lanes| lanes.claim(tid));
    }

    /// Whether a thread with this id has recorded events.
    pub(crate) fn has_claimed(&self, tid: u32) -> bool {
        self.ids.owner(tid).is_some()
    }

    /// Notes that the memory of the thread with this id is gone: new addresses get no description.
    pub(crate) fn forget_memory(&mut self, tid: u32) {
        let gone = self.ids.owner(tid).and_then(|thread| self.ids.get(thread));
        gone.into_iter().for_each(|(_, process)| self.addresses.forget(process));
    }

    /// Hands over the entries of the thread with this id up to `at`, at which it has executed
    /// another program.
    pub(crate) fn replace(&mut self, tid: u32, at: u64, output: &mut Output<'_>) {
        if let Some(thread) = self.ids.owner(tid) {
            self.hand_over_thread(thread, Some(at), output);
        }
    }

    /// Whether one of the kernel's rings is to be read soon.
    pub(crate) fn is_filling(&self) -> bool {
        self.wakings.as_ref().is_some_and(|lanes| lanes.stream.is_filling())
            || self.calls.as_ref().is_some_and(|lanes| lanes.stream.is_filling())
            || self.incidents.as_ref().is_some_and(|lanes| lanes.stream.is_filling())
    }

    /// Reads the kernel's rings.
    pub(crate) fn read(&mut self, output: &mut Output<'_>) {
        self.wakings.iter_mut().for_each(Lanes::read);
        self.calls.iter_mut().for_each(Lanes::read);
        self.incidents.iter_mut().for_each(Lanes::read);
        // The mapping at an address can be read only while the process lives.
        if let Some(lanes) = &mut self.calls {
            for (_, tid, process) in self.ids.iter() {
                let Some(lane) = lanes.lanes.get_mut(&tid) else { continue };
                let new = lane.entries[lane.seen..].iter().filter_map(futex);
                new.for_each(|address| self.addresses.see(process, address));
                lane.seen = lane.entries.len();
            }
        }
        self.addresses.tell(output);
        if self.wakings.as_ref().is_some_and(Lanes::is_full)
            || self.calls.as_ref().is_some_and(Lanes::is_full)
            || self.incidents.as_ref().is_some_and(Lanes::is_full)
        {
            self.hand_over(output);
        }
    }

    /// Records the members of objects at which threads waited.
    pub(crate) fn tell_members(&mut self, output: &mut Output<'_>) {
        self.addresses.tell_members(output);
    }

    /// Hands over the complete entries.
    pub(crate) fn hand_over(&mut self, output: &mut Output<'_>) {
        let Self { wakings, calls, incidents, places, ids, wakers, names, .. } = self;
        for (thread, tid, _) in ids.iter() {
            if let Some(lanes) = wakings {
                let pieces = lanes.lanes.get_mut(&tid).map(|lane| lane.take(lanes.until));
                give_wakings(thread, pieces.unwrap_or_default(), (names, wakers), output);
            }
            if let Some(lanes) = calls {
                let pieces = lanes.lanes.get_mut(&tid).map(|lane| lane.take(lanes.until));
                give_calls(thread, &pieces.unwrap_or_default(), output);
            }
            if let Some(lanes) = incidents {
                let pieces = lanes.lanes.get_mut(&tid).map(|lane| lane.take(lanes.until));
                give_incidents(thread, tid, pieces.unwrap_or_default(), places, output);
            }
        }
        // Processes that ended before may have woken threads until then.
        if let Some(wakings) = wakings {
            names.forget_before(wakings.until);
        }
    }

    /// Hands over the last entries of a thread that has ended.
    pub(crate) fn end(&mut self, thread: ThreadId, output: &mut Output<'_>) {
        if let Some(tid) = self.hand_over_thread(thread, None, output) {
            self.places.0.remove(&tid);
        }
    }

    /// Hands over the entries of a thread, as [`Lanes::take`] says, and forgets it. Returns its id.
    fn hand_over_thread(
        &mut self,
        thread: ThreadId,
        at: Option<u64>,
        output: &mut Output<'_>,
    ) -> Option<u32> {
        let (tid, _) = self.ids.remove(thread)?;
        if let Some(lanes) = &mut self.wakings {
            give_wakings(thread, lanes.take(tid, at), (&self.names, &self.wakers), output);
        }
        if let Some(lanes) = &mut self.calls {
            give_calls(thread, &lanes.take(tid, at), output);
        }
        if let Some(lanes) = &mut self.incidents {
            let pieces = lanes.take(tid, at);
            give_incidents(thread, tid, pieces, &mut self.places, output);
        }
        Some(tid)
    }

    /// Returns the record of which streams were read, and how many entries were lost.
    pub(crate) fn outcome(&self) -> KernelEvents {
        let lost = self.wakings.as_ref().map_or(0, |lanes| lanes.stream.lost())
            + self.calls.as_ref().map_or(0, |lanes| lanes.stream.lost())
            + self.incidents.as_ref().map_or(0, |lanes| lanes.stream.lost());
        KernelEvents {
            wakings: self.wakings.is_some(),
            system_calls: self.calls.is_some(),
            incidents: self.incidents.is_some(),
            signals: self.has_signals,
            refused: self.refused.clone(),
            lost,
            recorder: std::process::id(),
            other_recorders: Vec::new(),
            calls_in_events: Vec::new(),
        }
    }
}

fn give_wakings(
    thread: ThreadId,
    pieces: Vec<Piece<Waking>>,
    (names, wakers): (&Names, &WakerIds),
    output: &mut Output<'_>,
) {
    for Piece { from, mut entries, until } in pieces {
        for waking in entries.iter_mut().filter(|waking| !waking.interrupt) {
            waking.comm = names.of(waking.pid, waking.at);
            wakers.translate(waking);
        }
        output.wakings(thread, from, &entries, until);
    }
}

fn give_calls(thread: ThreadId, pieces: &[Piece<SystemCall>], output: &mut Output<'_>) {
    for Piece { from, entries, until } in pieces {
        output.system_calls(thread, *from, entries, *until);
    }
}

fn give_incidents(
    thread: ThreadId,
    tid: u32,
    pieces: Vec<Piece<ThreadEvent>>,
    places: &mut Places,
    output: &mut Output<'_>,
) {
    for (number, Piece { from, entries, until }) in pieces.into_iter().enumerate() {
        if number > 0 {
            // The thread may have moved during the loss.
            places.0.remove(&tid);
        }
        let incidents: Vec<Incident> =
            entries.into_iter().filter_map(|happened| places.see(tid, happened)).collect();
        output.incidents(thread, from, &incidents, until);
    }
}

/// System calls whose first argument is the address of a futex: `futex`, `futex_wake` and
/// `futex_wait`.
const FUTEX_CALLS: [i64; 3] = [libc::SYS_futex, 454, 455];

/// Returns the address at which a system call waits, or wakes others, if it is a futex call.
fn futex(call: &SystemCall) -> Option<u64> {
    match call.edge {
        Edge::Enter(arguments) if FUTEX_CALLS.contains(&call.number.into()) => Some(arguments[0]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waking(at: u64) -> Waking {
        Waking { at, interrupt: false, pid: 1, tid: 1, comm: String::new() }
    }

    #[test]
    fn a_thread_that_comes_to_another_processor_has_moved() {
        let mut places = Places::default();
        let mut come =
            |tid, at, cpu| places.see(tid, ThreadEvent { at, cpu, kind: ThreadEventKind::SwitchedIn });
        let moved = |at, from, to| Some(Incident { at, what: IncidentKind::Migration { from, to } });
        let moves = [come(7, 1, 0), come(8, 2, 1), come(7, 3, 0), come(7, 4, 1), come(7, 5, 0)];
        assert_eq!(moves, [None, None, None, moved(4, 0, 1), moved(5, 1, 0)]);
    }

    #[test]
    fn loss_ends_known_states_and_reading_continues() {
        let mut lane = PendingRecords { over: Vec::new(), from: 10, entries: vec![waking(12)], seen: 0 };
        lane.lose(20, 30);
        lane.entries.push(waking(35));
        let pieces = lane.take(40);
        let expected = [
            Piece { from: 10, entries: vec![waking(12)], until: 20 },
            Piece { from: 30, entries: vec![waking(35)], until: 40 },
        ];
        assert_eq!(pieces, expected);
        assert_eq!(lane.take(40), []);
        assert_eq!(lane.take(50), [Piece { from: 40, entries: vec![], until: 50 }]);
    }

    #[test]
    fn execve_divides_entries_of_thread() {
        let entries = vec![waking(12), waking(20), waking(25)];
        let mut lane = PendingRecords { over: Vec::new(), from: 10, entries, seen: 2 };
        let before = Piece { from: 10, entries: vec![waking(12), waking(20)], until: 20 };
        assert_eq!(lane.split(20), [before]);
        assert_eq!(lane.take(40), [Piece { from: 20, entries: vec![waking(25)], until: 40 }]);
    }

    #[test]
    fn entries_of_threads_that_record_nothing_take_bounded_memory() {
        let (mut lanes, mut unclaimed, mut since) = (HashMap::new(), VecDeque::new(), 5);
        for at in 0..2 * UNCLAIMED as u64 {
            Lanes::change(&mut lanes, &mut unclaimed, &mut since, Change::Of(1, waking(at)));
        }
        // Forgotten entries do not count as known.
        assert_eq!((unclaimed.len(), since), (UNCLAIMED, UNCLAIMED as u64));
    }
}
