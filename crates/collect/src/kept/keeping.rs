//! Which of the recorded calls a recording keeps: `--graph`, `--callers`, `--depth`, `--on`; and
//! changes of that while it runs.

use crate::kept::chosen::Chosen;
use crate::kept::triggers::{Trigger, Triggers};
use calltap_names::Word;
use calltap_trace::{Event, FunctionRules, Kept, Record, Sifting};

/// The calls that are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subtree {
    /// Functions, as globs, whose calls are kept with what they call; empty: all.
    pub roots: Vec<String>,
    /// Functions, as globs, whose calls are kept with the calls that lead to them; empty: all.
    pub targets: Vec<String>,
    /// Number of levels that are kept from there on; `None`: all.
    pub depth: Option<usize>,
    /// Triggers that change which calls are kept.
    pub triggers: Vec<Trigger>,
}

impl Subtree {
    /// Whether every call is kept.
    pub fn is_all(&self) -> bool {
        *self == Subtree::default()
    }

    /// Returns the functions that the rules name: they have to be traced.
    pub fn functions(&self) -> impl Iterator<Item = &String> {
        let triggers = self.triggers.iter().map(|trigger| &trigger.function);
        self.roots.iter().chain(&self.targets).chain(triggers)
    }

    /// Returns what a trace says about the kept calls. `from`: first tick at which it holds, if
    /// that is not the beginning.
    pub fn record(&self, from: Option<u64>) -> Record {
        Record::Kept(Kept { from, calls: (!self.is_all()).then(|| self.describe()) })
    }

    /// Describes the kept calls as a sentence: `the recording keeps only calls of handle and what
    /// it calls`.
    pub fn sentence(&self) -> String {
        match self.is_all() {
            true => "the recording keeps all calls".to_owned(),
            false => format!("the recording keeps only calls {}", self.describe()),
        }
    }

    /// Describes the kept calls as part of a sentence: `of handle and what it calls, 3 levels
    /// deep`.
    pub fn describe(&self) -> String {
        let mut of = Vec::new();
        of.extend((!self.roots.is_empty()).then(|| format!("{} and what it calls", self.roots.join(", "))));
        of.extend(
            (!self.targets.is_empty()).then(|| format!("{} and what leads to it", self.targets.join(", "))),
        );
        let of = if of.is_empty() { "all functions".to_owned() } else { of.join(", of these ") };
        let levels = match self.depth {
            None => String::new(),
            Some(1) => ", 1 level deep".to_owned(),
            Some(depth) => format!(", {depth} levels deep"),
        };
        let triggers = if self.triggers.is_empty() { "" } else { ", as selected by triggers" };
        format!("of {of}{levels}{triggers}")
    }
}

/// The rules with their functions, resolved as the trace describes these.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub sifting: Sifting,
    roots: Chosen<()>,
    targets: Chosen<()>,
    triggers: Triggers,
}

impl Rules {
    pub(crate) fn new(subtree: &Subtree) -> Rules {
        let chosen = |globs: &[String]| Chosen::new(globs.iter().map(|glob| (Word::new(glob), ())));
        Rules {
            sifting: Sifting {
                from: 0,
                to: u64::MAX,
                rooted: !subtree.roots.is_empty(),
                targeted: !subtree.targets.is_empty(),
                depth: subtree.depth.unwrap_or(usize::MAX),
                longer: None,
            },
            roots: chosen(&subtree.roots),
            targets: chosen(&subtree.targets),
            triggers: Triggers::new(&subtree.triggers),
        }
    }

    /// Takes the descriptions of modules and functions.
    pub(crate) fn record(&mut self, record: &Record) {
        self.roots.record(record);
        self.targets.record(record);
        self.triggers.record(record);
    }

    /// Returns the rules' verdict on an event's function.
    pub(crate) fn of(&self, event: &Event) -> FunctionRules {
        FunctionRules {
            is_root: self.roots.of(event.site).is_some(),
            is_target: self.targets.of(event.site).is_some(),
            levels: self.triggers.levels(event),
        }
    }
}

/// A change of the rules from a moment on.
#[derive(Clone, Debug)]
pub struct Change {
    /// Time of the change, in ticks of the events' clock.
    pub(crate) at: u64,
    pub(crate) rules: Rules,
    pub(crate) record: Record,
}

impl Change {
    /// Creates a change. `known` hands over the modules and functions described so far.
    pub fn new(subtree: &Subtree, at: u64, known: impl FnOnce(&mut dyn FnMut(&Record))) -> Change {
        let mut rules = Rules::new(subtree);
        known(&mut |record| rules.record(record));
        Change { at, rules, record: subtree.record(Some(at)) }
    }
}
