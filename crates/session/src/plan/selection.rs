//! What is traced: the user's selection, and the functions that it resolves to.

use crate::Error;
use crate::plan::ftraced::Ftraced;
use crate::plan::loaded::{SiteRequest, Typed};
use crate::plan::modules::Candidates;
use calltap_names::GlobSet;
use calltap_patch::HookSet;
use calltap_sites::{Function, Returns, SiteForm};
use calltap_trace::{TracerInfo, TracerKind};
use calltap_values::{Known, Program, Trouble};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Suffixes of functions that the compiler has specialised for some of their callers.
const ALTERED: [&str; 3] = [".isra.", ".constprop.", ".part."];

/// How functions are identified before their file is decoded.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    /// Linker names of one function.
    By(&'a [&'a str]),
    /// The functions without a name in a file of this name: they are called `file+0x...`.
    ByPlace(&'a str),
}

/// Whether functions may be chosen.
pub type MayChoose<'a> = dyn Fn(Named<'_>) -> bool + 'a;

/// Decides which tracers want which functions.
pub trait Selector: Send + Sync {
    /// The tracers that want a function (bit mask of [`TracerInfo::id`]s).
    fn choose(&self, function: &Function) -> u32;
    /// What is to be read of its calls; the reason if it cannot be.
    fn values(
        &self,
        function: &Function,
        known: &dyn Fn() -> Option<Known>,
    ) -> Result<Option<Arc<Program>>, Trouble>;
    /// Given what there is to choose from: does it reach functions of libraries that were not built for tracing?
    fn reach(&self, candidates: &Candidates) -> bool;
    /// May a function that is known by this be chosen, if it can be traced? `library`: among those of libraries that were not built for
    /// tracing. Asked before a file is decoded.
    fn may_choose(&self, named: Named<'_>, library: bool) -> bool;
    /// The reason not to run the program at all, given what can be chosen from at its start.
    fn check(&self, candidates: &Candidates) -> Result<(), Error>;
}

/// The user's selection: tracers, filters, and values to read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Selection {
    /// The tracers; a tracer's number is its place. None: one of the kind function_graph.
    pub tracers: Vec<TracerSelection>,
    /// Globs, for every tracer.
    pub filter: Vec<String>,
    /// Globs, for every tracer.
    pub notrace: Vec<String>,
    /// Name of the tracer that the files of the control directory mean, if one was chosen.
    pub default: Option<String>,
    /// Arguments that are read, as `FUNCTION@ITEM,...`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Results that are read.
    #[serde(default)]
    pub results: Vec<String>,
    /// Calls are recorded only if these hold.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// What polls futures is traced, and which future it is.
    #[serde(default)]
    pub futures: bool,
    /// Functions that have no room for a jump are traced by breakpoints that stay. Once allowed, they are for as long as the session lasts.
    #[serde(default)]
    pub int3: bool,
    /// No events are wanted for the time being (`tracing_on` is 0).
    pub paused: bool,
    /// How the daemon does that converts calls which were recorded when they were first made. None: sites are known at load, and there is none.
    pub ftraced: Option<Ftraced>,
}

/// A tracer of a selection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracerSelection {
    /// Unique; the first that records events is `trace`, as in the control directory.
    pub name: String,
    /// None: it is not registered, and its filters wait.
    pub kind: Option<TracerKind>,
    /// Globs, those with a `!` in front take away again: the last that matches counts. None: every function.
    pub filter: Vec<String>,
    /// The same.
    pub notrace: Vec<String>,
}

impl Selection {
    /// The functions that filters name without wildcards.
    pub fn named(&self) -> GlobSet {
        let of_tracers = self.tracers.iter().flat_map(|tracer| &tracer.filter);
        GlobSet::new(self.filter.iter().chain(of_tracers)).only(|glob| glob.exact().is_some())
    }

    /// What is given replaces what was set before, kind by kind; an empty word clears it. True if anything was given.
    pub fn change(&mut self, given: Selection) -> bool {
        let mut any = !given.tracers.is_empty() || given.int3;
        self.int3 |= given.int3;
        if !given.tracers.is_empty() {
            self.tracers = given.tracers;
        }
        for (kept, given) in [
            (&mut self.filter, given.filter),
            (&mut self.notrace, given.notrace),
            (&mut self.arguments, given.arguments),
            (&mut self.results, given.results),
            (&mut self.conditions, given.conditions),
        ] {
            if !given.is_empty() {
                *kept = given.into_iter().filter(|word| !word.is_empty()).collect();
                any = true;
            }
        }
        any
    }
}

const NOT_READ: &str = "it is a Go function, of which only the entry is traced";

/// A selection.
pub struct ParsedSelection {
    /// In the user's words.
    pub words: Selection,
    /// The tracers; `id` is their index.
    pub tracers: Vec<TracerInfo>,
    /// Their filters.
    pub selector: Box<dyn Selector>,
}

/// Makes a selection of words, or says why it is none; if the second is true, globs may match nothing.
pub type Parse = fn(&Selection, bool) -> Result<ParsedSelection, String>;

impl ParsedSelection {
    /// What its tracers want of a function, together.
    pub fn site_request(&self, function: &Function, typed: Typed<'_>) -> Option<SiteRequest> {
        let tracers = self.selector.choose(function);
        let wanting = self.tracers.iter().filter(|tracer| tracers & 1 << tracer.id != 0);
        let wanted = wanting.map(|tracer| match tracer.kind {
            TracerKind::Function => HookSet::FUNCTION,
            TracerKind::FunctionGraph => HookSet::GRAPH,
            TracerKind::Profile => HookSet::PROFILE,
        });
        let wanted = wanted.reduce(HookSet::and)?;
        if let Some(SiteForm::Checked { .. }) = function.form {
            return Some(self.entry(function, tracers, wanted, NOT_READ));
        }
        // A call that leaves by a tail call would stay open, with what its caller calls next inside it.
        if let Returns::Exits { unseen, .. } = &function.returns
            && let Some(unseen) = unseen
            && wanted.returns()
        {
            return Some(SiteRequest {
                cut: false,
                ..self.entry(function, tracers, wanted, &unseen.to_string())
            });
        }
        let known = || {
            // What a compiler has made of a function for some of its callers takes other arguments than it says.
            let is_altered = ALTERED.iter().any(|part| function.name.contains(part));
            let types = typed().filter(|_| !is_altered)?;
            let signature = types.signature(function.address)?;
            let name = types.name(function.address);
            Some(Known { types, signature, name })
        };
        let (program, trouble) = match self.selector.values(function, &known) {
            Ok(program) => (program, None),
            Err(why) => (None, Some(why)),
        };
        Some(SiteRequest { tracers, wanted, program, trouble, cut: false })
    }

    /// What can be had of it where only its entry can be traced: nothing is read.
    fn entry(&self, function: &Function, tracers: u32, wanted: HookSet, why: &str) -> SiteRequest {
        let reads = !matches!(self.selector.values(function, &|| None), Ok(None));
        let trouble = reads.then(|| Trouble::from(why.to_owned()));
        let cut = wanted != HookSet::FUNCTION;
        SiteRequest { tracers, wanted: wanted.on_small_stack(), program: None, trouble, cut }
    }
}
