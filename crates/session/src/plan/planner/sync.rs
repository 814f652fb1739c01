//! Syncs the sites of processes with the selection, while they run.
//!
//! Threads are stopped once, and only for sites of several instructions, in which no thread may be
//! when they are written. Everything runs in a thread that ends soon (see
//! [`calltap_process::ptrace::threads`]).

use super::switch::{PreparedSwitch, Switched, Tally, settle, switch};
use super::{Planner, unarmed, wait_until_known};
use crate::error::Error;
use crate::plan::journal::{Entry, UNLISTED};
use crate::plan::loaded::ProcessModule;
use crate::plan::modules::mapped;
use calltap_abi::remote;
use calltap_collect::metadata::Metadata;
use calltap_patch::{Demand, Site};
use calltap_process::frames::{self, Pushed, Stacks};
use calltap_process::injection::inferior::Inferior;
use calltap_process::memory::maps::{self, Mappings};
use calltap_process::memory::text::{ProcessText, Sync};
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::ptrace::threads::{Keep, StoppedThread, has_ordinary};
use calltap_process::ptrace::urgent::is_background;
use calltap_process::target::Target;
use calltap_process::{Reason, clock};
use calltap_trace::{Module, Record};
use nix::libc::user_regs_struct;
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long calltap tries to stop all threads.
const TRY: Duration = Duration::from_secs(10);
/// How often all threads are stopped at most if some are inside a site.
const TRIES: usize = 5;
/// How often calltap looks for processes that were forked while others were changed.
const GENERATIONS: usize = 16;
/// How long a thread is let run to leave the first instructions of a function.
const MOMENT: Duration = Duration::from_micros(50);
/// How often threads are let run to leave the first instructions of a function.
const ROUNDS: usize = 100;

/// Makes the process map the plan area's list of mappings.
fn map(target: &Target, stops: &mut Stops) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        let mut inferior = Inferior::new(target)?;
        let mut thread = inferior.any_thread()?;
        let mapped = inferior.hijack(&mut thread).remote(remote::MAP, Path::new(""));
        // Another thread is tried if this one has ended.
        let again = mapped.is_err() && thread.has_ended() && target.lives() && start.elapsed() < TRY;
        stops.add(thread.release());
        if !again {
            return mapped.map_err(|failed| target.refuse(failed).into());
        }
    }
}

/// Switches the sites that no thread is inside of, with all threads stopped. Code made at run time
/// is also enabled now: it may be gone when the threads run again.
fn switch_stopped(
    modules: &mut [ProcessModule],
    text: &mut ProcessText,
    inside: &dyn Fn(&Site) -> bool,
    switched: &mut Switched,
) {
    modules.iter_mut().for_each(|module| module.hold_back(inside));
    switch(modules.iter_mut().collect(), text, Demand::Stopped, switched);
    let mut now: Vec<&mut ProcessModule> = modules.iter_mut().filter(|module| module.is_made()).collect();
    now.iter_mut().for_each(|module| module.drain(inside));
    switch(now, text, Demand::Stopped, switched);
    modules.iter_mut().for_each(|module| module.hold_back(&|_| false));
}

/// Lets threads that execute code in these ranges run for a moment each, until they are elsewhere.
fn run_out(held: &mut [StoppedThread], ranges: &[(u64, u64)]) {
    let mixed = has_ordinary(held);
    for _ in 0..ROUNDS {
        // On a busy machine a background thread might not get a processor, with the others standing
        // still.
        let is_inside = |thread: &&mut StoppedThread| {
            frames::find(ranges, thread.regs.rip) && !(mixed && is_background(thread.tid))
        };
        let Some(thread) = held.iter_mut().find(is_inside) else { break };
        // A thread that has ended is not inside.
        let _ = thread.run().and_then(|()| {
            std::thread::sleep(MOMENT);
            thread.halt()
        });
    }
}

/// Whether the index of a process stands for a forked child that is in no table yet.
fn is_unlisted(index: u32) -> bool {
    index & UNLISTED != 0
}

