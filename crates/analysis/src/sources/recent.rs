//! The newest events of a watched process, as a recording whose older events were discarded.

use crate::error::Error;
use crate::sources::drive::feed_batch;
use crate::sources::source::{BatchStream, Source};
use crate::tree::{Stack, Totals, Visitor};
use calltap_trace::{
    Batch, ClockKind, ClockMap, ClockPair, Event, EventKind, Meta, Record, Switch, ThreadId,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Keeps the newest events with the metadata to interpret them.
pub struct Recent {
    meta: Arc<Meta>,
    /// The first and the newest clock pair.
    moments: Option<(ClockPair, ClockPair)>,
    batches: VecDeque<Arc<Batch>>,
    /// Number of events in `batches`.
    held: usize,
    limit: usize,
    /// Calls open before the held events, by thread.
    before: HashMap<ThreadId, Stack>,
    forgotten: u64,
}

struct Ignore;

impl Visitor for Ignore {}

impl Recent {
    /// Keeps at most `limit` events, plus those of one batch.
    pub fn new(limit: usize) -> Recent {
        Recent {
            meta: Arc::default(),
            moments: None,
            batches: VecDeque::new(),
            held: 0,
            limit,
            before: HashMap::new(),
            forgotten: 0,
        }
    }

    /// Applies a record.
    pub fn record(&mut self, record: &Record) {
        if let Record::Clock(pair) = record {
            return self.moment(*pair);
        }
        let meta = Arc::make_mut(&mut self.meta);
        match record.clone() {
            Record::Session(session) => {
                meta.conditions.clone_from(&session.conditions);
                meta.session = Some(session);
            }
            Record::Conditions { conditions } => meta.conditions.extend(conditions),
            Record::Kept(kept) => meta.kept.push(kept),
            Record::Process(process) => put(&mut meta.processes, process.id, process),
            Record::Thread(thread) => put(&mut meta.threads, thread.id.0, thread),
            Record::Module(module) => put(&mut meta.modules, module.id, module),
            Record::Sites { sites } => {
                sites.into_iter().for_each(|site| put(&mut meta.sites, site.id.0, site));
            }
            Record::DisabledByLimit { functions } => meta.disabled_by_limit.extend(functions),
            Record::Note { text } => meta.notes.push(text),
            _ => {}
        }
    }

    /// Takes events of one thread.
    pub fn events(&mut self, batch: &Batch) {
        self.held += batch.events.len();
        self.batches.push_back(Arc::new(batch.clone()));
        while self.held > self.limit && self.batches.len() > 1 {
            let Some(old) = self.batches.pop_front() else { return };
            self.held -= old.events.len();
            self.forgotten += old.events.len() as u64;
            let sites = self.meta.sites.len() as u32;
            let stack = self.before.entry(old.thread).or_default();
            feed_batch(stack, old.thread, &old, sites, &mut Ignore, &mut Totals::default());
            if stack.depth() == 0 {
                self.before.remove(&old.thread);
            }
        }
    }

    /// Sets the newest clock pair: all events up to it were taken.
    pub fn moment(&mut self, at: ClockPair) {
        let (first, _) = *self.moments.get_or_insert((at, at));
        self.moments = Some((first, at));
    }

    /// Returns the currently held events as a source.
    pub fn snapshot(&self) -> Snapshot {
        let kind = self.meta.session.as_ref().map_or(ClockKind::Tsc, |session| session.clock);
        let pairs = self.moments.map(|(first, last)| [first, last]);
        let (clock, _) = ClockMap::new(kind, pairs.as_ref().map_or(&[], |pairs| &pairs[..]));
        let mut threads: HashMap<ThreadId, RecentEvents> = HashMap::new();
        // Threads without metadata are not shown.
        for batch in self.batches.iter().filter(|batch| (batch.thread.0 as usize) < self.meta.threads.len()) {
            let held = threads.entry(batch.thread).or_insert_with(|| self.open(batch.thread));
            held.batches.push(batch.clone());
        }
        Snapshot {
            meta: self.meta.clone(),
            clock,
            threads,
            events: self.held as u64,
            forgotten: self.forgotten,
        }
    }

    /// Returns a thread without batches, with the calls open before the held events.
    fn open(&self, thread: ThreadId) -> RecentEvents {
        let open = self.before.get(&thread).into_iter().flat_map(Stack::open);
        let events =
            open.map(|open| Event { ticks: open.start, site: open.site, kind: EventKind::Entry }).collect();
        RecentEvents { open: Batch { thread, events, ..Batch::default() }, batches: Vec::new() }
    }
}

/// Stores an element at its index; missing elements before it become copies of it.
fn put<T: Clone>(list: &mut Vec<T>, at: u32, new: T) {
    let at = at as usize;
    if at >= list.len() {
        list.resize(at + 1, new);
    } else {
        list[at] = new;
    }
}

/// The held events of a thread.
struct RecentEvents {
    /// Entries of calls open before the held events.
    open: Batch,
    batches: Vec<Arc<Batch>>,
}

impl RecentEvents {
    fn all(&self) -> impl Iterator<Item = &Batch> {
        [&self.open].into_iter().chain(self.batches.iter().map(Arc::as_ref))
    }
}

/// The events held at one time, as a source.
pub struct Snapshot {
    meta: Arc<Meta>,
    clock: ClockMap,
    threads: HashMap<ThreadId, RecentEvents>,
    events: u64,
    /// Number of older events that were discarded.
    pub forgotten: u64,
}

struct Stream<'a>(Box<dyn Iterator<Item = &'a Batch> + 'a>);

impl BatchStream for Stream<'_> {
    fn next_into(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some(next) = self.0.next() else { return Ok(false) };
        batch.clone_from(next);
        Ok(true)
    }
}

