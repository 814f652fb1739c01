//! Calls merged by path: the tree behind call graphs, folded stacks and flame graphs.

use crate::error::Error;
use crate::off::Off;
use crate::sources::drive::{Progress, run_by_thread};
use crate::sources::share::run_shared;
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Totals, Visitor};
use crate::units::count;
use calltap_trace::{SiteId, ThreadId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::str::FromStr;

/// Paths kept unless asked otherwise.
pub const NODES: usize = 1 << 20;
/// Deepest path kept; below it calls merge into their caller.
const DEPTH: usize = 2048;
/// Set in an open call's node if the call was merged into that node.
const MERGED: u32 = 1 << 31;
/// Set in a node's key if it stands for a thread.
const THREAD: u32 = 1 << 31;

/// Calls of one function by one path. Times in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Site, or thread with the top bit set.
    key: u32,
    /// The node of the caller; the root is its own.
    pub parent: u32,
    /// The child entered last, tried before the index.
    recent: u32,
    depth: u32,
    /// How many.
    pub calls: u64,
    /// Their time.
    pub total: u64,
    /// Of it what was not spent in callees.
    pub own: u64,
    /// Calls of them whose end is not known.
    pub cut: u64,
    /// Events that were lost while such a call was the innermost one.
    pub lost: u64,
}

impl Node {
    fn new(key: u32, parent: u32, depth: u32) -> Node {
        Node { key, parent, recent: 0, depth, calls: 0, total: 0, own: 0, cut: 0, lost: 0 }
    }
}

/// What a node stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// The whole.
    Root,
    /// A thread.
    Thread(ThreadId),
    /// A function.
    Site(SiteId),
}

/// Which time of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// All of it.
    #[default]
    Wall,
    /// What their threads ran.
    Cpu,
    /// What their threads could have run, without a processor.
    Runnable,
    /// What their threads slept.
    Blocked,
    /// What calltap kept their threads from running.
    Tracing,
}

impl By {
    /// All of them.
    pub const ALL: [By; 5] = [By::Wall, By::Cpu, By::Runnable, By::Blocked, By::Tracing];
    /// Their names, which `from_str` understands.
    pub const NAMES: &[&str] = &["wall", "cpu", "runnable", "blocked", "tracing"];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// So much of a time.
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
    type Err = String;

    fn from_str(name: &str) -> Result<By, String> {
        let by = By::ALL.into_iter().find(|by| by.name() == name);
        by.ok_or_else(|| format!("'{name}' is not a time: {}", By::NAMES.join(", ")))
    }
}

/// How much of a node's times its threads did not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeOff {
    /// Of [`Node::total`],
    pub total: Off,
    /// and of [`Node::own`].
    pub own: Off,
}

/// The tree; node 0 is its root, and a node comes after its parent.
pub struct Paths {
    /// All of them.
    pub nodes: Vec<Node>,
    /// By node, as far as a thread did not run in one; none where context switches were not recorded.
    offs: Option<Vec<NodeOff>>,
    index: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    limit: usize,
    /// Calls that were merged into their caller because of a limit.
    pub merged: u64,
    /// Which limits forbade a child: of their number, of depth.
    met: (bool, bool),
}

impl Paths {
    /// Of at most so many nodes besides the root.
    pub fn new(limit: usize) -> Self {
        let root = Node::new(u32::MAX, 0, 0);
        // Indices must leave the top bit free.
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

    /// The same, and of each node how much of it threads did not run, if that was recorded.
    pub fn switching(limit: usize, is_recorded: bool) -> Self {
        Self { offs: is_recorded.then(Vec::new), ..Self::new(limit) }
    }

    /// How much of a node's times its threads did not run; none where context switches were not recorded.
    pub fn off(&self, node: u32) -> Option<NodeOff> {
        let offs = self.offs.as_ref()?;
        Some(offs.get(node as usize).copied().unwrap_or_default())
    }

    /// Adds to it.
    #[cold]
    pub(crate) fn add_off(&mut self, node: u32, off: &NodeOff) {
        let Some(offs) = &mut self.offs else { return };
        if offs.len() <= node as usize {
            offs.resize(node as usize + 1, NodeOff::default());
        }
        offs[node as usize].total += off.total;
        offs[node as usize].own += off.own;
    }

    /// The time of a node and of it alone, in ticks.
    pub fn times(&self, node: u32, by: By) -> (u64, u64) {
        let (numbers, off) = (&self.nodes[node as usize], self.off(node).unwrap_or_default());
        (by.of(numbers.total, &off.total), by.of(numbers.own, &off.own))
    }

    /// The limits for which calls were merged, as a clause about paths.
    pub fn limits_met(&self) -> String {
        let number = || format!("more than {} paths", count(self.limit as u64 - 1));
        let depth = || format!("paths deeper than {} calls", count(DEPTH as u64));
        match self.met {
            (true, true) => format!("{}, and {}", number(), depth()),
            (false, true) => depth(),
            _ => number(),
        }
    }

    /// What a node stands for.
    pub fn of(&self, node: u32) -> Of {
        match self.nodes[node as usize].key {
            u32::MAX => Of::Root,
            key if key & THREAD != 0 => Of::Thread(ThreadId(key & !THREAD)),
            key => Of::Site(SiteId(key)),
        }
    }

    /// The child of `parent` for a site; `None` when a limit forbids a new one.
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

    /// Adds the paths of threads that come behind: as if their calls had followed. False if that is not known, as there are too many paths.
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

    /// Children of every node, in order of creation.
    pub fn children(&self) -> Children {
        let mut ends = vec![0u32; self.nodes.len() + 1];
        for node in &self.nodes[1..] {
            ends[node.parent as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let mut next = ends.clone();
        let mut list = vec![0u32; self.nodes.len() - 1];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let slot = &mut next[node.parent as usize];
            list[*slot as usize] = index as u32;
            *slot += 1;
        }
        Children { starts: ends, list }
    }

    /// Gives threads and the root (whose key has the top bit set too) the time of their children and of calls
    /// merged into them.
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

/// For each node, its children.
pub struct Children {
    starts: Vec<u32>,
    list: Vec<u32>,
}

impl Children {
    /// Of a node.
    pub fn of(&self, node: u32) -> &[u32] {
        &self.list[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}

struct Collector<F> {
    paths: Paths,
    open: Vec<u32>,
    by_thread: bool,
    base: Option<u32>,
    /// Told of every call that is over, and its node, unless it was merged into its caller.
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

/// Reads all events into a tree of at most `limit` nodes; `by_thread` puts the threads right below the root.
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
        // Which paths are kept is for a single reader to say.
        return collect_each(source, limit, by_thread, |_, _| {}, None);
    }
    paths.sum_up();
    Ok((paths, totals))
}

/// The same, and tells `each` of the calls that are over, and their nodes.
pub fn collect_each(
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
