//! Writes events, which arrive in time order, as the trace of their threads.

use crate::decode::{After, Event, Item, StateMark, Task};
use crate::error::Error;
use crate::lane::ThreadOutput;
use crate::states::Complete;
use crate::summary::Summary;
use crate::symbols::Symbols;
use calltap_trace::{
    ClockMap, ClockPair, Edge, End, EventKind, KernelEvents, Module, Process, Record, RunState, SYSTEM_CALLS,
    Scheduling, Session, Site, SiteId, SystemCall, Thread, ThreadId, TraceWriter, Waking, system_call_name,
};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Id and name of the only process: a file does not say to which process a thread belongs.
pub(crate) const PROCESS: (u32, &str) = (0, "[all tasks]");
const NO_SITE: SiteId = SiteId(0);
/// The system call that ends a signal handler. It does not return to its caller, and the kernel
/// records its end without a number.
const RT_SIGRETURN: u32 = 15;

/// Facts about a file, known before its events are written.
pub(crate) struct FileFacts {
    /// Whether calltap wrote the file: each of its processors is a thread, and its losses are that
    /// thread's.
    pub(crate) is_own: bool,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Intervals in which events are missing, in order.
    pub(crate) gaps: Vec<(u64, u64)>,
    pub(crate) names: HashMap<u32, String>,
    pub(crate) symbols: Symbols,
    pub(crate) clock: ClockMap,
}

/// A function or system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Callee {
    Function(u64),
    SystemCall(u32),
}

/// The owner of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Thread(u32),
    /// The idle thread, with id 0, of a processor.
    Idle(u32),
    /// A processor, which owns its lost events.
    Processor(u32),
}

impl Key {
    fn of(tid: u32, cpu: u32) -> Key {
        if tid == 0 { Key::Idle(cpu) } else { Key::Thread(tid) }
    }
}

/// The kinds of events that have occurred.
#[derive(Default)]
struct EventKinds {
    switches: bool,
    wakings: bool,
    system_calls: bool,
}

/// Writes the trace.
pub(crate) struct Writer {
    trace: TraceWriter,
    known: FileFacts,
    /// Number of gaps that have begun.
    gaps: usize,
    lanes: Vec<ThreadOutput>,
    threads: HashMap<Key, usize>,
    sites: HashMap<Callee, SiteId>,
    /// Id of the thread on each processor.
    running: BTreeMap<u32, u32>,
    seen: EventKinds,
    /// Whether an event shows that switches are missing, as in a filtered recording.
    lacks_switches: bool,
    lost: u64,
    lost_more: bool,
}

impl Writer {
    pub(crate) fn new(
        output: &Path,
        session: Session,
        pairs: &[ClockPair],
        known: FileFacts,
    ) -> Result<Writer, Error> {
        let mut trace = TraceWriter::create(output, session)?;
        let (pid, comm) = PROCESS;
        let process = Process::new(0, pid, comm);
        trace.record(&Record::Process(process))?;
        pairs.iter().try_for_each(|pair| trace.record(&Record::Clock(*pair)))?;
        let modules = known.symbols.modules();
        let calls = Module::without_file(modules.len() as u32, 0, SYSTEM_CALLS);
        for module in modules.iter().chain([&calls]) {
            trace.record(&Record::Module(module.clone()))?;
        }
        Ok(Writer {
            trace,
            known,
            gaps: 0,
            lanes: Vec::new(),
            threads: HashMap::new(),
            sites: HashMap::new(),
            running: BTreeMap::new(),
            seen: EventKinds::default(),
            lacks_switches: false,
            lost: 0,
            lost_more: false,
        })
    }

