//! Keeps the sites of every process what the tracers want them to be: through which stubs, and by which changes of its text.

mod first;
mod switch;

pub use switch::{Tally, switch};

use crate::attach::Stops;
use crate::clock;
use crate::debug_files::{name_functions, read_types};
use crate::directory::Directory;
use crate::journal::{self, Entry, UNLISTED};
use crate::loaded::{Listed, Loaded, Typed, Wish};
use crate::maps::{self, Region};
use crate::modules::{Candidates, Identity, Mapped, mapped};
use crate::news::News;
use crate::proc;
use crate::shm::{self, Shared};
use crate::stubs::{HopRange, Stubs};
use crate::target::Target;
use crate::text::ProcessText;
use crate::threads::shares_memory;
use calltap_abi::plan::{self, Phase};
use calltap_abi::{Image, remote};
use calltap_patch::{Agent, Avma, Transition};
use calltap_sites::types::Types;
use calltap_sites::{Binary, Discovery, Function, SiteKind};
use calltap_trace::{Module, Record};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Chooses what the tracers want of a function.
pub type Choose<'a> = dyn Fn(&Function, Typed<'_>) -> Option<Wish> + Send + std::marker::Sync + 'a;

/// Does the choice, given what there is to choose from, reach functions of libraries that were not built for tracing?
pub type Reach<'a> = dyn Fn(&Candidates) -> bool + Send + std::marker::Sync + 'a;

/// Looks at what can be chosen from before anything is patched: the reason not to run the program at all.
pub type Check<'a> = dyn Fn(&Candidates) -> Result<(), Refusal> + Send + std::marker::Sync + 'a;

/// Why a program is not run: its selection makes no sense.
pub type Refusal = crate::Error;

/// How reading values of functions went.
#[derive(Debug, Default)]
struct Values {
    read: bool,
    /// The first function of which they could not be, and why.
    trouble: Option<(String, String)>,
    /// There are functions of which only entries are traced, though more was asked for; the second: that was
    /// told.
    cut: (bool, bool),
}

impl Values {
    fn note(&mut self, wish: &Wish, function: &Function) {
        self.read |= wish.program.is_some();
        self.cut.0 |= wish.cut;
        if let (Some(trouble), None) = (&wish.trouble, &self.trouble) {
            self.trouble = Some((function.name.clone(), trouble.why.clone()));
        }
    }
}

/// What is told where more was asked for.
const CUT: &str =
    "of Go functions only entries are recorded: their stacks move, so returns and times are not known";

/// What is told where another tracer is at work.
const OWN_XRAY: &str =
    "XRAY_OPTIONS has the program's own XRay take its sleds at its start: what it takes is not traced";

/// How long the agent may take to map what a plan says.
const MAPPING: Duration = Duration::from_secs(5);

/// How code that may be running is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchMode {
    /// While everything runs, with core syncs between the steps.
    #[default]
    Live,
    /// The same, through the `jmp 3f` of the mails that dynamic ftrace began with.
    Jmp3f,
    /// The same, through breakpoints that the agent handles.
    Breakpoint,
    /// Before it runs; what is switched later, as [`PatchMode::Live`].
    BeforeStart,
    /// While all threads stand still: what ftrace did at first, and what is left where the kernel has no membarrier.
    #[serde(rename = "stop_machine")]
    StopMachine,
}

