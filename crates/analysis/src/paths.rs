//! Calls merged by path: the tree behind call graphs, folded stacks and flame graphs.

use crate::error::{Error, NotOneOf};
use crate::off::Off;
use crate::sources::drive::{Progress, run_by_thread};
use crate::sources::share::run_shared;
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Totals, Visitor};
use crate::units::count;
use calltap_trace::{SiteId, ThreadId};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::str::FromStr;

/// Default limit of paths.
pub const NODES: usize = 1 << 20;
/// Deepest path kept; below it calls merge into their caller.
const DEPTH: usize = 2048;
/// Set in an open call's node if the call was merged into that node.
const MERGED: u32 = 1 << 31;
/// Set in a node's key if it stands for a thread.
const THREAD: u32 = 1 << 31;

/// The calls of one function by one path, times in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Site id, or thread id with the top bit set.
    key: u32,
    /// Node of the caller; the root is its own parent.
    pub parent: u32,
    /// Child entered last, tried before the index.
    recent: u32,
    depth: u32,
    /// Number of calls.
    pub calls: u64,
    /// Time of the calls.
    pub total: u64,
    /// Part of `total` outside of callees.
    pub own: u64,
    /// Number of calls whose end is unknown.
    pub cut: u64,
    /// Number of events lost while such a call was innermost.
    pub lost: u64,
}

impl Node {
    fn new(key: u32, parent: u32, depth: u32) -> Node {
        Node { key, parent, recent: 0, depth, calls: 0, total: 0, own: 0, cut: 0, lost: 0 }
    }
}

/// Meaning of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// The root: the whole program.
    Root,
    /// A thread.
    Thread(ThreadId),
    /// A function.
    Site(SiteId),
}

/// A part of the time of calls, by thread state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// The whole time.
    #[default]
    Wall,
    /// Time in which the threads ran.
    Cpu,
    /// Time in which the threads were runnable but had no processor.
    Runnable,
    /// Time in which the threads were blocked.
    Blocked,
    /// Time in which calltap held the threads.
    Tracing,
}

impl By {
    /// All parts.
    pub const ALL: [By; 5] = [By::Wall, By::Cpu, By::Runnable, By::Blocked, By::Tracing];
    /// Names of the parts, parsed by `from_str`.
    pub const NAMES: &[&str] = &["wall", "cpu", "runnable", "blocked", "tracing"];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns this part of `time`.
    pub fn of(self, time: u64, off: &Off) -> u64 {
        match self {
            By::Wall => time,
            By::Cpu => off.ran(time),
            By::Runnable => off.runnable,
            By::Blocked => off.blocked,
            By::Tracing => off.tracing,
        }
    }
}

impl FromStr for By {
    type Err = NotOneOf;

    fn from_str(name: &str) -> Result<By, NotOneOf> {
        let by = By::ALL.into_iter().find(|by| by.name() == name);
        by.ok_or_else(|| NotOneOf::new("time", name, By::NAMES))
    }
}

/// Off-CPU time of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeOff {
    /// Off-CPU part of [`Node::total`].
    pub total: Off,
    /// Off-CPU part of [`Node::own`].
    pub own: Off,
}

/// A tree of call paths. Node 0 is the root, and each node follows its parent.
pub struct Paths {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Off-CPU time by node, up to the last node that has any; `None` if context switches were not
    /// recorded.
    offs: Option<Vec<NodeOff>>,
    index: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    limit: usize,
    /// Number of calls merged into their callers because of a limit.
    pub merged: u64,
    /// Limits that were reached: number of nodes, depth.
    met: (bool, bool),
}

impl Paths {
    /// Makes a tree of at most `limit` nodes besides the root.
    pub fn new(limit: usize) -> Self {
        let root = Node::new(u32::MAX, 0, 0);
        // The top bit of an index is the flag `MERGED`.
        let limit = limit.min(MERGED as usize - 2) + 1;
        Self {
            nodes: vec![root],
            offs: None,
            index: HashMap::default(),
            limit,
            merged: 0,
            met: (false, false),
        }
    }

    /// Makes a tree that also sums off-CPU time, if `is_recorded`.
    pub(crate) fn switching(limit: usize, is_recorded: bool) -> Self {
        Self { offs: is_recorded.then(Vec::new), ..Self::new(limit) }
    }

    /// Returns the off-CPU time of a node; `None` if context switches were not recorded.
    pub fn off(&self, node: u32) -> Option<NodeOff> {
        let offs = self.offs.as_ref()?;
        Some(offs.get(node as usize).copied().unwrap_or_default())
    }

    /// Adds off-CPU time to a node.
    #[cold]
    pub(crate) fn add_off(&mut self, node: u32, off: &NodeOff) {
        let Some(offs) = &mut self.offs else { return };
        if offs.len() <= node as usize {
            offs.resize(node as usize + 1, NodeOff::default());
        }
        offs[node as usize].total += off.total;
        offs[node as usize].own += off.own;
    }

