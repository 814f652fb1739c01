//! Attaching: the agent is [brought in](crate::enter), then sites are switched while everything runs; only sites of several instructions need
//! one look at all threads, which are stopped for it.
//!
//! All of it runs in a thread that ends soon (see [`calltap_process::ptrace::threads`]).

use crate::error::Error;
use crate::options::Options;
use crate::plan::breakpoints::{self, Ours};
use crate::plan::journal::{Entry, UNLISTED};
use crate::plan::loaded::Loaded;
use crate::plan::modules::mapped;
use crate::plan::planner::{Ahead, PatchMode, Planner, Tally, settle, switch, unarmed};
use crate::{enter, setup};
use calltap_abi::remote;
use calltap_collect::metadata::Metadata;
use calltap_patch::{Demand, Site};
use calltap_process::Reason;
use calltap_process::frames::{self, Stacks};
use calltap_process::injection::inferior::Inferior;
use calltap_process::memory::maps::{self, Mappings};
use calltap_process::memory::text::{ProcessText, Sync};
use calltap_process::proc;
use calltap_process::ptrace::stops::Stops;
use calltap_process::ptrace::threads::{Held, Keep};
use calltap_process::target::Target;
use nix::libc::user_regs_struct;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How long it is tried to stop all threads.
const TRY: Duration = Duration::from_secs(10);
/// How often they are stopped, if some are in the way.
const TRIES: usize = 5;
/// The first instructions of a function take less than this,
const MOMENT: Duration = Duration::from_micros(50);
/// which a thread may need some rounds to get.
const ROUNDS: usize = 100;

/// Attaches: finds out what can be traced, loads the agent, and switches on what is wanted. How far it came, and what it took.
pub fn attach(
    planner: &mut Planner<'_>,
    target: &Target,
    options: &Options,
    emit: &mut (dyn FnMut(Metadata) + Send),
) -> (Result<(), Error>, Stops) {
    if planner.mode == PatchMode::Breakpoint
        && let Some(why) = breakpoints::obstacle(target.pid, Ours::Nothing)
    {
        return (Err(target.refuse(Reason::Breakpoints { why }).into()), Stops::default());
    }
    // What takes long comes before anything is done to the process.
    let load = |planner: &mut Planner<'_>| {
        let text = format!("finding out what can be traced in {} (Ctrl-C leaves it as it is)", target.name);
        setup::tell_if_long(options, text, || planner.check_first(target))?;
        enter::load(target, planner.directory, planner.shared)
    };
    let work = || match load(planner) {
        Err(error) => (Err(error), Stops::default()),
        Ok(mut stops) => {
            let attached = planner.attach(target, &mut stops, emit);
            stops.add(planner.tally.stopped);
            // What the trace will lack is known to the user from the beginning.
            planner.warnings.iter().for_each(|text| (options.tell)(text));
            (attached, stops)
        }
    };
    // In a thread that ends: the kernel then lets go of whatever is still held.
    let failed = || (Err(Error::thread()), Stops::default());
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| failed())
}

/// Has the process map what is in the plan area.
fn map(target: &Target, stops: &mut Stops) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        let mut inferior = Inferior::new(target)?;
        let mut thread = inferior.any_thread()?;
        let mapped = inferior.remote(&mut thread, remote::MAP, Path::new(""));
        inferior.put_back(&thread);
        // Another will do.
        let again = mapped.is_err() && thread.has_ended() && target.lives() && start.elapsed() < TRY;
        stops.add(thread.release());
        if !again {
            return mapped.map_err(|failed| target.refuse(failed).into());
        }
    }
}

/// Switches what no thread is inside of, with all threads stopped. What was made at run time is also enabled: it may be gone when its threads run again.
fn switch_stopped(
    modules: &mut [Loaded],
    text: &mut ProcessText,
    inside: &dyn Fn(&Site) -> bool,
    tally: &mut Tally,
) {
    modules.iter_mut().for_each(|module| module.hold_back(inside));
    switch(modules.iter_mut().collect(), text, Demand::Stopped, tally);
    let mut now: Vec<&mut Loaded> = modules.iter_mut().filter(|module| module.is_made()).collect();
    now.iter_mut().for_each(|module| module.drain(inside));
    switch(now, text, Demand::Stopped, tally);
    modules.iter_mut().for_each(|module| module.hold_back(&|_| false));
}

/// Whether a process is a forked child that is in no table yet.
fn is_unlisted(index: u32) -> bool {
    index & UNLISTED != 0
}

