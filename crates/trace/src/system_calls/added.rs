//! Puts the system calls of a thread between the events of its chunks.

use super::arguments;
use super::calls::{Call, calls};
use super::{MODULE, names};
use crate::event::{Batch, Event, EventKind};
use crate::kernel_log::KernelLog;
use crate::meta::{Meta, Module, Site, SiteId, ThreadId};
use crate::wakings::SystemCall;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of system calls of threads that are kept in memory, besides those of the thread
/// that is read.
const KEPT: usize = 1 << 20;

/// The system calls that a reader adds to the events of a trace.
pub(crate) struct AddedCalls {
    sites: BTreeMap<u32, SiteId>,
    /// Names of the addresses of futexes, by process and address.
    places: HashMap<(u32, u64), String>,
    /// Process by thread.
    processes: Vec<u32>,
    /// Tick at which the recorder began to detach, by process.
    detaching: HashMap<u32, u64>,
    /// Threads that get none, see [`crate::KernelEvents::calls_in_events`].
    done: BTreeSet<ThreadId>,
    kept: Mutex<HashMap<ThreadId, Arc<[Call]>>>,
}

/// The times of a chunk whose system calls belong to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time of the last event before; `None` for the first chunk of a thread, whose calls before
    /// the first event are left out.
    pub(crate) after: Option<u64>,
    /// Time of the chunk's last event; `None` for the last chunk.
    pub(crate) until: Option<u64>,
    /// Time of the thread's last event.
    pub(crate) last: u64,
}

impl AddedCalls {
    /// Adds the system calls with these numbers to the functions of a trace. The threads of `done`
    /// get none.
    pub(crate) fn new(numbers: &BTreeSet<u32>, done: BTreeSet<ThreadId>, meta: &mut Meta) -> AddedCalls {
        let known = meta.modules.iter().position(|module| module.path == MODULE);
        let module = known.unwrap_or(meta.modules.len()) as u32;
        if known.is_none() {
            meta.modules.push(Module::without_file(module, 0, MODULE));
        }
        let own = meta.sites.iter().filter(|site| known.is_some() && site.module == module);
        let mut sites: BTreeMap<u32, SiteId> =
            own.filter_map(|site| Some((u32::try_from(site.address).ok()?, site.id))).collect();
        for number in numbers {
            if sites.contains_key(number) {
                continue;
            }
            let id = SiteId(meta.sites.len() as u32);
            let name = names::name(*number).map_or_else(|| number.to_string(), str::to_owned);
            meta.sites.push(Site {
                id,
                module,
                address: u64::from(*number),
                size: 0,
                name: format!("sys_{name}"),
                aliases: Vec::new(),
                kind: "system call".to_owned(),
                tracers: 0,
                captured: Some(arguments::captured(*number)),
            });
            sites.insert(*number, id);
        }
        // The last description of an address is the one that holds.
        let places = meta.addresses.iter().map(|address| ((address.process, address.address), address));
        let named = HashMap::<_, _>::from_iter(places).into_iter().filter_map(|(place, address)| {
            let name = address.name.clone().filter(|_| !address.recorder)?;
            Some((place, name))
        });
        AddedCalls {
            sites,
            places: named.collect(),
            processes: meta.threads.iter().map(|thread| thread.process).collect(),
            detaching: meta.detaching.iter().map(|detaching| (detaching.process, detaching.at)).collect(),
            done,
            kept: Mutex::default(),
        }
    }

    /// Adds a thread's calls to the events of one of its chunks, if they are not among them. `read`
    /// reads its log.
    pub(crate) fn add<E>(
        &self,
        batch: &mut Batch,
        bounds: Bounds,
        read: impl FnOnce() -> Result<KernelLog<SystemCall>, E>,
    ) -> Result<(), E> {
        if self.done.contains(&batch.thread) {
            return Ok(());
        }
        let process = self.processes.get(batch.thread.0 as usize).copied().unwrap_or(0);
        let all = self.of((batch.thread, process), bounds.last, read)?;
        let first = batch.events.first().map_or(0, |event| event.ticks);
        let start = match bounds.after {
            Some(after) => all.partition_point(|call| call.middle() <= after),
            None => all.partition_point(|call| call.middle() < first),
        };
        let is_later = |until: u64| all.partition_point(|call| call.middle() <= until);
        let end = bounds.until.map_or(all.len(), is_later).max(start);
        if start < end {
            let mut merge = Merge { added: self, process, out: Batch::default(), now: 0, open: 0 };
            merge.out.thread = batch.thread;
            merge.now = bounds.after.unwrap_or(0);
            merge.run(batch, &all[start..end]);
            *batch = merge.out;
        }
        Ok(())
    }