impl PatchMode {
    /// All, with their names.
    pub const NAMES: [(PatchMode, &str); 5] = [
        (PatchMode::Live, "live"),
        (PatchMode::Jmp3f, "jmp3f"),
        (PatchMode::Breakpoint, "breakpoint"),
        (PatchMode::StopMachine, "stop_machine"),
        (PatchMode::BeforeStart, "before-start"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        PatchMode::NAMES.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// Does everything run on meanwhile?
    pub(crate) fn is_live(self) -> bool {
        self != PatchMode::StopMachine
    }

    /// What sites are meanwhile. (Breakpoints have to be [seen to](Planner::arm).)
    pub(crate) fn transition(self) -> Transition {
        match self {
            PatchMode::Jmp3f => Transition::Jmp3f,
            _ => Transition::Test,
        }
    }
}

/// Where an agent is that a process has mapped, of those that have told.
pub(crate) fn image_in<'s>(shared: &'s Shared, code: u64, regions: &[Region]) -> Option<&'s Image> {
    let is_its = |image: &&Image| {
        let stubs = image.stubs.load(Acquire);
        regions.iter().any(|region| region.shows(stubs, code, 0))
    };
    let all = 0..shared.control().process_bump.load(Acquire);
    all.filter_map(|index| Some(&shared.process(index)?.image)).find(is_its)
}

/// Inode of a process's program.
fn program_of(pid: u32) -> Option<u64> {
    std::fs::metadata(proc::place(pid).join("exe")).ok().map(|meta| meta.ino())
}

/// What is told where breakpoints were asked for and cannot be.
pub(crate) fn unarmed(pid: u32, why: &str) -> News {
    let text = format!("process {pid} is not changed through breakpoints this time but as by default: {why}");
    Record::Note { text }.into()
}

/// A traced process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) modules: Vec<Loaded>,
    /// The dynamic linker tells when its list of objects changes.
    watched: bool,
    /// It has what its parent has by now, who may have changed since it was forked: what its sites are has to be looked at.
    forked: bool,
    pub(crate) text: Option<ProcessText>,
}

/// The sites of a session.
pub struct Planner<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) directory: &'a Directory,
    choose: Box<Choose<'a>>,
    reach: Box<Reach<'a>>,
    check: &'a Check<'a>,
    checked: bool,
    /// Index of a process whose agent took its plan and was not through with it in time.
    stuck: Option<(u32, u32)>,
    pub(crate) processes: HashMap<u32, Process>,
    binaries: HashMap<Identity, Option<Arc<Binary>>>,
    /// Functions that were not built for tracing are looked for everywhere, and not only in programs.
    reaches_all: bool,
    /// Those that have no room for a jump are traced by breakpoints that stay.
    int3: bool,
    pub(crate) stubs: Stubs<'a>,
    /// What polls futures is looked for.
    futures: bool,
    /// Debugging information, by file.
    types: HashMap<Identity, Option<Arc<Types>>>,
    values: Values,
    pub(crate) mode: PatchMode,
    /// The process whose next batches go through breakpoints,
    pub(crate) armed: Option<u32>,
    /// which is refused if they cannot: it is being attached to.
    pub(crate) entering: bool,
    /// Calls to the profiling function become NOPs, also those that nobody wants.
    quiet: bool,
    /// When calls to the profiling function are found that no list names.
    discovery: Discovery,
    /// Recorded as calls of it, and none.
    failed: Vec<first::Failed>,
    /// Something that was found could not be converted yet.
    pending: bool,
    /// What people should know when all is over.
    pub(crate) warnings: Vec<String>,
    /// What could be chosen from, for messages.
    pub candidates: Candidates,
    /// Sites that were switched.
    pub tally: Tally,
}

