//! Registers the processes and threads that join a session: their ids, names, and readers.

use super::Collector;
use crate::metadata::{Followed, SwitchedOff};
use crate::pairing::OpenCalls;
use crate::reader::Reader;
use crate::reader::history::{Fork, History};
use calltap_abi::{ProcessEntry, ThreadEntry, ThreadState};
use calltap_names::printable_bytes;
use calltap_process::clock::TimeOffsets;
use calltap_process::proc;
use calltap_trace::{Process, Record, Thread, ThreadId};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Number of living threads whose newest events are kept, 64 KiB each at most.
const MAX_HISTORIES: u32 = 256;
/// Number of threads whose stacks are measured as they begin. Those of later threads are measured
/// where their lengths matter, as each measurement reads all mappings of the process.
const MEASURED: u32 = 64;
/// Number of ended threads whose newest events are kept.
const HISTORIES: usize = 64;

/// The threads that have joined.
#[derive(Default)]
pub(super) struct Threads {
    /// Number of threads that are read.
    pub count: u32,
    /// Threads that have begun since ended ones were last looked for.
    pub begun: u32,
    /// Threads that may begin to be traced at once, before any of them is known.
    pub expected: u32,
    /// Number of the next thread.
    pub next: u32,
    /// Entry of the newest thread with an id, by process and id.
    owners: HashMap<(u32, u32), u32>,
    /// Functions that were disabled since threads were last looked for: a thread that is found now
    /// may have calls of them open.
    pub switched_off: Vec<Arc<SwitchedOff>>,
    /// Newest events of threads that have ended, by process and entry; oldest first.
    histories: VecDeque<((u32, u32), History)>,
    /// Calls that were open at the fork, of forked processes whose first thread is not read yet.
    copied: HashMap<u32, (OpenCalls, Process)>,
}

impl Threads {
    /// Returns the number of threads that may need chunks.
    pub(super) fn may_run(&self) -> u32 {
        self.count.max(self.expected)
    }
}

/// A process of the session.
#[derive(Clone, Copy)]
pub(super) struct Joined {
    /// Process id, in the pid namespace of the process.
    pub pid: u32,
    /// Process id in calltap's namespace; None if it runs in another pid namespace, and was not
    /// found.
    pub here: Option<u32>,
    /// Whether it has executed another program by now, which has another entry.
    pub replaced: bool,
    /// How far its CLOCK_MONOTONIC is ahead of the machine's, nanoseconds.
    pub ahead: i64,
    /// The address above all frames of its first thread, if it is known.
    stack: Option<u64>,
}

/// The processes of the session.
pub(super) struct Processes {
    /// The processes, by index.
    pub joined: Vec<Joined>,
    /// The newest followed process of each process id.
    pub followed: HashMap<u32, Followed>,
    /// Number of this process's namespace of process ids.
    pub namespace: u64,
}

impl Processes {
    pub(super) fn new() -> Processes {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        Processes { joined: Vec::new(), followed: HashMap::new(), namespace }
    }

    /// Returns a process by its index.
    pub(super) fn get(&self, index: u32) -> Option<&Joined> {
        self.joined.get(index as usize)
    }
}

