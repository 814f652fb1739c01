//! The directory: what a file system asks of it.

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

/// What has to be asked of the process before a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refresh {
    /// Which functions there are.
    Functions,
    /// What was summed up.
    Profile,
}

/// What has to be done in the process after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Effects {
    /// Something else is to be traced from now on: [`Tracefs::words`].
    pub selects: bool,
    /// What was summed up begins at nothing.
    pub resets_profile: bool,
    /// It stays what it is once that is done, whatever call still returns.
    pub ends_profile: bool,
}

/// The directory.
#[derive(Debug)]
pub struct Tracefs {
    pub(crate) instances: Vec<Instance>,
    pub(crate) symbols: Symbols,
    pub(crate) profile: Vec<Profiled>,
    pub(crate) effects: Effects,
    pub(crate) processors: usize,
    /// Every tracer has its own sets. The kernel's have the same; a client that opens `function_tracers` knows of several.
    pub(crate) separate: bool,
    /// What the ticks of events are.
    pub(crate) clock: ClockKind,
    ingest: Ingest,
    pub(crate) stack_tracer: StackTracer,
    /// It knows what the instances want.
    chosen: bool,
    first: Option<ClockPair>,
    /// When everything was last settled.
    last: Moment,
    /// Process ids by their index, with the index of whom they were forked from.
    processes: Vec<(u32, Option<u32>)>,
    nodes: Vec<Node>,
    inodes: HashMap<Node, u64>,
    /// What chmod and chown have changed.
    changed: HashMap<Node, (u16, (u32, u32))>,
    handles: HashMap<u64, Handle>,
    next_handle: u64,
    next_instance: u32,
    owner: (u32, u32),
    /// Modules came or went since the functions were listed.
    stale: bool,
    ended: bool,
}

const ROOT: Node = Node { instance: 0, entry: Entry::Dir(Dir::Root) };

impl Tracefs {
    /// For a process of which nothing is known yet. `owner`: of its files.
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

    // ---- What the process says

    /// Something that explains events.
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

    /// With `function-fork`, a new thread is listed where those are from whose process it comes: which of them has made it is not known.
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

    /// Events of a thread.
    pub fn events(&mut self, batch: &Batch) {
        self.ingest.add(batch);
    }

    /// The threads of which has to be said, before what has come is settled, where their stacks are: each with its process, its id, and an address in its stack.
    pub fn stacks_sought(&self) -> Vec<(ThreadId, u32, u32, u64)> {
        let sought = self.ingest.sought().into_iter();
        sought.filter_map(|(id, tid, within)| Some((id, self.symbols.group(tid)?, tid, within))).collect()
    }

    /// There is a thread's stack. None: not known.
    pub fn set_stack(&mut self, thread: ThreadId, stack: Option<Range<u64>>) {
        self.ingest.set_stack(thread, stack);
    }

    /// A thread has no more events.
    pub fn end_thread(&mut self, thread: ThreadId) {
        self.ingest.end_thread(thread);
    }

    /// All has come that happened until `at`.
    pub fn settle(&mut self, at: Moment) {
        let first = *self.first.get_or_insert(at.pair());
        let from = std::mem::replace(&mut self.last, at);
        let stretch = Stretch { from: if from == Moment::default() { at } else { from }, to: at };
        let (clock, _) = ClockMap::new(self.clock, &[first, stretch.from.pair(), at.pair()]);
        self.instances.iter_mut().for_each(|instance| instance.reach(stretch));
        // Late, so that many changes together are one.
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

    /// The functions that can be traced, as they are now.
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

    /// What was summed up until now.
    pub fn set_profile(&mut self, profile: Vec<Profiled>) {
        self.profile = profile;
    }

    /// A thread has this name now.
    pub fn rename_thread(&mut self, tid: u32, comm: &str) {
        if let Some(group) = self.symbols.group(tid) {
            self.symbols.add_thread(tid, group, comm);
        }
    }

    /// Does it matter which threads are there already? Those that come later are followed.
    pub fn follows(&self) -> bool {
        let follows = |instance: &Instance| instance.pids.iter().any(|list| !list.is_empty());
        self.instances.iter().any(|instance| instance.options.has(FOLLOWS) && follows(instance))
    }

    /// Is nothing known of a thread?
    pub fn is_stranger(&self, tid: u32) -> bool {
        self.symbols.group(tid).is_none()
    }

    /// A thread is there, of this process and with this name.
    pub fn introduce(&mut self, tid: u32, group: u32, comm: &str) {
        self.symbols.add_thread(tid, group, comm);
    }

    /// The threads whose names a file shows, as far as they may have others by now.
    pub fn shown_threads(&self, inode: u64) -> Vec<u32> {
        match self.node(inode).map(|node| node.entry) {
            Ok(Entry::File(Kind::Trace | Kind::TracePipe | Kind::Snapshot | Kind::SavedCmdlines, _)) => {
                self.ingest.threads()
            }
            _ => Vec::new(),
        }
    }

    /// The process is gone: nothing more will come.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// This is traced already.
    pub fn adopt(&mut self, words: Selection) {
        self.separate = words.tracers.len() > 1;
        self.instances[0].adopt(words);
    }

    // ---- What is wanted of it

    /// What is to be traced.
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

    /// What has to be traced so that stacks are known: all calls and their callers, but for what an instance does not trace that alone wants stacks.
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

    /// What was to be done in the process could not be.
    pub fn refused(&mut self, why: &str, now_ns: u64) {
        self.instances[0].errors.add(now_ns, "calltap", "", &Wrong::argument(why));
    }

    /// What is to be done now.
    pub fn take_effects(&mut self) -> Effects {
        self.chosen &= !self.effects.selects;
        std::mem::take(&mut self.effects)
    }

    /// What has to be asked before a file is opened.
    pub fn refresh(&self, inode: u64) -> Option<Refresh> {
        match self.node(inode).ok()?.entry {
            Entry::File(Kind::Stat, _) => {
                self.instances.iter().any(Instance::profiles).then_some(Refresh::Profile)
            }
            Entry::File(
                Kind::Control(_)
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

    /// Does a filter wait for a library?
    pub fn awaits_library(&self) -> bool {
        let tracers = self.instances.iter().flat_map(|instance| &instance.words.tracers);
        let mut sets = tracers.flat_map(|tracer| [&tracer.filter, &tracer.notrace]);
        sets.any(|set| waiting(set).next().is_some()) || waiting(&self.stack_tracer.filter).next().is_some()
    }

    /// Is it a file for markers?
    pub fn is_marker(&self, inode: u64) -> bool {
        let node = self.node(inode);
        node.is_ok_and(|node| matches!(node.entry, Entry::File(Kind::Marker | Kind::RawMarker, _)))
    }
}
