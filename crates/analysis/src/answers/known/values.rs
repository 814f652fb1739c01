//! Values captured with the calls of a query.

use super::QueryContext;
use crate::values::{self, FormattedValue};
use calltap_trace::{Captured, SiteId, ThreadId};

impl QueryContext {
    /// Decodes the values captured with an event.
    pub(in crate::answers) fn values(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        returns: bool,
        bytes: &[u8],
    ) -> Vec<FormattedValue> {
        let Some(captured) = self.captured.get(&site) else { return Vec::new() };
        let process = self.threads.get(&thread).map_or(0, |thread| thread.process);
        values::read(captured, returns, bytes, &mut |address| self.function_at(process, address))
    }

    /// Returns the results of a call of a site that has returned without them.
    pub(in crate::answers) fn unknown_results(&self, site: SiteId) -> Vec<FormattedValue> {
        self.captured.get(&site).map(|captured| values::unknown_results(captured)).unwrap_or_default()
    }

    /// Describes the values captured at a site.
    pub(in crate::answers) fn captured_of(&self, site: SiteId) -> Option<&Captured> {
        self.captured.get(&site).map(|captured| &**captured)
    }
}