impl Source for Snapshot {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn complaints(&self) -> &[String] {
        &[]
    }

    fn event_count(&self) -> u64 {
        self.events
    }

    fn has_time(&self) -> bool {
        self.clock.has_time()
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        self.clock.to_ns(ticks)
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        self.clock.duration_ns(ticks)
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        Box::new(Stream(Box::new(self.threads.values().flat_map(RecentEvents::all))))
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        Box::new(Stream(Box::new(self.threads.get(&thread).into_iter().flat_map(RecentEvents::all))))
    }

    /// Context switches are not kept.
    fn has_switches(&self) -> bool {
        false
    }

    fn switches(&self, _: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        Ok(None)
    }

    /// Calls that were open before the held events do not extend the span.
    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        let mut events = self.threads.get(&thread)?.batches.iter().flat_map(|batch| &batch.events);
        let first = events.next()?.ticks;
        let last = self.threads.get(&thread)?.batches.iter().rev().find_map(|batch| batch.events.last());
        Some((first, last.map_or(first, |last| last.ticks.max(first))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::left_out;
    use crate::sources::drive::run_by_thread;
    use crate::tree::Call;
    use calltap_trace::{Kept, SiteId, Thread};

    #[derive(Default)]
    struct Calls(Vec<(u32, u64, u64)>);

    impl Visitor for Calls {
        fn close(&mut self, _: ThreadId, call: &Call) {
            self.0.push((call.site.0, call.start, call.end));
        }
    }

    #[test]
    fn forgotten_events_leave_open_calls() {
        let mut recent = Recent::new(4);
        let thread =
            Thread { id: ThreadId(0), process: 0, tid: 7, comm: "t".into(), goroutine: None, started: None };
        recent.record(&Record::Thread(thread));
        let event = |ticks, site, kind| Event { ticks, site: SiteId(site), kind };
        let (entry, exit) = (EventKind::Entry, EventKind::Exit { pops: 1 });
        for site in 0..2 {
            let site = calltap_trace::Site {
                id: SiteId(site),
                module: 0,
                address: 16 * u64::from(site),
                size: 16,
                name: format!("f{site}"),
                kind: "nop".into(),
                tracers: 1,
                aliases: Vec::new(),
                captured: None,
            };
            recent.record(&Record::Sites { sites: vec![site] });
        }
        let batch = |events: &[Event]| Batch { events: events.to_vec(), ..Batch::default() };
        recent.events(&batch(&[event(1, 0, entry)]));
        recent.events(&batch(&[event(10, 1, entry), event(12, 1, exit)]));
        recent.events(&batch(&[event(20, 1, entry), event(23, 1, exit)]));
        recent.events(&batch(&[event(30, 1, entry), event(34, 1, exit), event(40, 0, exit)]));
        let calls = Some("of f0 and what it calls".to_owned());
        recent.record(&Record::Kept(Kept { from: None, calls }));
        let snapshot = recent.snapshot();
        assert_eq!(left_out::sentences(&snapshot).len(), 1);
        assert_eq!((snapshot.forgotten, snapshot.event_count()), (5, 3));
        assert_eq!(snapshot.thread_span(ThreadId(0)), Some((30, 40)));
        let mut calls = Calls::default();
        let totals = run_by_thread(&snapshot, &mut calls, None).unwrap();
        assert_eq!((calls.0, totals.orphans), (vec![(1, 30, 34), (0, 1, 40)], 0));
    }
}
