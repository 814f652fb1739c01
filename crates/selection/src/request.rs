//! The request of a selection's tracers for a function.

use crate::error::Error;
use crate::named::names_of;
use crate::selector::Selector;
use crate::words::{EVALUATOR, SAVE_THREAD, Selection};
use calltap_names::{ModuleNames, Word};
use calltap_patch::HookSet;
use calltap_sites::types::Types;
use calltap_sites::{Function, GPlace, Returns, SiteForm, Watch};
use calltap_trace::{TracerInfo, TracerKind};
use calltap_values::{DescribedFunction, FirstArgument, Program, READY, Reason, is_readied, readied};
use std::ops::Deref;
use std::sync::Arc;

/// Suffixes of functions that the compiler has specialised for some of their callers.
const ALTERED: [&str; 3] = [".isra.", ".constprop.", ".part."];

/// The combined request of the tracers for a function.
pub struct SiteRequest {
    /// The tracers that want the function: bit mask by tracer id.
    pub tracers: u32,
    /// The hooks of these tracers together.
    pub hook_set: HookSet,
    /// Program that reads values of its calls.
    pub program: Option<Arc<Program>>,
    /// The reason why values cannot be read.
    pub trouble: Option<Reason>,
    /// Whether its calls are recorded on a condition, which the program evaluates.
    pub is_conditional: bool,
    /// Whether its calls are recorded only where the program makes them.
    pub is_library_call: bool,
    /// Whether the tracers want more than they can have, as only the function's entry can be
    /// traced.
    pub cut: bool,
    /// Purpose of the hooks.
    pub purpose: Purpose,
}

/// Purpose of a function's hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The function's calls are recorded.
    Trace,
    /// Python functions are traced by it: it is [`EVALUATOR`] or [`SAVE_THREAD`], and records no
    /// events itself.
    Evaluate,
    /// The function's entry announces something to the agent, and is not recorded: it is
    /// [watched](Function::watch).
    Watch,
}

/// Reads the debugging information of a function's file, if it exists.
pub type Typed<'t> = &'t dyn Fn() -> Option<Arc<Types>>;

impl SiteRequest {
    /// Records a Go function without its goroutine: by its entry alone, and without values,
    /// which the hooks for that do not read.
    pub fn leave_goroutines_out(&mut self) {
        self.leave_returns_out(Reason::GoClock);
    }

    /// Records only the entries of a function's calls, without values.
    pub fn leave_returns_out(&mut self, why: Reason) {
        self.cut |= self.hook_set.returns();
        self.hook_set = self.hook_set.on_small_stack();
        // The user did not ask for the value by which wakers of goroutines are known.
        if self.program.take().is_some_and(|program| !is_readied(&program)) {
            self.trouble = Some(why);
        }
    }

    /// Whether its condition cannot be evaluated: then no call is known to fulfil it, and the
    /// function is not traced.
    pub fn is_undecided(&self) -> bool {
        self.is_conditional && self.program.is_none()
    }
}

/// A selection, parsed.
pub struct ParsedSelection {
    /// The user's words.
    pub words: Selection,
    /// The tracers; `id` is their index.
    pub tracers: Vec<TracerInfo>,
    /// The filters of the tracers.
    pub selector: Selector,
}

/// Returns the function that requests the hooks of a selection's tracers; if not `on`, it requests
/// only that calls of prctl are watched.
pub fn chooser(
    selection: impl Deref<Target = ParsedSelection>,
    on: bool,
) -> impl Fn(&Function, ModuleNames<'_>, Typed<'_>) -> Option<SiteRequest> {
    move |function, module, typed| match on {
        true => selection.site_request(function, module, typed),
        false => selection.watch(function).filter(|request| request.hook_set == HookSet::PRCTL),
    }
}

impl ParsedSelection {
    /// Parses a selection. If `later`, globs may match no function.
    pub fn new(words: &Selection, later: bool) -> Result<ParsedSelection, Error> {
        ParsedSelection::about(words, later, &[])
    }