impl<'a> Planner<'a> {
    /// A planner for a session whose agent will report.
    pub fn new(
        shared: &'a Shared,
        directory: &'a Directory,
        choose: Box<Choose<'a>>,
        check: &'a Check<'a>,
    ) -> Self {
        Planner {
            shared,
            directory,
            choose,
            reach: Box::new(|_| false),
            check,
            checked: false,
            stuck: None,
            processes: HashMap::new(),
            binaries: HashMap::new(),
            reaches_all: false,
            int3: false,
            stubs: Stubs::new(&directory.code, shared),
            futures: false,
            types: HashMap::new(),
            values: Values::default(),
            mode: PatchMode::default(),
            armed: None,
            entering: false,
            quiet: false,
            discovery: Discovery::AtLoad,
            failed: Vec::new(),
            pending: false,
            warnings: Vec::new(),
            candidates: Candidates::default(),
            tally: Tally::default(),
        }
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

    /// Finds calls to the profiling function so.
    pub fn discovering(self, discovery: Discovery) -> Self {
        Planner { discovery, ..self }
    }

    /// Traces functions that have no room for a jump by breakpoints that stay, if that is allowed.
    pub fn allowing(self, int3: bool) -> Self {
        Planner { int3, ..self }
    }

    /// From now on, other functions are wanted.
    pub fn choose_by(&mut self, choose: Box<Choose<'a>>) {
        self.choose = choose;
    }

    /// Its choice reaches so far.
    pub fn reaching(self, reach: Box<Reach<'a>>) -> Self {
        Planner { reach, ..self }
    }

    /// A forked child has what its parent had, unless we have met it before it was in the table.
    pub fn fork(&mut self, parent: u32, child: u32) {
        if self.processes.contains_key(&child) {
            return;
        }
        let met = self.processes.remove(&(UNLISTED | self.pid_of(child)));
        let inherited = || {
            let Some(parent) = self.processes.get(&parent) else { return Process::default() };
            let (modules, watched) = (parent.modules.iter().map(Loaded::inherited).collect(), parent.watched);
            Process { modules, watched, forked: true, text: None }
        };
        let process = met.unwrap_or_else(inherited);
        self.processes.insert(child, process);
    }

    /// A program that was followed is number `new`. What the process was before is gone, with all that was done to it; and others may have ended, of which there
    /// are many in a tree.
    pub fn enter(&mut self, new: u32) {
        let pid = self.pid_of(new);
        let is_gone = |index: u32| {
            let own = self.pid_of(index);
            index != new && (own == pid || !proc::exists(own))
        };
        let gone: Vec<u32> = self.processes.keys().copied().filter(|index| is_gone(*index)).collect();
        gone.iter().for_each(|index| drop(self.processes.remove(index)));
    }

    /// Knows a file already.
    pub fn know(&mut self, file: Identity, name: &str, path: &Path, binary: Arc<Binary>) {
        self.candidates.modules.push((name.to_owned(), Arc::clone(&binary)));
        self.candidates.files.push(("/".into(), path.to_owned()));
        self.binaries.insert(file, Some(binary));
    }

    fn binary(&mut self, mapped: &Mapped, pid: u32, program: Option<u64>) -> Option<Arc<Binary>> {
        let identity = mapped.identity(pid)?;
        if let Some(known) = self.binaries.get(&identity) {
            return known.clone();
        }
        let read = || {
            let file = mapped.open(pid)?;
            let is_program = program == Some(mapped.file.1);
            let may_be_bare = self.discovery == Discovery::AtLoad && (is_program || self.reaches_all);
            if may_be_bare || calltap_sites::file_may_have_sites(&file) {
                let data = calltap_sites::load(&file).ok()?;
                let mut binary = calltap_sites::read_by(&data, &mapped.name(), self.discovery).ok()?;
                if self.reaches_all || may_be_bare && binary.is_bare() {
                    calltap_sites::find_prologues(&data, &mut binary, self.int3).ok()?;
                    name_functions(&mut binary, &data, &mapped.path, &proc::place(pid).join("root"));
                }
                if self.futures {
                    calltap_sites::find_polls(&data, &mut binary).ok()?;
                }
                return Some(binary);
            }
            // Whoever defines the profiling function for others matters where that is led to us.
            let matters =
                self.discovery == Discovery::FirstCall && calltap_sites::file_defines_profiler(&file);
            matters
                .then(|| calltap_sites::profilers(&calltap_sites::load(&file).ok()?, &mapped.name()).ok())?
        };
        let binary = read().map(Arc::new);
        if let Some(binary) = &binary {
            self.candidates.modules.push((mapped.name(), Arc::clone(binary)));
            self.candidates.files.push((proc::place(pid).join("root"), mapped.path.clone()));
        }
        self.binaries.insert(identity, binary.clone());
        binary
    }

    /// Where the agent is in a process. (A forked child that is in no table yet has it where the one has it whose agent it has mapped.)
    pub(crate) fn image(&self, index: u32, regions: &[Region]) -> Option<&Image> {
        let known = self.shared.process(index).map(|entry| &entry.image);
        known.or_else(|| image_in(self.shared, self.directory.code_inode(), regions))
    }

    /// Answers a process that says "my modules have changed": plans for what it has newly loaded, forgets what it has unloaded, has its agent map
    /// what is needed, and patches. Records go to `emit` before the first event they explain can happen.
    pub fn answer(&mut self, index: u32, emit: &mut dyn FnMut(News)) -> Result<(), Refusal> {
        let shared = self.shared;
        let Some(entry) = shared.process(index) else { return Ok(()) };
        let pid = proc::pid_of(entry);
        // There is one plan area: an agent that is still at its plan must find it as it was.
        if self.stuck.is_some_and(|(index, pid)| {
            let phase = shared.process(index).map(|other| other.phase.load(Acquire));
            let at_it = [Phase::Planned, Phase::Trapping].map(|phase| Some(phase as u32));
            at_it.contains(&phase) && proc::exists(pid)
        }) {
            return Ok(());
        }
        self.stuck = None;
        let mut records = Vec::new();
        self.look(index, pid, true, &mut records);
        self.check_once()?;
        records.drain(..).for_each(&mut *emit);
        self.hand_over();
        if self.ask(index, pid, [Phase::Asked, Phase::Planned], Phase::Writing) {
            self.take_mapped(index, &mut records);
            self.keep_traps_waiting(index, pid, &mut records);
            // (Unless it has given us up meanwhile.)
            if entry.phase.load(Acquire) == Phase::Writing as u32 {
                self.patch(index, pid, true, &mut records);
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

    /// Switches on what is wanted in a static program that is held and has not run anything of its own; `remote` has its agent do something.
    pub fn begin(
        &mut self,
        pid: u32,
        remote: &mut dyn FnMut(u32) -> Result<(), Refusal>,
        emit: &mut dyn FnMut(News),
    ) -> Result<(), Refusal> {
        let mut records = Vec::new();
        self.look(0, pid, true, &mut records);
        self.check_once()?;
        records.drain(..).for_each(&mut *emit);
        self.hand_over();
        if !self.stubs.to_map.is_empty() {
            remote(remote::MAP)?;
        }
        self.take_mapped(0, &mut records);
        self.keep_traps_held(pid, remote, &mut records);
        self.patch(0, pid, true, &mut records);
        if let Some(process) = self.processes.get_mut(&0) {
            process.modules.iter_mut().for_each(|module| module.fresh = false);
        }
        records.drain(..).for_each(emit);
        Ok(())
    }

    /// Has what can be chosen from looked at, once.
    pub(crate) fn check_once(&mut self) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.checked, true) {
            return Ok(());
        }
        (self.check)(&self.candidates)?;
        self.check_values()
    }

    /// It makes no sense if values were asked for and there are none of any function.
    pub(crate) fn check_values(&mut self) -> Result<(), Refusal> {
        match self.values.trouble.take() {
            Some((name, why)) if !self.values.read => Err(Refusal::Values { name, why }),
            _ => Ok(()),
        }
    }

    /// Has an agent that waits in one phase do what the plan says, which is another; then it waits in a third. False if it does not.
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

    /// Has the sites of these stubs stay off, in every process. The names of those that were not muted before.
    pub fn mute(&mut self, stubs: &HashSet<u32>, emit: &mut dyn FnMut(News)) -> HashMap<u32, String> {
        self.set_muted(stubs, true, emit)
    }

    /// Has them be again what the tracers want. The names of those that were muted.
    pub fn unmute(&mut self, stubs: &HashSet<u32>, emit: &mut dyn FnMut(News)) -> HashMap<u32, String> {
        self.set_muted(stubs, false, emit)
    }

    fn set_muted(
        &mut self,
        stubs: &HashSet<u32>,
        muted: bool,
        emit: &mut dyn FnMut(News),
    ) -> HashMap<u32, String> {
        let mut names = HashMap::new();
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| names.extend(module.mute(stubs, muted)));
            let Some(entry) = self.shared.process(index) else { continue };
            let pid = proc::pid_of(entry);
            let mut records = Vec::new();
            let target = Target::of_child(pid);
            if let Some(target) = &target
                && let Err(why) = self.arm(index, target, &mut Stops::default())
            {
                records.push(unarmed(pid, &why));
            }
            if let Some(target) = &target {
                self.keep_traps_running(index, target, &mut Stops::default(), &mut records);
            }
            self.patch(index, pid, false, &mut records);
            self.armed = None;
            if let Some(target) = target
                && let Err(error) = self.stop_for_the_rest(index, &target, &mut Stops::default())
            {
                records.push(Record::Note { text: error.to_string() }.into());
            }
            records.into_iter().for_each(&mut *emit);
        }
        names
    }

