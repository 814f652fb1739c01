//! The policy of a planner: the selection, how functions are found, and how sites are changed.

use super::PatchMode;
use crate::error::Error;
use calltap_names::ModuleNames;
use calltap_selection::{Candidates, Selector, SiteRequest, Typed};
use calltap_sites::{Discovery, Function};

/// Returns the request of the tracers for a function.
pub(super) type Choose<'a> =
    dyn Fn(&Function, ModuleNames<'_>, Typed<'_>) -> Option<SiteRequest> + Send + std::marker::Sync + 'a;

/// Returns the number of words by which the selection, given the candidates, reaches functions of
/// libraries that were not built for tracing.
pub(super) type Reach<'a> = dyn Fn(&Candidates) -> usize + Send + std::marker::Sync + 'a;

/// Checks the selection against the candidates before anything is patched. An error is the reason
/// not to run the program.
pub(super) type Check<'a> = dyn Fn(&Candidates) -> Result<(), Error> + Send + std::marker::Sync + 'a;

/// The policy of a planner.
pub(crate) struct Policy<'a> {
    /// Requests of the tracers.
    pub choose: Box<Choose<'a>>,
    /// Reach of the selection into libraries without room.
    pub reach: Box<Reach<'a>>,
    /// Selects the functions to decode, with the code that decides about them; None for all that
    /// the selection reaches.
    pub selector: Option<&'a Selector>,
    /// Checks the selection.
    pub check: &'a Check<'a>,
    /// Called once the selection and the requested values are valid.
    pub accepted: &'a (dyn Fn() + Send + Sync),
    /// Whether programs that are executed later are traced, too: values that the first program does
    /// not have may be theirs.
    pub follow: bool,
    /// How running code is changed.
    pub mode: PatchMode,
    /// Whether all calls of the profiling function become NOPs before the program runs, selected or
    /// not.
    pub quiet: bool,
    /// When calls of the profiling function that no table lists are found.
    pub discovery: Discovery,
    /// Whether functions that poll futures are searched for.
    pub futures: bool,
    /// Whether the calls of programs into libraries are searched for.
    pub libcalls: bool,
    /// Whether functions without room for a jump are traced by permanent breakpoints.
    pub int3: bool,
}

impl<'a> Policy<'a> {
    /// Returns a policy that decodes what the selection reaches, accepts any selection, and does
    /// nothing that is off by default.
    pub(crate) fn new(choose: Box<Choose<'a>>) -> Policy<'a> {
        Policy {
            choose,
            reach: Box::new(|_| 0),
            selector: None,
            check: &|_| Ok(()),
            accepted: &|| {},
            follow: false,
            mode: PatchMode::default(),
            quiet: false,
            discovery: Discovery::AtLoad,
            futures: false,
            libcalls: false,
            int3: false,
        }
    }
}
