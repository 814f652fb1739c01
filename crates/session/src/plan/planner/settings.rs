//! Settings of a planner that are made before it begins.

use super::{Discovery, PatchMode, Planner, Reach};
use calltap_selection::Selector;

impl<'a> Planner<'a> {
    /// Sets a function to call once the selection and the requested values are valid.
    pub fn accepting(self, accepted: &'a (dyn Fn() + Send + Sync)) -> Self {
        Planner { accepted, ..self }
    }

    /// Sets how running code is changed.
    pub fn by(self, mode: PatchMode) -> Self {
        Planner { mode, ..self }
    }

    /// Makes all calls of the profiling function NOPs before the program runs.
    pub fn quietly(self) -> Self {
        Planner { quiet: true, ..self }
    }

    /// Sets whether functions that poll futures are searched for.
    pub fn awaiting(self, futures: bool) -> Self {
        Planner { futures, ..self }
    }

    /// Sets whether the stubs through which a program calls libraries are searched for.
    pub fn calling_libraries(self, libcalls: bool) -> Self {
        Planner { libcalls, ..self }
    }

    /// Sets when calls of the profiling function are found.
    pub fn discovering(self, discovery: Discovery) -> Self {
        Planner { discovery, ..self }
    }

    /// Sets whether functions without room for a jump may be traced by permanent breakpoints.
    pub fn allowing(self, int3: bool) -> Self {
        Planner { int3, ..self }
    }

    /// Sets which candidates the selection reaches.
    pub fn reaching(self, reach: Box<Reach<'a>>) -> Self {
        Planner { reach, ..self }
    }

    /// Restricts decoding to functions that the selector may choose, and to code that decides about
    /// them.
    pub fn choosing_by(self, selector: &'a Selector) -> Self {
        Planner { selector: Some(selector), ..self }
    }
}