    /// Finds out from the journal and the text what earlier controllers did to the process and its children.
    pub fn recall(&mut self, target: &Target) -> Result<(), Refusal> {
        let entries = self.directory.journal.read().map_err(|error| target.refuse(&error.to_string()))?;
        self.stubs.recall(&entries);
        let is_prologue = |entry: &Entry| matches!(entry, Entry::Site { copy: Some(_), .. });
        self.reaches_all = entries.iter().any(is_prologue);
        self.int3 |= entries.iter().any(|entry| matches!(entry, Entry::Site { site, .. } if site.is_trap()));
        for (index, Target { pid, .. }) in self.living(target) {
            self.meet(index, pid, &entries);
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| module.number(&mut self.stubs));
        }
        self.recall_pending();
        Ok(())
    }

    /// Meets those that are not known yet.
    pub(crate) fn meet_new(&mut self, living: &[(u32, Target)]) -> Result<(), Refusal> {
        let is_new = |(index, _): &&(u32, Target)| !self.processes.contains_key(index);
        let new: Vec<&(u32, Target)> = living.iter().filter(is_new).collect();
        let Some((_, target)) = new.first() else { return Ok(()) };
        let entries = self.directory.journal.read().map_err(|error| target.refuse(&error.to_string()))?;
        new.iter().for_each(|(index, Target { pid, .. })| self.meet(*index, *pid, &entries));
        Ok(())
    }

    /// Finds out what was done to one that was not known until now. (Its modules come into the trace when something of them is wanted.)
    fn meet(&mut self, index: u32, pid: u32, entries: &[Entry]) {
        let (Ok(regions), Ok(mut text)) = (maps::read(pid), ProcessText::open(pid)) else { return };
        text.after_int3 = self.shared.has_traps();
        self.see_modules(index, pid, false, &regions, &mut Vec::new());
        let line = (index & UNLISTED == 0).then(|| self.shared.line(index));
        let code = self.directory.code_inode();
        let shows = |address, offset| regions.iter().any(|region| region.shows(address, code, offset));
        let standing = journal::standing(entries, line.as_deref(), shows);
        if self.discovery == Discovery::FirstCall {
            self.recall_calls(index, &regions, &standing, &mut text);
        }
        let Some(process) = self.processes.get_mut(&index) else { return };
        for module in &mut process.modules {
            module.recall(&standing, &mut text);
        }
        process.watched =
            entries.iter().any(|entry| matches!(entry, Entry::Site { site, .. } if site.is_empty_function()));
        process.text = Some(text);
    }

    /// The processes of the session that live, by index: the one that was attached to, and its children. Those that have called nothing since they were forked
    /// are in no table, and have [another number](UNLISTED).
    pub fn living(&self, first: &Target) -> Vec<(u32, Target)> {
        let session = self.directory.identity();
        let living = |index: u32| {
            let entry = self.shared.process(index)?;
            let own = proc::pid_of(entry);
            let pid = if index == 0 { first.pid } else { own };
            if self.shared.was_replaced(index) {
                return None;
            }
            // (Whatever has the id by now, only who has our memory is ours.)
            let target = Target::of_child(pid).filter(|_| proc::has_mapped(pid, &session))?;
            Some((index, target))
        };
        let listed: Vec<(u32, Target)> =
            (0..self.shared.control().process_bump.load(Acquire)).filter_map(living).collect();
        // (Whoever shares another's memory, after vfork, is changed with him.)
        let is_new =
            |pid: &u32| listed.iter().all(|(_, known)| known.pid != *pid && !shares_memory(known.pid, *pid));
        let known: Vec<u32> =
            [first.pid].into_iter().chain(listed.iter().map(|(_, known)| known.pid)).collect();
        let others = proc::who_maps(&session, &known).into_iter().filter(is_new);
        let others: Vec<(u32, Target)> =
            others.filter_map(|pid| Some((UNLISTED | pid, Target::of_child(pid)?))).collect();
        listed.into_iter().chain(others).collect()
    }

    /// Describes all modules and sites that were ever wanted, for a trace of their events.
    pub fn describe(&self, emit: &mut dyn FnMut(News)) {
        for module in self.processes.values().flat_map(|process| &process.modules) {
            module.describe(emit);
        }
    }

    /// The functions of the first process that can be traced: its program's, then those of its libraries in the order of their addresses.
    pub fn list(&self) -> Vec<Listed> {
        let pid = self.shared.process(0).map_or(0, proc::pid_of);
        let program = std::fs::read_link(proc::place(pid).join("exe")).unwrap_or_default();
        // (A program whose file is gone is still the program.)
        let plain = |path: &Path| path.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
        let program = plain(&program);
        let is_library = |module: &Loaded| plain(&module.mapped.path) != program;
        let mut modules: Vec<&Loaded> = self.processes.get(&0).into_iter().flat_map(|p| &p.modules).collect();
        modules.sort_by_key(|module| (is_library(module), module.mapped.range));
        let mut listed = Vec::new();
        modules.into_iter().for_each(|module| module.list(is_library(module), &mut listed));
        listed
    }

    /// Sites that lead to a stub, and that ever did.
    pub fn count(&self) -> (usize, usize) {
        let modules = self.processes.values().flat_map(|process| &process.modules);
        modules.map(Loaded::count).fold((0, 0), |(on, all), (more_on, more)| (on + more_on, all + more))
    }

    /// Brings what is known of a process up to date, and gives what is wanted its stubs. What is new is `fresh` if nobody can run it yet.
    pub(crate) fn look(&mut self, index: u32, pid: u32, fresh: bool, records: &mut Vec<News>) {
        match maps::read(pid) {
            Ok(regions) => {
                self.see_modules(index, pid, fresh, &regions, records);
                self.want(index, &regions, records);
            }
            Err(error) => records.push(News::Record(Record::Note {
                text: format!(
                    "the mappings of process {pid} could not be read, what it has loaded is not traced: {error}"
                ),
            })),
        }
    }

    /// The id by which we know a process of the session.
    fn pid_of(&self, index: u32) -> u32 {
        if index & UNLISTED != 0 {
            return index & !UNLISTED;
        }
        let entry = self.shared.process(index);
        entry.map_or(0, proc::pid_of)
    }

    /// Before a choice is checked that was not known at first: has what it reaches looked at.
    pub fn widen(&mut self, first: &Target, reach: &Reach<'_>) {
        if !reach(&self.candidates) || !self.reach_all(first.pid) {
            return;
        }
        // (Whom we have not met yet, we look at then.)
        let known = |(index, _): &(u32, Target)| self.processes.contains_key(index);
        let living: Vec<(u32, Target)> = self.living(first).into_iter().filter(known).collect();
        for (index, Target { pid, .. }) in living {
            if let Ok(regions) = maps::read(pid) {
                self.see_modules(index, pid, false, &regions, &mut Vec::new());
            }
        }
    }

    /// From now on, functions that were not built for tracing are looked for everywhere. False if they were already.
    fn reach_all(&mut self, pid: u32) -> bool {
        if self.discovery == Discovery::FirstCall || std::mem::replace(&mut self.reaches_all, true) {
            return false;
        }
        self.read_again(pid);
        true
    }

    /// From now on, breakpoints that stay are allowed.
    pub fn allow_int3(&mut self, pid: u32) {
        if !std::mem::replace(&mut self.int3, true) {
            self.read_again(pid);
        }
    }

    /// Reads all files again: more is looked for in them.
    fn read_again(&mut self, pid: u32) {
        let program = program_of(pid);
        self.binaries.clear();
        self.candidates = Candidates::default();
        // (The list of a file's functions stays what it is.)
        let mut modules: Vec<(u32, Vec<Loaded>)> = self
            .processes
            .iter_mut()
            .map(|(index, process)| (*index, std::mem::take(&mut process.modules)))
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

    /// Brings up to date what a process has loaded.
    pub(crate) fn see_modules(
        &mut self,
        index: u32,
        pid: u32,
        fresh: bool,
        regions: &[Region],
        records: &mut Vec<News>,
    ) {
        self.see_modules_once(index, pid, fresh, regions, records);
        if (self.reach)(&self.candidates) && self.reach_all(pid) {
            self.see_modules_once(index, pid, fresh, regions, records);
        }
    }

    fn see_modules_once(
        &mut self,
        index: u32,
        pid: u32,
        fresh: bool,
        regions: &[Region],
        records: &mut Vec<News>,
    ) {
        let session = self.directory.agent();
        let now = mapped(regions, session.parent().unwrap_or(Path::new("/")));
        let program = program_of(pid);
        let mut process = self.processes.remove(&index).unwrap_or_default();
        let (mut kept, mut gone, mut own_xray) = (Vec::new(), Vec::new(), false);
        for mut old in process.modules.drain(..) {
            let list = if old.is_there(&now, regions) { &mut kept } else { &mut gone };
            list.push(old);
        }
        let is_less = !gone.is_empty();
        // (What a forked child unloads, its parent still has.)
        for mut old in gone.into_iter().filter(|old| old.recorded && old.record.process == index) {
            old.record.unloaded_ticks = Some(clock::pair().ticks);
            records.push(Record::Module(old.record).into());
        }
        process.modules = kept;
        for new in now {
            if process.modules.iter().any(|old| old.mapped.is_same(&new)) {
                continue;
            }
            let Some(binary) = self.binary(&new, pid, program) else { continue };
            let Some(bias) = new.bias(&binary) else { continue };
            let has_sleds = binary.functions.iter().any(|function| function.kind == SiteKind::Xray);
            own_xray |= fresh && has_sleds && proc::takes_its_sleds(pid);
            let record = Module {
                id: 0,
                process: index,
                path: new.path.to_string_lossy().into_owned(),
                build_id: binary.build_id.clone(),
                bias: bias.0,
                range: new.range,
                unloaded_ticks: None,
            };
            process.modules.push(Loaded::new(new, record, binary, bias, fresh));
        }
        self.processes.insert(index, process);
        if is_less {
            self.forget_traps();
        }
        if own_xray {
            self.warn(OWN_XRAY, records);
        }
    }

    /// Tells the user, and whoever reads the trace.
    fn warn(&mut self, text: &str, records: &mut Vec<News>) {
        self.warnings.push(text.to_owned());
        records.push(Record::Note { text: text.to_owned() }.into());
    }

    fn want(&mut self, index: u32, regions: &[Region], records: &mut Vec<News>) {
        let Some(image) = self.image(index, regions) else { return };
        let hooks = std::array::from_fn(|i| Avma(image.hooks[i].load(Relaxed)));
        let hook = Avma(image.first_hook.load(Acquire));
        self.stubs.agent = Agent { stubs: Avma(image.stubs.load(Acquire)), hooks };
        let (leads, quiet) = (self.discovery == Discovery::FirstCall, self.quiet);
        self.with_wishes(index, |module, wish, stubs| {
            if leads {
                module.lead(hook, stubs, regions, records);
            }
            if quiet {
                module.quieten(stubs);
            }
            module.want(wish, stubs, regions, records);
        });
        if self.values.cut == (true, false) {
            self.values.cut.1 = true;
            self.warn(CUT, records);
        }
    }

    /// Finds out what is read of calls through stubs that somebody else has made.
    pub fn recall_values(&mut self) {
        let indices: Vec<u32> = self.processes.keys().copied().collect();
        for index in indices {
            self.with_wishes(index, |module, wish, stubs| module.recall_values(wish, stubs));
        }
    }

    /// Why nothing could be read of a function, if there was one; for people, and once.
    pub fn trouble(&mut self) -> Option<String> {
        let (name, why) = self.values.trouble.take()?;
        Some(format!("of {name}, and perhaps others, nothing is read: {why}"))
    }

    /// With the modules of a process, and what is wanted of their functions.
    fn with_wishes(
        &mut self,
        index: u32,
        mut act: impl FnMut(&mut Loaded, &dyn Fn(&Function) -> Option<Wish>, &mut Stubs<'a>),
    ) {
        let pid = self.pid_of(index);
        let Some(process) = self.processes.get_mut(&index) else { return };
        for module in &mut process.modules {
            let (types, values) = (RefCell::new(&mut self.types), RefCell::new(&mut self.values));
            let (mapped, build_id) = (module.mapped.clone(), module.record.build_id.clone());
            let typed = || {
                let identity = mapped.identity(pid)?;
                let mut types = types.borrow_mut();
                types.entry(identity).or_insert_with(|| read_types(&mapped, build_id.as_deref(), pid)).clone()
            };
            let wish = |function: &Function| {
                let wish = (self.choose)(function, &typed)?;
                values.borrow_mut().note(&wish, function);
                let undecided = wish.trouble.as_ref().is_some_and(|trouble| trouble.undecided);
                (!undecided).then_some(wish)
            };
            act(module, &wish, &mut self.stubs);
        }
    }

    /// Writes down what will be done, and what has to be mapped into the plan area.
    pub(crate) fn hand_over(&mut self) {
        // (If that fails, the file system is full: then stubs could not be written either.)
        let _ = self.directory.journal.add(&std::mem::take(&mut self.stubs.to_note));
        let ranges = &self.stubs.to_map;
        let Some((header, maps)) = self.shared.plan(ranges.len()) else {
            if let Some((header, _)) = self.shared.plan(0) {
                header.maps.store(0, Release);
            }
            return;
        };
        for (map, range) in maps.iter().zip(ranges) {
            map.address.store(range.address, Relaxed);
            map.offset.store(range.offset, Relaxed);
            map.length.store(range.length, Relaxed);
            map.errno.store(u64::MAX, Relaxed); // until the agent has come to it
        }
        header.maps.store(maps.len() as u32, Release);
    }

    /// Takes back the stubs whose hops could not be mapped.
    pub(crate) fn take_mapped(&mut self, index: u32, records: &mut Vec<News>) {
        let ranges = std::mem::take(&mut self.stubs.to_map);
        let maps: &[plan::Map] = self.shared.plan(ranges.len()).map_or(&[], |(_, maps)| maps);
        let errno = |n: usize| maps.get(n).map_or(u64::MAX, |map| map.errno.load(Relaxed));
        let lost: Vec<(&HopRange, u64)> =
            ranges.iter().enumerate().map(|(n, range)| (range, errno(n))).filter(|(_, e)| *e != 0).collect();
        for (range, errno) in lost {
            let (start, end) = (range.address, range.address + range.length);
            let Some(process) = self.processes.get_mut(&index) else { continue };
            process.modules.iter_mut().for_each(|module| module.lose_hops(start, end));
            let text = format!(
                "process {index}: could not map jumps at {start:#x} (errno {errno}): the functions near there are not traced"
            );
            records.push(Record::Note { text }.into());
        }
    }
}
