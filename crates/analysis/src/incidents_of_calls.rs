//! Page faults, signals and migrations of each call, counted while a visitor receives the calls of
//! thread after thread.

use crate::incidents::{Incidents, recorded};
use crate::sources::source::Source;
use calltap_trace::{Incident, ThreadId};

/// Counts incidents in calls themselves, without the calls that they make.
pub struct IncidentsOfCalls<'a> {
    source: &'a dyn Source,
    /// Whether signals were recorded, too; `None`: the number of incidents is unknown.
    has_signals: Option<bool>,
    thread: Option<ThreadId>,
    /// Incidents of the thread after the current time, the earliest last.
    coming: Vec<Incident>,
    /// Depth and incidents of each open call.
    open: Vec<(u32, Incidents)>,
}

impl<'a> IncidentsOfCalls<'a> {
    /// Returns a counter, or `None` if incidents were not to be recorded.
    pub fn new(source: &'a dyn Source) -> Option<IncidentsOfCalls<'a>> {
        let is_recorded = source.meta().kernel_events.as_ref().is_some_and(|events| events.incidents);
        is_recorded.then(|| IncidentsOfCalls {
            source,
            has_signals: recorded(source),
            thread: None,
            coming: Vec::new(),
            open: Vec::new(),
        })
    }

    /// Opens a call.
    pub fn enter(&mut self, thread: ThreadId, ticks: u64, depth: u32) {
        let Some(has_signals) = self.has_signals else { return };
        self.advance(thread, ticks);
        self.open.push((depth, Incidents::none(has_signals)));
    }

    /// Closes a call and returns the incidents in the call itself; `None` if unknown.
    pub fn close(&mut self, thread: ThreadId, ticks: u64, depth: u32) -> Option<Incidents> {
        self.has_signals?;
        self.advance(thread, ticks);
        // A call too deep for the call tree closes without having been opened.
        let (own, incidents) = self.open.pop_if(|(own, _)| *own >= depth)?;
        (own == depth).then_some(incidents)
    }

    /// Counts the incidents before `ticks` for the innermost open call.
    fn advance(&mut self, thread: ThreadId, ticks: u64) {
        if self.thread != Some(thread) {
            self.thread = Some(thread);
            self.open.clear();
            match self.source.incidents(thread) {
                Ok(all) => self.coming = all.entries.into_iter().rev().collect(),
                Err(_) => self.has_signals = None,
            }
        }
        while let Some(incident) = self.coming.pop_if(|incident| incident.at < ticks) {
            if let Some((_, counts)) = self.open.last_mut() {
                counts.count(&incident.what);
            }
        }
    }
}

/// Names of the numbers of [`Incidents`] in columns and attributes.
pub const COUNTS: [&str; 4] = ["faults", "major_faults", "migrations", "signals"];

/// Returns the numbers in the order of [`COUNTS`]; unknown ones are `None`.
pub fn counts(incidents: Option<Incidents>) -> [Option<u64>; 4] {
    let Some(Incidents { faults, major_faults, migrations, signals }) = incidents else { return [None; 4] };
    [Some(faults), Some(major_faults), Some(migrations), signals]
}
