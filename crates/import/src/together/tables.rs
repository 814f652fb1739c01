//! The processes, threads, modules and sites of all recordings, with common ids.

use super::clocks::Timeline;
use super::{Others, Recording};
use crate::writer::PROCESS;
use calltap_trace::{
    Error, Module, Process, Record, Site, SiteId, Thread, ThreadId, TraceReader, TraceWriter, TracerInfo,
};
use std::collections::HashMap;

/// Maps the ids of a recording to common ids.
#[derive(Default)]
pub(super) struct Ids {
    processes: Vec<u32>,
    /// `None` for threads that are left out.
    threads: Vec<Option<ThreadId>>,
    modules: Vec<u32>,
    sites: Vec<SiteId>,
}

impl Ids {
    pub(super) fn process(&self, id: u32) -> u32 {
        self.processes.get(id as usize).copied().unwrap_or(0)
    }

    pub(super) fn thread(&self, id: ThreadId) -> Option<ThreadId> {
        self.threads.get(id.0 as usize).copied().flatten()
    }

    pub(super) fn site(&self, id: SiteId) -> SiteId {
        self.sites.get(id.0 as usize).copied().unwrap_or_default()
    }
}

/// A thread of a recording, from one time of the output file up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) recording: usize,
    pub(super) thread: ThreadId,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// A thread of the output file.
pub(super) struct OutputThread {
    pub(super) thread: Thread,
    /// Time of its first event.
    first: u64,
    /// Time of its last event.
    last: u64,
    /// The part that has its events.
    pub(super) own: Part,
    /// The part of the same thread in a recording of the kernel.
    pub(super) beside: Option<Part>,
    /// Whether the events of `beside` are nested in its calls.
    pub(super) is_nested: bool,
}

/// All tables.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) tracers: Vec<TracerInfo>,
    processes: Vec<Process>,
    pub(super) threads: Vec<OutputThread>,
    modules: Vec<Module>,
    sites: Vec<Site>,
    /// Maps of ids, by recording.
    pub(super) ids: Vec<Ids>,
}

impl Tables {
    pub(super) fn of(recordings: &[Recording], others: Others, timeline: &Timeline) -> Tables {
        let mut tables = Tables::default();
        let mut known = TableIds::default();
        for recording in recordings {
            let ids = Ids { processes: tables.add_processes(&recording.reader), ..Ids::default() };
            tables.ids.push(ids);
            tables.add_functions(&recording.reader, timeline, &mut known);
        }
        let places = |imported| {
            let all = recordings.iter().enumerate();
            all.filter(move |(_, recording)| recording.is_imported() == imported).map(|(place, _)| place)
        };
        for place in places(false) {
            tables.add_threads(place, &recordings[place].reader, timeline);
        }
        let of_programs = tables.threads.len();
        for place in places(true) {
            tables.add_imported(place, &recordings[place].reader, others, timeline, of_programs);
        }
        tables
    }

    pub(super) fn write(&self, trace: &mut TraceWriter) -> Result<(), Error> {
        let processes = self.processes.iter().cloned().map(Record::Process);
        let threads = self.threads.iter().map(|row| Record::Thread(row.thread.clone()));
        let modules = self.modules.iter().cloned().map(Record::Module);
        let sites = Record::Sites { sites: self.sites.clone() };
        processes.chain(threads).chain(modules).chain([sites]).try_for_each(|record| trace.record(&record))
    }

    /// Returns the program's process that has this thread.
    pub(super) fn process_of(&self, tid: u32) -> Option<&Process> {
        let row = self.threads.iter().find(|row| row.thread.tid == tid)?;
        self.processes.get(row.thread.process as usize).filter(|process| process.pid != PROCESS.0)
    }

    /// Adds the processes of a recording and returns their ids. A process that is in several
    /// recordings is one.
    fn add_processes(&mut self, reader: &TraceReader) -> Vec<u32> {
        let mut ids: Vec<u32> = Vec::new();
        for process in &reader.meta().processes {
            let known = self.processes.iter().position(|known| known.pid == process.pid);
            let id = known.unwrap_or(self.processes.len()) as u32;
            if known.is_none() {
                // Parents come before their children; otherwise the link is left out.
                let parent = process.parent.and_then(|parent| ids.get(parent as usize).copied());
                self.processes.push(Process { id, parent, ..process.clone() });
            }
            ids.push(id);
        }
        ids
    }

