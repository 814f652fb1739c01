//! Requests for the functions of a process: evaluates the selection, and has modules create sites
//! and stubs.

use super::modules::program_of;
use super::{Files, Planner};
use crate::error::Error;
use crate::plan::loaded::ProcessModule;
use crate::plan::stubs::Stubs;
use crate::python;
use calltap_abi::Clock;
use calltap_abi::event::code;
use calltap_abi::nonlocal;
use calltap_abi::stub::Style;
use calltap_abi::values::{self, step};
use calltap_collect::metadata::Metadata;
use calltap_names::{Word, is_named};
use calltap_patch::{Agent, Avma, Bias, HookSet};
use calltap_process::memory::maps::Region;
use calltap_process::proc;
use calltap_selection::debug_files::read_types;
use calltap_selection::{
    Program, Purpose, SAVE_THREAD, Selection, Selector, SiteRequest, ValueReason, is_readied,
};
use calltap_sites::{Discovery, Function, KeptPointer, Returns, ReturnsStay, Watch};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Warning if only entries are recorded although more was requested.
const CUT: &str =
    "of some Go functions only entries are recorded, and no returns or times: 'calltap sites FILE' says why";
/// Warning if only entries are recorded as the clock does not order a goroutine's events in
/// different threads.
const CUT_BY_CLOCK: &str = "of Go functions only entries are recorded: returns need --clock tsc or counter";

/// Returns the warning if only entries are recorded, as return addresses must stay.
fn only_entries(why: ReturnsStay) -> &'static str {
    match why {
        ReturnsStay::CollectsCode => {
            "the program's collector finds code by return addresses on stacks: of functions that need a return stub only entries are recorded, and no returns or times"
        }
        ReturnsStay::Unwinder => {
            "the program throws exceptions by libunwind, which cannot pass return stubs: of functions that need one only entries are recorded, and no returns or times"
        }
        ReturnsStay::Sanitizer => {
            "the program's sanitizer uses the memory where calltap would keep return addresses: only entries are recorded, and no returns or times"
        }
    }
}

/// Returns the reason why values of functions are not read whose returns are not recorded.
fn without_values(why: ReturnsStay) -> ValueReason {
    match why {
        ReturnsStay::CollectsCode => ValueReason::CollectedCode,
        ReturnsStay::Sanitizer => ValueReason::ShadowMemory,
        ReturnsStay::Unwinder => ValueReason::ThrowsByLibunwind,
    }
}

/// Why a named function that the agent watches is not traced.
const WATCHED: &str =
    "the agent watches this function to learn of loaded libraries; trace dlopen and dlclose, or its callers";

/// A function whose values cannot be read.
#[derive(Debug)]
struct NotRead {
    name: String,
    why: ValueReason,
    /// Whether its condition needs them, so that it is not traced.
    is_undecided: bool,
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotRead { name, why, is_undecided } = self;
        match is_undecided {
            true => write!(f, "{name} is not traced, as --if cannot be evaluated for its calls: {why}"),
            false => write!(f, "no values of {name} are recorded: {why}"),
        }
    }
}

/// A warning that is given once.
#[derive(Debug)]
struct Warning<T> {
    /// The subject, if there is one.
    why: Option<T>,
    is_given: bool,
}

impl<T> Default for Warning<T> {
    fn default() -> Warning<T> {
        Warning { why: None, is_given: false }
    }
}

impl<T: Copy> Warning<T> {
    /// Returns the subject if the warning is due, which is then given.
    fn give(&mut self) -> Option<T> {
        self.why.filter(|_| !std::mem::replace(&mut self.is_given, true))
    }
}

/// Results of requests to read values.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Linker symbols of the functions whose values are read.
    read: BTreeSet<String>,
    /// The first function whose values could not be read, with the reason.
    trouble: Option<NotRead>,
    /// Linker symbols of all these functions, with the reasons.
    missed: BTreeMap<String, ValueReason>,
    /// The first function of which some values are left out, with the reason.
    left_out: Option<(String, ValueReason)>,
    /// Warning that only entries are traced of some functions although more was requested.
    cut: Warning<()>,
    /// Warning that functions have entries alone, with the reason.
    without_stubs: Warning<ReturnsStay>,
    /// The tracers of Python functions, if there is a known interpreter.
    pub(super) python: Option<u32>,
    /// The first interpreter that is not traced, with the reason.
    pub(super) no_python: Option<(String, python::Reason)>,
}