    /// Writes the next event.
    pub(crate) fn take(&mut self, item: Item) -> Result<(), Error> {
        let Item { time, cpu, tid, event } = item;
        let in_gap = self.pass_gaps(time)?;
        let at = self.known.clock.to_ns(time);
        let own = Key::of(tid, cpu);
        if !in_gap && !matches!(event, Event::Switch { .. } | Event::Missed(_)) {
            self.runs(tid, cpu);
        }
        let lane = match event {
            Event::Call { function, parent } => self.call(own, time, function, parent)?,
            Event::Entry { function, depth } => {
                let (lane, site) = (self.lane(own)?, self.function(function)?);
                let over = self.lanes[lane].frames.enter(site, depth);
                self.enter(lane, time, site, over);
                lane
            }
            Event::Exit { function, depth } => {
                let (lane, site) = (self.lane(own)?, self.function(function)?);
                let pops = self.lanes[lane].frames.exit(site, Some(depth));
                let is_left = std::mem::take(&mut self.lanes[lane].is_left);
                let kind = if is_left { EventKind::Left { pops } } else { EventKind::Exit { pops } };
                self.lanes[lane].push(time, site, kind);
                lane
            }
            Event::Enter { number, arguments } => {
                self.system_call(own, (time, at), number, Edge::Enter(arguments), in_gap)?
            }
            Event::Return { number, result } => {
                self.system_call(own, (time, at), number, Edge::Exit(result), in_gap)?
            }
            Event::Switch { prev, after, next } => {
                self.seen.switches = true;
                return if in_gap { Ok(()) } else { self.switch(cpu, at, &prev, after, &next) };
            }
            Event::Waking { woken, interrupt } => {
                self.seen.wakings = true;
                if in_gap || woken.tid == 0 {
                    return Ok(());
                }
                let lane = self.lane(Key::Thread(woken.tid))?;
                let comm = self.known.names.get(&tid).cloned().unwrap_or_default();
                self.lacks_switches |= !self.lanes[lane].states.wake(at);
                self.lanes[lane].wakings.push(at, Waking { at, interrupt, pid: PROCESS.0, tid, comm });
                lane
            }
            Event::StateMark(told) => {
                let lane = self.lane(own)?;
                let ThreadOutput { states, is_left, .. } = &mut self.lanes[lane];
                match told {
                    // Such a text by another writer is ignored.
                    _ if !self.known.is_own => {}
                    StateMark::Runs => {
                        states.come(at, cpu);
                    }
                    StateMark::MayRun => states.gap(at),
                    StateMark::IsLeft => *is_left = true,
                }
                lane
            }
            Event::Missed(events) => {
                // A processor in a file written by calltap is a thread.
                let key = if self.known.is_own { own } else { Key::Processor(cpu) };
                self.missed(key, time, events)?
            }
        };
        Ok(self.lanes[lane].relieve(&mut self.trace)?)
    }

    /// Advances to a time and marks the gaps before it in all threads. Returns whether the time is
    /// in a gap.
    fn pass_gaps(&mut self, time: u64) -> Result<bool, Error> {
        while let Some((from, _)) = self.known.gaps.get(self.gaps).filter(|(from, _)| *from < time) {
            let at = self.known.clock.to_ns(*from);
            self.lanes.iter_mut().try_for_each(|lane| lane.gap(at, &mut self.trace))?;
            self.running.clear();
            self.gaps += 1;
        }
        Ok(self.gaps.checked_sub(1).is_some_and(|newest| time < self.known.gaps[newest].1))
    }

    fn lane(&mut self, key: Key) -> Result<usize, Error> {
        if let Some(lane) = self.threads.get(&key) {
            return Ok(*lane);
        }
        let place = self.lanes.len();
        let id = ThreadId(place as u32);
        let (tid, comm) = match key {
            Key::Thread(tid) => (tid, self.known.names.get(&tid).cloned().unwrap_or_default()),
            Key::Idle(cpu) => (0, format!("swapper/{cpu}")),
            Key::Processor(cpu) => (0, format!("[cpu {cpu}]")),
        };
        self.trace.record(&Record::Thread(Thread {
            id,
            process: 0,
            tid,
            comm,
            goroutine: None,
            started: None,
        }))?;
        self.lanes.push(ThreadOutput::new(id));
        self.threads.insert(key, place);
        Ok(place)
    }

    /// Returns the site of the function at an address.
    fn function(&mut self, address: u64) -> Result<SiteId, Error> {
        let symbol = self.known.symbols.at(address);
        let start = symbol.map_or(address, |symbol| symbol.address);
        if let Some(site) = self.sites.get(&Callee::Function(start)) {
            return Ok(*site);
        }
        let (name, size, module) = match symbol {
            Some(symbol) => (symbol.name.clone(), symbol.size, symbol.module),
            None => (format!("{address:#x}"), 0, 0),
        };
        self.site(Callee::Function(start), name, (start, size), module)
    }

