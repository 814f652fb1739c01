//! The planner: keeps the sites of every process as the tracers request them, by stubs and changes
//! of the text.

mod apply;
mod disable;
mod first_calls;
mod interpreters;
mod mapping;
mod mode;
mod modules;
mod policy;
mod processes;
mod site_requests;
mod started;
mod switch;
mod sync;
mod unwinding;

pub(crate) use apply::{Applied, Replacement, check_selection};
pub(crate) use disable::wait_until_known;
pub use mode::PatchMode;
pub(crate) use policy::Policy;
pub use started::{LargestLibrary, MatchesElsewhere, Started, UntraceableFunctions};
pub use switch::Tally;

use crate::error::Error;
use crate::plan::directory::Directory;
use crate::plan::journal::UNLISTED;
use crate::plan::loaded::ProcessModule;
use crate::plan::modules::{Identity, Mapped};
use crate::plan::stubs::Stubs;
use crate::python;
use calltap_abi::plan::Phase;
use calltap_abi::{Image, remote};
use calltap_collect::metadata::Metadata;
use calltap_collect::shm::{self, Shared};
use calltap_names::GlobSet;
use calltap_patch::Avma;
use calltap_process::NoBreakpoints;
use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;
use calltap_process::target::Target;
use calltap_process::{clock, proc};
use calltap_selection::{Candidates, Listed, Selector};
use calltap_sites::types::Types;
use calltap_sites::{Binary, ReturnsStay};
use calltap_trace::Record;
use first_calls::FirstCalls;
use site_requests::Values;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Time limit for the agent to map the ranges of a plan.
const MAPPING: Duration = Duration::from_secs(5);

/// Returns the image of the agent that a process has mapped, among those that have registered.
pub(crate) fn image_in<'s>(shared: &'s Shared, code: u64, regions: &[Region]) -> Option<&'s Image> {
    let is_its = |image: &&Image| {
        let stubs = image.stubs.load(Acquire);
        regions.iter().any(|region| region.shows(stubs, code, 0))
    };
    shared.processes().filter_map(|index| Some(&shared.process(index)?.image)).find(is_its)
}

/// Returns the note for breakpoints that were requested and are not possible.
pub(crate) fn unarmed(pid: u32, why: &NoBreakpoints) -> Metadata {
    let text = format!("process {pid} is not changed through breakpoints this time but as by default: {why}");
    Record::Note { text }.into()
}

/// A traced process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) modules: Vec<ProcessModule>,
    /// Mapped files without a function that can be traced, or of which none is selected.
    without_sites: Vec<Mapped>,
    /// Files of which the user was told that their text is shared.
    shared_text: Vec<PathBuf>,
    /// Inode of its program, and the symbolic link through which that was started.
    link: Option<(u64, String)>,
    /// Whether the dynamic linker reports changes of its list of objects.
    watched: bool,
    /// Jump target of the dynamic linker's empty function: the agent, or a veneer near it. None if
    /// not found yet.
    watch_through: Option<Avma>,
    /// Files that the trace has named besides the modules.
    named: Vec<Mapped>,
    /// Whether it was forked from a parent that may have changed since: the states of its sites
    /// have to be read.
    forked: bool,
    busy: switch::Busy,
    pub(crate) text: Option<ProcessText>,
}

impl Process {
    /// Returns the known mapped files.
    fn files(&self) -> impl Iterator<Item = &Mapped> {
        let modules = self.modules.iter().filter(|module| !module.is_made());
        modules.map(|module| &module.mapped).chain(&self.without_sites)
    }

    /// Returns the addresses of the text of known files.
    fn known_text(&self) -> HashSet<u64> {
        self.files().map(|file| file.text.1).collect()
    }

    /// Returns the addresses between which the file with this inode is mapped.
    fn range_of(&self, inode: u64) -> Option<Range<u64>> {
        self.files().find(|file| file.file.1 == inode).map(|file| file.range.0..file.range.1)
    }

    /// Returns the names of the functions that wait until no thread is inside them: to be traced,
    /// or if `watched`, to be watched.
    fn waiting_functions(&self, watched: bool) -> BTreeSet<String> {
        let waiting = self.modules.iter().flat_map(|module| module.waiting_functions(watched));
        waiting.map(str::to_owned).collect()
    }
}