impl Values {
    fn note(&mut self, site_request: &SiteRequest, function: &Function) {
        let asked = site_request.program.as_ref().filter(|program| !is_readied(program));
        if asked.is_some() && site_request.purpose != Purpose::Watch {
            self.read.insert(function.name.clone());
        }
        self.cut.why = self.cut.why.or(site_request.cut.then_some(()));
        let left_out = site_request.program.as_ref().and_then(|program| program.left_out.first());
        if let (Some(why), None) = (left_out, &self.left_out) {
            self.left_out = Some((calltap_names::in_message(&function.name), why.clone()));
        }
        if let Some(why) = &site_request.trouble {
            self.missed.insert(function.name.clone(), why.clone());
        }
        if let (Some(why), None) = (&site_request.trouble, &self.trouble) {
            let (name, why) = (calltap_names::in_message(&function.name), why.clone());
            self.trouble = Some(NotRead { name, why, is_undecided: site_request.is_undecided() });
        }
    }
}

/// Whether these hooks replace a return address, or need a shadow stack, although the program does
/// not allow that. Hooks of goroutines have no shadow stack.
fn needs_shadow_stack(hooks: HookSet, function: &Function, why: ReturnsStay) -> bool {
    hooks.returns()
        && match why {
            ReturnsStay::CollectsCode | ReturnsStay::Unwinder => {
                matches!(function.returns, Returns::Stub(_))
            }
            ReturnsStay::Sanitizer => !hooks.knows_goroutine(),
        }
}

/// Whether there are hooks for a function of an interpreter.
fn can_enter(function: &Function, hooks: HookSet) -> bool {
    let style = |form| calltap_patch::style(form, &function.returns);
    function.form().is_some_and(|form| style(form) != Style::AfterPrologue)
        && !(hooks.returns() && function.returns.unrecorded_end().is_some())
}

/// Requests the entry of the function by which a thread of CPython waits. Returns None if there is
/// no hook for it.
fn request_wait(
    site_request: SiteRequest,
    function: &Function,
    interpreter: python::Interpreter,
    bias: Bias,
) -> Option<SiteRequest> {
    let (hook_set, program) = (HookSet::EVALUATOR_ENTRY, Some(Arc::new(interpreter.waiting_program(bias)?)));
    can_enter(function, hook_set).then_some(SiteRequest { hook_set, program, ..site_request })
}

/// Requests the hooks of CPython's evaluator.
fn request_evaluator(
    site_request: &mut SiteRequest,
    function: &Function,
    interpreter: Result<python::Interpreter, python::Reason>,
    bias: Bias,
) -> Result<(), python::Reason> {
    let interpreter = interpreter?;
    if !can_enter(function, interpreter.hook_set()) {
        return Err(python::Reason::Site);
    }
    site_request.hook_set = interpreter.hook_set();
    site_request.program = Some(Arc::new(interpreter.program(bias)));
    Ok(())
}

/// Adds the program of a watched function: it reads where a nonlocal exit leads, or whether the
/// thread may still read the time stamp counter (`counter`: events have its times). Returns None if
/// the function needs no site.
fn add_watch(site_request: &mut SiteRequest, function: &Function, counter: bool) -> Option<()> {
    let only_watches = site_request.purpose == Purpose::Watch;
    let program = match function.watch {
        Some(watch @ (Watch::NonlocalExit(kept) | Watch::Unwinding(kept))) if only_watches => {
            let KeptPointer { offset, is_mangled } = kept;
            let unwinds = matches!(watch, Watch::Unwinding(_));
            let code = if unwinds { code::UNWINDING } else { code::NONLOCAL };
            let words = nonlocal::words(offset.into(), is_mangled, code).to_vec();
            Program { words, addresses: Vec::new(), captured: Arc::default(), left_out: Vec::new() }
        }
        Some(Watch::Prctl { behind }) if counter => {
            match site_request.hook_set.running_programs() {
                Some(hook_set) => site_request.hook_set = hook_set,
                // No hook of the profile tracer runs a program. The watch matters more: the
                // function is missing in the profile.
                None => {
                    (site_request.hook_set, site_request.purpose) = (HookSet::PRCTL, Purpose::Watch);
                    site_request.tracers = 0;
                }
            }
            let step = values::word(step::FORBID, behind, 0);
            Program::beginning_with(&[step], site_request.program.as_deref()).ok()?
        }
        _ => return (!only_watches).then_some(()),
    };
    site_request.program = Some(Arc::new(program));
    Some(())
}