    fn site(
        &mut self,
        callee: Callee,
        name: String,
        (address, size): (u64, u64),
        module: u32,
    ) -> Result<SiteId, Error> {
        let id = SiteId(self.sites.len() as u32);
        let kind = match callee {
            Callee::Function(_) => "kernel",
            Callee::SystemCall(_) => "system call",
        };
        let (kind, aliases) = (kind.to_owned(), Vec::new());
        let site = Site { id, module, address, size, name, aliases, kind, tracers: 0, captured: None };
        self.trace.record(&Record::Sites { sites: vec![site] })?;
        self.sites.insert(callee, id);
        Ok(id)
    }

    fn call(&mut self, key: Key, time: u64, function: u64, parent: u64) -> Result<usize, Error> {
        let (lane, site) = (self.lane(key)?, self.function(function)?);
        // Views name a caller by the functions of the trace.
        if self.known.symbols.at(parent).is_some() {
            self.function(parent)?;
        }
        match self.known.is_own {
            true => self.lanes[lane].hold(time, site, parent),
            false => self.lanes[lane].push(time, site, EventKind::Call { parent }),
        }
        Ok(lane)
    }

    /// Begins a call, after `over` other calls of the thread ended without a return.
    fn enter(&mut self, lane: usize, time: u64, site: SiteId, over: u32) {
        if over > 0 {
            self.lanes[lane].push(time, site, EventKind::Left { pops: over });
        }
        self.lanes[lane].push(time, site, EventKind::Entry);
    }

    /// Writes a system call as a call, and as an entry in the thread's log.
    fn system_call(
        &mut self,
        key: Key,
        (time, at): (u64, u64),
        number: i64,
        edge: Edge,
        in_gap: bool,
    ) -> Result<usize, Error> {
        self.seen.system_calls = true;
        let lane = self.lane(key)?;
        self.lanes[lane].has_calls = true;
        let number = match (u32::try_from(number), &edge) {
            (Ok(number), _) => number,
            (Err(_), Edge::Exit(_)) if self.is_in(lane, RT_SIGRETURN) => RT_SIGRETURN,
            // A debugger may have replaced the number by -1, which cancels the call.
            (Err(_), _) => return Ok(lane),
        };
        let site = match self.sites.get(&Callee::SystemCall(number)) {
            Some(site) => *site,
            None => {
                let name = system_call_name(number)
                    .map_or_else(|| format!("system_call_{number}"), |name| format!("sys_{name}"));
                let module = self.known.symbols.modules().len() as u32;
                self.site(Callee::SystemCall(number), name, (number.into(), 0), module)?
            }
        };
        match edge {
            Edge::Enter(_) => {
                let over = self.lanes[lane].frames.enter_kernel(site);
                self.enter(lane, time, site, over);
            }
            Edge::Exit(_) => {
                let pops = self.lanes[lane].frames.exit(site, None);
                self.lanes[lane].push(time, site, EventKind::Exit { pops });
            }
        }
        if !in_gap {
            self.lanes[lane].system_calls.push(at, SystemCall { at, number, edge });
        }
        Ok(lane)
    }

    /// Whether the thread is in this system call, and in no function within it.
    fn is_in(&self, lane: usize, number: u32) -> bool {
        let site = self.sites.get(&Callee::SystemCall(number));
        site.is_some_and(|site| self.lanes[lane].frames.innermost() == Some(*site))
    }

    fn switch(&mut self, cpu: u32, at: u64, prev: &Task, after: After, next: &Task) -> Result<(), Error> {
        // An idle processor's time belongs to no thread.
        let mut of = |tid| if tid == 0 { Ok(None) } else { self.lane(Key::Thread(tid)).map(Some) };
        let [from, to] = [of(prev.tid)?, of(next.tid)?];
        self.has(cpu, prev.tid);
        self.running.insert(cpu, next.tid);
        if let Some(from) = from {
            let state = match after {
                After::Runnable => RunState::Runnable,
                After::Blocked => RunState::Blocked,
                After::Dead => RunState::Unknown,
            };
            self.lacks_switches |= !self.lanes[from].states.leave(at, cpu, state);
            self.lanes[from].relieve(&mut self.trace)?;
        }
        if let Some(to) = to {
            self.lacks_switches |= !self.lanes[to].states.come(at, cpu);
            self.lanes[to].relieve(&mut self.trace)?;
        }
        Ok(())
    }

