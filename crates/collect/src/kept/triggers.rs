//! Triggers: calls of some functions that change a recording, by `record --on 'f:trace_on'`,
//! `trace_off`, `depth=N`.
//!
//! Whether the recording is on is one state of all threads, so their calls have to be put in the
//! order of time: the events of an interval are held back until all of them were read.

use calltap_names::{Word, is_named};
use calltap_trace::{Action, Event, Module, Record, Site, uses};
use std::collections::HashMap;

/// A trigger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Functions, as a glob.
    pub function: String,
    /// Effect of a call of one of them.
    pub action: Action,
    /// Number of times that it applies; `None`: always.
    pub count: Option<i64>,
}

/// The triggers of a recording.
#[derive(Clone, Debug)]
pub struct Triggers {
    all: Vec<(Word, Trigger)>,
    /// Paths of modules, by id.
    modules: HashMap<u32, Module>,
    /// Indices of the triggers of each site.
    by_site: Vec<Vec<usize>>,
    /// Whether the recording is on, at the end of what was settled.
    is_on: bool,
    /// Later calls that may turn it on or off: time, and index of the trigger.
    called: Vec<(u64, usize)>,
}

impl Triggers {
    /// Creates the triggers. A recording with a trigger that turns it on begins off.
    pub(crate) fn new(triggers: &[Trigger]) -> Triggers {
        let is_on = triggers.iter().all(|trigger| trigger.action != Action::TraceOn);
        let all = triggers.iter().map(|trigger| (Word::new(&trigger.function), trigger.clone())).collect();
        Triggers { all, modules: HashMap::new(), by_site: Vec::new(), is_on, called: Vec::new() }
    }

    /// Whether a trigger can turn the recording off or on.
    pub fn switch(&self) -> bool {
        self.all.iter().any(|(_, trigger)| trigger.action.switches())
    }

    /// Whether the recording is on, at the end of what was settled.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes the descriptions of modules and functions.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Module(module) => drop(self.modules.insert(module.id, module.clone())),
            Record::Sites { sites } => sites.iter().for_each(|site| self.describe(site)),
            _ => {}
        }
    }

    /// Finds the triggers of a site.
    fn describe(&mut self, site: &Site) {
        let place = site.id.0 as usize;
        let module = self.modules.get(&site.module).map(Module::names);
        self.by_site.resize(self.by_site.len().max(place + 1), Vec::new());
        let is = |(_, (word, _)): &(usize, &(Word, Trigger))| is_named(word, site.names(), module);
        self.by_site[place] = self.all.iter().enumerate().filter(is).map(|(at, _)| at).collect();
    }

    /// Returns the triggers of the function that an event enters.
    fn of(&self, event: &Event) -> &[usize] {
        let all = self.by_site.get(event.site.0 as usize).filter(|_| event.kind.begins_call());
        all.map_or(&[], Vec::as_slice)
    }

    /// Looks at an event of a thread; each event is looked at once.
    pub fn apply(&mut self, event: &Event) {
        for at in 0..self.of(event).len() {
            let trigger = self.of(event)[at];
            if self.all[trigger].1.action.switches() {
                self.called.push((event.ticks, trigger));
            }
        }
    }

    /// Returns how many levels are kept in the call that an event begins, itself the first.
    pub fn levels(&self, event: &Event) -> Option<usize> {
        let levels = |at: &usize| match self.all[*at].1.action {
            Action::Depth(levels) => Some(levels),
            _ => None,
        };
        self.of(event).iter().filter_map(levels).min()
    }

    /// Returns when the recording resumes (true) and pauses (false), up to a moment until which all
    /// calls were looked at.
    pub fn settle(&mut self, until: u64) -> Vec<(u64, bool)> {
        self.called.sort_unstable();
        let settled = self.called.partition_point(|(ticks, _)| *ticks <= until);
        let mut edges = Vec::new();
        for (ticks, trigger) in self.called.drain(..settled) {
            let Trigger { action, count, .. } = &mut self.all[trigger].1;
            if action.applies(self.is_on) && uses(count) {
                self.is_on = action.leaves(self.is_on);
                edges.push((ticks, self.is_on));
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::{EventKind, SiteId};

    fn site(id: u32, name: &str) -> Site {
        Site {
            id: SiteId(id),
            module: 0,
            address: u64::from(id) * 16,
            size: 16,
            name: name.to_owned(),
            kind: "nop".to_owned(),
            tracers: 1,
            aliases: Vec::new(),
            captured: None,
        }
    }

    #[test]
    fn calls_of_all_threads_switch_in_the_order_of_time() {
        let trigger =
            |function: &str, action, count| Trigger { function: function.to_owned(), action, count };
        let mut triggers = Triggers::new(&[
            trigger("begin", Action::TraceOn, None),
            trigger("end*", Action::TraceOff, Some(1)),
        ]);
        triggers.record(&Record::Sites { sites: vec![site(0, "begin"), site(1, "end_it")] });
        assert!(triggers.switch() && !triggers.is_on());
        let call = |site, ticks| Event { ticks, site: SiteId(site), kind: EventKind::Entry };
        // The first thread was read before the second.
        for event in [call(1, 20), call(1, 40), call(0, 10), call(0, 30), call(0, 90)] {
            triggers.apply(&event);
        }
        assert_eq!(triggers.settle(50), [(10, true), (20, false), (30, true)]);
        assert!(triggers.is_on(), "it may be switched off once");
        assert_eq!(triggers.settle(100), []);
        let exit = Event { kind: EventKind::Exit { pops: 1 }, ..call(1, 120) };
        triggers.apply(&exit);
        assert_eq!(triggers.settle(200), []);
    }
}
