//! A recording in memory for interactive views: its functions, call paths and timeline, all read at
//! once.
//!
//! `calltap view` and `calltap tui` show it. The numbers equal those of [`crate::report`] and
//! [`crate::graph`].

mod calls;
mod compare;
mod flame;
mod heat;
mod values;
mod window;

pub use calls::SlowCall;
pub use compare::{Base, Both, Calls, ComparedBox, ComparedFlame, Width};
pub use flame::{Box, Flame};
pub use heat::{Columns, Heat};
pub use values::{CallId, CallValues};
pub use window::Window;

use crate::error::Error;
use crate::graph::function;
use crate::histogram::{Counts, Histograms};
use crate::names::Names;
use crate::paths::{self, Children, NODES, Of, Paths};
use crate::report::collect::{merged, same_functions, times};
use crate::report::{self, PERMILLES, Times};
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::sums;
use crate::timeline::{Block, Limits, Timeline};
use crate::tree::Totals;
use calls::Slowest;
use calltap_trace::{SiteId, ThreadId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A function that was called.
#[derive(Clone, Debug)]
pub struct Function {
    /// Identity of the function: the first of its sites.
    pub site: SiteId,
    /// Demangled name.
    pub name: String,
    /// File name of its module.
    pub module: String,
    /// Number of calls.
    pub calls: u64,
    /// Times with percentiles; `None` if no call was timed or the clock has no time.
    pub times: Option<Times>,
    durations: Counts,
}

/// A caller or callee of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relative {
    /// Identity of the function.
    pub site: SiteId,
    /// Number of calls from the caller, or of the callee.
    pub calls: u64,
    /// Time of these calls, nanoseconds.
    pub total_ns: u64,
}

/// The callers and callees of a function, longest first.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The direct callers.
    pub callers: Vec<Relative>,
    /// The direct callees.
    pub callees: Vec<Relative>,
}

/// A bar of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Shortest duration in it, nanoseconds.
    pub from_ns: u64,
    /// Upper bound of its durations, nanoseconds, exclusive.
    pub to_ns: u64,
    /// First and last duration in it, ticks.
    ticks: (u64, u64),
    /// Number of calls.
    pub calls: u64,
}

/// A recording that was read.
pub struct Explorer<S> {
    /// The source that it was read from.
    pub source: S,
    /// The timeline of all threads.
    pub timeline: Timeline,
    /// The functions that were called, most time first.
    pub functions: Vec<Function>,
    /// Totals of all events.
    pub totals: Totals,
    /// Index in `functions`, by site.
    by_site: Vec<Option<u32>>,
    paths: Paths,
    children: Children,
    slowest: Slowest,
    /// Limits for timelines of single functions.
    limits: Limits,
    /// The timelines of single functions that were requested last.
    only: Mutex<Vec<(SiteId, Arc<Timeline>)>>,
    windows: window::Recent,
}

/// Number of timelines of single functions that are kept.
const ONLY: usize = 4;

impl<S: Source + Sync> Explorer<S> {
    /// Reads all events.
    pub fn new(source: S, limits: Limits, progress: Progress<'_>) -> Result<Self, Error> {
        let read = &source;
        let (timeline, paths, functions) = thread::scope(|scope| {
            let paths = scope.spawn(move || {
                let mut slowest = Slowest::new(read.meta().sites.len() + 1);
                let paths = paths::collect_each(read, NODES, false, |_, _| {}, None);
                let slow = slowest.read(read);
                paths.and_then(|(paths, _)| slow.map(|()| (paths, slowest)))
            });
            let functions = scope.spawn(move || {
                let histograms = Histograms::new(read.meta().sites.len() + 1);
                sums::collect(read, false, histograms, None)
            });
            let timeline = Timeline::new(read, limits, progress);
            (timeline, paths.join(), functions.join())
        });
        let panicked =
            |_| std::io::Error::other("the thread that reads the events failed: this is a bug of calltap");
        let (timeline, totals) = timeline?;
        let (paths, slowest) = paths.map_err(panicked)??;
        let (sums, _) = functions.map_err(panicked)??;
        let (functions, by_site) = list(&source, sums);
        let children = paths.children();
        let (blocks, checkpoints) = (limits.blocks / ONLY / 2, limits.checkpoints / ONLY / 2);
        let (limits, only) = (Limits { blocks, checkpoints, ..limits }, Mutex::default());
        let windows = Mutex::default();
        Ok(Self {
            source,
            timeline,
            functions,
            totals,
            by_site,
            paths,
            children,
            slowest,
            limits,
            only,
            windows,
        })
    }
}

/// Returns the functions, most time first, and the index of each site's function.
fn list(source: &dyn Source, sums: Vec<sums::Sum<Counts>>) -> (Vec<Function>, Vec<Option<u32>>) {
    let names = Names::new(source.meta(), false);
    let same = same_functions(source, &names);
    let merged = merged::<Histograms>(source, &report::Options::default(), &names, &same, sums);
    let mut functions: Vec<Function> = merged
        .into_iter()
        .map(|sum| {
            let percentiles = PERMILLES.map(|permille| sum.extra.permille(permille));
            Function {
                site: SiteId(same[sum.site.0 as usize] as u32),
                name: names.function(sum.site).to_owned(),
                module: names.module(sum.site).to_owned(),
                calls: sum.stats.calls + sum.marks,
                times: times(source, &sum, Some(percentiles)),
                durations: sum.extra,
            }
        })
        .collect();
    let total = |function: &Function| function.times.map_or(0, |times| times.total_ns);
    functions.sort_by(|a, b| (total(b), b.calls).cmp(&(total(a), a.calls)).then_with(|| a.name.cmp(&b.name)));
    let places: HashMap<SiteId, u32> = functions.iter().map(|f| f.site).zip(0..).collect();
    let by_site = same.iter().map(|&first| places.get(&SiteId(first as u32)).copied()).collect();
    (functions, by_site)
}