/// Gives modules of a forked child that is in no table yet to the first process: the child has most
/// of them from there, and the trace knows the numbers of listed processes only.
fn listed(metadata: Metadata) -> Metadata {
    match metadata {
        Metadata::Record(Record::Module(module)) if is_unlisted(module.process) => {
            Record::Module(Module { process: 0, ..module }).into()
        }
        other => other,
    }
}

impl Planner<'_> {
    /// Syncs the sites of all processes of a session with the selection, including forked children
    /// that have not called a traced function yet, and those that are forked meanwhile. A thread
    /// that requested the change runs on only once the collector knows the new sites.
    pub(crate) fn sync_all_processes(
        &mut self,
        first: &Target,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let keep = Keep::begin();
        let mut synced = HashSet::new();
        for _ in 0..GENERATIONS {
            let mut living = self.living(first);
            self.processes
                .retain(|own, _| !is_unlisted(*own) || living.iter().any(|(index, _)| index == own));
            living.retain(|(_, target)| synced.insert(target.pid));
            if living.is_empty() {
                break;
            }
            self.meet_new(&living)?;
            for (index, target) in living {
                if index == 0 {
                    self.sync_sites(index, &target, &mut Stops::default(), emit)?;
                } else {
                    self.sync_child(index, &target, emit)?;
                }
            }
        }
        self.changed = clock::boot_ticks();
        if keep.keeps_any() {
            wait_until_known(emit);
        }
        Ok(())
    }

    /// Syncs the sites of a child with the selection. A child that ends meanwhile is no error, and
    /// leaves no notes.
    pub(super) fn sync_child(
        &mut self,
        index: u32,
        target: &Target,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let mut emit_living = |metadata: Metadata| {
            if metadata.note().is_none() || target.lives() {
                emit(listed(metadata));
            }
        };
        let done = self.sync_sites(index, target, &mut Stops::default(), &mut emit_living);
        done.or_else(|error| if target.lives() { Err(error) } else { Ok(()) })
    }

    /// Syncs the sites of a process with the selection.
    pub(crate) fn sync_sites(
        &mut self,
        index: u32,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let mut records = Vec::new();
        self.update_process(index, target.pid, false, &mut records);
        if self.entering {
            self.check_values()?;
        }
        records.drain(..).for_each(&mut *emit);
        let mut map = |planner: &mut Planner<'_>| {
            if planner.stubs.to_map.is_empty() { Ok(()) } else { map(target, stops) }
        };
        self.map_planned(index, target.pid, false, &mut map, emit)?;
        match self.arm(index, target, stops) {
            Err(why) if self.entering => {
                return Err(target.refuse(Reason::Breakpoints { why }).into());
            }
            Err(why) => records.push(unarmed(target.pid, &why)),
            Ok(()) => {}
        }
        self.keep_traps_running(index, target, stops, &mut records);
        self.patch(index, target.pid, false, &mut records);
        let stopped = self.stop_for_the_rest(index, target, &mut records);
        if stopped.is_ok() {
            self.patch(index, target.pid, true, &mut records);
        }
        self.armed = None;
        stopped?;
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Stops all threads for the sites that demand it: those that are written only then, and those
    /// in which no thread may be. A site that a thread does not leave is not changed.
    pub(crate) fn stop_for_the_rest(
        &mut self,
        index: u32,
        target: &Target,
        records: &mut Vec<Metadata>,
    ) -> Result<(), Error> {
        for tried in 0..TRIES {
            // For watched functions alone, threads are stopped when calltap attaches, and not with
            // every change.
            if !self.is_undrained(index, self.entering) {
                break;
            }
            let notes = self.drain(index, target)?;
            records.extend(notes.into_iter().map(|text| Record::Note { text }.into()));
            // The others are traced from here on.
            if tried == 0 {
                self.note_busy(index);
            }
        }
        Ok(())
    }

    /// Whether a site of a process can only be changed while all threads are stopped. Sites of
    /// functions that are only watched count if `watched`.
    pub(super) fn is_undrained(&self, index: u32, watched: bool) -> bool {
        let process = self.processes.get(&index);
        process.is_some_and(|process| process.modules.iter().any(|module| module.demands_stop(watched)))
    }

    /// Switches sites with all threads stopped. Returns notes about failures for the user.
    fn drain(&mut self, index: u32, target: &Target) -> Result<Vec<String>, Error> {
        let Some(process) = self.processes.get_mut(&index) else { return Ok(Vec::new()) };
        // Sorted before the stop: there may be tens of thousands.
        let mut sites: Vec<(Site, Pushed)> =
            process.modules.iter().flat_map(ProcessModule::undrained).collect();
        sites.sort_unstable_by_key(|(site, _)| site.inside());
        let ranges: Vec<(u64, u64)> = sites.iter().map(|(site, _)| site.inside()).collect();
        let Some(text) = process.text.as_mut().map(|text| text.look_for_faults()) else {
            return Ok(Vec::new());
        };
        let is_simple = !process.modules.iter().any(ProcessModule::is_made);
        let prepared = is_simple.then(|| PreparedSwitch::new(&process.modules, text)).flatten();
        let count = process.modules.len();
        let mut held = StoppedThread::take_all_within(target.pid, TRY).map_err(|why| target.refuse(why))?;
        // Hooks find their thread by this register, also a thread that the program has made without
        // the C library.
        if held.iter().any(|thread| thread.regs.fs_base == 0) {
            return Err(target.refuse(Reason::NoControlBlock).into());
        }
        // A thread that was preempted between two NOPs may not be scheduled for long, so it is
        // moved out of the site.
        for thread in held.iter_mut().filter(|thread| frames::find(&ranges, thread.regs.rip)) {
            if let Some(rip) = sites.iter().find_map(|(site, _)| site.way_out(thread.regs.rip)) {
                // If that fails, the thread counts as inside.
                let _ = thread.set(user_regs_struct { rip, ..thread.regs });
            }
        }
        run_out(&mut held, &ranges);
        let regions = maps::code_and_files(target.pid).unwrap_or_default();
        let stacks = Stacks::read(&held, text, &Mappings::asked(target.pid, &regions));
        let words = stacks.inside(&sites);
        // A thread whose stack cannot be searched to its end may be inside any site.
        let is_known = stacks.are_whole();
        let inside = |site: &Site| !is_known || words.iter().any(|word| site.is_inside(*word));
        text.need_no_lease();
        // The dynamic linker unloads nothing now. Modules that were unloaded before are dropped.
        let now = mapped(&regions, self.directory.inside());
        process.modules.retain_mut(|module| module.is_there(&now, &regions));
        let before = std::mem::replace(&mut text.sync, Sync::Quiet);
        let mut switched = Switched::default();
        // The prepared batch is valid if no thread is inside a site and no module is gone.
        let is_as_planned = is_known && words.is_empty() && process.modules.len() == count;
        let written =
            prepared.filter(|_| is_as_planned).map(|prepared| prepared.write(&process.modules, text));
        if written.is_none() {
            switch_stopped(&mut process.modules, text, &inside, &mut switched);
        }
        text.sync = before;
        self.tally.stopped += held.release();
        if let Some(failed) = written {
            settle(process.modules.iter_mut().collect(), failed, &mut switched);
        }
        self.tally.add(&Tally { written: Duration::ZERO, ..switched.tally });
        process.modules.iter_mut().for_each(|module| module.drain(&inside));
        if is_known && words.is_empty() && !is_unlisted(index) {
            // If the journal cannot be written, the next controller searches the stacks again.
            let _ = self.directory.journal.add(&[Entry::Drained { process: index }].iter().collect());
        }
        // Code made at run time changes by itself.
        Ok(if is_simple { switched.notes } else { Vec::new() })
    }
}
