//! Disables and enables functions while the selection stays, and reports that to the trace.

use super::Planner;
use super::unarmed;
use crate::plan::loaded::ProcessModule;
use calltap_abi::Clock;
use calltap_collect::metadata::{Metadata, SwitchedOff};
use calltap_process::agent;
use calltap_process::ptrace::stop_times::Stops;
use calltap_process::target::Target;
use calltap_process::{clock, proc};
use calltap_trace::{Record, SiteId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// How long to wait for the collector, which may be writing to a slow disk.
const KNOWN: Duration = Duration::from_secs(2);

/// Waits until the collector has received everything that was emitted.
pub(crate) fn wait_until_known(emit: &mut dyn FnMut(Metadata)) {
    let (known, wait) = mpsc::channel();
    emit(Metadata::Awaited(known));
    let _ = wait.recv_timeout(KNOWN);
}

impl Planner<'_> {
    /// Disables the sites of these stubs, in every process. Returns the names of those that were
    /// not disabled before.
    pub(crate) fn disable(
        &mut self,
        stubs: &HashSet<u32>,
        emit: &mut dyn FnMut(Metadata),
    ) -> HashMap<u32, String> {
        self.set_disabled(stubs, true, emit)
    }

    /// Enables sites again that [`Planner::disable`] has disabled, by their stubs. Returns the
    /// names of those that were disabled.
    pub(crate) fn enable(
        &mut self,
        stubs: &HashSet<u32>,
        emit: &mut dyn FnMut(Metadata),
    ) -> HashMap<u32, String> {
        self.set_disabled(stubs, false, emit)
    }

    fn set_disabled(
        &mut self,
        stubs: &HashSet<u32>,
        disabled: bool,
        emit: &mut dyn FnMut(Metadata),
    ) -> HashMap<u32, String> {
        let mut names = HashMap::new();
        let off = disabled.then(|| self.announce_off(stubs, emit));
        names.extend(self.shared.switch_python(stubs, disabled));
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| names.extend(module.disable(stubs, disabled)));
            let Some(entry) = self.shared.process(index) else { continue };
            let pid = proc::pid_of(entry);
            let mut records = Vec::new();
            // The id comes from the program's memory: only a process that has mapped the session is
            // changed.
            let is_ours = |_: &Target| agent::has_mapped(pid, &self.directory.identity());
            let target = Target::of_child(pid).filter(is_ours);
            if let Some(target) = &target
                && let Err(why) = self.arm(index, target, &mut Stops::default())
            {
                records.push(unarmed(pid, &why));
            }
            if let Some(target) = &target {
                self.keep_traps_running(index, target, &mut Stops::default(), &mut records);
            }
            self.patch(index, pid, false, &mut records);
            self.armed = None;
            if let Some(target) = target
                && let Err(error) = self.stop_for_the_rest(index, &target, &mut records)
            {
                records.push(Record::Note { text: error.to_string() }.into());
            }
            records.into_iter().for_each(&mut *emit);
        }
        self.changed = clock::boot_ticks();
        if let Some(off) = off {
            let _ = off.ended.set(self.event_ticks());
        }
        names
    }

    /// Reports that sites will be disabled, and waits until the collector knows. It reads events
    /// meanwhile, and would otherwise report a call that no longer records its return as left.
    fn announce_off(&self, stubs: &HashSet<u32>, emit: &mut dyn FnMut(Metadata)) -> Arc<SwitchedOff> {
        let sites: HashSet<SiteId> =
            self.sites_on().into_iter().filter(|site| stubs.contains(&site.0)).collect();
        let unrecorded_returns = self.without_stub(&sites);
        let off = Arc::new(SwitchedOff {
            sites,
            unrecorded_returns,
            began: OnceLock::new(),
            ended: OnceLock::new(),
        });
        if !off.sites.is_empty() {
            emit(Metadata::SwitchedOff(Arc::clone(&off)));
            wait_until_known(emit);
        }
        let _ = off.began.set(self.event_ticks());
        off
    }

    /// Returns the sites that record calls now.
    pub(crate) fn sites_on(&self) -> HashSet<SiteId> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        modules.flat_map(ProcessModule::stubs_on).chain(self.shared.python_sites_on()).map(SiteId).collect()
    }

    /// Returns the sites whose functions have rewritten exits: no stub replaces their return
    /// address.
    fn without_stub(&self, sites: &HashSet<SiteId>) -> HashSet<SiteId> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        let rewritten: HashSet<SiteId> =
            modules.flat_map(ProcessModule::stubs_at_exits).map(SiteId).collect();
        sites.intersection(&rewritten).copied().collect()
    }

    /// Reports the sites that recorded calls at that time and do not now.
    pub(crate) fn report_switched_off(
        &self,
        (before, began): (&HashSet<SiteId>, u64),
        emit: &mut dyn FnMut(Metadata),
    ) {
        let ended = OnceLock::from(self.event_ticks());
        let sites: HashSet<SiteId> = before.difference(&self.sites_on()).copied().collect();
        if !sites.is_empty() {
            let (unrecorded_returns, began) = (self.without_stub(&sites), OnceLock::from(began));
            emit(Metadata::SwitchedOff(SwitchedOff { sites, unrecorded_returns, began, ended }.into()));
        }
    }

    /// Returns the current time, in ticks of the events' clock.
    pub(crate) fn event_ticks(&self) -> u64 {
        let control = self.shared.control();
        match control.clock.load(Relaxed) {
            clock if clock == Clock::Coarse as u32 => control.tick.load(Relaxed),
            clock if clock == Clock::Counter as u32 => control.counter.load(Relaxed),
            _ => clock::pair().ticks,
        }
    }
}