    /// Returns total and own time of a node, in ticks.
    pub fn times(&self, node: u32, by: By) -> (u64, u64) {
        let (numbers, off) = (&self.nodes[node as usize], self.off(node).unwrap_or_default());
        (by.of(numbers.total, &off.total), by.of(numbers.own, &off.own))
    }

    /// Names the limits because of which calls were merged, as a clause about paths.
    pub fn limits_met(&self) -> String {
        let number = || format!("more than {} paths", count(self.limit as u64 - 1));
        let depth = || format!("paths deeper than {} calls", count(DEPTH as u64));
        match self.met {
            (true, true) => format!("{}, and {}", number(), depth()),
            (false, true) => depth(),
            _ => number(),
        }
    }

    /// Returns the meaning of a node.
    pub fn of(&self, node: u32) -> Of {
        match self.nodes[node as usize].key {
            u32::MAX => Of::Root,
            key if key & THREAD != 0 => Of::Thread(ThreadId(key & !THREAD)),
            key => Of::Site(SiteId(key)),
        }
    }

    /// Returns the child of `parent` for a site; `None` if a limit forbids a new one.
    pub fn child(&mut self, parent: u32, site: SiteId) -> Option<u32> {
        self.child_by_key(parent, site.0 & !THREAD)
    }

    #[inline]
    fn child_by_key(&mut self, parent: u32, key: u32) -> Option<u32> {
        let above = self.nodes[parent as usize];
        if above.recent != 0 && self.nodes[above.recent as usize].key == key {
            return Some(above.recent);
        }
        let place = u64::from(parent) << 32 | u64::from(key);
        let node = match self.index.get(&place) {
            Some(&node) => node,
            None if above.depth as usize >= DEPTH => {
                self.met.1 = true;
                return None;
            }
            None if self.nodes.len() >= self.limit => {
                self.met.0 = true;
                return None;
            }
            None => {
                let node = self.nodes.len() as u32;
                let depth = above.depth + 1;
                self.nodes.push(Node::new(key, parent, depth));
                self.index.insert(place, node);
                node
            }
        };
        self.nodes[parent as usize].recent = node;
        Some(node)
    }

    /// Adds the paths of threads that follow in order. Returns false if either tree reached its
    /// limit, so that the sum would differ from that of one reader.
    fn add(&mut self, other: &Paths) -> bool {
        if self.met.0 || other.met.0 {
            return false;
        }
        let mut places = vec![0; other.nodes.len()];
        for (at, node) in other.nodes.iter().enumerate() {
            if at > 0 {
                let Some(place) = self.child_by_key(places[node.parent as usize], node.key) else {
                    return false;
                };
                places[at] = place;
            }
            let sum = &mut self.nodes[places[at] as usize];
            sum.calls += node.calls;
            sum.total = sum.total.saturating_add(node.total);
            sum.own = sum.own.saturating_add(node.own);
            sum.cut += node.cut;
            sum.lost = sum.lost.saturating_add(node.lost);
            if let Some(off) = other.off(at as u32).filter(|off| *off != NodeOff::default()) {
                self.add_off(places[at], &off);
            }
        }
        self.merged += other.merged;
        self.met.1 |= other.met.1;
        true
    }

    /// Returns the children of every node, in order of creation.
    pub fn children(&self) -> Children {
        Children::new(self.nodes.len(), |node| self.nodes[node].parent)
    }

    /// Returns the sites of all nodes, each once.
    pub fn sites(&self) -> Vec<SiteId> {
        let sites = (0..self.nodes.len() as u32).filter_map(|node| match self.of(node) {
            Of::Site(site) => Some(site),
            _ => None,
        });
        sites.collect::<BTreeSet<SiteId>>().into_iter().collect()
    }

    /// Whether it has no calls.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Gives threads and the root, whose key has the top bit set too, the time of their children
    /// and of calls merged into them.
    fn sum_up(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            let mut node = self.nodes[at];
            if node.key & THREAD != 0 {
                node.total = node.total.saturating_add(node.own);
                self.nodes[at] = node;
                let own = self.off(at as u32).map_or(Off::default(), |off| off.own);
                self.add_off(at as u32, &NodeOff { total: own, own: Off::default() });
            }
            let above = &mut self.nodes[node.parent as usize];
            if at != 0 && above.key & THREAD != 0 {
                above.total = above.total.saturating_add(node.total);
                let total = self.off(at as u32).map_or(Off::default(), |off| off.total);
                self.add_off(node.parent, &NodeOff { total, own: Off::default() });
            }
        }
    }
}

/// The children of each node.
pub struct Children {
    starts: Vec<u32>,
    list: Vec<u32>,
}

