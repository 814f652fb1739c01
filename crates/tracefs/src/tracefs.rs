//! The directory: what a file system asks of it.

use crate::clocks::{Moment, Stretch};
use crate::handle::{Content, Handle, Read};
use crate::ingest::Ingest;
use crate::instance::{Instance, Snapshot};
use crate::nodes::{Dir, Entry, Kind, Node, entries, mode};
use crate::options::Options;
use crate::pages::Pages;
use crate::reader::Reader;
use crate::ring::{Ring, View, What};
use crate::symbols::Symbols;
use crate::tokens::{Draft, Set, resolve};
use calltap_control::{Model, TRACE, Which, number_base};
use calltap_ringbuffer::PAGE_SIZE;
use calltap_session::{Listed, Profiled, Words};
use calltap_trace::{Batch, ClockKind, ClockMap, ClockPair, Record as TraceRecord, ThreadId};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;

/// Instances at a time, the first included: each has up to three tracers, and a site 32 bits for them.
const INSTANCES: usize = 10;
/// Longest text that is written at once to `trace_marker`.
const MARK: usize = 4054;

/// A file or directory as `stat` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Its number.
    pub inode: u64,
    /// A directory?
    pub is_dir: bool,
    /// Permissions.
    pub mode: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Links.
    pub links: u32,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Its name.
    pub name: String,
    /// Its number.
    pub inode: u64,
    /// A directory?
    pub is_dir: bool,
}

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
}