    /// Adds the modules and sites of the newest recording.
    fn add_functions(&mut self, reader: &TraceReader, timeline: &Timeline, known: &mut TableIds) {
        let recording = self.ids.len().saturating_sub(1);
        let Some(ids) = self.ids.last_mut() else { return };
        let meta = reader.meta();
        for module in &meta.modules {
            let process = ids.process(module.process);
            let key = (process, module.path.clone(), module.build_id.clone(), module.bias, module.range);
            let id = *known.modules.entry(key).or_insert(self.modules.len() as u32);
            if id as usize == self.modules.len() {
                let unloaded_ticks = module.unloaded_ticks.map(|ticks| timeline.ticks(recording, ticks));
                self.modules.push(Module { id, process, unloaded_ticks, ..module.clone() });
            }
            ids.modules.push(id);
        }
        let tracers: Vec<(u32, u32)> = meta
            .session
            .iter()
            .flat_map(|session| &session.tracers)
            .map(|tracer| {
                let is_it = |known: &TracerInfo| (&known.name, known.kind) == (&tracer.name, tracer.kind);
                let new = self.tracers.iter().position(is_it).unwrap_or_else(|| {
                    self.tracers.push(TracerInfo { id: self.tracers.len() as u32, ..tracer.clone() });
                    self.tracers.len() - 1
                });
                (tracer.id, new as u32)
            })
            .collect();
        let has = |mask: u32, bit: u32| 1_u32.checked_shl(bit).is_some_and(|bit| mask & bit != 0);
        for site in &meta.sites {
            let module = ids.modules.get(site.module as usize).copied().unwrap_or(0);
            let mask = tracers.iter().filter(|(old, _)| has(site.tracers, *old));
            let mask = mask.fold(0, |mask, (_, new)| mask | 1_u32.checked_shl(*new).unwrap_or(0));
            // Captured values are described by the site, so that sites with values differ between
            // recordings.
            let key = (module, site.address, site.name.clone(), site.captured.as_ref().map(|_| recording));
            let id = *known.sites.entry(key).or_insert(self.sites.len() as u32);
            match self.sites.get_mut(id as usize) {
                Some(same) => same.tracers |= mask,
                None => self.sites.push(Site { id: SiteId(id), module, tracers: mask, ..site.clone() }),
            }
            ids.sites.push(SiteId(id));
        }
    }

    fn add_threads(&mut self, recording: usize, reader: &TraceReader, timeline: &Timeline) {
        for thread in &reader.meta().threads {
            let id = ThreadId(self.threads.len() as u32);
            let process = self.ids[recording].process(thread.process);
            let own = Part { recording, thread: thread.id, from: 0, until: u64::MAX };
            let span = reader.thread_span(own.thread).unwrap_or((0, 0));
            let [first, last] = [span.0, span.1].map(|at| timeline.ticks(recording, at));
            let thread = Thread { id, process, ..thread.clone() };
            self.threads.push(OutputThread { thread, first, last, own, beside: None, is_nested: false });
            self.ids[recording].threads.push(Some(id));
        }
    }

    /// Adds the threads of a recording of the kernel. A thread that calltap has recorded too
    /// becomes the part beside that one.
    fn add_imported(
        &mut self,
        recording: usize,
        reader: &TraceReader,
        others: Others,
        timeline: &Timeline,
        of_programs: usize,
    ) {
        let (first, last) = match others {
            Others::Kept => (0, u64::MAX),
            Others::LeftOut => self.span(of_programs),
        };
        for thread in &reader.meta().threads {
            let own = Part { recording, thread: thread.id, from: 0, until: u64::MAX };
            let same = self.same(thread.tid, of_programs);
            let is_nested = !same.is_empty()
                && same.iter().all(|row| timeline.are_in_order(self.threads[*row].own.recording, recording));
            let mut process = self.ids[recording].process(thread.process);
            for (at, row) in same.iter().enumerate() {
                // Later threads reuse an id.
                let from = if at == 0 { 0 } else { self.threads[*row].first };
                let until = same.get(at + 1).map_or(u64::MAX, |next| self.threads[*next].first);
                let row = &mut self.threads[*row];
                row.beside =
                    Some(Part { from: from.max(first), until: until.min(last.saturating_add(1)), ..own });
                row.is_nested = is_nested;
                process = row.thread.process;
            }
            let id = match same.first() {
                Some(row) if is_nested => Some(self.threads[*row].thread.id),
                // The losses of a processor, which belong to no thread, are kept.
                None if others == Others::LeftOut && thread.tid != 0 => None,
                _ => {
                    let id = ThreadId(self.threads.len() as u32);
                    let thread = Thread { id, process, ..thread.clone() };
                    self.threads.push(OutputThread {
                        thread,
                        first: 0,
                        last: 0,
                        own,
                        beside: None,
                        is_nested: false,
                    });
                    Some(id)
                }
            };
            self.ids[recording].threads.push(id);
        }
    }

    /// Returns the times of the first call and of the last event of all programs.
    fn span(&self, of_programs: usize) -> (u64, u64) {
        let rows = || self.threads[..of_programs].iter().filter(|row| row.first > 0);
        let first = rows().map(|row| row.first).min().unwrap_or(0);
        (first, rows().map(|row| row.last).max().unwrap_or(u64::MAX))
    }

    /// Returns the threads of programs with an id, oldest first, if no other recording of the
    /// kernel is beside them.
    fn same(&self, tid: u32, of_programs: usize) -> Vec<usize> {
        let is_same = |row: &usize| {
            let row = &self.threads[*row];
            tid != 0 && row.thread.tid == tid && row.beside.is_none()
        };
        let mut same: Vec<usize> = (0..of_programs).filter(is_same).collect();
        same.sort_by_key(|row| self.threads[*row].first);
        same
    }
}

/// Identity of a module across recordings: process, file, build-id, bias and range.
type SameModule = (u32, String, Option<String>, u64, (u64, u64));

/// Ids of the elements in the tables.
#[derive(Default)]
struct TableIds {
    modules: HashMap<SameModule, u32>,
    sites: HashMap<(u32, u64, String, Option<usize>), u32>,
}
