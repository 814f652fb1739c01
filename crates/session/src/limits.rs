//! What tracing may cost in a session: which functions the governor has disabled, and which it has given back.

use crate::plan::planner::Planner;
use calltap_collect::governor::{Governor, Judgement, OverLimit, Rates};
use calltap_collect::metadata::Metadata;
use calltap_trace::{Limited, Record, SiteId};
use std::collections::HashSet;
use std::time::Duration;

/// The functions that the governor has disabled.
#[derive(Default)]
pub(crate) struct Limits {
    /// Those that are off, and that the user has neither enabled nor disabled since.
    off: HashSet<SiteId>,
    /// All that ever were.
    ever: HashSet<SiteId>,
    /// Their names, and their events a second when each was disabled first.
    pub(crate) told: Vec<(String, f64)>,
}

/// What a look of the governor needs to know of the session.
pub(crate) struct Spent<'a> {
    /// Processor time of the process.
    pub(crate) cpu: Duration,
    /// Events that were lost.
    pub(crate) lost: u64,
    /// The stubs of functions that the user has named.
    pub(crate) named: &'a dyn Fn(&Planner<'_>) -> HashSet<u32>,
}

impl Limits {
    /// Watches from now on, when the process has used so much processor time.
    pub(crate) fn govern(limit: Option<(f64, &Rates)>, cpu: Duration) -> Option<Governor<'_>> {
        limit.map(|(limit, rates)| Governor::new(rates, limit, cpu))
    }

    /// The sites that are off because they cost too much.
    pub(crate) fn off(&self) -> &HashSet<SiteId> {
        &self.off
    }

    /// The user has enabled these sites, or disabled them: they are not the governor's any more.
    pub(crate) fn release(&mut self, sites: &HashSet<SiteId>) {
        self.off.retain(|site| !sites.contains(site));
    }

    /// Disables what the governor says, and gives back what it says.
    pub(crate) fn look(
        &mut self,
        governor: &mut Governor<'_>,
        spent: &Spent<'_>,
        planner: &mut Planner<'_>,
        emit: &mut dyn FnMut(Metadata),
    ) {
        let named = || (spent.named)(planner);
        let Judgement { disable, enable } =
            governor.look(spent.cpu, spent.lost, &planner.trap_stubs(), &named);
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
            // One that was given back and is disabled again is told of once.
            if self.ever.insert(*site) {
                functions.push(Limited { site: *site, events_per_s: *rate as u64 });
                self.told.push((name.clone(), *rate));
            }
        }
        if !functions.is_empty() {
            emit(Record::Limited { functions }.into());
        }
    }
}