/// The directory.
#[derive(Debug)]
pub struct Tracefs {
    pub(crate) instances: Vec<Instance>,
    pub(crate) symbols: Symbols,
    pub(crate) profile: Vec<Profiled>,
    pub(crate) effects: Effects,
    pub(crate) processors: usize,
    /// Every tracer has its own sets. The kernel's have the same; whoever opens `function_tracers` knows of several.
    pub(crate) separate: bool,
    /// What the ticks of events are.
    pub(crate) clock: ClockKind,
    ingest: Ingest,
    /// It knows what the instances want.
    chosen: bool,
    first: Option<ClockPair>,
    /// When everything was last settled.
    last: Moment,
    /// Process ids by their index.
    processes: Vec<u32>,
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
                self.processes.resize(self.processes.len().max(place + 1), 0);
                self.processes[place] = process.pid;
            }
            TraceRecord::Thread(thread) => {
                let group = self.processes.get(thread.process as usize).copied().unwrap_or(0);
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

    /// Events of a thread.
    pub fn events(&mut self, batch: &Batch) {
        self.ingest.add(batch.thread, &batch.events);
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
        // (Late, so that many changes together are one.)
        if !std::mem::replace(&mut self.chosen, true) {
            self.ingest.choose(&self.instances, &self.symbols);
        }
        self.ingest.settle(&mut self.instances, &self.symbols, &|ticks| clock.to_ns(ticks));
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
    pub fn adopt(&mut self, words: Words) {
        self.separate = words.tracers.len() > 1;
        self.instances[0].adopt(words);
    }

    // ---- What is wanted of it

    /// What is to be traced.
    pub fn words(&self) -> Words {
        let tracers = self.instances.iter().flat_map(Instance::tracers).collect();
        let default = self.instances[0].words.default.clone();
        Words { tracers, default, ..Words::default() }
    }

    /// What is to be done now.
    pub fn take_effects(&mut self) -> Effects {
        self.chosen &= !self.effects.selects;
        std::mem::take(&mut self.effects)
    }

    /// What has to be asked before a file is opened.
    pub fn refresh(&self, inode: u64) -> Option<Refresh> {
        match self.node(inode).ok()?.entry {
            Entry::File(Kind::Stat, _) => Some(Refresh::Profile),
            Entry::File(
                Kind::Control(_)
                | Kind::AvailableAddresses
                | Kind::EnabledFunctions
                | Kind::TouchedFunctions
                | Kind::Filter
                | Kind::Notrace
                | Kind::GraphFunction
                | Kind::GraphNotrace,
                _,
            ) => Some(Refresh::Functions),
            _ => self.stale.then_some(Refresh::Functions),
        }
    }

    /// Is it written to by whoever marks what happens?
    pub fn is_marker(&self, inode: u64) -> bool {
        let node = self.node(inode);
        node.is_ok_and(|node| matches!(node.entry, Entry::File(Kind::Marker | Kind::RawMarker, _)))
    }

    // ---- The tree

    fn inode(&mut self, node: Node) -> u64 {
        *self.inodes.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u64
        })
    }

    fn node(&self, inode: u64) -> Result<Node, Errno> {
        let place = usize::try_from(inode).ok().and_then(|inode| inode.checked_sub(1));
        let node = place.and_then(|place| self.nodes.get(place)).copied().ok_or(Errno::NOENT)?;
        if self.instances.iter().any(|instance| instance.id == node.instance) {
            Ok(node)
        } else {
            Err(Errno::NOENT)
        }
    }

    fn place(&self, id: u32) -> Result<usize, Errno> {
        self.instances.iter().position(|instance| instance.id == id).ok_or(Errno::NODEV)
    }

    /// What a directory holds.
    fn children(&self, node: Node) -> Result<Vec<(String, Node)>, Errno> {
        let Entry::Dir(dir) = node.entry else { return Err(Errno::NOTDIR) };
        if dir == Dir::Instances {
            let others = self.instances.iter().filter(|instance| !instance.is_top());
            let root = |instance: &Instance| Node { instance: instance.id, entry: Entry::Dir(Dir::Root) };
            return Ok(others.map(|instance| (instance.name.clone(), root(instance))).collect());
        }
        let all = entries(dir, node.instance == 0, self.processors).into_iter();
        Ok(all.map(|(name, entry)| (name, Node { instance: node.instance, entry })).collect())
    }

    /// The entry of a directory with a name.
    pub fn lookup(&mut self, parent: u64, name: &str) -> Result<Attributes, Errno> {
        let children = self.children(self.node(parent)?)?;
        let (_, node) = children.into_iter().find(|(own, _)| own == name).ok_or(Errno::NOENT)?;
        let inode = self.inode(node);
        self.attributes(inode)
    }

    /// What `stat` shows.
    pub fn attributes(&self, inode: u64) -> Result<Attributes, Errno> {
        let node = self.node(inode)?;
        let (mode, owner) = self.changed.get(&node).copied().unwrap_or((mode(node.entry), self.owner));
        let is_dir = matches!(node.entry, Entry::Dir(_));
        let below = |(_, child): &(String, Node)| matches!(child.entry, Entry::Dir(_));
        let links = if is_dir {
            2 + self.children(node)?.iter().filter(|child| below(child)).count() as u32
        } else {
            1
        };
        Ok(Attributes { inode, is_dir, mode, owner, links })
    }

    /// Changes permissions or owner. (A new size changes nothing, as in the kernel.)
    pub fn set_attributes(
        &mut self,
        inode: u64,
        mode: Option<u16>,
        owner: (Option<u32>, Option<u32>),
    ) -> Result<Attributes, Errno> {
        let old = self.attributes(inode)?;
        let owner = (owner.0.unwrap_or(old.owner.0), owner.1.unwrap_or(old.owner.1));
        let node = self.node(inode)?;
        self.changed.insert(node, (mode.unwrap_or(old.mode), owner));
        self.attributes(inode)
    }

    /// What a directory lists.
    pub fn list(&mut self, inode: u64) -> Result<Vec<Listing>, Errno> {
        let children = self.children(self.node(inode)?)?;
        let listing = |(name, node): (String, Node)| Listing {
            name,
            inode: self.inode(node),
            is_dir: matches!(node.entry, Entry::Dir(_)),
        };
        Ok(children.into_iter().map(listing).collect())
    }

    /// Makes an instance.
    pub fn make_directory(&mut self, parent: u64, name: &str) -> Result<Attributes, Errno> {
        if self.node(parent)?.entry != Entry::Dir(Dir::Instances) {
            return Err(Errno::PERM);
        }
        if self.instances.iter().any(|instance| !instance.is_top() && instance.name == name) {
            return Err(Errno::EXIST);
        }
        if self.instances.len() == INSTANCES {
            return Err(Errno::NOSPC);
        }
        let id = self.next_instance;
        self.next_instance += 1;
        let options = self.instances[0].options.clone();
        let mut instance = Instance::new(id, name, options, self.processors);
        instance.reach(Stretch { from: self.last, to: self.last });
        instance.clear();
        self.instances.push(instance);
        self.chosen = false;
        self.lookup(parent, name)
    }

    /// Takes an instance away.
    pub fn remove_directory(&mut self, parent: u64, name: &str) -> Result<(), Errno> {
        let inode = self.lookup(parent, name)?.inode;
        let node = self.node(inode)?;
        if node.entry != Entry::Dir(Dir::Root) || node.instance == 0 {
            return Err(Errno::PERM);
        }
        let place = self.place(node.instance)?;
        if self.instances[place].open > 0 {
            return Err(Errno::BUSY);
        }
        self.effects.selects = true;
        self.ingest.forget(place);
        self.instances.remove(place);
        self.inodes.retain(|known, _| known.instance != node.instance);
        self.changed.retain(|known, _| known.instance != node.instance);
        Ok(())
    }

    // ---- Files

    /// Opens a file: a handle.
    pub fn open(&mut self, inode: u64, flags: OFlags) -> Result<u64, Errno> {
        let node = self.node(inode)?;
        let Entry::File(kind, arg) = node.entry else { return Err(Errno::ISDIR) };
        let place = self.place(node.instance)?;
        let writes = !(flags & OFlags::RWMODE).is_empty();
        let reads = flags & OFlags::RWMODE != OFlags::WRONLY;
        let truncates = writes && flags.contains(OFlags::TRUNC);
        self.separate |= kind == Kind::FunctionTracers;
        let content = match kind {
            Kind::TracePipe => {
                if std::mem::replace(&mut self.instances[place].piped, true) {
                    return Err(Errno::BUSY);
                }
                self.instances[place].expand();
                Content::Pipe(Box::default())
            }
            Kind::Trace => {
                let instance = &mut self.instances[place];
                if truncates && arg <= 1 {
                    instance.clear();
                }
                if reads { self.records(place, arg) } else { Content::Nothing }
            }
            Kind::RawPipe | Kind::RawSnapshot => {
                let instance = &mut self.instances[place];
                instance.expand();
                instance.raw_pipes += 1;
                Content::Pages(Pages::default())
            }
            Kind::Snapshot if reads => self.snapshot(place, arg),
            Kind::Filter | Kind::Notrace | Kind::GraphFunction | Kind::GraphNotrace if writes => {
                Content::Draft(Box::new(Draft::new(self.set(place, kind), truncates)))
            }
            Kind::Pid | Kind::NotracePid if truncates => {
                self.instances[place].pids[usize::from(kind == Kind::NotracePid)].clear();
                Content::Nothing
            }
            Kind::Marker | Kind::RawMarker | Kind::FreeBuffer => Content::Nothing,
            _ if reads => Content::Text(self.text(&self.instances[place], kind, arg)),
            _ => Content::Nothing,
        };
        let instance = &mut self.instances[place];
        instance.open += 1;
        if kind == Kind::Trace && reads && instance.options.is_on("pause-on-trace") {
            instance.paused += 1;
        }
        let handle = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(handle, Handle { node, kind, arg, written: false, content });
        Ok(handle)
    }

    fn set(&self, place: usize, kind: Kind) -> Set {
        let instance = &self.instances[place];
        let words = |which| {
            let (mut words, functions) = (instance.words.clone(), self.symbols.functions());
            if !self.separate {
                words.tracers.retain(|tracer| tracer.name == TRACE);
            }
            let mut model = Model { words, functions, profile: &[] };
            Set::Words(which, model.set_mut(which).clone())
        };
        match kind {
            Kind::Filter => words(Which::Filter),
            Kind::Notrace => words(Which::Notrace),
            Kind::GraphFunction => Set::Functions(0, instance.graph[0].clone()),
            _ => Set::Functions(1, instance.graph[1].clone()),
        }
    }

    /// What is in the buffer, of all processors or one.
    fn records(&self, place: usize, arg: u16) -> Content {
        let instance = &self.instances[place];
        let (format, none) = (instance.format(), arg > 1);
        let records = if none { View::default() } else { instance.ring.view() };
        let counts = if none { (0, 0) } else { instance.ring.counts() };
        let header = format.header(&self.symbols, counts);
        Content::Records(Box::new(Reader::new(records, format, header)))
    }

    fn snapshot(&self, place: usize, arg: u16) -> Content {
        let instance = &self.instances[place];
        let (format, tracer) = (instance.format(), instance.tracer_name());
        let state = match &instance.snapshot {
            Snapshot::Allocated(ring) if !ring.is_empty() && arg <= 1 => {
                let header = format.header(&self.symbols, ring.counts());
                return Content::Records(Box::new(Reader::new(ring.view(), format, header)));
            }
            Snapshot::Allocated(_) => "allocated",
            Snapshot::Freed => "freed",
        };
        Content::Text(format!(
            "# tracer: {tracer}\n#\n#\n# * Snapshot is {state} *\n#\n# Snapshot commands:\n\
             # echo 0 > snapshot : Clears and frees snapshot buffer\n\
             # echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.\n\
             #                      Takes a snapshot of the main buffer.\n\
             # echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)\n\
             #                      (Doesn't have to be '2' works with any number that\n\
             #                       is not a '0' or '1')\n"
        ))
    }

    /// Reads from an open file. `waits`: until there is something, where there is nothing yet.
    pub fn read(&mut self, handle: u64, offset: u64, size: usize, waits: bool) -> Result<Read, Errno> {
        let (symbols, ended) = (&mut self.symbols, self.ended);
        let open = self.handles.get_mut(&handle).ok_or(Errno::BADF)?;
        match &mut open.content {
            Content::Text(text) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let to = from.saturating_add(size).min(text.len());
                Ok(Read::Data(text.as_bytes()[from..to].to_vec()))
            }
            Content::Records(reader) => Ok(Read::Data(reader.read(symbols, offset, size))),
            Content::Pipe(pipe) => {
                let (id, arg) = (open.node.instance, open.arg);
                let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else {
                    return Ok(Read::Data(Vec::new()));
                };
                if arg <= 1 {
                    let format = instance.format();
                    if let Some(data) = pipe.read(&mut instance.ring, &format, symbols, size) {
                        return Ok(Read::Data(data));
                    }
                }
                let over = ended || !instance.is_on && pipe.any();
                Ok(if over { Read::Data(Vec::new()) } else { Read::Wait })
            }
            Content::Pages(pages) => {
                let id = open.node.instance;
                let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else {
                    return Ok(Read::Data(Vec::new()));
                };
                let (over, none) = (ended || !instance.is_on, &mut Ring::new(0));
                let ring = match (&mut instance.snapshot, open.kind) {
                    _ if open.arg > 1 => none,
                    (Snapshot::Allocated(ring), Kind::RawSnapshot) => ring,
                    (Snapshot::Freed, Kind::RawSnapshot) => none,
                    _ => &mut instance.ring,
                };
                // Who wants many pages and waits for them shall not get one for each record.
                let full = waits && !over && size > PAGE_SIZE;
                match pages.read(ring, symbols, size, full) {
                    data if data.is_empty() && !over => Ok(Read::Wait),
                    data => Ok(Read::Data(data)),
                }
            }
            Content::Draft(_) | Content::Nothing => Err(Errno::INVAL),
        }
    }

    /// Would a reader of `trace_pipe` find something? Of other files: yes.
    pub fn is_readable(&self, handle: u64) -> bool {
        let Some(open) = self.handles.get(&handle) else { return true };
        let instance = self.instances.iter().find(|instance| instance.id == open.node.instance);
        let pipe = match &open.content {
            Content::Pipe(pipe) => pipe,
            Content::Pages(_) if open.arg > 1 => return self.ended,
            Content::Pages(pages) if open.kind == Kind::RawPipe => {
                let any = instance.is_none_or(|instance| !instance.ring.is_empty());
                return !pages.is_empty() || self.ended || any;
            }
            _ => return true,
        };
        // (`buffer_percent` is no part of it: what comes slowly would never be read if it had to fill the buffer.)
        !pipe.is_empty() || self.ended || instance.is_none_or(|instance| !instance.ring.is_empty())
    }

    /// Writes to an open file: how many bytes were taken. `tid`: by this thread, at this time.
    pub fn write(
        &mut self,
        handle: u64,
        data: &[u8],
        tid: u32,
        comm: &str,
        now_ns: u64,
    ) -> Result<usize, Errno> {
        let open = self.handles.get_mut(&handle).ok_or(Errno::BADF)?;
        open.written = true;
        let (id, kind, arg) = (open.node.instance, open.kind, open.arg);
        let place = self.instances.iter().position(|instance| instance.id == id).ok_or(Errno::NODEV)?;
        let instance = &mut self.instances[place];
        match (&mut open.content, kind) {
            (Content::Draft(draft), _) => {
                let (taken, triggered) =
                    draft.write(data, self.symbols.functions(), &mut instance.triggers)?;
                self.effects.selects |= triggered;
                return Ok(taken);
            }
            // Opening has cleared it, or not; whatever is written is taken.
            (_, Kind::Trace) => return Ok(data.len()),
            (_, Kind::FreeBuffer) => return Ok(data.len()),
            (_, Kind::Pid | Kind::NotracePid) => {
                let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
                let new: Vec<u32> = text.split_whitespace().map(thread_id).collect::<Result<_, _>>()?;
                instance.pids[usize::from(kind == Kind::NotracePid)].extend(new);
                return Ok(data.len());
            }
            (_, Kind::Marker | Kind::RawMarker) => {
                let taken = data.len().min(MARK);
                let what = match kind {
                    Kind::Marker => What::Mark(String::from_utf8_lossy(&data[..taken]).into()),
                    _ if data.len() < 4 => return Err(Errno::INVAL),
                    _ => What::RawMark(data[..taken].into()),
                };
                if !instance.options.is_on("markers") {
                    return Err(Errno::INVAL);
                }
                if !instance.is_on {
                    return Err(Errno::BADF);
                }
                instance.expand();
                if self.symbols.group(tid).is_none() {
                    self.symbols.add_thread(tid, tid, comm);
                }
                self.ingest.mark(id, now_ns, tid, what);
                return Ok(taken);
            }
            _ => {}
        }
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        self.write_value(id, kind, arg, text)?;
        Ok(data.len())
    }

    /// Does closing a file take something over? Else it shall not wait for anything.
    pub fn is_written(&self, handle: u64) -> bool {
        self.handles
            .get(&handle)
            .is_some_and(|open| open.written && matches!(open.content, Content::Draft(_)))
    }

    /// Somebody has closed the file; others may have it open still.
    pub fn flush(&mut self, handle: u64) -> Result<(), Errno> {
        let written = self.handles.get_mut(&handle).is_some_and(|open| std::mem::take(&mut open.written));
        if written {
            self.commit(handle);
        }
        Ok(())
    }

    fn commit(&mut self, handle: u64) {
        let Some(open) = self.handles.get_mut(&handle) else { return };
        let id = open.node.instance;
        let Content::Draft(draft) = &mut open.content else { return };
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else { return };
        let functions = self.symbols.functions();
        let triggered = draft.finish(functions, &mut instance.triggers);
        self.effects.selects |= triggered;
        match draft.take() {
            Some(Set::Words(which, words)) => {
                let own = std::mem::take(&mut instance.words);
                let mut model = Model { words: own, functions, profile: &[] };
                if !self.separate {
                    // (The first tracer's, registered or not: all others are put back with its sets.)
                    model.words.tracers.sort_by_key(|tracer| tracer.name != TRACE);
                    let others = model.words.tracers.split_off(1);
                    *model.set_mut(which) = words;
                    model.words.tracers.extend(others);
                } else {
                    *model.set_mut(which) = words;
                }
                instance.words = model.words;
                if !self.separate {
                    instance.share_sets();
                }
                self.effects.selects = true;
            }
            Some(Set::Functions(which, set)) => {
                instance.graph[which] = set;
                self.effects.selects = true;
            }
            None => {}
        }
    }

    /// The file is open no more.
    pub fn release(&mut self, handle: u64) {
        self.commit(handle);
        let Some(open) = self.handles.remove(&handle) else { return };
        let id = open.node.instance;
        let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) else { return };
        instance.open -= 1;
        match (open.kind, &open.content) {
            (Kind::TracePipe, _) => instance.piped = false,
            (Kind::RawPipe | Kind::RawSnapshot, _) => instance.raw_pipes -= 1,
            (Kind::Trace, Content::Records(_)) => instance.paused = instance.paused.saturating_sub(1),
            (Kind::FreeBuffer, _) => {
                if instance.options.is_on("disable_on_free") {
                    instance.is_on = false;
                }
                instance.set_kb(1);
            }
            _ => {}
        }
    }
}

/// A word of `set_ftrace_pid`: decimal, 0x..., 0...
fn thread_id(word: &str) -> Result<u32, Errno> {
    let (digits, base) = number_base(word);
    let number = u64::from_str_radix(digits, base).map_err(|_| Errno::INVAL)?;
    u32::try_from(number).ok().filter(|tid| *tid < 1 << 31).ok_or(Errno::PERM)
}