/// The files that the processes have mapped, as far as they are read.
#[derive(Default)]
struct Files {
    binaries: HashMap<Identity, Option<Arc<Binary>>>,
    /// Debugging information.
    types: HashMap<Identity, Option<Arc<Types>>>,
    /// Where interpreters keep the current thread state.
    interpreters: HashMap<Identity, Result<python::Interpreter, python::Reason>>,
    /// Why return addresses of programs must stay on the stack, by device and inode.
    returns_stay: HashMap<(u64, u64), Option<ReturnsStay>>,
    /// The candidates of the selection, for messages.
    candidates: Candidates,
    /// Whether some functions were not decoded.
    passed_over: bool,
    /// Whether the program is decoded as a whole, whatever is selected.
    whole_program: bool,
    /// Number of words by which functions that were not built for tracing are searched for
    /// everywhere; 0 if only in programs.
    reaching: usize,
}

/// Facts for the report to the user at the start.
#[derive(Default)]
pub(crate) struct StartReport {
    /// Whether the selection was checked.
    checked: bool,
    /// Whether the user was told what is enabled.
    told: bool,
    /// Files that the first process has mapped.
    files: Vec<Mapped>,
    /// The inode of its program, which is read while the process waits, as it may end at once.
    program: Option<u64>,
    /// Mapped files that were opened while the process waited, as it may end at once.
    opened: Vec<(String, File)>,
    /// The largest library of a program that contains almost no code.
    pub(crate) code_is_in: Option<LargestLibrary>,
}

/// The sites of a session.
pub(crate) struct Planner<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) directory: &'a Directory,
    pub(crate) policy: Policy<'a>,
    files: Files,
    pub(crate) start: StartReport,
    first_calls: FirstCalls,
    pub(crate) processes: HashMap<u32, Process>,
    pub(crate) stubs: Stubs<'a>,
    values: Values,
    /// Index and id of a process whose agent did not finish its plan in time.
    stuck: Option<(u32, u32)>,
    /// Whether the module of Python functions is in the trace.
    introduced_python: bool,
    /// The process whose next batches go through breakpoints.
    pub(crate) armed: Option<u32>,
    /// Whether a process is being attached to, which is refused if breakpoints are not possible.
    pub(crate) entering: bool,
    /// Set if the user interrupts: searches then stop.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// Warnings for the user at the end.
    pub(crate) warnings: Vec<String>,
    /// Counts of switched sites.
    pub tally: Tally,
    /// End of the latest change of sites, in the unit of [`proc::start_time`].
    changed: u64,
}

impl<'a> Planner<'a> {
    /// Creates the planner of a session whose agent will register.
    pub(crate) fn new(shared: &'a Shared, directory: &'a Directory, policy: Policy<'a>) -> Self {
        Planner {
            shared,
            directory,
            policy,
            files: Files::default(),
            start: StartReport::default(),
            first_calls: FirstCalls::default(),
            processes: HashMap::new(),
            stubs: Stubs::new(&directory.code, shared),
            values: Values::default(),
            stuck: None,
            introduced_python: false,
            armed: None,
            entering: false,
            interrupted: Arc::default(),
            warnings: Vec::new(),
            tally: Tally::default(),
            changed: 0,
        }
    }

    /// Returns the functions that may be selected, as far as they are read.
    pub(crate) fn candidates(&self) -> &Candidates {
        &self.files.candidates
    }

    /// Adds a forked child with its parent's state, unless the planner has met it before it was in
    /// the table. A child that was forked before the latest change had ended may have the sites
    /// from before.
    pub(crate) fn fork(&mut self, parent: u32, child: u32, emit: &mut dyn FnMut(Metadata)) {
        if self.processes.contains_key(&child) {
            return;
        }
        let pid = self.pid_of(child);
        let met = self.processes.remove(&(UNLISTED | pid));
        let inherited = || {
            let Some(parent) = self.processes.get(&parent) else { return Process::default() };
            let (modules, watched) =
                (parent.modules.iter().map(ProcessModule::inherited).collect(), parent.watched);
            Process {
                modules,
                without_sites: parent.without_sites.clone(),
                shared_text: parent.shared_text.clone(),
                link: parent.link.clone(),
                watched,
                watch_through: parent.watch_through,
                named: parent.named.clone(),
                busy: switch::Busy::default(),
                forked: true,
                text: None,
            }
        };
        let process = met.unwrap_or_else(inherited);
        self.processes.insert(child, process);
        let is_behind = proc::start_time(pid).is_some_and(|started| started <= self.changed);
        if is_behind
            && let Some(target) = Target::of_child(pid)
            && let Err(error) = self.sync_child(child, &target, emit)
        {
            emit(Record::Note { text: error.to_string() }.into());
        }
    }

    /// Makes room for a followed program, number `new`: drops the process's former state, and that
    /// of processes that have ended, of which there are many in a tree.
    pub(crate) fn enter(&mut self, new: u32) {
        let pid = self.pid_of(new);
        let is_gone = |index: u32| {
            let own = self.pid_of(index);
            index != new && (own == pid || !proc::exists(own))
        };
        let gone: Vec<u32> = self.processes.keys().copied().filter(|index| is_gone(*index)).collect();
        gone.iter().for_each(|index| drop(self.processes.remove(index)));
    }

