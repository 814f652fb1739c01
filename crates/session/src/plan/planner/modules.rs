//! Modules of processes: finds them, reads their files, and keeps the list up to date.

use super::policy::Reach;
use super::started::link_to_program;
use super::{Files, Planner, Process};
use crate::plan::cache;
use crate::plan::contents::Contents;
use crate::plan::loaded::ProcessModule;
use crate::plan::modules::{Identity, Mapped, is_among, is_shared_text, mapped};
use crate::plan::program::Program;
use crate::plan::search::{ChosenBy, Decode, Few, Search};
use crate::plan::watched::watched_functions;
use calltap_collect::metadata::Metadata;
use calltap_names::printable;
use calltap_patch::Bias;
use calltap_process::clock;
use calltap_process::memory::maps::{self, Region};
use calltap_process::proc;
use calltap_process::target::Target;
use calltap_selection::debug_files::{
    chosen_in, debug_link_of, has_debugging_file, may_choose_in, name_functions,
};
use calltap_selection::{Candidates, Named, ReadModule};
use calltap_sites::{Binary, CallsWithoutStub, Discovery, NONLOCAL_EXITS, SiteKind, Watch};
use calltap_trace::{Module, Record, Untraceable};
use std::fs::File;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Warning about another tracer in the process.
const OWN_XRAY: &str = "XRAY_OPTIONS lets the program's own XRay patch its sleds at its start: functions whose sleds it has patched are not traced";

/// Warning about calls into libraries without a linker's stub, if no returns are recorded: a
/// function that jumps into a library leaves the return address of its own caller.
const UNSEEN_CALLS: &str = "--libcalls: calls with which a function ends that a library has called, as for qsort, are not recorded: --tracer function_graph records them";

/// Number of functions that a message names; others are counted.
const NAMED: usize = 5;