impl Planner<'_> {
    /// Switches on what is wanted in a process whose agent is there.
    fn attach(
        &mut self,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        self.entering = true;
        let done = self.sync_sites(0, target, stops, emit);
        self.entering = false;
        done
    }

    /// Looks at what can be chosen from.
    fn check_first(&mut self, target: &Target) -> Result<(), Error> {
        if let Ok(regions) = maps::read(target.pid) {
            self.see_modules(0, target.pid, false, &regions, &mut Vec::new());
        }
        let checked = self.check_once(target.pid);
        if self.interrupted.load(Acquire) {
            return Err(Error::Interrupted { program: target.name.clone() });
        }
        // What ends meanwhile has nothing left that could be traced.
        if checked.is_err() && !(target.lives() && proc::goes_on(target.pid)) {
            return Err(target.refuse(Reason::Ended).into());
        }
        checked.map(drop)
    }

    /// Makes the sites of all processes of a session what they are wanted to be, also of children that have called nothing since they were forked.
    pub fn sync_all_processes(
        &mut self,
        first: &Target,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let _keep = Keep::begin();
        let living = self.living(first);
        self.processes.retain(|own, _| !is_unlisted(*own) || living.iter().any(|(index, _)| index == own));
        self.meet_new(&living)?;
        for (index, target) in living {
            let done = self.sync_sites(index, &target, &mut Stops::default(), emit);
            // What has ended meanwhile needs nothing.
            if index == 0 || target.lives() {
                done?;
            }
        }
        Ok(())
    }

    /// Makes the sites of a process what they are wanted to be.
    pub(crate) fn sync_sites(
        &mut self,
        index: u32,
        target: &Target,
        stops: &mut Stops,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let mut records = Vec::new();
        self.look(index, target.pid, false, &mut records);
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
        let stopped = self.stop_for_the_rest(index, target);
        if stopped.is_ok() {
            self.patch(index, target.pid, true, &mut records);
        }
        self.armed = None;
        stopped?;
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Stops all threads for the sites that demand it: those that are written only then, and those in which no thread may be. Where a thread stays inside, they
    /// are left alone.
    pub(crate) fn stop_for_the_rest(&mut self, index: u32, target: &Target) -> Result<(), Error> {
        for _ in 0..TRIES {
            if !self.is_undrained(index) {
                break;
            }
            self.drain(index, target)?;
        }
        Ok(())
    }

    fn is_undrained(&self, index: u32) -> bool {
        let process = self.processes.get(&index);
        process
            .is_some_and(|process| process.modules.iter().any(|module| module.undrained().next().is_some()))
    }

    fn drain(&mut self, index: u32, target: &Target) -> Result<(), Error> {
        let session = self.directory.agent();
        let Some(process) = self.processes.get_mut(&index) else { return Ok(()) };
        let mut ranges: Vec<(u64, u64)> =
            process.modules.iter().flat_map(|module| module.undrained()).map(Site::inside).collect();
        ranges.sort();
        let Some(text) = &mut process.text else { return Ok(()) };
        let is_simple = !process.modules.iter().any(Loaded::is_made);
        let ahead = is_simple.then(|| Ahead::new(&process.modules, text)).flatten();
        let count = process.modules.len();
        let mut held = Held::take_all_patiently(target.pid, TRY).map_err(|why| target.refuse(why))?;
        // Hooks find their thread by this register, also that of a thread which the program has made
        // without the C library.
        if held.iter().any(|thread| thread.regs.fs_base == 0) {
            return Err(target.refuse(Reason::NoControlBlock).into());
        }
        // A thread that had its turn taken away between two NOPs may not get it back for long.
        for thread in held.iter_mut().filter(|thread| frames::find(&ranges, thread.regs.rip)) {
            let mut sites = process.modules.iter().flat_map(|module| module.undrained());
            if let Some(rip) = sites.find_map(|site| site.way_out(thread.regs.rip)) {
                // Should that fail, it is still inside.
                let _ = thread.set(user_regs_struct { rip, ..thread.regs });
            }
        }
        // Others need a moment, which they may get while the rest stands still.
        for _ in 0..ROUNDS {
            let Some(thread) = held.iter_mut().find(|thread| frames::find(&ranges, thread.regs.rip)) else {
                break;
            };
            // Should it have ended, it is in no thread's way.
            let _ = thread.run().and_then(|()| {
                std::thread::sleep(MOMENT);
                thread.halt()
            });
        }
        let regions = maps::code_and_files(target.pid).unwrap_or_default();
        let stacks = Stacks::read(&held, text, &Mappings::asked(target.pid, &regions));
        let words = stacks.words_in(&ranges);
        // A thread whose stack cannot be searched to its end may be inside any of them.
        let is_known = stacks.are_whole();
        let inside = |site: &Site| !is_known || words.iter().any(|word| site.is_inside(*word));
        text.lease();
        // Nothing is unloaded now; what was unloaded before is left alone.
        let now = mapped(&regions, session.parent().unwrap_or(Path::new("/")));
        process.modules.retain_mut(|module| module.is_there(&now, &regions));
        let before = std::mem::replace(&mut text.sync, Sync::Quiet);
        let mut tally = Tally::default();
        // What was planned is right if no thread is inside and no module has gone.
        let is_as_planned = is_known && words.is_empty() && process.modules.len() == count;
        let written = ahead.filter(|_| is_as_planned).map(|ahead| ahead.write(&process.modules, text));
        if written.is_none() {
            switch_stopped(&mut process.modules, text, &inside, &mut tally);
        }
        text.sync = before;
        let (began, since) = (held.longest(), Instant::now());
        drop(held);
        self.tally.stopped += began + since.elapsed();
        if let Some(failed) = written {
            settle(process.modules.iter_mut().collect(), failed, &mut tally);
        }
        (self.tally.on, self.tally.off) = (self.tally.on + tally.on, self.tally.off + tally.off);
        process.modules.iter_mut().for_each(|module| module.drain(&inside));
        if is_known && words.is_empty() && !is_unlisted(index) {
            // If it cannot be written down, the next controller looks again.
            let _ = self.directory.journal.add(&[Entry::Drained { process: index }].iter().collect());
        }
        Ok(())
    }
}
