//! Applies a new selection to a session whose process runs.

use super::{Planner, Tally, wait_until_known};
use crate::error::Error;
use crate::python;
use calltap_collect::metadata::Metadata;
use calltap_process::target::Target;
use calltap_selection::{Candidates, ParsedSelection, Selection, Selector, chooser};
use calltap_trace::{Record, TracerInfo};
use std::sync::Arc;

/// A selection that replaces the one of the session.
pub(crate) struct Replacement<'s> {
    /// The session's selection, with the state of the daemon that converts first calls.
    pub before: &'s Selection,
    /// The new one. The daemon obeys what its words say.
    pub after: Arc<ParsedSelection>,
    /// Whether the functions that it selects are traced now.
    pub on: bool,
}

/// Result of a [`Planner::apply`].
pub(crate) struct Applied {
    /// The session's selection from now on.
    pub words: Selection,
    /// The tracers of the selection.
    pub tracers: Vec<TracerInfo>,
    /// Counts of the change.
    pub tally: Tally,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl<'a> Planner<'a> {
    /// Traces a new selection, in all processes of the session. Writes only the sites that differ.
    /// After an error of a check, the former selection is traced. After one of the change itself,
    /// the sites that were written already are the new selection's; another change mends that.
    pub(crate) fn apply(
        &mut self,
        target: &Target,
        Replacement { before, after, on }: Replacement<'_>,
        emit: &mut (dyn FnMut(Metadata) + Send),
    ) -> Result<Applied, Error> {
        let mut words = after.words.clone();
        // The daemon's own state is kept, whatever the request says.
        let written = std::mem::replace(&mut words.ftraced, before.ftraced.clone());
        if words.int3 {
            self.allow_int3(target.pid);
        }
        if on {
            self.widen(target, &|candidates| after.selector.reach(candidates));
            check_selection(&after.selector, self.candidates())?;
        }
        let (tally, mut notes) = (self.tally, Vec::new());
        let (recording, began, warned) = (self.sites_on(), self.event_ticks(), self.warnings.len());
        self.choose_other(Box::new(chooser(Arc::clone(&after), on)), &words, before)?;
        self.resume_python_if_described(on, &words);
        let mut noted = |metadata: Metadata| {
            notes.extend(metadata.note().map(str::to_owned));
            emit(metadata);
        };
        self.sync_all_processes(target, &mut noted)?;
        self.report_switched_off((&recording, began), &mut noted);
        let warnings = self.warnings[warned..].iter().filter(|text| !notes.contains(text));
        let warnings: Vec<String> = warnings.cloned().collect();
        notes.extend(warnings);
        notes.extend(self.trouble());
        emit(Record::Note { text: changed(&words, on) }.into());
        if words.conditions != before.conditions {
            emit(Record::Conditions { conditions: words.conditions.clone() }.into());
        }
        // Events after the answer must reach a collector that knows of the change. It would
        // otherwise report a call of a disabled function as left.
        wait_until_known(emit);
        self.resume_python(on, &words);
        let tally = self.tally.since(tally);
        if let (Some(own), Some(written)) = (&mut words.ftraced, written)
            && own.obey(&written)
        {
            if own.enabled {
                self.resume_recording();
            }
            if let Err(error) = self.convert(target, own, emit) {
                notes.push(error.to_string());
                emit(Record::Note { text: error.to_string() }.into());
            }
        }
        Ok(Applied { words, tracers: after.tracers.clone(), tally, notes })
    }
}

/// Checks a selection against the candidates. If an interpreter's evaluator has the old name, the
/// error states its version.
pub(crate) fn check_selection(selector: &Selector, candidates: &Candidates) -> Result<(), Error> {
    let Err(refused) = selector.check(candidates) else { return Ok(()) };
    let is_missing = refused == calltap_selection::Error::NoInterpreter;
    match is_missing.then(|| python::find_old(candidates)).flatten() {
        Some((interpreter, why)) => Err(Error::Python { interpreter, why }),
        None => Err(refused.into()),
    }
}

/// Returns the trace's note about a changed selection.
fn changed(words: &Selection, on: bool) -> String {
    let state = if on { "on" } else { "off" };
    let filter: Vec<&String> = words.given_filter().collect();
    let python = words.traces_python().then(|| format!("Python functions {:?}, ", words.python));
    let (python, notrace) = (python.unwrap_or_default(), &words.notrace);
    format!("selection changed: {python}filter {filter:?}, notrace {notrace:?}, tracing {state}")
}
