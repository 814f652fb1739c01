//! Finds the calls to explain: those longer than a threshold, the outermost ones if they contain
//! each other.

use crate::error::Error;
use crate::names::Names;
use crate::sources::drive::run_by_thread;
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Totals, Visitor};
use calltap_names::Word;
use calltap_trace::ThreadId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of slow calls within an open call that are remembered at least.
const MAX_INNER: usize = 1 << 16;

/// Calls of matching functions that take longer than a threshold are slow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Glob of the functions.
    pub function: String,
    /// Threshold in nanoseconds.
    pub ns: u64,
}

/// A slow call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slow {
    pub(crate) thread: ThreadId,
    pub(crate) call: Call,
}

/// The slowest calls, and sums of all slow ones.
#[derive(Default)]
pub(crate) struct SlowestCalls {
    pub(crate) slowest: Vec<Slow>,
    pub(crate) calls: u64,
    /// Time of all slow calls, ticks.
    pub(crate) ticks: u64,
    pub(crate) totals: Totals,
}

/// Rank of a kept call: duration, start, thread, and index in `kept`.
type Rank = (u64, Reverse<u64>, u32, usize);

struct Search<'s> {
    source: &'s dyn Source,
    /// The smallest threshold by site; `None`: the function is not asked about. The unknown site
    /// has no entry.
    limits: Vec<Option<u64>>,
    /// Number of the thread's open calls of functions that are asked about.
    open: u32,
    /// Slow calls that ended within these, and within no other slow call.
    inner: Vec<Call>,
    most: usize,
    heap: BinaryHeap<Reverse<Rank>>,
    kept: Vec<Option<Slow>>,
    calls: u64,
    ticks: u64,
}

impl Visitor for Search<'_> {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open += u32::from(!enter.is_rest && self.limit(enter.site.0).is_some());
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        let Some(ns) = self.limit(call.site.0).filter(|_| call.ending.is_of_call()) else { return };
        self.open = self.open.saturating_sub(1);
        // The duration of a cut call is unknown; the slow calls within it are explained instead.
        let is_known = !call.ending.is_cut() || call.ending.goes_on();
        if is_known && self.source.duration_ns(call.total) > ns {
            let within = self.inner.iter().rev().take_while(|inner| inner.start >= call.start).count();
            self.inner.truncate(self.inner.len() - within);
            self.inner.push(*call);
            self.forget_short();
        }
        if self.open == 0 {
            std::mem::take(&mut self.inner).iter().for_each(|call| self.found(thread, call));
        }
    }

    fn thread_end(&mut self, thread: ThreadId) -> std::io::Result<()> {
        self.open = 0;
        std::mem::take(&mut self.inner).iter().for_each(|call| self.found(thread, call));
        Ok(())
    }
}

impl Search<'_> {
    /// Keeps only the slower half of very many slow calls within one call.
    fn forget_short(&mut self) {
        if self.inner.len() >= 2 * MAX_INNER {
            let mut totals: Vec<u64> = self.inner.iter().map(|call| call.total).collect();
            let (_, median, _) = totals.select_nth_unstable(MAX_INNER);
            let median = *median;
            self.inner.retain(|call| call.total > median);
        }
    }

    /// Counts a slow call that is within no other.
    fn found(&mut self, thread: ThreadId, call: &Call) {
        self.calls += 1;
        self.ticks = self.ticks.saturating_add(call.total);
        let place = if self.kept.len() < self.most {
            self.kept.push(None);
            self.kept.len() - 1
        } else {
            match self.heap.peek() {
                Some(Reverse((total, _, _, place))) if *total < call.total => {
                    let place = *place;
                    self.heap.pop();
                    place
                }
                _ => return,
            }
        };
        self.kept[place] = Some(Slow { thread, call: *call });
        self.heap.push(Reverse((call.total, Reverse(call.start), thread.0, place)));
    }

    fn limit(&self, site: u32) -> Option<u64> {
        self.limits.get(site as usize).copied().flatten()
    }
}

/// Finds the slowest calls, at most `most`, slowest first.
pub(crate) fn find(
    source: &dyn Source,
    names: &Names<'_>,
    rules: &[Rule],
    most: usize,
) -> Result<SlowestCalls, Error> {
    let words: Vec<(Word, u64)> = rules.iter().map(|rule| (Word::new(&rule.function), rule.ns)).collect();
    let limit = |site: &calltap_trace::Site| {
        let own = words.iter().filter(|(word, _)| names.is(site.id, word));
        own.map(|(_, ns)| *ns).min()
    };
    let limits = source.meta().sites.iter().map(limit).collect();
    let (heap, kept) = (BinaryHeap::new(), Vec::new());
    let mut search =
        Search { source, limits, open: 0, inner: Vec::new(), most, heap, kept, calls: 0, ticks: 0 };
    let totals = run_by_thread(source, &mut search, None)?;
    let mut slowest: Vec<Slow> = search.kept.into_iter().flatten().collect();
    slowest.sort_by_key(|slow| (Reverse(slow.call.total), slow.call.start));
    Ok(SlowestCalls { slowest, calls: search.calls, ticks: search.ticks, totals })
}
