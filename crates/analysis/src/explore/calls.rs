//! Single calls: the slowest of each function, and those within a range of durations. A call whose
//! end is unknown has no duration and is left out.

use super::{Bar, Explorer, Function};
use crate::error::Error;
use crate::sources::drive::run_by_thread;
use crate::sources::source::Source;
use crate::tree::{Call, Visitor};
use calltap_trace::{SiteId, ThreadId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of calls kept of each function.
const KEPT: usize = 64;

/// A call, in ticks: duration, start, thread, depth. Longer calls compare greater, then earlier
/// ones.
type RankedCall = (u64, Reverse<u64>, ThreadId, u32);

/// A slow call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowCall {
    /// The thread that made the call.
    pub thread: ThreadId,
    /// Start, in nanoseconds since the beginning of the timeline.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Number of calls around it.
    pub depth: u32,
}

/// The slowest calls of each site.
pub(super) struct Slowest {
    sites: Vec<BinaryHeap<Reverse<RankedCall>>>,
    /// Range of durations, in ticks, both ends included.
    range: (u64, u64),
    /// The sites looked at; `None`: all.
    only: Option<Vec<SiteId>>,
}

impl Slowest {
    pub(super) fn new(sites: usize) -> Self {
        Self { sites: vec![BinaryHeap::new(); sites], range: (0, u64::MAX), only: None }
    }

    /// Whether a call is of the wanted sites and durations.
    pub(super) fn is_of(&self, call: &Call) -> bool {
        (self.range.0..=self.range.1).contains(&call.total)
            && self.only.as_ref().is_none_or(|only| only.contains(&call.site))
    }

    pub(super) fn read(&mut self, source: &dyn Source) -> Result<(), Error> {
        run_by_thread(source, self, None).map(drop)
    }
}

impl Visitor for Slowest {
    #[inline]
    fn close(&mut self, thread: ThreadId, call: &Call) {
        let heap = &self.sites[call.site.0 as usize];
        let full = heap.len() >= KEPT;
        if call.ending.is_cut()
            || full && heap.peek().is_some_and(|Reverse((least, ..))| call.total <= *least)
            || !self.is_of(call)
        {
            return;
        }
        let heap = &mut self.sites[call.site.0 as usize];
        if full {
            heap.pop();
        }
        heap.push(Reverse((call.total, Reverse(call.start), thread, call.depth)));
    }
}

impl<S: Source> Explorer<S> {
    /// Returns the slowest calls of a function, slowest first.
    pub fn slowest(&self, function: &Function) -> Vec<SlowCall> {
        self.longest_first(&self.slowest, &self.sites(function))
    }

    /// Returns the slowest calls of a function that fall into a bar of its histogram, slowest
    /// first.
    pub fn in_bar(&self, function: &Function, bar: &Bar) -> Result<Vec<SlowCall>, Error> {
        let mut within = self.within(function, bar);
        within.read(&self.source)?;
        Ok(self.longest_first(&within, &self.sites(function)))
    }

    /// Makes an empty collection for the calls of a function that fall into a bar.
    pub(super) fn within(&self, function: &Function, bar: &Bar) -> Slowest {
        let (range, only) = (bar.ticks, Some(self.sites(function)));
        Slowest { range, only, ..Slowest::new(self.source.meta().sites.len() + 1) }
    }

    pub(super) fn longest_first(&self, slowest: &Slowest, sites: &[SiteId]) -> Vec<SlowCall> {
        let heaps = sites.iter().filter_map(|site| slowest.sites.get(site.0 as usize));
        let mut calls: Vec<RankedCall> = heaps.flatten().map(|Reverse(kept)| *kept).collect();
        calls.sort_by(|a, b| b.cmp(a));
        let call = |(ticks, Reverse(start), thread, depth): RankedCall| SlowCall {
            thread,
            start_ns: self.source.to_ns(start).saturating_sub(self.timeline.origin()),
            duration_ns: self.source.duration_ns(ticks),
            depth,
        };
        calls.into_iter().take(KEPT).map(call).collect()
    }
}
