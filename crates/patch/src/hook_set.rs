//! The hooks that a site's stub calls.

use calltap_abi::stub::{self, Style};

/// The hooks for all tracers of a site together: one pair of events, or one measurement, serves all
/// of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HookSet {
    pub(crate) hooks: u8,
    /// Number of the program that reads a call's values ([`calltap_abi::values`]); 0 for none.
    program: u16,
}

impl HookSet {
    /// Events of entries, with their callers.
    pub const FUNCTION: HookSet = HookSet { hooks: stub::FUNCTION, program: 0 };
    /// Events of entries and returns.
    pub const GRAPH: HookSet = HookSet { hooks: stub::GRAPH, program: 0 };
    /// Counts and times, summed up in the program.
    pub const PROFILE: HookSet = HookSet { hooks: stub::PROFILE, program: 0 };

    /// Entries and returns of CPython's evaluator, from which the agent learns of Python functions;
    /// see [`stub::PYTHON`].
    pub const EVALUATOR: HookSet = HookSet { hooks: stub::PYTHON | stub::GRAPH, program: 0 };
    /// Entries of CPython's evaluator alone.
    pub const EVALUATOR_ENTRY: HookSet = HookSet { hooks: stub::PYTHON, program: 0 };

    /// Nonlocal exits: the entry of a function such as longjmp tells which calls end without their
    /// returns. It is not recorded itself.
    pub const NONLOCAL: HookSet = HookSet { hooks: stub::WATCH, program: 0 };
    /// The entry of a function with the arguments of prctl, which is not recorded.
    pub const PRCTL: HookSet = HookSet { hooks: stub::WATCH | stub::SMALL_STACK, program: 0 };

    /// Returns all combinations for other functions, without values.
    pub fn all() -> impl Iterator<Item = HookSet> {
        (1..=7).map(|hooks| HookSet { hooks, program: 0 })
    }

    /// Returns the union of two sets.
    pub fn and(self, other: HookSet) -> HookSet {
        HookSet { hooks: self.hooks | other.hooks, program: self.program.max(other.program) }
    }

    /// Returns this set, with values read by a program, if its hooks run programs.
    pub fn reading(self, program: u16) -> HookSet {
        match self.runs_programs() && program != 0 {
            true => HookSet { hooks: self.hooks | stub::VALUES, program },
            false => self,
        }
    }

    /// Whether its hooks run a program. On a small stack, only those of [`Self::PRCTL`] do.
    fn runs_programs(self) -> bool {
        self.hooks & stub::SMALL_STACK == 0 || self.only_watches()
    }

    /// Returns the set whose hooks record the same entries and run a program. `None` if none do.
    pub fn running_programs(self) -> Option<HookSet> {
        match self.runs_programs() {
            true => Some(self),
            false => self.records().then_some(HookSet::FUNCTION),
        }
    }

    /// Returns the available part of this set where the stack has little room, and the return
    /// address must not be replaced: entries instead of calls, and counts.
    pub fn on_small_stack(self) -> HookSet {
        let entries = if self.records() { stub::FUNCTION } else { 0 };
        HookSet { hooks: stub::SMALL_STACK | entries | self.hooks & stub::PROFILE, program: 0 }
    }

    /// Returns the available part of this set for a Go function whose events name their goroutine:
    /// entries with callers, returns if they are seen, and counts.
    pub fn on_goroutine(self, returns: bool) -> HookSet {
        let asked = self.hooks & (stub::FUNCTION | stub::GRAPH | stub::PROFILE);
        let hooks = match asked & stub::GRAPH != 0 && !returns {
            true => asked & !stub::GRAPH | stub::FUNCTION,
            false => asked,
        };
        HookSet { hooks: stub::GOROUTINE | hooks, program: 0 }
    }

    /// Whether events name their goroutine.
    pub fn knows_goroutine(self) -> bool {
        self.hooks & stub::GOROUTINE != 0
    }

    /// Whether the function is watched, and not traced.
    pub fn only_watches(self) -> bool {
        self.hooks & stub::WATCH != 0
    }

    /// Whether the function is watched for nonlocal exits, and not traced.
    pub fn watches_exits(self) -> bool {
        self.hooks == Self::NONLOCAL.hooks
    }

    /// Number of the program that reads values; 0 for none.
    pub fn program(self) -> u16 {
        self.program
    }

    /// Whether entries have their return addresses.
    pub fn names_callers(self) -> bool {
        self.hooks & stub::FUNCTION != 0
    }

    /// Whether the hooks write events.
    pub fn records(self) -> bool {
        self.hooks & (stub::FUNCTION | stub::GRAPH) != 0
    }

    /// Returns the set as a number, without the program.
    pub fn number(self) -> u8 {
        self.hooks
    }

    /// Returns the set with a number and a program.
    pub fn from_number(number: u8, program: u16) -> Option<HookSet> {
        if number & (stub::PYTHON | stub::WATCH) != 0 {
            let known = [HookSet::EVALUATOR, HookSet::EVALUATOR_ENTRY, HookSet::NONLOCAL, HookSet::PRCTL];
            return known
                .map(|known| known.reading(program))
                .into_iter()
                .find(|hook_set| hook_set.hooks == number);
        }
        if number & (stub::SMALL_STACK | stub::GOROUTINE) != 0 {
            let all = || HookSet::all();
            let mut special =
                all().map(HookSet::on_small_stack).chain(all().map(|all| all.on_goroutine(true)));
            let hook_set = special.find(|hook_set| hook_set.hooks == number & !stub::VALUES)?;
            let may_read = hook_set.knows_goroutine() || program == 0;
            return Some(hook_set.reading(program)).filter(|hook_set| may_read && hook_set.hooks == number);
        }
        let hook_set = HookSet::all().find(|hook_set| hook_set.hooks == number & !stub::VALUES)?;
        Some(hook_set.reading(program)).filter(|hook_set| hook_set.hooks == number)
    }

    /// Whether a hook runs when the function returns.
    pub fn returns(self) -> bool {
        stub::exit_hook(self.hooks, Style::CallThrough).is_some()
    }
}
