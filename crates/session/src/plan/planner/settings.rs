//! What a planner is told before it begins.

use super::{Discovery, PatchMode, Planner, Reach};
use calltap_selection::Selector;

impl<'a> Planner<'a> {
    /// Tells when what is asked for makes sense for what can be traced.
    pub fn accepting(self, accepted: &'a (dyn Fn() + Send + Sync)) -> Self {
        Planner { accepted, ..self }
    }

    /// Changes running code in this way.
    pub fn by(self, mode: PatchMode) -> Self {
        Planner { mode, ..self }
    }

    /// Has all calls to the profiling function become NOPs before the program runs.
    pub fn quietly(self) -> Self {
        Planner { quiet: true, ..self }
    }

    /// Looks for what polls futures.
    pub fn awaiting(self, futures: bool) -> Self {
        Planner { futures, ..self }
    }

    /// Looks for the stubs through which a program calls libraries.
    pub fn calling_libraries(self, libcalls: bool) -> Self {
        Planner { libcalls, ..self }
    }

    /// Finds calls to the profiling function so.
    pub fn discovering(self, discovery: Discovery) -> Self {
        Planner { discovery, ..self }
    }

    /// Traces functions that have no room for a jump by breakpoints that stay, if that is allowed.
    pub fn allowing(self, int3: bool) -> Self {
        Planner { int3, ..self }
    }

    /// Its selection reaches so far.
    pub fn reaching(self, reach: Box<Reach<'a>>) -> Self {
        Planner { reach, ..self }
    }

    /// Only functions are decoded that may be chosen, and what decides about them.
    pub fn choosing_by(self, selector: &'a Selector) -> Self {
        Planner { selector: Some(selector), ..self }
    }
}
