//! Collects calls into tracks as they end.

use super::block::{Block, push};
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Open, Visitor};
use calltap_trace::{SiteId, ThreadId};
use std::sync::Arc;

/// Selection of the calls of a timeline.
#[derive(Clone, Debug)]
pub(super) enum CallSelection {
    /// All calls by depth, down to this number of levels.
    Levels(usize),
    /// Outermost activations of some functions, by site, on one level.
    Only(Arc<[bool]>),
}

/// The tracks of one thread under construction.
pub(super) struct Gather<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) kept: CallSelection,
    /// Beginning of the timeline, nanoseconds of the clock.
    pub(super) origin: u64,
    /// Calls that do not overlap this window are left out.
    pub(super) window: (u64, u64),
    pub(super) quantum: u64,
    pub(super) tracks: Vec<Vec<Block>>,
    pub(super) lost: Vec<Block>,
    /// Number of calls below the deepest level.
    pub(super) deeper: u64,
    /// Number of open kept activations, if only some functions are kept.
    pub(super) open: u32,
}

impl Gather<'_> {
    fn at(&self, ticks: u64) -> u64 {
        self.source.to_ns(ticks).saturating_sub(self.origin)
    }

    fn add(&mut self, depth: u32, site: SiteId, (start, end): (u64, u64), is_cut: bool) {
        let level = match &self.kept {
            CallSelection::Levels(levels) if depth as usize >= *levels => {
                self.deeper += 1;
                return;
            }
            CallSelection::Levels(_) => depth as usize,
            CallSelection::Only(_) => 0,
        };
        let (start, end) = (self.at(start), self.at(end));
        if end < self.window.0 || start > self.window.1 {
            return;
        }
        if self.tracks.len() <= level {
            self.tracks.resize_with(level + 1, Vec::new);
        }
        let length = end - start;
        let block = Block { start, end, busy: length, longest: length, site, calls: 1, cut: is_cut.into() };
        push(&mut self.tracks[level], block, self.quantum);
    }

    /// Records that `events` events are missing at `ticks`.
    pub(super) fn leave_out(&mut self, ticks: u64, events: u64) {
        let at = self.at(ticks);
        let calls = u32::try_from(events).unwrap_or(u32::MAX);
        let block = Block { start: at, end: at, busy: 0, longest: 0, site: SiteId::default(), calls, cut: 0 };
        if self.window.0 <= at && at <= self.window.1 {
            push(&mut self.lost, block, self.quantum);
        }
    }

    pub(super) fn is_kept(&self, site: SiteId) -> bool {
        match &self.kept {
            CallSelection::Levels(_) => true,
            CallSelection::Only(sites) => sites.get(site.0 as usize).is_some_and(|kept| *kept),
        }
    }

    /// Sets the open calls of the thread.
    pub(super) fn begin(&mut self, open: impl Iterator<Item = Open>) {
        self.open = open.filter(|open| self.is_kept(open.site)).count() as u32;
    }
}

impl Visitor for Gather<'_> {
    #[inline]
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open += u32::from(self.is_kept(enter.site));
    }

    #[inline]
    fn close(&mut self, _: ThreadId, call: &Call) {
        if !self.is_kept(call.site) {
            return;
        }
        self.open -= 1;
        if self.open == 0 || matches!(self.kept, CallSelection::Levels(_)) {
            self.add(call.depth, call.site, (call.start, call.end), call.ending.is_cut());
        }
    }

    #[inline]
    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        if self.is_kept(enter.site) && (self.open == 0 || matches!(self.kept, CallSelection::Levels(_))) {
            self.add(enter.depth, enter.site, (enter.ticks, enter.ticks), false);
        }
    }

    fn lost(&mut self, _: ThreadId, ticks: u64, entries: u32, exits: u32) {
        self.leave_out(ticks, u64::from(entries) + u64::from(exits));
    }
}
