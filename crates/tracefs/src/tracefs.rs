//! The directory: its state, the metadata and events that go in, and the selection and effects that
//! come out. Operations of the file system are in its submodules.

mod opened;
mod tree;

pub use tree::{Attributes, Listing};

use crate::clocks::{Moment, Stretch};
use crate::control::TRACE;
use crate::errors::Wrong;
use crate::handle::Handle;
use crate::ingest::Ingest;
use crate::instance::Instance;
use crate::nodes::{Dir, Entry, Kind, Node};
use crate::options::{Flag, Options};
use crate::stack_tracer::{READ, StackTracer};
use crate::symbols::Symbols;
use crate::tokens::{present, resolve, waiting};
use calltap_selection::{Listed, Profiled, Selection, TracerSelection};
use calltap_trace::{Batch, ClockKind, ClockMap, ClockPair, Record as TraceRecord, ThreadId, TracerKind};
use std::collections::HashMap;
use std::ops::Range;

const FOLLOWS: Flag = Flag::named("function-fork");

/// The answer of the process that is needed before a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// The functions that can be traced.
    Functions,
    /// The sums of the profile tracer.
    Profile,
}

/// The changes to make in the process after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Effects {
    /// Whether [`Tracefs::words`] has changed.
    pub selects: bool,
    /// Whether the profile is reset.
    pub resets_profile: bool,
    /// Whether the profile is then frozen, whatever call still returns.
    pub ends_profile: bool,
}

/// The control directory of a process.
#[derive(Debug)]
pub struct Tracefs {
    pub(crate) instances: Vec<Instance>,
    pub(crate) symbols: Symbols,
    pub(crate) profile: Vec<Profiled>,
    pub(crate) effects: Effects,
    pub(crate) processors: usize,
    /// Whether every tracer has sets of its own. In the kernel all have the same; a client that
    /// opens `function_tracers` knows of several tracers.
    pub(crate) separate: bool,
    /// The clock that stamps events.
    pub(crate) clock: ClockKind,
    ingest: Ingest,
    pub(crate) stack_tracer: StackTracer,
    /// Whether `ingest` has the present interests of the instances.
    chosen: bool,
    first: Option<ClockPair>,
    /// Time of the last call of `settle`.
    last: Moment,
    /// Process ids by their index, each with the index of the parent process.
    processes: Vec<(u32, Option<u32>)>,
    nodes: Vec<Node>,
    inodes: HashMap<Node, u64>,
    /// Modes and owners that chmod and chown have changed.
    changed: HashMap<Node, (u16, (u32, u32))>,
    handles: HashMap<u64, Handle>,
    next_handle: u64,
    next_instance: u32,
    owner: (u32, u32),
    /// Whether modules were loaded or unloaded since the functions were listed.
    stale: bool,
    ended: bool,
}

const ROOT: Node = Node { instance: 0, entry: Entry::Dir(Dir::Root) };

impl Tracefs {
    /// Returns the directory of a process before any metadata. `owner`: the owner of its files.
    pub fn new(processors: usize, owner: (u32, u32)) -> Tracefs {
        let mut tracefs = Tracefs {
            instances: vec![Instance::new(0, "", Options::default(), processors)],
            symbols: Symbols::default(),
            profile: Vec::new(),
            effects: Effects::default(),
            processors,
            separate: false,
            clock: ClockKind::Tsc,
            ingest: Ingest::default(),
            stack_tracer: StackTracer::default(),
            chosen: false,
            first: None,
            last: Moment::default(),
            processes: Vec::new(),
            nodes: Vec::new(),
            inodes: HashMap::new(),
            changed: HashMap::new(),
            handles: HashMap::new(),
            next_handle: 1,
            next_instance: 1,
            owner,
            stale: true,
            ended: false,
        };
        tracefs.inode(ROOT);
        tracefs
    }

    // ---- Input: metadata and events of the process

