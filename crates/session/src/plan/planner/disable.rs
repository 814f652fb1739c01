//! Functions that are disabled and enabled again while all else stays as the selection says, and what a trace says of that.

use super::Planner;
use super::unarmed;
use crate::plan::loaded::Loaded;
use calltap_abi::Clock;
use calltap_collect::metadata::{Metadata, SwitchedOff};
use calltap_process::stops::Stops;
use calltap_process::target::Target;
use calltap_process::{agent, clock, proc};
use calltap_trace::{Record, SiteId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;

impl Planner<'_> {
    /// Has the sites of these stubs stay off, in every process. The names of those that were not disabled before.
    pub fn disable(&mut self, stubs: &HashSet<u32>, emit: &mut dyn FnMut(Metadata)) -> HashMap<u32, String> {
        self.set_disabled(stubs, true, emit)
    }

    /// Has them be again what the tracers want. The names of those that were disabled.
    pub fn enable(&mut self, stubs: &HashSet<u32>, emit: &mut dyn FnMut(Metadata)) -> HashMap<u32, String> {
        self.set_disabled(stubs, false, emit)
    }

    fn set_disabled(
        &mut self,
        stubs: &HashSet<u32>,
        disabled: bool,
        emit: &mut dyn FnMut(Metadata),
    ) -> HashMap<u32, String> {
        let (mut names, before) = (HashMap::new(), self.sites_on());
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| names.extend(module.disable(stubs, disabled)));
            let Some(entry) = self.shared.process(index) else { continue };
            let pid = proc::pid_of(entry);
            let mut records = Vec::new();
            // The id comes from the program's memory: only a process that has mapped the session is changed.
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
                && let Err(error) = self.stop_for_the_rest(index, &target)
            {
                records.push(Record::Note { text: error.to_string() }.into());
            }
            records.into_iter().for_each(&mut *emit);
        }
        self.report_switched_off(&before, emit);
        names
    }

    /// The sites that record calls now.
    pub fn sites_on(&self) -> HashSet<SiteId> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        modules.flat_map(Loaded::stubs_on).map(SiteId).collect()
    }

    /// Reports the sites that recorded calls before and do not now.
    pub fn report_switched_off(&self, before: &HashSet<SiteId>, emit: &mut dyn FnMut(Metadata)) {
        let ticks = self.event_ticks();
        let sites: HashSet<SiteId> = before.difference(&self.sites_on()).copied().collect();
        if !sites.is_empty() {
            emit(Metadata::SwitchedOff(SwitchedOff { sites, ticks }.into()));
        }
    }

    /// This moment, by the clock of the events.
    fn event_ticks(&self) -> u64 {
        let control = self.shared.control();
        match control.clock.load(Relaxed) {
            clock if clock == Clock::Coarse as u32 => control.tick.load(Relaxed),
            clock if clock == Clock::Counter as u32 => control.counter.load(Relaxed),
            _ => clock::pair().ticks,
        }
    }
}
