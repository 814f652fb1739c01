//! Page faults, signals and moves of each call, counted while a visitor is shown the calls of thread after thread.

use crate::incidents::{Incidents, recorded};
use crate::sources::source::Source;
use calltap_trace::{Incident, ThreadId};

/// Counts what happens in calls themselves, not in those that they make.
pub struct IncidentsOfCalls<'a> {
    source: &'a dyn Source,
    /// Whether signals were recorded, too; None: it is not known how often anything happened.
    has_signals: Option<bool>,
    thread: Option<ThreadId>,
    /// Those of the thread that are still to come, the next one last.
    coming: Vec<Incident>,
    /// Of each open call that was shown: its depth, and what has happened in it.
    open: Vec<(u32, Incidents)>,
}

impl<'a> IncidentsOfCalls<'a> {
    /// None where nothing was to be recorded.
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

    /// A call begins.
    pub fn enter(&mut self, thread: ThreadId, ticks: u64, depth: u32) {
        let Some(has_signals) = self.has_signals else { return };
        self.advance(thread, ticks);
        self.open.push((depth, Incidents::none(has_signals)));
    }

    /// A call ends: what has happened in it itself. None where that is not known.
    pub fn close(&mut self, thread: ThreadId, ticks: u64, depth: u32) -> Option<Incidents> {
        self.has_signals?;
        self.advance(thread, ticks);
        // One that is too deep for the call tree ends without having begun.
        let (own, incidents) = self.open.pop_if(|(own, _)| *own >= depth)?;
        (own == depth).then_some(incidents)
    }

    /// What happened up to `ticks`, happened in the innermost call.
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

/// What the numbers of [`Incidents`] are called, in columns and attributes.
pub const COUNTS: [&str; 4] = ["faults", "major_faults", "migrations", "signals"];

/// The numbers in that order; those that are not known are none.
pub fn counts(incidents: Option<Incidents>) -> [Option<u64>; 4] {
    let Some(Incidents { faults, major_faults, migrations, signals }) = incidents else { return [None; 4] };
    [Some(faults), Some(major_faults), Some(migrations), signals]
}