    /// Returns the agent's image in a process. A forked child in no table uses the image of the
    /// process whose agent it has mapped.
    pub(crate) fn image(&self, index: u32, regions: &[Region]) -> Option<&Image> {
        let known = self.shared.process(index).map(|entry| &entry.image);
        known.or_else(|| image_in(self.shared, self.directory.code_inode(), regions))
    }

    /// Answers a process that reports changed modules: plans for those newly loaded, forgets
    /// unloaded ones, has its agent map what is needed, and patches. Records go to `emit` before
    /// the first event that needs them can occur.
    pub(crate) fn answer(&mut self, index: u32, emit: &mut dyn FnMut(Metadata)) -> Result<(), Error> {
        let shared = self.shared;
        let Some(entry) = shared.process(index) else { return Ok(()) };
        let pid = proc::pid_of(entry);
        // There is one plan area, which must not change while another agent still works on its
        // plan.
        if self.stuck.is_some_and(|(index, pid)| {
            let phase = shared.process(index).map(|other| other.phase.load(Acquire));
            let at_it = [Phase::Planned, Phase::Trapping].map(|phase| Some(phase as u32));
            at_it.contains(&phase) && proc::exists(pid)
        }) {
            return Ok(());
        }
        self.stuck = None;
        let mut records = Vec::new();
        self.update_process(index, pid, true, &mut records);
        if self.check_once(pid)? {
            self.update_process(index, pid, true, &mut records);
        }
        records.drain(..).for_each(&mut *emit);
        let mut waits_in = Phase::Asked;
        let mut ask = |planner: &mut Planner<'_>| {
            let from = std::mem::replace(&mut waits_in, Phase::Writing);
            planner.ask(index, pid, [from, Phase::Planned], Phase::Writing).then_some(()).ok_or(())
        };
        if self.map_planned(index, pid, true, &mut ask, emit).is_ok() {
            self.keep_traps_waiting(index, pid, &mut records);
            // The agent may have given calltap up meanwhile.
            if entry.phase.load(Acquire) == Phase::Writing as u32 {
                self.patch(index, pid, true, &mut records);
                self.open_files(pid);
                entry.phase.store(Phase::Idle as u32, Release);
                shm::wake(&entry.phase);
            }
        }
        if let Some(process) = self.processes.get_mut(&index) {
            process.modules.iter_mut().for_each(|module| module.fresh = false);
        }
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Enables the selected sites in a static program that is held before its own code runs;
    /// `remote` has its agent carry out an operation.
    pub(crate) fn begin(
        &mut self,
        pid: u32,
        remote: &mut dyn FnMut(u32) -> Result<(), Error>,
        emit: &mut dyn FnMut(Metadata),
    ) -> Result<(), Error> {
        let mut records = Vec::new();
        self.update_process(0, pid, true, &mut records);
        if self.check_once(pid)? {
            self.update_process(0, pid, true, &mut records);
        }
        records.drain(..).for_each(&mut *emit);
        let mut map = |planner: &mut Planner<'_>| {
            if planner.stubs.to_map.is_empty() { Ok(()) } else { remote(remote::MAP) }
        };
        self.map_planned(0, pid, true, &mut map, emit)?;
        self.keep_traps_held(pid, remote, &mut records);
        self.patch(0, pid, true, &mut records);
        if let Some(process) = self.processes.get_mut(&0) {
            process.modules.iter_mut().for_each(|module| module.fresh = false);
        }
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Checks the selection against the candidates, once; decodes the whole program if a part does
    /// not suffice. Returns true if it was decoded for that: the process has to be looked at again.
    pub(crate) fn check_once(&mut self, pid: u32) -> Result<bool, Error> {
        if std::mem::replace(&mut self.start.checked, true) {
            return Ok(false);
        }
        let mut again = false;
        if (self.policy.check)(&self.files.candidates).is_err() && self.files.passed_over {
            // An interpreter of an old version is known by functions of its library.
            match self.policy.selector.is_some_and(Selector::traces_python) {
                true => self.decode_all(pid),
                false => self.decode_program(pid),
            }
            again = true;
        }
        (self.policy.check)(&self.files.candidates)?;
        self.check_values()?;
        let selector = self.policy.selector.filter(|_| !self.policy.follow);
        let idle = selector.map(|selector| selector.idle_exclusions(&self.files.candidates));
        for word in idle.unwrap_or_default() {
            self.warnings.push(format!("-N {word} takes away none of the selected functions"));
        }
        (self.policy.accepted)();
        Ok(again)
    }

