//! Calls of functions that are disabled: their returns are not recorded any more.

use super::{FAR, Frame, OpenCalls, TAIL, UNRECORDED, distance_below, is_tail, site_of};
use crate::raw::RawEvent;
use calltap_abi::event::{code, is_nonlocal};
use calltap_trace::SiteId;
use std::collections::{BTreeSet, HashSet};

impl OpenCalls {
    /// Returns which of `functions` have open calls.
    pub(crate) fn open_of(&self, functions: &HashSet<SiteId>) -> Vec<SiteId> {
        let sites = self.frames[1..=self.depth].iter().map(|frame| site_of(*frame));
        let open: BTreeSet<SiteId> = sites.filter(|site| functions.contains(site)).collect();
        open.into_iter().collect()
    }

    /// Returns frame and function of the innermost open call, if `raw` enters a function without
    /// showing whether that call continues.
    pub(crate) fn innermost_before(&self, raw: RawEvent) -> Option<(Frame, SiteId)> {
        let top = self.frames[self.depth];
        let shares = is_tail(raw.code()) && distance_below(top, raw.slot) == 0;
        let enters = !(matches!(raw.code(), code::EXIT | code::CALL) || is_nonlocal(raw.code()));
        // A call that shares its frame ends with the call that owns the frame.
        let is_one = enters && !shares && self.depth > 0 && top & TAIL == 0;
        is_one.then_some((top, site_of(top)))
    }

    /// Removes the innermost open call, which has ended.
    pub(crate) fn leave_innermost(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Marks the open calls of functions whose returns are not recorded any more. The next entry
    /// shows that such a call has ended, unless a call that it made is still open: then the entry
    /// lies within that call.
    pub(crate) fn mark_unrecorded(&mut self, functions: &HashSet<SiteId>) {
        let open = self.frames[1..=self.depth].iter_mut();
        for frame in open.filter(|frame| **frame & TAIL == 0 && functions.contains(&site_of(**frame))) {
            *frame ^= if *frame & UNRECORDED == 0 { UNRECORDED | FAR } else { 0 };
        }
        self.suspended.forget(functions);
    }

    /// Returns how many of the innermost frames are unrecorded.
    pub(super) fn count_unrecorded(&self) -> usize {
        self.frames[1..=self.depth].iter().rev().take_while(|open| **open & UNRECORDED != 0).count()
    }
}