    /// Returns the system calls of a thread of a process. `last`: the time of its last event.
    fn of<E>(
        &self,
        (thread, process): (ThreadId, u32),
        last: u64,
        read: impl FnOnce() -> Result<KernelLog<SystemCall>, E>,
    ) -> Result<Arc<[Call]>, E> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = kept().get(&thread) {
            return Ok(Arc::clone(calls));
        }
        let mut calls = calls(&read()?);
        if let Some(detaching) = self.detaching.get(&process) {
            cut(&mut calls, last, *detaching);
        }
        let calls: Arc<[Call]> = calls.into();
        let mut kept = kept();
        if kept.values().map(|calls| calls.len()).sum::<usize>() > KEPT {
            kept.clear();
        }
        kept.insert(thread, Arc::clone(&calls));
        Ok(calls)
    }
}

/// Removes the calls that a thread made behind its last event when the recorder had begun to
/// detach: functions that were open may have returned, and others begun, without an event. A call
/// that the thread was in at that moment goes on.
fn cut(calls: &mut Vec<Call>, last: u64, detaching: u64) {
    let before = calls.partition_point(|call| call.middle() <= last);
    let begun = calls[before..].partition_point(|call| call.start <= detaching);
    calls.truncate(before + begun);
    for call in &mut calls[before..] {
        call.end = call.end.filter(|(end, _)| *end <= detaching);
    }
}

/// The events of a chunk and the calls between them, in order.
struct Merge<'a> {
    added: &'a AddedCalls,
    process: u32,
    out: Batch,
    now: u64,
    /// Number of calls whose end is unknown: they have ended before the next event.
    open: u32,
}