    /// Parses a selection as [`ParsedSelection::new`] does. For each glob of `about`, a matching
    /// function must be traced.
    pub fn about(words: &Selection, later: bool, about: &[String]) -> Result<ParsedSelection, Error> {
        let mut selector = Selector::new(words, later)?;
        selector.about = about.iter().map(|glob| Word::new(glob)).collect();
        Ok(ParsedSelection { words: words.clone(), tracers: selector.tracers.clone(), selector })
    }

    /// Requires that for each of these globs the durations of some function's calls are recorded.
    pub fn timing(mut self, globs: &[String]) -> ParsedSelection {
        self.selector.timed = globs.iter().map(|glob| Word::new(glob)).collect();
        self
    }

    /// Returns the combined request of the tracers for a function; None if none wants it.
    pub fn site_request(
        &self,
        function: &Function,
        module: ModuleNames<'_>,
        typed: Typed<'_>,
    ) -> Option<SiteRequest> {
        let is_added = || function.name == SAVE_THREAD && !self.is_filtered(function, module);
        if !self.words.python.is_empty() && (function.name == EVALUATOR || is_added()) {
            return self.evaluator();
        }
        let tracers = self.selector.choose(function, module);
        let wanting = self.tracers.iter().filter(|tracer| tracers & 1 << tracer.id != 0);
        let hook_set = wanting.map(|tracer| match tracer.kind {
            TracerKind::Function => HookSet::FUNCTION,
            TracerKind::FunctionGraph => HookSet::GRAPH,
            TracerKind::Profile => HookSet::PROFILE,
        });
        let Some(hook_set) = hook_set.reduce(HookSet::and) else {
            return self.watch(function);
        };
        if let Some(form) = function.form().filter(|form| form.is_of_go()) {
            let entry = self.entry((function, module), tracers, hook_set, Reason::GoFunction);
            if form.goroutine().is_none() {
                return Some(entry);
            }
            let returns = matches!(function.returns, Returns::Exits { unrecorded_end: None, .. });
            let cut = hook_set.returns() && !(returns && hook_set == hook_set.and(HookSet::GRAPH));
            let (program, trouble) = self.go_values(function, module, typed);
            return Some(SiteRequest {
                hook_set: hook_set.on_goroutine(returns),
                cut,
                program,
                trouble,
                ..entry
            });
        }
        // A call that leaves by a tail call would stay open, and the caller's next calls would be
        // inside it.
        if let Some(unrecorded_end) = function.returns.unrecorded_end()
            && hook_set.returns()
        {
            return Some(SiteRequest {
                cut: false,
                ..self.entry(
                    (function, module),
                    tracers,
                    hook_set,
                    Reason::Unseen { why: Box::new(unrecorded_end.clone()) },
                )
            });
        }
        let (program, trouble) = self.values(function, module, typed);
        Some(SiteRequest {
            tracers,
            hook_set,
            program,
            trouble,
            is_conditional: self.selector.is_conditional(function, module),
            is_library_call: self.selector.is_library_call(function, module),
            cut: false,
            purpose: Purpose::Trace,
        })
    }

    /// Returns the program that reads values of a function's calls, or the reason why they are not
    /// read.
    fn values(
        &self,
        function: &Function,
        module: ModuleNames<'_>,
        typed: Typed<'_>,
    ) -> (Option<Arc<Program>>, Option<Reason>) {
        // A function specialised for some callers has other arguments than its signature says.
        let is_specialised = ALTERED.iter().any(|part| function.name.contains(part));
        let is_altered = || is_specialised || typed().is_some_and(|types| types.is_altered(function.address));
        let known = || describe(function, typed().filter(|_| !is_specialised)?);
        match self.selector.values(function, module, &known) {
            Ok(program) => (program, None),
            Err(Reason::NoArguments | Reason::NoNames { .. }) if is_altered() => {
                (None, Some(Reason::Altered))
            }
            Err(why) => (None, Some(why)),
        }
    }

    /// Whether values of a function's calls are to be read.
    fn reads(&self, function: &Function, module: ModuleNames<'_>) -> bool {
        !matches!(self.selector.values(function, module, &|| None), Ok(None))
    }