    /// Records the thread on a processor. If the last switch there was to another thread, that one
    /// left unseen.
    fn has(&mut self, cpu: u32, tid: u32) {
        let Some(before) = self.running.insert(cpu, tid).filter(|before| *before != tid) else { return };
        if self.known.is_own {
            return;
        }
        self.lacks_switches = true;
        if let Some(lane) = self.threads.get(&Key::Thread(before)) {
            self.lanes[*lane].states.lose(cpu);
        }
    }

    /// Records that a thread with an event runs. Events in files written by calltap are not the
    /// kernel's.
    fn runs(&mut self, tid: u32, cpu: u32) {
        if self.known.is_own || !self.seen.switches {
            return;
        }
        self.has(cpu, tid);
        if let Some(lane) = self.threads.get(&Key::Thread(tid)) {
            self.lacks_switches |= !self.lanes[*lane].states.run(cpu);
        }
    }

    /// Records that events of a processor are missing. As the kernel does not say of which threads,
    /// all open calls may have ended.
    fn missed(&mut self, key: Key, time: u64, events: Option<u64>) -> Result<usize, Error> {
        let lane = self.lane(key)?;
        self.lost_more |= events.is_none();
        let events = events.unwrap_or(1);
        self.lost = self.lost.saturating_add(events);
        let entries = u32::try_from(events).unwrap_or(u32::MAX);
        self.lanes[lane].push(time, NO_SITE, EventKind::Lost { entries, exits: 0 });
        if !self.known.is_own {
            for (place, other) in self.lanes.iter_mut().enumerate() {
                if place != lane && !other.frames.is_empty() {
                    other.push(time, NO_SITE, EventKind::Lost { entries: 0, exits: 0 });
                }
            }
        }
        Ok(lane)
    }

    /// Ends the trace. Its notes are `from` and the sentences of the summary.
    pub(crate) fn finish(mut self, from: String, summary: Summary) -> Result<Summary, Error> {
        let [start, until] = [self.known.first, self.known.last].map(|ticks| self.known.clock.to_ns(ticks));
        let mut summary = Summary {
            functions: self.sites.len() as u64,
            threads: self.threads.keys().filter(|key| !matches!(key, Key::Processor(_))).count() as u64,
            lost: self.lost,
            lost_more: self.lost_more,
            ..summary
        };
        let EventKinds { switches, wakings, system_calls } = self.seen;
        let complete = Complete { switches: !self.lacks_switches, wakings };
        for lane in &mut self.lanes {
            summary.events += lane.finish(&mut self.trace, until, complete)?;
        }
        if switches {
            self.trace.record(&Record::Scheduling(Scheduling { refused: None, lost: self.lost }))?;
        }
        if wakings || system_calls {
            let (refused, lost) = (Vec::new(), self.lost);
            let calls_in_events =
                self.lanes.iter().filter(|lane| lane.has_calls).map(|lane| lane.id.0).collect();
            let told = KernelEvents {
                wakings,
                system_calls,
                refused,
                lost,
                calls_in_events,
                ..KernelEvents::default()
            };
            self.trace.record(&Record::KernelEvents(told))?;
        }
        let shown = summary.shown.iter().map(|(name, count)| format!("{name} {count}"));
        let shown = format!("events: {}", shown.collect::<Vec<_>>().join(", "));
        for text in [from, shown].into_iter().chain(summary.sentences()) {
            self.trace.record(&Record::Note { text })?;
        }
        self.trace.finish(End {
            status: End::DETACHED.to_owned(),
            wall_ns: until.saturating_sub(start),
            cpu_ns: 0,
            recorder_cpu_ns: 0,
        })?;
        Ok(summary)
    }
}
