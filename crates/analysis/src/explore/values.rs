//! Arguments and results of single calls.

use super::{Explorer, Function};
use crate::error::Error;
use crate::sources::drive::run_threads;
use crate::sources::source::Source;
use crate::tree::{Call, Enter, Visitor};
use crate::values::{FormattedValue, show};
use calltap_trace::{Ending, SiteId, ThreadId};
use std::collections::HashMap;

/// Identity of a call: thread, start (nanoseconds since the beginning of the timeline), and number
/// of calls around it.
pub type CallId = (ThreadId, u64, u32);

/// The values captured of a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CallValues {
    /// The arguments.
    pub arguments: Vec<FormattedValue>,
    /// The results; empty if the end of the call is unknown or no result was captured.
    pub results: Vec<FormattedValue>,
}

struct Reader<'a> {
    source: &'a dyn Source,
    origin: u64,
    /// Whether a site can belong to a wanted call, by site.
    is_of: Vec<bool>,
    wanted: HashMap<CallId, Option<CallValues>>,
    /// Values of the event that the visitor receives next: site, whether it is a return, values.
    next: Option<(SiteId, bool, Vec<FormattedValue>)>,
}

impl Reader<'_> {
    fn may_be(&self, site: SiteId) -> bool {
        self.is_of.get(site.0 as usize).copied().unwrap_or_default()
    }

    fn place(&self, thread: ThreadId, start: u64, depth: u32) -> CallId {
        (thread, self.source.to_ns(start).saturating_sub(self.origin), depth)
    }

    /// Returns the values of the current event, if they belong to `site`.
    fn take(&mut self, site: SiteId, returns: bool) -> Option<Vec<FormattedValue>> {
        let next = self.next.take_if(|(of, is_return, _)| (*of, *is_return) == (site, returns));
        next.map(|(_, _, values)| values)
    }
}

impl Visitor for Reader<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        let is_of = self.may_be(site);
        self.next = is_of.then(|| (site, returns, show(self.source, site, returns, bytes, &mut |_| None)));
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if !self.may_be(enter.site) || enter.is_rest {
            return;
        }
        let arguments = self.take(enter.site, false).unwrap_or_default();
        let place = self.place(thread, enter.ticks, enter.depth);
        if let Some(found @ None) = self.wanted.get_mut(&place) {
            *found = Some(CallValues { arguments, results: Vec::new() });
        }
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        if !self.may_be(call.site) || call.ending != Ending::Returned {
            return;
        }
        let Some(results) = self.take(call.site, true) else { return };
        let place = self.place(thread, call.start, call.depth);
        if let Some(Some(found)) = self.wanted.get_mut(&place) {
            found.results = results;
        }
    }
}

impl<S: Source> Explorer<S> {
    /// Whether arguments or results of a function were recorded.
    pub fn has_values(&self, function: &Function) -> bool {
        let sites = &self.source.meta().sites;
        let captured = |site: &SiteId| sites.get(site.0 as usize).and_then(|site| site.captured.as_deref());
        self.sites(function).iter().any(|site| captured(site).is_some())
    }

    /// Returns arguments and results of those `calls` that exist, calls of `functions`. Reads the
    /// events of their threads.
    pub fn values_of(
        &self,
        functions: &[&Function],
        calls: &[CallId],
    ) -> Result<HashMap<CallId, CallValues>, Error> {
        let mut is_of = vec![false; self.source.meta().sites.len() + 1];
        for site in functions.iter().flat_map(|function| self.sites(function)) {
            is_of[site.0 as usize] = true;
        }
        let mut threads: Vec<ThreadId> = calls.iter().map(|(thread, ..)| *thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads.retain(|thread| self.timeline.threads().any(|known| known == *thread));
        let wanted = calls.iter().map(|place| (*place, None)).collect();
        let (source, origin): (&dyn Source, u64) = (&self.source, self.timeline.origin());
        let mut reader = Reader { source, origin, is_of, wanted, next: None };
        run_threads(source, &threads, &mut reader, None)?;
        Ok(reader.wanted.into_iter().filter_map(|(place, found)| Some((place, found?))).collect())
    }
}
