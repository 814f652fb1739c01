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

/// Number of processes up to which the time of ended children is read at each look. With more, it
/// is read when some have ended.
const MAX_POLLED: usize = 64;

/// Processor time of the processes of a session. The events of forked children count, and so does
/// their time: a server may leave all work to them.
#[derive(Default)]
pub(crate) struct ProcessorTime {
    /// Time of processes that have ended.
    ended: Duration,
    living: Vec<Living>,
    /// Number of entries of the table that were looked at.
    known: u32,
}

/// A living process.
struct Living {
    pid: u32,
    /// Time of the process itself.
    time: Duration,
    /// Time of its children that have ended.
    of_children: Duration,
}

impl ProcessorTime {
    /// Reads the time of all processes with an entry in the table.
    ///
    /// Of those that have ended since the last look, some unseen, the parents have the whole time.
    /// It is read only then, as a parent also has the time of children with other programs.
    pub(crate) fn read(&mut self, shared: &Shared) -> Duration {
        let new = self.known..shared.processes().end;
        self.known = new.end;
        for pid in new.filter_map(|index| shared.process(index)).map(proc::pid_of) {
            // A process that has executed another program has a new entry.
            if !self.living.iter().any(|known| known.pid == pid) {
                let of_children = proc::cpu_of_ended_children(pid).unwrap_or_default();
                self.living.push(Living { pid, time: Duration::ZERO, of_children });
            }
        }
        let (before, mut seen) = (self.living.len(), Duration::ZERO);
        self.living.retain_mut(|process| {
            match clock::cpu_of(process.pid).filter(|now| *now >= process.time) {
                Some(now) => process.time = now,
                None => {
                    seen += process.time;
                    return false;
                }
            }
            true
        });
        let some_ended = self.living.len() < before;
        let has_children = self.known > 1;
        if has_children && (some_ended || self.living.len() <= MAX_POLLED) {
            let reaped = self.reaped();
            self.ended += if some_ended { reaped.max(seen) } else { Duration::ZERO };
        } else {
            self.ended += seen;
        }
        self.ended + self.living.iter().map(|process| process.time).sum::<Duration>()
    }

    /// Returns the time of children for which the living processes have waited since the last look.
    fn reaped(&mut self) -> Duration {
        let since = |process: &mut Living| {
            let now = proc::cpu_of_ended_children(process.pid)?.max(process.of_children);
            Some(now - std::mem::replace(&mut process.of_children, now))
        };
        self.living.iter_mut().filter_map(since).sum()
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
