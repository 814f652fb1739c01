//! Callgrind's format, for KCachegrind and callgrind_annotate: the own cost of each function, and
//! the number and inclusive cost of its calls of each other function.
//!
//! Readers take the sum over all calls of a function as its inclusive cost. Therefore only
//! outermost calls have a cost here, recursive ones only a number, so that readers show the total
//! time of `calltap report`. If nothing has a time, calls are the cost.

use crate::labels::command;
use crate::options::Options;
use calltap_analysis::units::one_line;
use calltap_analysis::{Call, Enter, Error, Names, Progress, Source, Totals, Visitor, run_by_thread};
use calltap_trace::{SiteId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Writes costs in nanoseconds. A pseudo-function named after each thread calls its outermost
/// functions.
pub fn callgrind(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let sites = source.meta().sites.len() + 1;
    let mut collector = Collector {
        open: Vec::new(),
        active: vec![0; sites],
        own: vec![Cost::default(); sites],
        edges: HashMap::new(),
    };
    let totals = run_by_thread(source, &mut collector, progress)?;
    let names = Names::new(source.meta(), options.linker_names);
    let timed = source.has_time() && collector.own.iter().any(|own| own.ticks > 0);
    write(source, &names, &collector, &totals, timed, out)?;
    Ok(totals)
}

/// The cost of calls: time in ticks, and their number.
#[derive(Clone, Copy, Default)]
struct Cost {
    ticks: u64,
    calls: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.calls += other.calls;
    }
}

/// Calls of one function by another, and the cost of the outermost ones.
#[derive(Clone, Copy, Default)]
struct Edge {
    number: u64,
    inclusive: Cost,
}

/// An open call.
struct Frame {
    site: u32,
    /// Number of calls in it, itself included.
    calls: u64,
}

/// A caller: whether it is a thread, and the number of the site or thread.
type Caller = (bool, u32);

struct Collector {
    open: Vec<Frame>,
    /// Number of open calls by site.
    active: Vec<u32>,
    own: Vec<Cost>,
    edges: HashMap<(Caller, u32), Edge>,
}

impl Visitor for Collector {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.active[enter.site.0 as usize] += 1;
        self.open.push(Frame { site: enter.site.0, calls: u64::from(!enter.is_rest) });
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        let Some(frame) = self.open.pop() else { return };
        self.own[frame.site as usize]
            .add(Cost { ticks: call.self_ticks, calls: u64::from(call.ending.is_of_call()) });
        if let Some(caller) = self.open.last_mut() {
            caller.calls += frame.calls;
        }
        self.active[frame.site as usize] -= 1;
        self.edge(thread, frame.site, Cost { ticks: call.total, calls: frame.calls });
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let cost = Cost { ticks: 0, calls: 1 };
        self.own[enter.site.0 as usize].add(cost);
        // The frame of the caller is open only if another tracer recorded it.
        if let Some(caller) = self.open.last_mut() {
            caller.calls += 1;
        }
        self.edge(thread, enter.site.0, cost);
    }
}

impl Collector {
    fn edge(&mut self, thread: ThreadId, site: u32, inclusive: Cost) {
        let caller = self.open.last().map_or((true, thread.0), |frame| (false, frame.site));
        let edge = self.edges.entry((caller, site)).or_default();
        edge.number += 1;
        if self.active[site as usize] == 0 {
            edge.inclusive.add(inclusive);
        }
    }
}

fn write(
    source: &dyn Source,
    names: &Names<'_>,
    collector: &Collector,
    totals: &Totals,
    timed: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "# callgrind format\nversion: 1\ncreator: calltap {}", env!("CARGO_PKG_VERSION"))?;
    if let Some(process) = source.meta().processes.first() {
        writeln!(out, "pid: {}", process.pid)?;
    }
    writeln!(out, "cmd: {}", one_line(&command(source)))?;
    for line in calltap_analysis::head::head_of_paths(source, totals).lines() {
        writeln!(out, "desc: calltap: {}", one_line(line.strip_prefix("# ").unwrap_or(line)))?;
    }
    writeln!(out, "positions: line")?;
    match timed {
        true => writeln!(out, "event: ns : Nanoseconds\nevents: ns")?,
        false => writeln!(out, "event: calls : Calls\nevents: calls")?,
    }
    let cost = |cost: Cost| if timed { source.duration_ns(cost.ticks) } else { cost.calls };
    let mut whole = Cost::default();
    collector.own.iter().for_each(|own| whole.add(*own));
    writeln!(out, "summary: {}\n\nfl=(1) ???", cost(whole))?;

    let mut callers: BTreeMap<Caller, Vec<(u32, Edge)>> = BTreeMap::new();
    for (&(caller, site), &edge) in &collector.edges {
        callers.entry(caller).or_default().push((site, edge));
        callers.entry((false, site)).or_default();
    }
    let mut named = Named { names, known: HashMap::new() };
    for (caller, mut edges) in callers {
        edges.sort_unstable_by_key(|&(site, _)| site);
        let own = if caller.0 { Cost::default() } else { collector.own[caller.1 as usize] };
        writeln!(out, "\nob={}\nfn={}\n0 {}", named.object(caller), named.function(caller), cost(own))?;
        for (site, Edge { number, inclusive }) in edges {
            let (object, function) = (named.object((false, site)), named.function((false, site)));
            writeln!(out, "cob={object}\ncfn={function}\ncalls={number} 0\n0 {}", cost(inclusive))?;
        }
    }
    writeln!(out, "\ntotals: {}", cost(whole))
}

/// Compresses names: the first use writes a name with a number, later uses the number alone.
struct Named<'a> {
    names: &'a Names<'a>,
    known: HashMap<(bool, String), usize>,
}

impl Named<'_> {
    fn object(&mut self, (thread, at): Caller) -> String {
        let path = if thread { None } else { self.names.module_path(SiteId(at)) };
        self.short(false, one_line(path.unwrap_or("???")).into_owned())
    }

    fn function(&mut self, (thread, at): Caller) -> String {
        let name = match thread {
            true => format!("[{}]", self.names.task(ThreadId(at))),
            false => self.names.function(SiteId(at)).to_owned(),
        };
        self.short(true, one_line(&name).into_owned())
    }

    fn short(&mut self, function: bool, name: String) -> String {
        let next = self.known.len() + 1;
        match self.known.entry((function, name.clone())) {
            std::collections::hash_map::Entry::Occupied(known) => format!("({})", known.get()),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(next);
                format!("({next}) {name}")
            }
        }
    }
}
