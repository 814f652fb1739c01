//! Answers a process that says "my modules changed": which sites to switch on, through which stubs, by which writes.

use crate::clock;
use crate::directory::Directory;
use crate::maps::{self, Region, gap_near};
use crate::modules::{Candidates, Identity, Mapped, mapped};
use crate::shm::{self, Shared};
use calltap_abi::plan::{self, Status};
use calltap_abi::stub;
use calltap_patch::{Agent, Avma, Bias, Edit, Wanted};
use calltap_sites::{Binary, Function};
use calltap_trace::{Module, Record, Site, SiteId};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Chooses, for a function, the tracers that want it (bit mask by tracer id).
pub type Choose<'a> = dyn Fn(&Function) -> u32 + Send + Sync + 'a;

/// Looks at what can be chosen from before anything is patched: the reason not to run the program at all.
pub type Check<'a> = dyn Fn(&Candidates) -> Result<(), Refusal> + Send + Sync + 'a;

/// Why a program is not run: its selection makes no sense.
pub type Refusal = crate::Error;

/// How long the agent may take to carry out a plan.
const CARRY_OUT: Duration = Duration::from_secs(5);

/// A module of a process, and what was patched in it.
#[derive(Clone, Debug)]
struct Loaded {
    mapped: Mapped,
    record: Module,
    /// The record is in the trace: something of the module was chosen.
    recorded: bool,
    edits: Vec<(SiteId, Edit)>,
}

/// The sites of a session.
pub struct Planner<'a> {
    shared: &'a Shared,
    directory: &'a Directory,
    choose: &'a Choose<'a>,
    check: &'a Check<'a>,
    checked: bool,
    /// Process id, index and request of an agent that took its plan and was not through with it in time.
    stuck: Option<(u32, u32, u32)>,
    /// Tracers that want returns (bit mask).
    graph: u32,
    /// Tracers that want callers.
    function: u32,
    processes: HashMap<u32, Vec<Loaded>>,
    binaries: HashMap<Identity, Option<Arc<Binary>>>,
    next_module: u32,
    next_site: u32,
    next_hop: u64,
    /// What could be chosen from, for messages.
    pub candidates: Candidates,
    /// Sites that were patched.
    pub patched: u32,
}

impl<'a> Planner<'a> {
    /// A planner for a session whose agent will report.
    pub fn new(
        shared: &'a Shared,
        directory: &'a Directory,
        choose: &'a Choose<'a>,
        check: &'a Check<'a>,
        graph: u32,
        function: u32,
    ) -> Self {
        Planner {
            shared,
            directory,
            choose,
            check,
            checked: false,
            stuck: None,
            graph,
            function,
            processes: HashMap::new(),
            binaries: HashMap::new(),
            next_module: 0,
            next_site: 0,
            next_hop: stub::REGION as u64,
            candidates: Candidates::default(),
            patched: 0,
        }
    }