/// Restricts a request for a function that the program calls in a library to the calls that code of
/// the program makes, which lies at these addresses. Returns None if the hooks run no program.
fn leave_other_callers_out(site_request: &mut SiteRequest, program: Option<&Range<u64>>) -> Option<()> {
    if !site_request.is_library_call {
        return Some(());
    }
    site_request.hook_set = site_request.hook_set.running_programs()?;
    let own = Program::of_caller(program?.clone(), site_request.program.as_deref()).ok()?;
    site_request.program = Some(Arc::new(own));
    Some(())
}

impl Files {
    /// Returns why the return addresses of a process's calls must stay on the stack.
    fn returns_stay(&mut self, pid: u32) -> Option<ReturnsStay> {
        let program = File::open(proc::place(pid).join("exe")).ok()?;
        let meta = program.metadata().ok()?;
        let place = (meta.dev(), meta.ino());
        *self.returns_stay.entry(place).or_insert_with(|| ReturnsStay::find(&program))
    }
}

impl<'a> Planner<'a> {
    pub(super) fn want(&mut self, index: u32, regions: &[Region], records: &mut Vec<Metadata>) {
        let Some(image) = self.image(index, regions) else { return };
        let hooks = std::array::from_fn(|i| Avma(image.hooks[i].load(Relaxed)));
        let (hook, watched) = (Avma(image.first_hook.load(Acquire)), Avma(image.loader_brk.load(Acquire)));
        self.stubs.agent = Agent { stubs: Avma(image.stubs.load(Acquire)), hooks };
        let (leads, quiet) = (self.policy.discovery == Discovery::FirstCall, self.policy.quiet);
        let mut left = None;
        self.for_each_module(index, |module, site_request, stubs| {
            module.leave_watched(watched);
            if leads {
                module.lead(hook, stubs, regions, records);
            }
            if quiet {
                module.quieten(stubs);
            }
            module.want(site_request, stubs, regions, records);
            left = module.wants_watched(site_request).map(|function| function.name.clone()).or(left.take());
        });
        self.tell_untraceable(index, records);
        if let Some(name) = left {
            let name = calltap_names::in_message(&name);
            self.warn(&format!("{name} is not traced: {WATCHED}"), records);
        }
        if let Some(tracers) = self.values.python {
            self.introduce_python(index, tracers, records);
        }
        if let Some(why) = self.values.without_stubs.give() {
            self.values.cut.is_given = true;
            self.warn(only_entries(why), records);
        }
        if self.values.cut.give().is_some() {
            self.warn(if self.orders_threads() { CUT } else { CUT_BY_CLOCK }, records);
        }
    }

    /// Tells which selected functions of a process cannot be traced.
    fn tell_untraceable(&mut self, index: u32, records: &mut Vec<Metadata>) {
        let modules = self.processes.get_mut(&index).into_iter().flat_map(|process| &mut process.modules);
        for module in modules {
            let mapped = module.mapped.clone();
            let file = mapped.name();
            module.tell_untraceable(
                &|function| {
                    let request = (self.policy.choose)(function, mapped.names(&file), &|| None);
                    request.is_some_and(|request| request.purpose == Purpose::Trace)
                },
                records,
            );
        }
    }

    /// Whether the clock orders events of different threads.
    fn orders_threads(&self) -> bool {
        let clock = self.shared.control().clock.load(Relaxed);
        [Clock::Tsc, Clock::Counter].iter().any(|ordering| *ordering as u32 == clock)
    }

    /// Returns a function of which a value was named, with the reason why it cannot be read, if it
    /// can be read of no function with that name.
    fn missing_value(&self) -> Option<(&String, &ValueReason)> {
        let Values { read, missed, .. } = &self.values;
        let is_named = |word: &Word, name: &String| is_named(word, std::iter::once(&**name), None);
        let mut words = self.policy.selector.into_iter().flat_map(Selector::naming_values);
        words.find_map(|word| {
            let found = missed.iter().find(|(name, _)| is_named(word, name));
            found.filter(|_| !read.iter().any(|name| is_named(word, name)))
        })
    }

    /// Fails if values were requested and cannot be read for any function, or if a named value can
    /// be read of none.
    pub(crate) fn check_values(&mut self) -> Result<(), Error> {
        if let (Some((interpreter, why)), None) = (self.values.no_python.take(), self.values.python) {
            return Err(Error::Python { interpreter, why });
        }
        if let Some((name, why)) = self.missing_value().filter(|_| !self.policy.follow) {
            let (name, why) = (calltap_names::in_message(name), why.clone());
            return Err(calltap_selection::Error::Values { name, why }.into());
        }
        match self.values.trouble.take() {
            Some(NotRead { name, why, .. }) if self.values.read.is_empty() && !self.policy.follow => {
                Err(calltap_selection::Error::Values { name, why }.into())
            }
            trouble => {
                // Files without debugging information are many, and their functions' values were
                // not named.
                let named = trouble.filter(|not_read| not_read.why != ValueReason::NoArguments);
                self.warnings.extend(named.map(|not_read| not_read.to_string()));
                let left_out = self.values.left_out.take();
                self.warnings.extend(
                    left_out.map(|(name, why)| format!("some values of {name} are not recorded: {why}")),
                );
                Ok(())
            }
        }
    }