impl<S: Source> Explorer<S> {
    /// Returns the function of a site.
    pub fn function(&self, site: SiteId) -> Option<&Function> {
        let at = (*self.by_site.get(site.0 as usize)?)?;
        self.functions.get(at as usize)
    }

    /// Returns the identity of a site's function.
    pub fn known(&self, site: SiteId) -> SiteId {
        self.function(site).map_or(site, |function| function.site)
    }

    /// Returns all sites of a function.
    pub fn sites(&self, function: &Function) -> Vec<SiteId> {
        let all = (0..).zip(&self.by_site);
        let own = all.filter(|(_, at)| {
            at.and_then(|at| self.functions.get(at as usize)).is_some_and(|f| f.site == function.site)
        });
        own.map(|(site, _)| SiteId(site)).collect()
    }

    /// Returns a histogram of the durations of a function's calls.
    pub fn histogram(&self, function: &Function, bars: usize) -> Vec<Bar> {
        let ns = |ticks| self.source.duration_ns(ticks);
        let bars = function.durations.bars(bars).into_iter();
        bars.map(|(from, to, calls)| Bar {
            from_ns: ns(from),
            to_ns: ns(to.saturating_add(1)),
            ticks: (from, to),
            calls,
        })
        .collect()
    }

    /// Returns the direct callers and callees of a function.
    pub fn around(&self, function: &Function) -> Around {
        let is_it = |node| match self.paths.of(node) {
            Of::Site(site) => self.known(site) == function.site,
            _ => false,
        };
        let Some(found) = function::find(&self.paths, is_it) else { return Around::default() };
        let mut around = Around::default();
        let callers = found.callers.children();
        self.add(&found.callers, callers.of(0), &mut around.callers);
        let callees = found.callees.children();
        for &root in callees.of(0) {
            self.add(&found.callees, callees.of(root), &mut around.callees);
        }
        around
    }

    fn add(&self, paths: &Paths, nodes: &[u32], to: &mut Vec<Relative>) {
        for &node in nodes {
            let Of::Site(site) = paths.of(node) else { continue };
            let (site, numbers) = (self.known(site), &paths.nodes[node as usize]);
            let total_ns = self.source.duration_ns(numbers.total);
            match to.iter_mut().find(|relative| relative.site == site) {
                Some(relative) => {
                    relative.calls += numbers.calls;
                    relative.total_ns += total_ns;
                }
                None => to.push(Relative { site, calls: numbers.calls, total_ns }),
            }
        }
        to.sort_by_key(|relative| std::cmp::Reverse((relative.total_ns, relative.calls)));
    }

    /// Returns the timeline of one function's calls, cached if it was requested recently.
    pub fn only(&self, function: &Function) -> Result<Arc<Timeline>, Error> {
        let mut kept = self.only.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, timeline)) = kept.iter().find(|(site, _)| *site == function.site) {
            return Ok(timeline.clone());
        }
        let timeline = Arc::new(Timeline::only(&self.source, &self.sites(function), self.limits)?);
        kept.insert(0, (function.site, timeline.clone()));
        kept.truncate(ONLY);
        Ok(timeline)
    }

    /// Returns the number of calls around the outermost call of a function that begins at `moment`.
    pub fn depth_of(&self, thread: ThreadId, function: &Function, moment: u64) -> usize {
        let window = self.timeline.window(&self.source, thread, (moment, moment), 0);
        let is_it = |block: &Block| block.start == moment && self.known(block.site) == function.site;
        window.tracks.iter().position(|track| track.iter().any(is_it)).unwrap_or(0)
    }

    /// Returns the first call of a function that begins after `moment`, or the last one before it;
    /// without a moment, the first or last of all: thread, start and end, nanoseconds since the
    /// beginning of the timeline. `calls` is the timeline of that function alone.
    pub fn next_call(
        &self,
        calls: &Timeline,
        moment: Option<u64>,
        forwards: bool,
    ) -> Option<(ThreadId, u64, u64)> {
        let (from, to) = match moment {
            None => (0, u64::MAX),
            Some(moment) if forwards => (moment.checked_add(1)?, u64::MAX),
            Some(moment) => (0, moment.checked_sub(1)?),
        };
        let found = calls.threads().filter_map(|thread| {
            // A block can join several calls, and all of them may begin out of range, so that it is
            // expanded.
            calls.near(thread, (from, to), forwards).into_iter().find_map(|near| {
                let window = calls.window(&self.source, thread, (near.start, near.end), 0);
                let blocks = window.tracks.into_iter().flatten();
                let mut blocks = blocks.filter(|block| (from..=to).contains(&block.start));
                let block = if forwards { blocks.next() } else { blocks.next_back() }?;
                Some((thread, block.start, block.end))
            })
        });
        if forwards {
            found.min_by_key(|(_, start, _)| *start)
        } else {
            found.max_by_key(|(_, start, _)| *start)
        }
    }
}
