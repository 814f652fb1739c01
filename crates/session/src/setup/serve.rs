//! The planner that answers the agents of a session, and the loop in which it does.

use super::messages;
use crate::error::Error;
use crate::options::{PlanOptions, Reports, Subject};
use crate::plan::directory::Directory;
use crate::plan::planner::{Planner, Policy, check_selection};
use crate::started;
use calltap_abi::plan::Phase;
use calltap_collect::metadata::Metadata;
use calltap_collect::shm::{self, Shared};
use calltap_selection::{Candidates, ParsedSelection, chooser};
use calltap_sites::Discovery;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A guard: agents are answered until it is dropped; then waiting ones go on.
struct Answering<'s>(&'s Shared);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.control().listening.store(0, Release);
    }
}

/// Calls `work` with a planner for the requested tracers and filters. `accepted` is called once
/// they are valid for the traceable functions.
pub(crate) fn with_planner<T>(
    shared: &Shared,
    directory: &Directory,
    subject: &Subject,
    plan: &PlanOptions,
    name: &str,
    accepted: &(dyn Fn() + Send + Sync),
    work: impl FnOnce(&mut Planner<'_>) -> T,
) -> T {
    let _answering = Answering(shared);
    let ParsedSelection { selector, words, .. } = &plan.selection;
    let check = |candidates: &Candidates| {
        // Functions that are found later cannot be checked now.
        if plan.discovery == Discovery::FirstCall || plan.follow {
            return Ok(());
        }
        if candidates.traceable().next().is_none() {
            return Err(no_sites(name, candidates));
        }
        check_selection(selector, candidates)
    };
    let policy = Policy {
        choose: Box::new(chooser(&plan.selection, true)),
        reach: Box::new(|candidates| selector.reach(candidates)),
        selector: Some(selector),
        check: &check,
        accepted,
        follow: plan.follow,
        mode: plan.patch_mode,
        quiet: matches!(subject, Subject::Program(_)) || plan.follow,
        discovery: plan.discovery,
        futures: words.polls(),
        libcalls: words.libcalls,
        int3: words.int3,
    };
    work(&mut Planner::new(shared, directory, policy))
}

/// Answers the agents' requests until `ended`, and calls `meanwhile` between them.
pub(crate) fn answer_all(
    planner: &mut Planner<'_>,
    plan: &PlanOptions,
    reports: &Reports,
    name: &str,
    records: &Sender<Metadata>,
    ended: &AtomicBool,
    meanwhile: &mut dyn FnMut(&mut Planner<'_>),
) -> Result<(), Error> {
    let shared = planner.shared;
    let control = shared.control();
    let mut known = 0;
    while !ended.load(Acquire) {
        meanwhile(planner);
        let bell = control.doorbell.load(Acquire);
        shared.check()?;
        for index in shared.processes() {
            let Some(process) = shared.process(index) else { break };
            // An answer may take seconds, and there may be thousands of entries.
            if ended.load(Acquire) || process.pid.load(Acquire) == 0 {
                break; // told to end, or being filled in
            }
            if index >= known {
                known = index + 1;
                match process.parent.load(Relaxed).checked_sub(1) {
                    Some(parent) => planner.fork(parent, index, &mut |record| drop(records.send(record))),
                    None => planner.enter(index),
                }
            }
            if process.phase.load(Acquire) == Phase::Asked as u32 {
                messages::tell_if_long(reports.tell, messages::waiting(name), || {
                    planner.answer(index, &mut |record| drop(records.send(record)))
                })?;
                started::tell(plan, reports.started, planner);
            }
        }
        shm::wait(&control.doorbell, bell, Duration::from_millis(20));
    }
    Ok(())
}

fn no_sites(program: &str, candidates: &Candidates) -> Error {
    let advice = match candidates.functions().count() {
        0 => "it has neither symbols nor unwinding information, by which calltap finds functions: keep its \
              symbols (strip removes them)"
            .to_owned(),
        functions => format!(
            "none of its {functions} functions has room for tracing; compile with \
             -fpatchable-function-entry=5 (gcc, clang), -Z patchable-function-entry=5 (rustc), or -pg"
        ),
    };
    Error::NoSites { program: program.to_owned(), advice }
}

/// Ends [answering](answer_all) of requests.
pub(crate) fn end_planning(shared: &Shared, ended: &AtomicBool) {
    ended.store(true, Release);
    shared.control().doorbell.fetch_add(1, AcqRel);
    shm::wake(&shared.control().doorbell);
}

/// A guard that sets a flag when it is dropped, even by a panic, so that no thread waits for the
/// flag for ever.
pub(crate) struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}