    /// Fails if the values that a new selection requests cannot be read for any function. Nothing
    /// is written yet.
    pub(super) fn check_new_values(&mut self, words: &Selection) -> Result<(), Error> {
        (self.values.read, self.values.missed) = Default::default();
        (self.values.trouble, self.values.left_out) = (None, None);
        if words.arguments.is_empty() && words.results.is_empty() && words.conditions.is_empty() {
            return Ok(());
        }
        for index in self.processes.keys().copied().collect::<Vec<_>>() {
            self.for_each_module(index, |module, site_request, _| module.evaluate(site_request));
        }
        match &self.values.trouble {
            Some(NotRead { name, why, .. }) if self.values.read.is_empty() => {
                Err(calltap_selection::Error::Values { name: name.clone(), why: why.clone() }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns why no value of some function could be read, for the user, once.
    pub(crate) fn trouble(&mut self) -> Option<String> {
        Some(self.values.trouble.take()?.to_string())
    }

    /// Calls `act` for each module of a process, with the function that evaluates requests.
    pub(super) fn for_each_module(
        &mut self,
        index: u32,
        mut act: impl FnMut(&mut ProcessModule, &dyn Fn(&Function) -> Option<SiteRequest>, &mut Stubs<'a>),
    ) {
        let (pid, orders_threads, counter) =
            (self.pid_of(index), self.orders_threads(), self.shared.control().reads_tsc());
        let returns_stay = self.files.returns_stay(pid);
        let Some(process) = self.processes.get_mut(&index) else { return };
        let program = program_of(pid).filter(|_| self.policy.libcalls);
        let program = program.and_then(|inode| process.range_of(inode));
        for module in &mut process.modules {
            let (types, values) = (RefCell::new(&mut self.files.types), RefCell::new(&mut self.values));
            let interpreters = RefCell::new(&mut self.files.interpreters);
            let (mapped, build_id) = (module.mapped.clone(), module.record.build_id.clone());
            let bias = Bias(module.record.bias);
            let file = mapped.name();
            let typed = || {
                let identity = mapped.identity(pid)?;
                let mut types = types.borrow_mut();
                let read = || {
                    let root = proc::place(pid).join("root");
                    read_types(&mapped.open(pid)?, build_id.as_deref(), mapped.former_path(), &root)
                };
                types.entry(identity).or_insert_with(read).clone()
            };
            let site_request = |function: &Function| {
                let mut site_request = (self.policy.choose)(function, mapped.names(&file), &typed)?;
                if site_request.purpose == Purpose::Evaluate {
                    let interpreter = match mapped.identity(pid) {
                        None => Err(python::Reason::Unreadable),
                        Some(identity) => {
                            let mut interpreters = interpreters.borrow_mut();
                            let look = || python::Interpreter::read(mapped.open(pid));
                            interpreters.entry(identity).or_insert_with(look).clone()
                        }
                    };
                    if function.name == SAVE_THREAD {
                        return request_wait(site_request, function, interpreter.ok()?, bias);
                    }
                    let mut values = values.borrow_mut();
                    if let Err(why) = request_evaluator(&mut site_request, function, interpreter, bias) {
                        values.no_python = Some((mapped.name(), why));
                        return None;
                    }
                    values.python = Some(site_request.tracers);
                }
                if site_request.hook_set.knows_goroutine() && !orders_threads {
                    site_request.leave_goroutines_out();
                }
                if site_request.purpose == Purpose::Trace
                    && let Some(why) = returns_stay
                    && needs_shadow_stack(site_request.hook_set, function, why)
                {
                    site_request.leave_returns_out(without_values(why));
                    values.borrow_mut().without_stubs.why = Some(why);
                }
                values.borrow_mut().note(&site_request, function);
                if site_request.is_undecided() {
                    return None;
                }
                add_watch(&mut site_request, function, counter)?;
                leave_other_callers_out(&mut site_request, program.as_ref())?;
                Some(site_request)
            };
            act(module, &site_request, &mut self.stubs);
        }
    }
}
