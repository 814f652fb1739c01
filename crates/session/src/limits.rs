//! The overhead limit of a session: the processor time of its processes, the functions that the
//! governor has disabled, and those that it has enabled again.

use crate::plan::planner::Planner;
use calltap_collect::governor::{Judgement, OverLimit};
use calltap_collect::metadata::Metadata;
use calltap_collect::shm::Shared;
use calltap_process::{clock, proc};
use calltap_trace::{DisabledByLimit, Record, SiteId};
use std::collections::HashSet;
use std::time::Duration;

/// Processor time of the processes of a session. The events of forked children count, and so does
/// their time: a server may leave all work to them.
#[derive(Default)]
pub(crate) struct ProcessorTime {
    /// Time of processes that have ended, as last seen.
    ended: Duration,
    /// Id and time of each living process.
    living: Vec<(u32, Duration)>,
    /// Number of entries of the table that were looked at.
    known: u32,
}

impl ProcessorTime {
    /// Reads the time of all processes with an entry in the table. Of those that have ended since
    /// the last look, it is the time as of then.
    pub(crate) fn read(&mut self, shared: &Shared) -> Duration {
        let new = self.known..shared.processes().end;
        self.known = new.end;
        for pid in new.filter_map(|index| shared.process(index)).map(proc::pid_of) {
            // A process that has executed another program has a new entry.
            if !self.living.iter().any(|(known, _)| *known == pid) {
                self.living.push((pid, Duration::ZERO));
            }
        }
        let ended = &mut self.ended;
        self.living.retain_mut(|(pid, seen)| match clock::cpu_of(*pid).filter(|now| now >= seen) {
            Some(now) => {
                *seen = now;
                true
            }
            None => {
                *ended += *seen;
                false
            }
        });
        self.ended + self.living.iter().map(|(_, time)| *time).sum::<Duration>()
    }
}

/// The functions that the governor has disabled.
#[derive(Default)]
pub(crate) struct Limits {
    /// Sites that are disabled and that the user has not switched since.
    off: HashSet<SiteId>,
    /// All sites that the governor ever disabled.
    ever: HashSet<SiteId>,
    /// Names of all these sites, with the events per second when each was first disabled.
    pub(crate) disabled: Vec<(String, f64)>,
}

impl Limits {
    /// Returns the sites that the governor has disabled.
    pub(crate) fn off(&self) -> &HashSet<SiteId> {
        &self.off
    }

    /// Removes sites that the user has switched: they are not the governor's any more.
    pub(crate) fn release(&mut self, sites: &HashSet<SiteId>) {
        self.off.retain(|site| !sites.contains(site));
    }

    /// Disables and enables the sites that the governor names.
    pub(crate) fn carry_out(
        &mut self,
        Judgement { disable, enable }: Judgement,
        planner: &mut Planner<'_>,
        emit: &mut dyn FnMut(Metadata),
    ) {
        self.disable(&disable, planner, emit);
        let enable = enable.into_iter().filter(|site| self.off.remove(site));
        let enable: HashSet<u32> = enable.map(|site| site.0).collect();
        if !enable.is_empty() {
            planner.enable(&enable, emit);
        }
    }

    fn disable(&mut self, sites: &[OverLimit], planner: &mut Planner<'_>, emit: &mut dyn FnMut(Metadata)) {
        if sites.is_empty() {
            return;
        }
        let stubs = sites.iter().map(|disabled| disabled.site.0).collect();
        let names = planner.disable(&stubs, emit);
        let mut functions = Vec::new();
        for OverLimit { site, rate } in sites {
            let Some(name) = names.get(&site.0) else { continue };
            self.off.insert(*site);
            // A site that is disabled again is reported only the first time.
            if self.ever.insert(*site) {
                functions.push(DisabledByLimit { site: *site, events_per_s: *rate as u64 });
                self.disabled.push((name.clone(), *rate));
            }
        }
        if !functions.is_empty() {
            emit(Record::DisabledByLimit { functions }.into());
        }
    }
}