impl Collector<'_> {
    /// Looks for processes and threads that have joined.
    pub(super) fn find_threads(&mut self) {
        for index in self.processes.joined.len() as u32..self.shared.processes().end {
            let Some(process) = self.shared.process(index) else { break };
            let pid = process.pid.load(Acquire);
            if pid == 0 {
                break; // being filled in
            }
            // A followed process is reported before it is in the table.
            self.take_records();
            let forked = process.parent.load(Relaxed).checked_sub(1);
            let parent = forked.or_else(|| self.parent_of(pid));
            if forked.is_some() {
                // The thread that has forked may be new as well.
                self.find_new_threads();
            }
            let open = forked.and_then(|parent| self.open_at_fork(index, parent));
            let mut executed = false;
            for (former, process) in (0..index).zip(&mut self.processes.joined) {
                let is_same = self.shared.is_same_process(former, index);
                process.replaced |= is_same;
                executed |= is_same;
            }
            let here = if self.is_in_own_namespace(process) { Some(pid) } else { proc::find_pid(process) };
            self.processes.joined.push(Joined {
                pid,
                here,
                replaced: false,
                ahead: here.map_or(0, |here| TimeOffsets::of(here).monotonic),
                // The first thread of a forked child goes on where it was forked: on a copy of any
                // thread's stack.
                stack: here.and_then(proc::first_stack).filter(|_| forked.is_none()),
            });
            parent.into_iter().for_each(|parent| self.unwinding.fork(parent, index));
            self.totals.processes += 1;
            self.totals.executed += u32::from(executed);
            let comm = self.name_of(index, pid);
            let forked = forked.is_some();
            let resumed = open.is_some();
            let process = Process { id: index, pid, parent, forked, resumed, executed, comm };
            self.output.record(&Record::Process(process.clone()));
            open.into_iter()
                .for_each(|open| drop(self.threads.copied.insert(index, (open, process.clone()))));
        }
        self.find_new_threads();
        if self.threads.count > 1 || !self.moves.left.is_empty() {
            self.watch_stacks();
        }
        self.threads.switched_off.clear();
    }

    /// Begins to read new threads of known processes.
    fn find_new_threads(&mut self) {
        for index in self.shared.threads() {
            if self.readers.get(index as usize).is_some_and(Option::is_some) {
                continue;
            }
            let Some(entry) = self.shared.thread(index) else { break };
            let is_live = entry.state.load(Acquire) == ThreadState::Live as u32;
            let process = entry.process.load(Relaxed);
            if is_live && self.processes.get(process).is_some() {
                self.begin(index, process, entry.tid.load(Relaxed));
            }
        }
    }

    /// Returns the calls that were open in the forking thread when it forked `process`, if they are
    /// known.
    fn open_at_fork(&mut self, process: u32, parent: u32) -> Option<OpenCalls> {
        let fork = match Fork::of(self.shared.process(process)?)? {
            Fork::BeforeAll => return Some(OpenCalls::new(!self.sparse)),
            Fork::At(fork) => fork,
        };
        let ended = self.threads.histories.iter().rev().find(|(of, ..)| *of == (parent, fork.thread));
        match self.readers.get_mut(fork.thread as usize).and_then(Option::as_mut) {
            Some(reader) if reader.process == parent => {
                let open = reader.open_at(fork, self.shared, &mut self.output, &mut self.unwinding);
                open.or_else(|| ended?.1.open_at(&fork))
            }
            _ => ended?.1.open_at(&fork),
        }
    }

    /// Forgets that a thread has its id.
    pub(super) fn disown(&mut self, reader: &Reader) {
        let id = (reader.process, reader.tid);
        if self.threads.owners.get(&id) == Some(&reader.entry) {
            self.threads.owners.remove(&id);
        }
    }

    /// Keeps the newest events of a thread that has ended, for children that it has forked.
    pub(super) fn keep_history(&mut self, reader: Reader) {
        let of = (reader.process, reader.entry);
        if let Some(history) = reader.into_history() {
            self.threads.histories.push_back((of, history));
        }
        if self.threads.histories.len() > HISTORIES {
            self.threads.histories.pop_front();
        }
    }

    fn is_in_own_namespace(&self, process: &ProcessEntry) -> bool {
        [0, self.processes.namespace].contains(&process.pid_namespace.load(Relaxed))
    }

    /// Returns the recorder's ids of a process and of one of its threads. `None` if they run in
    /// another pid namespace, and this process does not find them.
    pub(super) fn ids_here(&self, process: u32, tid: u32) -> Option<(u32, u32)> {
        let here = self.processes.get(process)?.here?;
        if self.is_in_own_namespace(self.shared.process(process)?) {
            return Some((here, tid));
        }
        let is_task = |task: &u32| proc::inner_id(here, *task) == Some(tid);
        Some((here, proc::tasks(here).into_iter().find(is_task)?))
    }

    /// Returns the process of the session that began the followed process `pid`, or that executed
    /// the program which it now runs.
    fn parent_of(&self, pid: u32) -> Option<u32> {
        let newest = |pid: &u32| {
            self.processes.joined.iter().rposition(|own| own.pid == *pid).map(|index| index as u32)
        };
        self.processes.followed.get(&pid).and_then(|own| newest(&own.parent)).or_else(|| newest(&pid))
    }

    /// Returns the name of a process, or, if it has ended, the name with which one of its threads
    /// began.
    fn name_of(&self, process: u32, pid: u32) -> String {
        let own = |entry: &&ThreadEntry| {
            entry.state.load(Acquire) == ThreadState::Live as u32 && entry.process.load(Relaxed) == process
        };
        let at_start = || self.shared.thread_entries().find(own).map(name_at_start);
        let told = || self.processes.followed.get(&pid).map(|own| own.comm.clone());
        self.ids_here(process, pid)
            .map(comm)
            .filter(|comm| !comm.is_empty())
            .or_else(at_start)
            .or_else(told)
            .unwrap_or_default()
    }

    /// Begins to read a thread.
    fn begin(&mut self, entry: u32, process: u32, tid: u32) {
        // The thread id is used again: its former owner has ended, whatever /proc says now.
        let former = self.threads.owners.insert((process, tid), entry);
        let former = former.and_then(|former| self.readers.get_mut(former as usize)?.as_mut());
        if let Some(former) = former.filter(|former| (former.process, former.tid) == (process, tid)) {
            former.tid = 0;
        }
        let id = ThreadId(self.threads.next);
        self.threads.next += 1;
        self.totals.threads += 1;
        self.threads.count += 1;
        self.threads.begun += 1;
        // The present name, or if the thread has ended the name with which it began. Where context
        // switches are recorded, the last name follows at the end.
        let name = self.shared.thread(entry).map(name_at_start).unwrap_or_default();
        let ids = self.ids_here(process, tid);
        let comm = ids.map(comm).filter(|comm| !comm.is_empty()).unwrap_or(name);
        self.output.record(&Record::Thread(Thread {
            id,
            process,
            tid,
            comm,
            goroutine: None,
            started: None,
        }));
        if let Some((pid, task)) = ids {
            self.kernel.switches.iter_mut().for_each(|switches| switches.claim(id, task));
            let own = self.shared.process(process).map_or(pid, |process| process.pid.load(Relaxed));
            let events = self.kernel.events.iter_mut();
            events.for_each(|kernel| kernel.claim(id, task, (process, pid), (own, tid)));
        }
        let mut reader = Reader::new(id, entry, process, tid, self.sparse, self.rates.clone());
        let is_first = self.shared.process(process).is_some_and(|process| process.pid.load(Relaxed) == tid);
        // The control block of a program's first thread is not on that thread's stack.
        let block = self.shared.thread(entry).filter(|_| !is_first);
        reader.set_block(block.map_or(0, |entry| entry.block.load(Relaxed)));
        if self.threads.next <= MEASURED {
            reader.ask_own_length();
        }
        let own = self.processes.get(process).and_then(|process| process.stack).filter(|_| is_first);
        own.into_iter().for_each(|top| reader.set_first_stack(top));
        let keeps_history = !self.overwrite && self.threads.count <= MAX_HISTORIES;
        let mut reader = reader.until(self.until).keeping_history(keeps_history);
        if let Some((open, process)) = is_first.then(|| self.threads.copied.remove(&process)).flatten() {
            reader = reader.copied(open, process);
        }
        let threads = self.threads.count as usize;
        self.threads.switched_off.iter().for_each(|off| reader.switch_off(off, threads));
        let place = entry as usize;
        self.readers.resize_with(self.readers.len().max(place + 1), || None);
        self.readers[place] = Some(Box::new(reader));
    }
}

/// Returns the name of a thread, by the recorder's ids of its process and itself.
fn comm((pid, tid): (u32, u32)) -> String {
    let read = |path: String| fs::read(path).ok().map(|text| printable_bytes(text.trim_ascii_end()));
    read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default()
}

fn name_at_start(entry: &ThreadEntry) -> String {
    let bytes: Vec<u8> = entry.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    printable_bytes(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}