impl Merge<'_> {
    fn run(&mut self, batch: &Batch, calls: &[Call]) {
        let mut calls = calls.iter().peekable();
        let mut has_ended = false;
        for (at, event) in batch.events.iter().enumerate() {
            while let Some(call) = calls.next_if(|call| call.middle() <= event.ticks) {
                self.call(call, event.ticks);
            }
            self.end_open(event);
            self.event(*event, batch.values.of(at));
            has_ended |= event.kind == EventKind::ThreadEnded;
        }
        while let Some(call) = calls.next().filter(|_| !has_ended) {
            self.call(call, u64::MAX);
        }
    }

    fn event(&mut self, event: Event, values: &[u8]) {
        self.now = self.now.max(event.ticks);
        self.out.push(event, values);
    }

    /// Ends calls of unknown ends before an event.
    fn end_open(&mut self, event: &Event) {
        let pops = std::mem::take(&mut self.open);
        if pops > 0 && event.kind != EventKind::ThreadEnded {
            self.out.events.push(Event { kind: EventKind::Left { pops }, ..*event });
        }
    }

    /// Adds a call, which lies before an event at `limit`. The clocks' comparison has an error: no
    /// event of the program lies within a call.
    fn call(&mut self, call: &Call, limit: u64) {
        let Some(site) = self.added.sites.get(&call.number).copied() else { return };
        let start = call.start.max(self.now).min(limit);
        let entry = Event { ticks: start, site, kind: EventKind::Entry };
        self.end_open(&entry);
        let place = |address: u64| self.added.places.get(&(self.process, address)).cloned();
        let mut bytes = Vec::new();
        arguments::put_arguments(call.number, &call.arguments, &place, &mut bytes);
        self.event(entry, &bytes);
        let Some((end, result)) = call.end else {
            self.open += 1;
            return;
        };
        bytes.clear();
        arguments::put_result(call.number, result, &mut bytes);
        let ticks = end.clamp(start, limit);
        self.event(Event { ticks, site, kind: EventKind::Exit { pops: 1 } }, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_records::Address;
    use crate::meta::Thread;
    use crate::wakings::Edge;
    use EventKind::*;

    const THREAD: ThreadId = ThreadId(0);
    const OWN: SiteId = SiteId(0);
    const FUTEX: u32 = 202;

    fn added() -> (AddedCalls, Meta) {
        let own = Site {
            id: OWN,
            module: 0,
            address: 0,
            size: 0,
            name: "own".to_owned(),
            aliases: Vec::new(),
            kind: String::new(),
            tracers: 1,
            captured: None,
        };
        let name = Some("lock".to_owned());
        let address =
            Address { process: 0, address: 5, name, object: None, place: String::new(), recorder: false };
        let mut meta = Meta {
            threads: vec![Thread::new(THREAD, 0, 1, String::new())],
            sites: vec![own],
            addresses: vec![address],
            ..Meta::default()
        };
        (AddedCalls::new(&[0, FUTEX].into(), BTreeSet::new(), &mut meta), meta)
    }

    fn log(times: &[(u64, u32, Option<i64>)]) -> KernelLog<SystemCall> {
        let edge = |result: &Option<i64>| result.map_or(Edge::Enter([5, 128, 2, 0, 0, 0]), Edge::Exit);
        let entries = times.iter().map(|(at, number, result)| SystemCall {
            at: *at,
            number: *number,
            edge: edge(result),
        });
        KernelLog { entries: entries.collect(), known: vec![(0, 1000)] }
    }

    fn merged(events: &[(u64, EventKind)], bounds: Bounds, log: &KernelLog<SystemCall>) -> Batch {
        let events =
            events.iter().map(|(ticks, kind)| Event { ticks: *ticks, site: OWN, kind: *kind }).collect();
        let mut batch = Batch { thread: THREAD, events, ..Batch::default() };
        added().0.add(&mut batch, bounds, || Ok::<_, ()>(log.clone())).unwrap();
        batch
    }

    fn shown(batch: &Batch) -> Vec<(u64, u32, EventKind)> {
        batch.events.iter().map(|event| (event.ticks, event.site.0, event.kind)).collect()
    }

    const WHOLE: Bounds = Bounds { after: None, until: None, last: 30 };
    const EXIT: EventKind = Exit { pops: 1 };

    #[test]
    fn calls_lie_between_events_within_clock_error() {
        let log = log(&[
            (1, 0, None),
            (2, 0, Some(0)),
            (9, 0, None),
            (19, 0, Some(7)),
            (21, 0, None),
            (31, 0, Some(3)),
        ]);
        let batch = merged(&[(10, Entry), (30, EXIT)], WHOLE, &log);
        let expected =
            [(10, 0, Entry), (10, 1, Entry), (19, 1, EXIT), (21, 1, Entry), (30, 1, EXIT), (30, 0, EXIT)];
        assert_eq!(shown(&batch), expected, "what is before the first event is left out");
        let (_, meta) = added();
        assert_eq!((&*meta.sites[2].name, &*meta.modules[0].path), ("sys_futex", MODULE));
        let captured = meta.sites[1].captured.as_deref().unwrap();
        let result: Vec<String> =
            captured.read(true, batch.values.of(2)).map(|(_, datum)| datum.to_string()).collect();
        assert_eq!(result, ["7"]);
    }

    #[test]
    fn the_address_of_a_futex_has_its_name() {
        let batch =
            merged(&[(10, Entry), (30, EXIT)], WHOLE, &log(&[(12, FUTEX, None), (20, FUTEX, Some(0))]));
        let (_, meta) = added();
        let captured = meta.sites[2].captured.as_deref().unwrap();
        let all: Vec<String> =
            captured.read(false, batch.values.of(1)).map(|(name, datum)| format!("{name}={datum}")).collect();
        assert_eq!(all, ["uaddr=lock", "operation=FUTEX_WAIT", "value=2"]);
    }

    #[test]
    fn a_call_of_unknown_end_has_ended_before_the_next_event() {
        let log = log(&[(12, 0, None), (40, 0, None)]);
        let batch = merged(&[(10, Entry), (30, EXIT)], WHOLE, &log);
        let left = Left { pops: 1 };
        let expected = [(10, 0, Entry), (12, 1, Entry), (30, 0, left), (30, 0, EXIT), (40, 1, Entry)];
        assert_eq!(shown(&batch), expected);
        let batch = merged(&[(10, Entry), (30, ThreadEnded)], WHOLE, &log);
        assert_eq!(shown(&batch), [(10, 0, Entry), (12, 1, Entry), (30, 0, ThreadEnded)]);
    }

    #[test]
    fn calls_before_an_event_that_shows_a_function_to_be_left_belong_to_its_caller() {
        let log = log(&[(12, 0, None), (14, 0, Some(0)), (22, 0, None), (28, 0, Some(0))]);
        let left = Left { pops: 1 };
        let events = [(10, Entry), (11, Entry), (20, Entry), (20, left), (30, Entry)];
        let batch = merged(&events, WHOLE, &log);
        let expected = [
            (10, 0, Entry),
            (11, 0, Entry),
            (12, 1, Entry),
            (14, 1, EXIT),
            (20, 0, Entry),
            (20, 0, left),
            (22, 1, Entry),
            (28, 1, EXIT),
            (30, 0, Entry),
        ];
        assert_eq!(shown(&batch), expected);
    }

    #[test]
    fn calls_while_the_recorder_detaches_belong_to_no_function() {
        let log = log(&[
            (12, 0, None),
            (14, 0, Some(0)),
            (32, 0, None),
            (34, 0, Some(0)),
            (38, 0, None),
            (50, 0, Some(0)),
            (53, 0, None),
            (54, 0, Some(0)),
        ]);
        let check = |detaching: u64, last: u64, expected: &[(u64, u32, EventKind)]| {
            let (mut added, _) = added();
            added.detaching = HashMap::from([(0, detaching)]);
            let events = [(10, Entry), (last, Entry)];
            let events = events.map(|(ticks, kind)| Event { ticks, site: OWN, kind });
            let mut batch = Batch { thread: THREAD, events: events.into(), ..Batch::default() };
            added.add(&mut batch, Bounds { last, ..WHOLE }, || Ok::<_, ()>(log.clone())).unwrap();
            assert_eq!(shown(&batch), expected, "{detaching} {last}");
        };
        let begun =
            [(10, 0, Entry), (12, 1, Entry), (14, 1, EXIT), (30, 0, Entry), (32, 1, Entry), (34, 1, EXIT)];
        check(40, 30, &[&begun[..], &[(38, 1, Entry)]].concat());
        check(36, 30, &begun);
        check(20, 30, &begun[..4]);
        // A function that was not disabled yet.
        let last =
            [&begun[..3], &[(32, 1, Entry), (34, 1, EXIT), (38, 1, Entry), (50, 1, EXIT), (51, 0, Entry)]];
        check(20, 51, &last.concat());
    }

    #[test]
    fn each_call_is_in_one_chunk() {
        let log = log(&[
            (12, 0, None),
            (14, 0, Some(0)),
            (22, 0, None),
            (24, 0, Some(0)),
            (32, 0, None),
            (34, 0, Some(0)),
        ]);
        let first = merged(&[(10, Entry), (20, Entry)], Bounds { until: Some(20), ..WHOLE }, &log);
        let second = merged(&[(28, EXIT), (30, EXIT)], Bounds { after: Some(20), ..WHOLE }, &log);
        assert_eq!(shown(&first), [(10, 0, Entry), (12, 1, Entry), (14, 1, EXIT), (20, 0, Entry)]);
        let expected =
            [(22, 1, Entry), (24, 1, EXIT), (28, 0, EXIT), (30, 0, EXIT), (32, 1, Entry), (34, 1, EXIT)];
        assert_eq!(shown(&second), expected);
    }
}