    /// A forked child has what its parent had.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let inherited = self.processes.get(&parent).cloned().unwrap_or_default();
        self.processes.entry(child).or_insert(inherited);
    }

    /// Knows a file already.
    pub fn know(&mut self, file: Identity, name: &str, binary: Arc<Binary>) {
        self.candidates.modules.push((name.to_owned(), Arc::clone(&binary)));
        self.binaries.insert(file, Some(binary));
    }

    fn binary(&mut self, mapped: &Mapped, pid: u32) -> Option<Arc<Binary>> {
        let identity = mapped.identity(pid)?;
        if let Some(known) = self.binaries.get(&identity) {
            return known.clone();
        }
        let read = || {
            let data = mapped.read(pid)?;
            if !calltap_sites::may_have_sites(&data) {
                return None;
            }
            calltap_sites::read(&data, &mapped.name()).ok()
        };
        let binary = read().map(Arc::new);
        if let Some(binary) = &binary {
            self.candidates.modules.push((mapped.name(), Arc::clone(binary)));
        }
        self.binaries.insert(identity, binary.clone());
        binary
    }

    fn agent(&self) -> Agent {
        let control = self.shared.control();
        let hooks = std::array::from_fn(|i| Avma(control.hooks[i].load(Relaxed)));
        Agent { stubs: Avma(control.stubs.load(Acquire)), hooks }
    }

    /// Plans for what process `index` has newly loaded, forgets what it has unloaded, hands the plan to its agent and waits
    /// until that is through with it. Records go to `emit` before the first event they explain can happen.
    pub fn answer(&mut self, index: u32, emit: &mut dyn FnMut(Record)) -> Result<(), Refusal> {
        let shared = self.shared;
        let Some(process) = shared.process(index) else { return Ok(()) };
        let (pid, request) = (process.pid.load(Acquire), process.request.load(Acquire));
        // There is one plan area: an agent that is still at its plan must find it as it was.
        if self.stuck.is_some_and(|(pid, index, request)| {
            let done = shared.process(index).is_none_or(|other| other.done.load(Acquire) == request);
            !done && maps::exists(pid)
        }) {
            return Ok(());
        }
        self.stuck = None;
        let mut records = Vec::new();
        let mut plan = Plan::default();
        match maps::read(pid) {
            Ok(regions) => self.plan(index, pid, &regions, &mut plan, &mut records),
            Err(error) => {
                let text = format!(
                    "the mappings of process {pid} could not be read, what it has loaded is not traced: {error}"
                );
                records.push(Record::Note { text });
            }
        }
        if !self.checked {
            self.checked = true;
            (self.check)(&self.candidates)?;
        }
        records.drain(..).for_each(&mut *emit);
        self.hand_over(&plan);
        process.plan_offset.store(0, Relaxed);
        process.response.store(request, Release);
        shm::wake(&process.response);
        let start = Instant::now();
        while process.done.load(Acquire) != request && start.elapsed() < CARRY_OUT && maps::exists(pid) {
            let bell = shared.control().doorbell.load(Acquire);
            if process.done.load(Acquire) != request {
                shm::wait(&shared.control().doorbell, bell, Duration::from_millis(1));
            }
        }
        if process.done.load(Acquire) != request {
            self.stuck = Some((pid, index, request));
        }
        self.take_results(index, &plan, &mut records);
        records.drain(..).for_each(emit);
        Ok(())
    }

    fn plan(&mut self, index: u32, pid: u32, regions: &[Region], plan: &mut Plan, records: &mut Vec<Record>) {
        let session = self.directory.agent();
        let now = mapped(regions, session.parent().unwrap_or(Path::new("/")));
        let mut loaded = self.processes.remove(&index).unwrap_or_default();
        let (kept, gone): (Vec<_>, Vec<_>) =
            loaded.drain(..).partition(|old| now.iter().any(|new| new.is_same(&old.mapped)));
        // (What a forked child unloads, its parent still has.)
        for mut old in gone.into_iter().filter(|old| old.recorded && old.record.process == index) {
            old.record.unloaded_ticks = Some(clock::pair().ticks);
            records.push(Record::Module(old.record));
        }
        for old in &kept {
            // In a forked child this may be another copy, mapped after the fork: the agent verifies, and writes only what is missing.
            if old.record.process != index {
                plan.add(old.record.bias, &old.edits);
            }
        }
        let mut modules = kept;
        for new in now {
            if modules.iter().any(|old| old.mapped.is_same(&new)) {
                continue;
            }
            if let Some(loaded) = self.load(index, pid, new, regions, plan, records) {
                modules.push(loaded);
            }
        }
        self.processes.insert(index, modules);
        plan.edits.sort_by_key(|(_, _, edit)| edit.address);
    }

    /// Plans a new module; records it and its sites.
    fn load(
        &mut self,
        index: u32,
        pid: u32,
        mapped: Mapped,
        regions: &[Region],
        plan: &mut Plan,
        records: &mut Vec<Record>,
    ) -> Option<Loaded> {
        let binary = self.binary(&mapped, pid)?;
        let bias = mapped.bias(&binary)?;
        let record = Module {
            id: self.next_module,
            process: index,
            path: mapped.path.to_string_lossy().into_owned(),
            build_id: binary.build_id.clone(),
            bias: bias.0,
            range: mapped.range,
            unloaded_ticks: None,
        };
        let chosen: Vec<(&Function, u32)> = binary
            .functions
            .iter()
            .filter(|function| function.form.is_some())
            .map(|function| (function, (self.choose)(function)))
            .filter(|(_, tracers)| *tracers != 0)
            .collect();
        if chosen.is_empty() {
            return Some(Loaded { mapped, record, recorded: false, edits: Vec::new() });
        }
        self.next_module += 1;
        records.push(Record::Module(record.clone()));
        let room = stub::COUNT.saturating_sub(self.next_site as usize);
        if chosen.len() > room {
            let text = format!(
                "only the first {room} of {} functions of {} are traced: the stub region is full",
                chosen.len(),
                mapped.name()
            );
            records.push(Record::Note { text });
        }
        let chosen = &chosen[..chosen.len().min(room)];
        let Placed { edits, sites } = self.place(&record, bias, &mapped, chosen, regions, plan, records)?;
        records.push(Record::Sites { sites });
        Some(Loaded { mapped, record, recorded: true, edits })
    }

    /// Writes stubs and hops to the code file and returns the edits that lead to them.
    #[allow(clippy::too_many_arguments)]
    fn place(
        &mut self,
        module: &Module,
        bias: Bias,
        mapped: &Mapped,
        chosen: &[(&Function, u32)],
        regions: &[Region],
        plan: &mut Plan,
        records: &mut Vec<Record>,
    ) -> Option<Placed> {
        let agent = self.agent();
        let first = self.next_site;
        let (low, high) = (agent.stub(0), agent.stub(stub::COUNT as u32 - 1));
        let ends = [Avma(mapped.range.0), Avma(mapped.range.1)];
        let near =
            ends.iter().all(|end| calltap_patch::reaches(*end, low) && calltap_patch::reaches(*end, high));
        let hops_at = if near {
            None
        } else {
            Some(self.reserve_hops(mapped, chosen.len(), regions, plan, records)?)
        };
        let (mut stubs, mut hops) = (Vec::new(), Vec::new());
        let (mut edits, mut sites) = (Vec::new(), Vec::new());
        for (n, (function, tracers)) in chosen.iter().enumerate() {
            let form = function.form.as_ref()?;
            let id = first + n as u32;
            let wanted = match (tracers & self.function != 0, tracers & self.graph != 0) {
                (true, true) => Wanted::Both,
                (true, false) => Wanted::Function,
                _ => Wanted::Graph,
            };
            let after = calltap_patch::is_after_prologue(form);
            let (at, body) = (agent.stub(id), bias.apply(calltap_patch::body_address(form)));
            let bytes = calltap_patch::stub_bytes(&agent, at, body, wanted, after).ok()?;
            stubs.extend_from_slice(&bytes);
            let entry = Avma(at.0 + calltap_patch::entry_offset(wanted, after) as u64);
            let target = match hops_at {
                None => entry,
                Some(hops_at) => {
                    hops.extend_from_slice(&calltap_patch::hop_bytes(entry));
                    Avma(hops_at + (n * stub::HOP_SIZE) as u64)
                }
            };
            match calltap_patch::site_edit(form, bias, target) {
                Ok(edit) => edits.push((SiteId(id), edit)),
                Err(_) => records.push(Record::Note {
                    text: format!("{} is not traced: its stub is out of reach", function.name),
                }),
            }
            sites.push(Site {
                id: SiteId(id),
                module: module.id,
                address: function.address.0,
                size: function.size,
                name: function.name.clone(),
                kind: function.kind.name().to_owned(),
                tracers: *tracers,
            });
        }
        let code = &self.directory.code;
        code.write_all_at(&stubs, u64::from(first) * stub::SIZE as u64).ok()?;
        if !hops.is_empty() {
            code.write_all_at(&hops, self.next_hop).ok()?;
            self.next_hop += (hops.len() as u64).next_multiple_of(4096);
        }
        self.next_site += chosen.len() as u32;
        plan.add(bias.0, &edits);
        Some(Placed { edits, sites })
    }

    fn reserve_hops(
        &mut self,
        mapped: &Mapped,
        count: usize,
        regions: &[Region],
        plan: &mut Plan,
        records: &mut Vec<Record>,
    ) -> Option<u64> {
        let length = ((count * stub::HOP_SIZE) as u64).next_multiple_of(4096);
        let Some(at) = gap_near(regions, mapped.range.0, mapped.range.1, length, maps::lowest_address())
        else {
            let text =
                format!("{} is not traced: no free address range of {length} bytes near it", mapped.name());
            records.push(Record::Note { text });
            return None;
        };
        plan.maps.push((at, self.next_hop, length));
        Some(at)
    }

    /// Writes the plan to the plan area.
    fn hand_over(&self, plan: &Plan) {
        let Some((header, maps, writes)) = self.shared.plan(plan.maps.len(), plan.edits.len()) else {
            if let Some((header, ..)) = self.shared.plan(0, 0) {
                header.maps.store(0, Relaxed);
                header.writes.store(0, Relaxed);
            }
            return;
        };
        for (map, (address, offset, length)) in maps.iter().zip(&plan.maps) {
            map.address.store(*address, Relaxed);
            map.offset.store(*offset, Relaxed);
            map.length.store(*length, Relaxed);
            map.errno.store(0, Relaxed);
        }
        for (write, (_, bias, edit)) in writes.iter().zip(&plan.edits) {
            write.address.store(edit.address.0, Relaxed);
            plan::store(&write.old, &edit.old);
            plan::store(&write.new, &edit.new);
            write.bias.store(*bias, Relaxed);
            write.length.store(edit.old.len() as u32, Relaxed);
            write.status.store(Status::Pending as u32, Relaxed);
        }
        header.maps.store(plan.maps.len() as u32, Relaxed);
        header.writes.store(plan.edits.len() as u32, Release);
    }

    fn take_results(&mut self, index: u32, plan: &Plan, records: &mut Vec<Record>) {
        let inherited = self.shared.process(index).is_some_and(|process| process.parent.load(Relaxed) != 0);
        let Some((_, maps, writes)) = self.shared.plan(plan.maps.len(), plan.edits.len()) else { return };
        for (map, (address, ..)) in maps.iter().zip(&plan.maps) {
            let errno = map.errno.load(Relaxed);
            if errno != 0 {
                let text = format!(
                    "process {index}: could not map jumps at {address:#x} (errno {errno}): the functions near there are not traced"
                );
                records.push(Record::Note { text });
            }
        }
        let (mut failed, mut old_code) = (0, 0);
        for (write, (site, _, edit)) in writes.iter().zip(&plan.edits) {
            match write.status.load(Relaxed) {
                s if s == Status::Written as u32 => self.patched += 1,
                s if s == Status::NotNew as u32 => old_code += 1,
                s if s == Status::Surprise as u32 => {
                    let actual = plan::load(&write.actual);
                    let actual = &actual[..edit.old.len().min(plan::BYTES_MAX)];
                    let text = format!(
                        "site {} at {:#x} is not traced: expected {:02x?}, found {actual:02x?}",
                        site.0, edit.address.0, edit.old
                    );
                    records.push(Record::Note { text });
                }
                _ => failed += 1,
            }
        }
        if old_code > 0 && !inherited {
            let text = format!(
                "{old_code} sites are in code that the program may be running already, and are not traced"
            );
            records.push(Record::Note { text });
        }
        if failed > 0 {
            records.push(Record::Note {
                text: format!("{failed} sites could not be written and are not traced"),
            });
        }
    }
}

/// The sites of a module, with their stubs written.
struct Placed {
    edits: Vec<(SiteId, Edit)>,
    sites: Vec<Site>,
}

/// What the agent is asked to do.
#[derive(Clone, Debug, Default)]
struct Plan {
    /// Address, offset in the code file, length.
    maps: Vec<(u64, u64, u64)>,
    /// Site, bias of its module, write.
    edits: Vec<(SiteId, u64, Edit)>,
}

impl Plan {
    fn add(&mut self, bias: u64, edits: &[(SiteId, Edit)]) {
        self.edits.extend(edits.iter().map(|(site, edit)| (*site, bias, edit.clone())));
    }
}
