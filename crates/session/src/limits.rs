//! What tracing may cost in a session: which functions the governor has disabled, and which it has given back.

use crate::plan::planner::Planner;
use calltap_collect::governor::{Judgement, OverLimit};
use calltap_collect::metadata::Metadata;
use calltap_trace::{Limited, Record, SiteId};
use std::collections::HashSet;

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

impl Limits {
    /// The sites that are off because they cost too much.
    pub(crate) fn off(&self) -> &HashSet<SiteId> {
        &self.off
    }

    /// The user has enabled these sites, or disabled them: they are not the governor's any more.
    pub(crate) fn release(&mut self, sites: &HashSet<SiteId>) {
        self.off.retain(|site| !sites.contains(site));
    }

    /// Disables what the governor says, and gives back what it says.
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
