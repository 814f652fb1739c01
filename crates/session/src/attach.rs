//! Attach: [loads the agent](crate::load_agent), then enables sites while the process runs.

use crate::error::Error;
use crate::load_agent::Loading;
use crate::plan::breakpoints::{self, Ours};
use crate::plan::planner::{PatchMode, Planner};
use crate::setup::messages;
use calltap_collect::metadata::Metadata;
use calltap_process::Reason;
use calltap_process::injection::start;
use calltap_process::memory::maps;
use calltap_process::memory::text::MemoryWatch;
use calltap_process::proc;
use calltap_process::ptrace::in_tracer_thread;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::target::Target;
use std::sync::atomic::Ordering::*;

/// Attaches: finds out what can be traced, loads the agent, and enables the selected sites. Returns
/// the result, and how long threads were stopped. `tell` reports to the user.
pub(crate) fn attach(
    planner: &mut Planner<'_>,
    target: &Target,
    tell: fn(&str),
    emit: &mut (dyn FnMut(Metadata) + Send),
) -> (Result<(), Error>, Stops) {
    if planner.policy.mode == PatchMode::Breakpoint
        && let Some(why) = breakpoints::obstacle(target.pid, Ours::Nothing)
    {
        return (Err(target.refuse(Reason::Breakpoints { why }).into()), Stops::default());
    }
    // The search takes long, so it comes before anything is done to the process.
    let load = |planner: &mut Planner<'_>| {
        let name = &target.name;
        let text = format!("decoding the functions of {name}; Ctrl-C stops before {name} is changed");
        messages::tell_if_long(tell, text, || planner.check_first(target))?;
        Loading { target, directory: planner.directory, shared: planner.shared }.load()
    };
    start::await_start(target);
    let memory = MemoryWatch::open(target.pid).ok();
    let work = || match load(planner) {
        Err(error) => (Err(error), Stops::default()),
        Ok(mut stops) => {
            let mut notes = Vec::new();
            let mut noted = |metadata: Metadata| {
                notes.extend(metadata.note().map(str::to_owned));
                emit(metadata);
            };
            let attached = planner.attach(target, &mut stops, &mut noted);
            stops.add(planner.tally.stopped);
            // The user learns at the start what the trace will lack.
            let warnings = planner.warnings.iter();
            let others = notes.iter().filter(|note| !planner.warnings.contains(note));
            warnings.chain(others).for_each(|text| tell(text));
            (attached, stops)
        }
    };
    let (attached, stops) =
        in_tracer_thread(work).unwrap_or_else(|error| (Err(error.into()), Stops::default()));
    // An error in the middle of execve, or of a process that ends, says nothing about its cause.
    let cause = || match memory.is_some_and(|memory| memory.is_gone()) && target.lives() {
        true => Some(Reason::Executed),
        false => (!(target.lives() && proc::goes_on(target.pid))).then_some(Reason::Ended),
    };
    let attached = attached.map_err(|error| match error {
        Error::Interrupted { .. } => error,
        other => cause().map_or(other, |reason| target.refuse(reason).into()),
    });
    (attached, stops)
}

impl Planner<'_> {
    /// Enables the selected sites in a process that has the agent.
    fn attach(
        &mut self,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        self.entering = true;
        let done = self.sync_sites(0, target, stops, emit);
        self.entering = false;
        done?;
        if self.tally.on == 0 && !target.lives() {
            return Err(target.refuse(Reason::Ended).into());
        }
        Ok(())
    }

    /// Decodes the mapped modules and checks the selection against them.
    fn check_first(&mut self, target: &Target) -> Result<(), Error> {
        if let Ok(regions) = maps::read(target.pid) {
            self.see_modules(0, target.pid, false, &regions, &mut Vec::new());
        }
        let checked = self.check_once(target.pid);
        if self.interrupted.load(Acquire) {
            return Err(Error::Interrupted { program: target.name.clone() });
        }
        checked.map(drop)
    }
}