    /// Returns the program that reads values of a Go function's calls, or the reason why they are
    /// not read.
    fn go_values(
        &self,
        function: &Function,
        module: ModuleNames<'_>,
        typed: Typed<'_>,
    ) -> (Option<Arc<Program>>, Option<Reason>) {
        let refused = || (None, Some(Reason::GoFunction));
        if !self.reads(function, module) {
            return (woken_goroutine(function), None);
        }
        let known = || describe(function, typed()?).filter(|known| known.signature.go_results.is_some());
        let in_registers = function.form().is_some_and(passes_registers);
        let Some(known) = known().filter(|_| in_registers && !self.selector.is_conditional(function, module))
        else {
            return refused();
        };
        match self.selector.values(function, module, &|| Some(known.clone())) {
            Ok(Some(program)) if program.captured.unwinds() => refused(),
            Ok(program) => (program, None),
            Err(why) => (None, Some(why)),
        }
    }

    /// Whether a filter given by the user selects the function.
    fn is_filtered(&self, function: &Function, module: ModuleNames<'_>) -> bool {
        self.words
            .given_filter()
            .map(|word| Word::new(word))
            .any(|word| word.matches(&names_of(function, module)))
    }

    /// Returns the request for CPython's evaluator, whose entry must call the agent.
    fn evaluator(&self) -> Option<SiteRequest> {
        let graphs = self.tracers.iter().filter(|tracer| tracer.kind == TracerKind::FunctionGraph);
        let tracers = graphs.fold(0, |mask, tracer| mask | 1 << tracer.id);
        let hook_set = HookSet::EVALUATOR;
        let request = SiteRequest {
            tracers,
            hook_set,
            program: None,
            trouble: None,
            is_conditional: false,
            is_library_call: false,
            cut: false,
            purpose: Purpose::Evaluate,
        };
        (tracers != 0 && self.words.traces_python()).then_some(request)
    }

    /// Returns the request for a function that is watched and not traced. Nonlocal exits matter if
    /// returns are recorded.
    fn watch(&self, function: &Function) -> Option<SiteRequest> {
        let hook_set = match function.watch? {
            Watch::NonlocalExit(_) | Watch::Unwinding(_) => {
                self.selector.records_returns().then_some(HookSet::NONLOCAL)?
            }
            Watch::Prctl { .. } => HookSet::PRCTL,
        };
        Some(SiteRequest {
            tracers: 0,
            hook_set,
            program: None,
            trouble: None,
            is_conditional: false,
            is_library_call: false,
            cut: false,
            purpose: Purpose::Watch,
        })
    }

    /// Returns the request for a function of which only the entry can be traced. No values are
    /// read.
    fn entry(
        &self,
        (function, module): (&Function, ModuleNames<'_>),
        tracers: u32,
        hook_set: HookSet,
        why: Reason,
    ) -> SiteRequest {
        let trouble = self.reads(function, module).then_some(why);
        let cut = hook_set != HookSet::FUNCTION;
        SiteRequest {
            tracers,
            hook_set: hook_set.on_small_stack(),
            program: None,
            trouble,
            is_conditional: self.selector.is_conditional(function, module),
            is_library_call: self.selector.is_library_call(function, module),
            cut,
            purpose: Purpose::Trace,
        }
    }
}

/// Whether a Go function takes its arguments in registers. The convention by which it does came
/// with `g` in r14.
fn passes_registers(form: &SiteForm) -> bool {
    form.goroutine().is_some_and(|goroutine| goroutine.g == GPlace::R14)
}

/// Returns what the debugging information says of a function.
fn describe(function: &Function, types: Arc<Types>) -> Option<DescribedFunction> {
    let signature = types.signature(function.address)?;
    let name = types.name(function.address);
    Some(DescribedFunction { types, signature, name })
}

/// Returns the program that reads which goroutine a function of the Go runtime makes ready to run,
/// if it is the one that does so.
fn woken_goroutine(function: &Function) -> Option<Arc<Program>> {
    match function.form() {
        Some(form @ SiteForm::Checked { .. }) if function.name == READY => {
            let first = match passes_registers(form) {
                true => FirstArgument::Register,
                false => FirstArgument::Stack,
            };
            readied(form.goroutine()?.number, first).ok()
        }
        _ => None,
    }
}