    /// Takes a metadata record.
    pub fn record(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Session(session) => {
                self.clock = session.clock;
                self.symbols.set_release(&session.kernel);
            }
            TraceRecord::Process(process) => {
                let place = process.id as usize;
                self.processes.resize(self.processes.len().max(place + 1), (0, None));
                self.processes[place] = (process.pid, process.parent);
            }
            TraceRecord::Thread(thread) => {
                let group = self.processes.get(thread.process as usize).map_or(0, |process| process.0);
                self.follow(thread.process, group, thread.tid);
                self.symbols.add_thread(thread.tid, group, &thread.comm);
                self.ingest.add_thread(thread.id, thread.tid);
            }
            TraceRecord::Module(module) => {
                self.symbols.add_module(module);
                self.stale = true;
            }
            TraceRecord::Sites { sites } => {
                sites.iter().for_each(|site| self.symbols.add_site(site));
                self.chosen = false;
            }
            TraceRecord::Clock(pair) => drop(self.first.get_or_insert(*pair)),
            _ => {}
        }
    }

    /// With `function-fork`, adds a new thread to the lists that have a thread of its process, or
    /// of the parent for the first thread of a process: which thread has made it is not known.
    fn follow(&mut self, process: u32, group: u32, tid: u32) {
        if !self.is_stranger(tid) {
            return;
        }
        let is_first = !self.symbols.has_group(group);
        let parent = self.processes.get(process as usize).and_then(|(_, parent)| *parent);
        let family = match parent.and_then(|parent| self.processes.get(parent as usize)) {
            Some((parent, _)) if is_first => *parent,
            _ => group,
        };
        for instance in self.instances.iter_mut().filter(|instance| instance.options.has(FOLLOWS)) {
            for list in &mut instance.pids {
                if list.iter().any(|own| *own == family || self.symbols.group(*own) == Some(family)) {
                    list.insert(tid);
                }
            }
        }
    }

    /// Takes events of a thread.
    pub fn events(&mut self, batch: &Batch) {
        self.ingest.add(batch);
    }

    /// Returns the threads whose stacks have to be set before the next call of `settle`: each with
    /// its process, its id, and an address in its stack.
    pub fn stacks_sought(&self) -> Vec<(ThreadId, u32, u32, u64)> {
        let sought = self.ingest.sought().into_iter();
        sought.filter_map(|(id, tid, within)| Some((id, self.symbols.group(tid)?, tid, within))).collect()
    }

    /// Sets the mapping of a thread's stack; `None` if it is not known.
    pub fn set_stack(&mut self, thread: ThreadId, stack: Option<Range<u64>>) {
        self.ingest.set_stack(thread, stack);
    }

    /// Marks a thread as ended.
    pub fn end_thread(&mut self, thread: ThreadId) {
        self.ingest.end_thread(thread);
    }

    /// Passes the events up to `at` to the instances; all of them must have been taken before.
    pub fn settle(&mut self, at: Moment) {
        let first = *self.first.get_or_insert(at.pair());
        let from = std::mem::replace(&mut self.last, at);
        let stretch = Stretch { from: if from == Moment::default() { at } else { from }, to: at };
        let (clock, _) = ClockMap::new(self.clock, &[first, stretch.from.pair(), at.pair()]);
        self.instances.iter_mut().for_each(|instance| instance.reach(stretch));
        // The interests are computed here, so that several changes cost one computation.
        if !std::mem::replace(&mut self.chosen, true) {
            self.ingest.choose(&self.instances, &self.stack_tracer, &self.symbols);
        }
        let to_ns = |ticks| clock.to_ns(ticks);
        self.ingest.settle(&mut self.instances, &mut self.stack_tracer, &self.symbols, &to_ns);
        for tid in self.ingest.take_ended() {
            for instance in self.instances.iter_mut().filter(|instance| instance.options.has(FOLLOWS)) {
                for list in &mut instance.pids {
                    list.remove(&tid);
                }
            }
        }
    }

    /// Sets the functions that can be traced.
    pub fn set_functions(&mut self, functions: Vec<Listed>) {
        self.stale = false;
        if !self.symbols.set_functions(functions) {
            return;
        }
        for instance in &mut self.instances {
            for tracer in &mut instance.words.tracers {
                for words in [&mut tracer.filter, &mut tracer.notrace] {
                    self.effects.selects |= resolve(words, self.symbols.functions());
                }
            }
        }
        self.effects.selects |= resolve(&mut self.stack_tracer.filter, self.symbols.functions());
        self.chosen = false;
    }

    /// Sets the sums of the profile tracer.
    pub fn set_profile(&mut self, profile: Vec<Profiled>) {
        self.profile = profile;
    }

    /// Renames a known thread.
    pub fn rename_thread(&mut self, tid: u32, comm: &str) {
        if let Some(group) = self.symbols.group(tid) {
            self.symbols.add_thread(tid, group, comm);
        }
    }

    /// Whether the present threads must be known, as new threads are followed from them.
    pub fn follows(&self) -> bool {
        let follows = |instance: &Instance| instance.pids.iter().any(|list| !list.is_empty());
        self.instances.iter().any(|instance| instance.options.has(FOLLOWS) && follows(instance))
    }

    /// Whether a thread is unknown.
    pub fn is_stranger(&self, tid: u32) -> bool {
        self.symbols.group(tid).is_none()
    }

    /// Adds a thread with its process and name.
    pub fn introduce(&mut self, tid: u32, group: u32, comm: &str) {
        self.symbols.add_thread(tid, group, comm);
    }

    /// Returns the threads whose names a file shows and which may have been renamed.
    pub fn shown_threads(&self, inode: u64) -> Vec<u32> {
        match self.node(inode).map(|node| node.entry) {
            Ok(Entry::File(Kind::Trace | Kind::TracePipe | Kind::Snapshot | Kind::SavedCmdlines, _)) => {
                self.ingest.threads()
            }
            _ => Vec::new(),
        }
    }

    /// Marks the process as ended: no further events arrive.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Takes over the selection that is already traced.
    pub fn adopt(&mut self, words: Selection) {
        self.separate = words.tracers.len() > 1;
        self.instances[0].adopt(words);
    }

    // ---- Output: selection and effects

    /// Returns the selection to trace.
    pub fn words(&self) -> Selection {
        let mut tracers: Vec<TracerSelection> = self.instances.iter().flat_map(Instance::tracers).collect();
        tracers.extend(self.stack_tracers());
        for tracer in &mut tracers {
            (tracer.filter, tracer.notrace) = (present(&tracer.filter), present(&tracer.notrace));
        }
        let default = self.instances[0].words.default.clone();
        let arguments = if self.stack_tracer.is_on { vec![READ.to_owned()] } else { Vec::new() };
        Selection { tracers, default, arguments, ..Selection::default() }
    }

    /// Returns the tracers that stacks need: all calls with their callers. If a single instance
    /// records stacks, the functions of its notrace set are excluded.
    fn stack_tracers(&self) -> Vec<TracerSelection> {
        let wanting: Vec<_> = self.instances.iter().filter(|instance| instance.wants_stacks()).collect();
        let notrace = match (&wanting[..], self.stack_tracer.is_on) {
            ([], false) => return Vec::new(),
            ([only], false) => {
                let trace = only.words.tracers.iter().find(|tracer| tracer.name == TRACE);
                trace.map(|tracer| tracer.notrace.clone()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let kinds = [("calls", TracerKind::FunctionGraph), ("callers", TracerKind::Function)];
        let tracer = |(name, kind)| TracerSelection {
            name: format!("stacks/{name}"),
            kind: Some(kind),
            filter: Vec::new(),
            notrace: notrace.clone(),
        };
        kinds.into_iter().map(tracer).collect()
    }

    /// Logs that an effect, or a part of it, could not be carried out in the process.
    pub fn log_failure(&mut self, why: &str, now_ns: u64) {
        self.instances[0].errors.add(now_ns, "calltap", "", &Wrong::argument(why));
    }

    /// Returns the effects since the last call.
    pub fn take_effects(&mut self) -> Effects {
        self.chosen &= !self.effects.selects;
        std::mem::take(&mut self.effects)
    }

    /// Returns the answer of the process that is needed before a file is opened.
    pub fn refresh(&self, inode: u64) -> Option<Refresh> {
        match self.node(inode).ok()?.entry {
            Entry::File(Kind::Stat, _) => {
                self.instances.iter().any(Instance::profiles).then_some(Refresh::Profile)
            }
            Entry::File(
                Kind::Available
                | Kind::Info
                | Kind::Failures
                | Kind::AvailableAddresses
                | Kind::EnabledFunctions
                | Kind::TouchedFunctions
                | Kind::Filter
                | Kind::Notrace
                | Kind::StackTraceFilter
                | Kind::GraphFunction
                | Kind::GraphNotrace,
                _,
            ) => Some(Refresh::Functions),
            _ => self.stale.then_some(Refresh::Functions),
        }
    }

    /// Whether a filter waits for a library.
    pub fn awaits_library(&self) -> bool {
        let tracers = self.instances.iter().flat_map(|instance| &instance.words.tracers);
        let mut sets = tracers.flat_map(|tracer| [&tracer.filter, &tracer.notrace]);
        sets.any(|set| waiting(set).next().is_some()) || waiting(&self.stack_tracer.filter).next().is_some()
    }

    /// Whether an inode is that of a marker file.
    pub fn is_marker(&self, inode: u64) -> bool {
        let node = self.node(inode);
        node.is_ok_and(|node| matches!(node.entry, Entry::File(Kind::Marker | Kind::RawMarker, _)))
    }
}