impl Children {
    /// Returns the children of `count` nodes, whose parents precede them; node 0 is the root.
    pub(crate) fn new(count: usize, parent: impl Fn(usize) -> u32) -> Children {
        let mut ends = vec![0u32; count + 1];
        for node in 1..count {
            ends[parent(node) as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut next = ends.clone();
        let mut list = vec![0u32; count - 1];
        for node in 1..count {
            let slot = &mut next[parent(node) as usize];
            list[*slot as usize] = node as u32;
            *slot += 1;
        }
        Children { starts: ends, list }
    }

    /// Returns the children of a node.
    pub fn of(&self, node: u32) -> &[u32] {
        &self.list[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}

struct Collector<F> {
    paths: Paths,
    open: Vec<u32>,
    by_thread: bool,
    base: Option<u32>,
    /// Receives every ended call and its node, except calls merged into their callers.
    each: F,
}

impl<F: FnMut(u32, &Call)> Collector<F> {
    #[inline]
    fn top(&mut self, thread: ThreadId) -> u32 {
        if let Some(&top) = self.open.last() {
            return top & !MERGED;
        }
        if !self.by_thread {
            return 0;
        }
        let paths = &mut self.paths;
        *self.base.get_or_insert_with(|| paths.child_by_key(0, thread.0 | THREAD).unwrap_or(0))
    }
}

impl<F: FnMut(u32, &Call)> Visitor for Collector<F> {
    #[inline]
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        let top = self.top(thread);
        let node = match self.paths.child(top, enter.site) {
            Some(node) => {
                self.paths.nodes[node as usize].calls += u64::from(!enter.is_rest);
                node
            }
            None => {
                self.paths.merged += u64::from(!enter.is_rest);
                top | MERGED
            }
        };
        self.open.push(node);
    }

    #[inline]
    fn close(&mut self, _: ThreadId, call: &Call) {
        let Some(open) = self.open.pop() else { return };
        if self.paths.offs.is_some() && !call.off.is_none() {
            let total = if open & MERGED == 0 { call.off } else { Off::default() };
            self.paths.add_off(open & !MERGED, &NodeOff { total, own: call.self_off });
        }
        let node = &mut self.paths.nodes[(open & !MERGED) as usize];
        node.own = node.own.saturating_add(call.self_ticks);
        if open & MERGED == 0 {
            node.total = node.total.saturating_add(call.total);
            node.cut += u64::from(call.ending.is_cut() && call.ending.is_of_call());
            (self.each)(open, call);
        }
    }

    #[inline]
    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let top = self.top(thread);
        match self.paths.child(top, enter.site) {
            Some(node) => self.paths.nodes[node as usize].calls += 1,
            None => self.paths.merged += 1,
        }
    }

    fn lost(&mut self, thread: ThreadId, _: u64, entries: u32, exits: u32) {
        let top = self.top(thread);
        let lost = &mut self.paths.nodes[top as usize].lost;
        *lost = lost.saturating_add(u64::from(entries) + u64::from(exits));
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        self.base = None;
        Ok(())
    }
}

/// Reads all events into a tree of at most `limit` nodes; `by_thread` makes threads the level below
/// the root.
pub fn collect(
    source: &dyn Source,
    limit: usize,
    by_thread: bool,
    progress: Progress<'_>,
) -> Result<(Paths, Totals), Error> {
    let is_recorded = source.has_switches();
    let make = || {
        let paths = Paths::switching(limit, is_recorded);
        Collector { paths, open: Vec::new(), by_thread, base: None, each: |_: u32, _: &Call| {} }
    };
    let (collectors, totals) = run_shared(source, &make, progress)?;
    let mut all = collectors.into_iter().map(|collector| collector.paths);
    let mut paths = all.next().unwrap_or_else(|| Paths::switching(limit, is_recorded));
    if !all.all(|other| paths.add(&other)) {
        // Beyond the limit, the order of events decides which paths are kept; only a single reader
        // follows it.
        return collect_each(source, limit, by_thread, |_, _| {}, None);
    }
    paths.sum_up();
    Ok((paths, totals))
}

/// Reads all events as [`collect`] does, and passes ended calls with their nodes to `each`.
pub(crate) fn collect_each(
    source: &dyn Source,
    limit: usize,
    by_thread: bool,
    each: impl FnMut(u32, &Call),
    progress: Progress<'_>,
) -> Result<(Paths, Totals), Error> {
    let paths = Paths::switching(limit, source.has_switches());
    let mut collector = Collector { paths, open: Vec::new(), by_thread, base: None, each };
    let totals = run_by_thread(source, &mut collector, progress)?;
    collector.paths.sum_up();
    Ok((collector.paths, totals))
}

/// A hasher for keys that are already numbers.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