    /// Makes an agent that waits in phase `from` carry out the plan in phase `doing`, then wait in
    /// phase `then`. Returns false if it does not.
    pub(crate) fn ask(&mut self, index: u32, pid: u32, [from, doing]: [Phase; 2], then: Phase) -> bool {
        let Some(entry) = self.shared.process(index) else { return false };
        let moves = |from: Phase, to: Phase| {
            entry.phase.compare_exchange(from as u32, to as u32, AcqRel, Acquire).is_ok()
        };
        if !moves(from, doing) {
            return false;
        }
        shm::wake(&entry.phase);
        let start = Instant::now();
        while entry.phase.load(Acquire) == doing as u32 {
            if start.elapsed() > MAPPING || !proc::exists(pid) {
                self.stuck = Some((index, pid));
                return false;
            }
            let bell = self.shared.control().doorbell.load(Acquire);
            if entry.phase.load(Acquire) == doing as u32 {
                shm::wait(&self.shared.control().doorbell, bell, Duration::from_millis(1));
            }
        }
        moves(Phase::Mapped, then)
    }

    /// Returns the stubs of functions that match a set, in every process.
    pub(crate) fn stubs_of(&self, set: &GlobSet) -> HashSet<u32> {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        modules.filter(|_| !set.is_empty()).flat_map(|module| module.stubs_of(set)).collect()
    }

    /// Emits the records of all modules and sites that were ever selected, for a trace of their
    /// events.
    pub(crate) fn describe(&self, emit: &mut dyn FnMut(Metadata)) {
        for module in self.processes.values().flat_map(|process| &process.modules) {
            module.describe(emit);
        }
        self.python_module().into_iter().for_each(emit);
    }

    /// Lists the traceable functions of the first process: its program's, then those of its
    /// libraries in the order of addresses.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let pid = self.shared.process(0).map_or(0, proc::pid_of);
        let program = proc::program(pid).unwrap_or_default();
        // The path of a deleted program still identifies the program.
        let program = proc::without_deleted(&program);
        let is_library = |module: &ProcessModule| module.mapped.former_path() != program;
        let mut modules: Vec<&ProcessModule> =
            self.processes.get(&0).into_iter().flat_map(|p| &p.modules).collect();
        modules.sort_by_key(|module| (is_library(module), module.mapped.range));
        let mut listed = Vec::new();
        modules.into_iter().for_each(|module| module.list(is_library(module), &mut listed));
        listed
    }

    /// Counts the functions that are traced now, and those that ever were, each once for all living
    /// processes.
    pub(crate) fn count(&self) -> (usize, usize) {
        let (on, all) = (self.shared.python_sites_on().count(), self.shared.python_sites().count());
        let (mut traced, mut ever) = (HashSet::new(), HashSet::new());
        let is_alone = self.processes.len() == 1;
        for (index, process) in &self.processes {
            if !is_alone && clock::cpu_of(self.pid_of(*index)).is_none() {
                continue;
            }
            for module in &process.modules {
                let file = module.record.path.as_str();
                for (function, is_on) in module.traced() {
                    ever.insert((file, function));
                    traced.extend(is_on.then_some((file, function)));
                }
            }
        }
        (on + traced.len(), all + ever.len())
    }

    /// Updates the modules of a process, and gives selected functions stubs. New modules are
    /// `fresh` if no thread can run them yet.
    pub(crate) fn update_process(&mut self, index: u32, pid: u32, fresh: bool, records: &mut Vec<Metadata>) {
        match maps::read(pid) {
            Ok(regions) => {
                self.see_modules(index, pid, fresh, &regions, records);
                self.want(index, &regions, records);
                self.reach_watch(index, &regions);
                self.map_out(index, pid, &regions, records);
            }
            Err(error) => records.push(Metadata::Record(Record::Note {
                text: format!(
                    "cannot read the mappings of process {pid}: its modules are not traced: {error}"
                ),
            })),
        }
    }

    /// Returns the id by which calltap knows a process of the session.
    fn pid_of(&self, index: u32) -> u32 {
        if index & UNLISTED != 0 {
            return index & !UNLISTED;
        }
        let entry = self.shared.process(index);
        entry.map_or(0, proc::pid_of)
    }

    /// Whether the user has yet to be told what is enabled. True once.
    pub(crate) fn is_new(&mut self) -> bool {
        if self.start.opened.is_empty() {
            self.open_files(self.pid_of(0));
        }
        self.start.checked && !std::mem::replace(&mut self.start.told, true)
    }

    /// Adds a warning for the user and a note to the trace.
    fn warn(&mut self, text: &str, records: &mut Vec<Metadata>) {
        self.warnings.push(text.to_owned());
        records.push(Record::Note { text: text.to_owned() }.into());
    }
}