impl<'a> Planner<'a> {
    /// Returns the functions of a mapped file that concern the selection: those to choose from, the
    /// [watched](Self::may_watch) ones, or a profiling function to redirect. `None` if there are
    /// none, if the file cannot be read, or if the search was interrupted; a result is kept.
    /// `program` is the inode of the process's program.
    fn binary(&mut self, mapped: &Mapped, pid: u32, program: Option<u64>) -> Option<Arc<Binary>> {
        let identity = mapped.identity(pid)?;
        if let Some(known) = self.files.binaries.get(&identity) {
            return known.clone();
        }
        if self.interrupted.load(Acquire) {
            return None;
        }
        let mut passed_over = false;
        let read = |passed_over: &mut bool| {
            let (file, path) = (mapped.open(pid)?, mapped.former_path());
            let is_program = program == Some(mapped.file.1);
            let (policy, Files { whole_program, .. }) = (&self.policy, &self.files);
            let reaches_all = self.files.reaching > 0;
            let may_be_bare = policy.discovery == Discovery::AtLoad && (is_program || reaches_all);
            let root = proc::place(pid).join("root");
            let selector = policy.selector.filter(|_| !(policy.futures || is_program && *whole_program));
            let link = mapped.link.as_deref();
            let may_choose = selector
                .map(|selector| move |named: Named<'_>| selector.may_choose(named, link, !is_program));
            let is_of_use = may_choose
                .as_ref()
                .is_none_or(|may_choose| !may_be_bare || may_choose_in(&file, path, &root, may_choose));
            *passed_over |= !is_of_use;
            if may_be_bare && (is_program || is_of_use) || calltap_sites::file_may_have_sites(&file) {
                let contents = Contents::of(&file);
                let decode = match (is_of_use, reaches_all, may_be_bare) {
                    (true, true, _) => Decode::Everything,
                    (true, false, true) => Decode::BareProgram,
                    _ => Decode::Nothing,
                };
                let first_call = policy.discovery == Discovery::FirstCall;
                let search = Search { first_call, decode, int3: policy.int3 };
                let choose = |binary: &Binary| chosen_in(binary, &file, (path, &root), may_choose.as_ref()?);
                let few = selector.map(|selector| {
                    let words = selector.choosing_words(link, !is_program);
                    let has_debugging_file = has_debugging_file(&file, path, &root);
                    Few { chosen_by: ChosenBy { words, has_debugging_file }, choose: &choose }
                });
                let (mut binary, is_whole) =
                    cache::analyse(&contents, &mapped.name(), search, few, &self.interrupted).ok()?;
                *passed_over |= !is_whole;
                if search.has_decoded(&binary) {
                    name_functions(&mut binary, || debug_link_of(&file), path, &root);
                }
                if policy.libcalls && is_program {
                    calltap_sites::add_library_calls(&contents.bytes().ok()?, &mut binary).ok()?;
                }
                if policy.futures {
                    calltap_sites::find_polls(&contents.bytes().ok()?, &mut binary).ok()?;
                }
                return Some(binary);
            }
            if self.may_watch(&file) {
                let found = watched_functions(&Contents::of(&file), &mapped.name(), &self.interrupted);
                return found.ok()?;
            }
            // A module that defines the profiling function for others is needed to redirect it.
            let matters =
                policy.discovery == Discovery::FirstCall && calltap_sites::file_defines_profiler(&file);
            matters
                .then(|| calltap_sites::profilers(&calltap_sites::load(&file).ok()?, &mapped.name()).ok())?
        };
        let binary = read(&mut passed_over).map(Arc::new);
        // An interrupted search is not kept, as it says nothing.
        if !self.interrupted.load(Acquire) {
            self.keep(mapped, pid, identity, binary.clone(), passed_over);
        }
        binary
    }

    /// Whether a file may define a function to watch: a nonlocal exit if returns may be recorded,
    /// or one with the arguments of prctl if events have the time stamp counter.
    fn may_watch(&self, file: &File) -> bool {
        let returns = self.policy.selector.is_none_or(|selector| selector.records_returns());
        let counter = self.shared.control().reads_tsc();
        self.policy.discovery == Discovery::AtLoad
            && calltap_sites::file_may_define(file, |name| {
                returns && NONLOCAL_EXITS.contains(&name)
                    || counter && Watch::prctl(name.as_bytes()).is_some()
            })
    }

    /// Keeps what was found in a file, and what was not decoded.
    fn keep(
        &mut self,
        mapped: &Mapped,
        pid: u32,
        identity: Identity,
        binary: Option<Arc<Binary>>,
        passed_over: bool,
    ) {
        self.files.passed_over |= passed_over;
        let root = proc::place(pid).join("root");
        if let Some(binary) = &binary
            && !binary.is_watched_alone()
        {
            let (name, link) = (mapped.name(), mapped.link.clone());
            self.files.candidates.modules.push(ReadModule { name, link, binary: Arc::clone(binary) });
            self.files.candidates.files.push((root, mapped.path.clone()));
        } else if passed_over {
            self.files.candidates.undecoded.push((mapped.name(), root, mapped.path.clone()));
        }
        self.files.binaries.insert(identity, binary);
    }

    /// Adds the file of a program that was already read.
    pub(crate) fn know(&mut self, program: &Program, (binary, is_whole): (Binary, bool)) {
        let binary = Arc::new(binary);
        // The list is leaked instead of freed function by function: this process ends when it is no
        // longer needed.
        mem::forget(Arc::clone(&binary));
        self.files.passed_over |= !is_whole;
        let (name, link) = (program.file_name(), program.link.clone());
        self.files.candidates.modules.push(ReadModule { name, link, binary: Arc::clone(&binary) });
        self.files.candidates.files.push(("/".into(), program.path.clone()));
        self.files.binaries.insert(program.file.clone(), Some(binary));
    }

    /// Decodes everything that was passed over.
    pub(crate) fn decode_all(&mut self, pid: u32) {
        self.policy.selector = None;
        if std::mem::take(&mut self.files.passed_over) {
            self.read_all_again(pid);
        }
    }

    /// Reads the files of all known processes again.
    fn read_all_again(&mut self, pid: u32) {
        self.read_again(pid);
        let known: Vec<u32> = self.processes.keys().copied().collect();
        for index in known {
            let pid = self.pid_of(index);
            if let Ok(regions) = maps::read(pid) {
                self.see_modules(index, pid, false, &regions, &mut Vec::new());
            }
        }
    }

    /// Decodes the program as a whole, for a message about a word that matches nothing. What was
    /// passed over in libraries has no name that matches.
    pub(super) fn decode_program(&mut self, pid: u32) {
        self.files.whole_program = true;
        self.read_all_again(pid);
    }

    /// Reads the files that a new selection reaches, before it is checked.
    pub(crate) fn widen(&mut self, first: &Target, reach: &Reach<'_>) {
        self.decode_all(first.pid);
        let words = reach(&self.files.candidates);
        if !self.reach_all(first.pid, words) {
            return;
        }
        // A process that the planner has not met yet is looked at later.
        let known = |(index, _): &(u32, Target)| self.processes.contains_key(index);
        let living: Vec<(u32, Target)> = self.living(first).into_iter().filter(known).collect();
        for (index, Target { pid, .. }) in living {
            if let Ok(regions) = maps::read(pid) {
                self.see_modules(index, pid, false, &regions, &mut Vec::new());
            }
        }
    }

    /// Extends the search for functions that were not built for tracing to all files, if as many
    /// `words` select such functions. Returns false if it was so already.
    fn reach_all(&mut self, pid: u32, words: usize) -> bool {
        // Without a selector, everything is decoded.
        let is_known = self.policy.selector.is_none() && self.files.reaching > 0;
        if self.policy.discovery == Discovery::FirstCall || is_known || words <= self.files.reaching {
            return false;
        }
        self.files.reaching = words;
        self.read_again(pid);
        true
    }

    /// Allows permanent breakpoints from now on.
    pub(crate) fn allow_int3(&mut self, pid: u32) {
        if !std::mem::replace(&mut self.policy.int3, true) {
            self.read_again(pid);
        }
    }

    /// Reads all files again with a wider search.
    fn read_again(&mut self, pid: u32) {
        let program = program_of(pid);
        self.files.binaries.clear();
        self.files.candidates = Candidates::default();
        // The order of a file's functions stays the same.
        let mut modules: Vec<(u32, Vec<ProcessModule>)> = self
            .processes
            .iter_mut()
            .map(|(index, process)| {
                process.without_sites.clear();
                (*index, std::mem::take(&mut process.modules))
            })
            .collect();
        for module in modules.iter_mut().flat_map(|(_, modules)| modules).filter(|module| !module.is_made()) {
            if let Some(binary) = self.binary(&module.mapped, pid, program) {
                module.know_more(binary);
            }
        }
        for (index, modules) in modules {
            self.processes.entry(index).or_default().modules = modules;
        }
    }

    /// Updates the modules of a process.
    pub(crate) fn see_modules(
        &mut self,
        index: u32,
        pid: u32,
        fresh: bool,
        regions: &[Region],
        records: &mut Vec<Metadata>,
    ) {
        self.see_modules_once(index, pid, fresh, regions, records);
        let words = (self.policy.reach)(&self.files.candidates);
        if self.reach_all(pid, words) {
            self.see_modules_once(index, pid, fresh, regions, records);
            let untraceable = untraceable_calls(&self.files.candidates);
            let unseen = self.misses_calls_of_callbacks().then(|| UNSEEN_CALLS.to_owned());
            for text in untraceable.into_iter().chain(unseen) {
                // Programs that are executed later call other functions.
                if !self.warnings.contains(&text) {
                    self.warn(&text, records);
                }
            }
        }
    }

    /// Whether a call into a library may look as if that library made it ([`UNSEEN_CALLS`]).
    fn misses_calls_of_callbacks(&self) -> bool {
        self.files.candidates.has_calls_without_stub()
            && self.policy.selector.is_some_and(|selector| !selector.records_returns())
    }

    fn see_modules_once(
        &mut self,
        index: u32,
        pid: u32,
        fresh: bool,
        regions: &[Region],
        records: &mut Vec<Metadata>,
    ) {
        let session = self.directory.inside();
        let mut now = mapped(regions, session);
        let program = program_of(pid);
        let mut process = self.processes.remove(&index).unwrap_or_default();
        // A process may change its name later, by which the link is found; a forked child inherits
        // the link.
        if let Some(program) =
            program.filter(|program| process.link.as_ref().is_none_or(|(of, _)| of != program))
        {
            process.link = link_to_program(pid).map(|link| (program, link));
        }
        for mapped in &mut now {
            let link = process.link.as_ref().filter(|(program, _)| mapped.file.1 == *program);
            mapped.link = link.map(|(_, link)| link.clone());
        }
        if index == 0 {
            self.start.files.clone_from(&now);
            self.start.program = program.or(self.start.program);
        }
        let (mut kept, mut gone, mut own_xray) = (Vec::new(), Vec::new(), false);
        let mut without_stub = None;
        for mut old in process.modules.drain(..) {
            let list = if old.is_there(&now, regions) { &mut kept } else { &mut gone };
            list.push(old);
        }
        let is_less = !gone.is_empty();
        // A module that a forked child unloads is still loaded in its parent.
        for mut old in gone.into_iter().filter(|old| old.recorded && old.record.process == index) {
            old.record.unloaded_ticks = Some(clock::pair().ticks);
            records.push(Record::Module(old.record).into());
        }
        process.modules = kept;
        process.without_sites.retain(|file| is_among(&now, file));
        let known = process.known_text();
        for new in now.into_iter().filter(|new| !known.contains(&new.text.1)) {
            let Some(binary) = self.binary(&new, pid, program) else {
                // A file that could not be read is tried again.
                if new.identity(pid).is_some() && !self.interrupted.load(Acquire) {
                    process.without_sites.push(new);
                }
                continue;
            };
            let Some(bias) = new.bias(&binary) else { continue };
            let has_sleds = binary.functions.iter().any(|function| function.kind() == SiteKind::Xray);
            without_stub = without_stub.or_else(|| calls_beside_stubs(&binary.calls_without_stub));
            own_xray |= fresh && has_sleds && proc::takes_its_sleds(pid);
            let record = described(index, &new, &binary, bias);
            process.modules.push(ProcessModule::new(new, record, binary, bias, fresh));
        }
        let shared = process.newly_shared(regions);
        self.processes.insert(index, process);
        if is_less {
            self.forget_traps();
        }
        let own_xray = own_xray.then(|| OWN_XRAY.to_owned());
        for text in own_xray.into_iter().chain(without_stub).chain(shared) {
            self.warn(&text, records);
        }
    }
}

/// Returns the warning about a file whose text is not changed.
fn shared_text(name: &str) -> String {
    format!(
        "functions of {} are not traced: the process has mapped its text shared and writable, so that a change would reach the file and other processes",
        printable(name)
    )
}

impl Process {
    /// Returns the warnings about files whose text is found to be shared.
    fn newly_shared(&mut self, regions: &[Region]) -> Vec<String> {
        let shared = regions.iter().filter(|region| region.file.1 != 0 && is_shared_text(region));
        let mut new: Vec<&Region> =
            shared.filter(|region| !self.shared_text.contains(&region.path)).collect();
        new.dedup_by_key(|region| &region.path);
        self.shared_text.extend(new.iter().map(|region| region.path.clone()));
        new.into_iter().map(|region| shared_text(region.name())).collect()
    }
}

/// Returns the first ones of a list, and how many more there are.
fn first_of<S: AsRef<str>>(all: &[S]) -> String {
    let (named, rest) = all.split_at(all.len().min(NAMED));
    let named: Vec<&str> = named.iter().map(AsRef::as_ref).collect();
    match rest.len() {
        0 => named.join(", "),
        n => format!("{} and {n} more", named.join(", ")),
    }
}

/// Returns the warning about calls into libraries that do not go through the linker's stub, as
/// others do.
fn calls_beside_stubs(calls: &CallsWithoutStub) -> Option<String> {
    let functions: Vec<&String> = calls.beside_stub.iter().collect();
    (!functions.is_empty()).then(|| {
        format!(
            "--libcalls: calls of {} through pointers (-fno-plt), without a stub, are not recorded",
            first_of(&functions)
        )
    })
}

/// Returns the warning about calls into libraries that are not recorded, as no linker's stub makes
/// them and the functions themselves cannot be traced.
fn untraceable_calls(candidates: &Candidates) -> Option<String> {
    let refused = candidates.untraceable_library_calls();
    let refused: Vec<String> = refused.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    (!refused.is_empty()).then(|| format!("--libcalls: calls of {} are not recorded", first_of(&refused)))
}

/// Returns the inode of a process's program.
pub(super) fn program_of(pid: u32) -> Option<u64> {
    std::fs::metadata(proc::program_link(pid)).ok().map(|meta| meta.ino())
}

/// Returns the trace's description of a module, which does not have a number yet.
fn described(process: u32, mapped: &Mapped, binary: &Binary, bias: Bias) -> Module {
    Module {
        id: 0,
        process,
        path: mapped.path.to_string_lossy().into_owned(),
        link: mapped.link.clone(),
        build_id: binary.build_id.clone(),
        bias: bias.0,
        range: mapped.range,
        unloaded_ticks: None,
        untraceable: Untraceable::default(),
    }
}
