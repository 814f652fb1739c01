//! From the events of threads to the records of instances: who wants what, calls and their returns, triggers.

use crate::instance::{Instance, wants};
use crate::options::Flag;
use crate::ring::{Record, What};
use crate::symbols::Symbols;
use calltap_control::TRACE;
use calltap_names::GlobSet;
use calltap_session::Listed;
use calltap_trace::{Event, EventKind, ThreadId, TracerKind};
use std::collections::HashMap;

const STACK_TRACE: Flag = Flag::named("func_stack_trace");

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Frame {
    site: u32,
    start_ns: u64,
    /// The instances that have its entry, by place.
    recorded: u32,
    /// In these, everything beneath it is wanted, or nothing is.
    begins: u32,
    hides: u32,
}

/// A thread.
#[derive(Default, Debug)]
struct Task {
    tid: u32,
    frames: Vec<Frame>,
    /// By place of the instance: recorded calls that are open, those that begin what is wanted, those that hide it.
    depth: Vec<u16>,
    begun: Vec<u32>,
    hidden: Vec<u32>,
}

/// What instances want of a site, by their places.
#[derive(Clone, Copy, Default, Debug)]
struct Wanted {
    function: u32,
    graph: u32,
    triggers: u32,
    begins: u32,
    hides: u32,
}

/// An instance's selection, ready to be asked.
struct Selection {
    bit: u32,
    kind: Option<TracerKind>,
    sets: Option<(GlobSet, GlobSet)>,
}

/// What somebody wrote to an instance's `trace_marker`.
#[derive(Debug)]
struct Mark {
    instance: u32,
    record: Record,
}

/// Sorts events out.
#[derive(Default, Debug)]
pub struct Ingest {
    /// Events since the last time, as they came.
    pending: Vec<(u64, ThreadId, Event)>,
    marks: Vec<Mark>,
    tasks: HashMap<ThreadId, Task>,
    /// By site.
    wanted: Vec<Wanted>,
    /// In these instances calls are only wanted beneath certain functions.
    beneath: u32,
}

impl Ingest {
    /// A thread was found.
    pub fn add_thread(&mut self, thread: ThreadId, tid: u32) {
        self.tasks.insert(thread, Task { tid, ..Task::default() });
    }

    /// A thread has no more events.
    pub fn end_thread(&mut self, thread: ThreadId) {
        // (Its last ones may still be pending; the task goes when they are through.)
        if self.pending.iter().all(|(_, of, _)| *of != thread) {
            self.tasks.remove(&thread);
        }
    }

    /// Events of one thread.
    pub fn add(&mut self, thread: ThreadId, events: &[Event]) {
        self.pending.extend(events.iter().map(|event| (event.ticks, thread, *event)));
    }

    /// Somebody wrote to the `trace_marker` of an instance.
    pub fn mark(&mut self, instance: u32, record: Record) {
        self.marks.push(Mark { instance, record });
    }

    /// An instance is taken away: those behind it move up.
    pub fn forget(&mut self, place: usize) {
        let shut = |mask: &mut u32| *mask = *mask & ((1 << place) - 1) | *mask >> 1 & !((1u32 << place) - 1);
        for task in self.tasks.values_mut() {
            for frame in &mut task.frames {
                [&mut frame.recorded, &mut frame.begins, &mut frame.hides].into_iter().for_each(shut);
            }
            if place < task.depth.len() {
                task.depth.remove(place);
                task.begun.remove(place);
                task.hidden.remove(place);
            }
        }
    }

    /// What the instances want has changed, or there are more sites.
    pub fn choose(&mut self, instances: &[Instance], symbols: &Symbols) {
        let selections: Vec<Selection> = instances
            .iter()
            .enumerate()
            .map(|(place, instance)| Selection {
                bit: 1 << place,
                kind: instance.tracer(),
                sets: instance.sets(TRACE),
            })
            .collect();
        self.wanted.clear();
        self.wanted.resize(symbols.site_count(), Wanted::default());
        self.beneath = 0;
        for (place, instance) in instances.iter().enumerate() {
            if !instance.graph[0].is_empty() {
                self.beneath |= 1 << place;
            }
        }
        for (n, traced) in symbols.sites() {
            let stranger;
            let function = match symbols.function_at(traced.address) {
                Some(function) => function,
                None => {
                    stranger = unknown(&traced.name, traced.address);
                    &stranger
                }
            };
            let wanted = &mut self.wanted[n];
            for (selection, instance) in selections.iter().zip(instances) {
                let bit = selection.bit;
                if selection.sets.as_ref().is_some_and(|sets| wants(sets, function)) {
                    match selection.kind {
                        Some(TracerKind::FunctionGraph) => wanted.graph |= bit,
                        Some(TracerKind::Function) => wanted.function |= bit,
                        Some(TracerKind::Profile) | None => {}
                    }
                }
                if instance.triggers.all().iter().any(|trigger| trigger.function == function.function) {
                    wanted.triggers |= bit;
                }
                if instance.graph[0].contains(&function.function) {
                    wanted.begins |= bit;
                }
                if instance.graph[1].contains(&function.function) {
                    wanted.hides |= bit;
                }
            }
        }
    }

    /// Everything has come that happened until now: it goes to the instances in the order of time.
    pub fn settle(&mut self, instances: &mut [Instance], symbols: &Symbols, to_ns: &dyn Fn(u64) -> u64) {
        let mut pending = std::mem::take(&mut self.pending);
        // (Stable: a thread's events keep their order.)
        pending.sort_by_key(|(ticks, ..)| *ticks);
        let mut marks = std::mem::take(&mut self.marks).into_iter().peekable();
        let write = |mark: Mark, instances: &mut [Instance]| {
            let own = instances.iter_mut().find(|instance| instance.id == mark.instance);
            own.into_iter().for_each(|instance| instance.record(mark.record.clone()));
        };
        for (ticks, thread, event) in pending.drain(..) {
            let ns = to_ns(ticks);
            while let Some(mark) = marks.next_if(|mark| mark.record.ns < ns) {
                write(mark, instances);
            }
            self.take(thread, &event, ns, instances, symbols);
        }
        marks.for_each(|mark| write(mark, instances));
        self.pending = pending;
    }

    fn take(
        &mut self,
        thread: ThreadId,
        event: &Event,
        ns: u64,
        instances: &mut [Instance],
        symbols: &Symbols,
    ) {
        let Some(task) = self.tasks.get_mut(&thread) else { return };
        task.depth.resize(instances.len().max(task.depth.len()), 0);
        task.begun.resize(task.depth.len(), 0);
        task.hidden.resize(task.depth.len(), 0);
        let site = event.site.0;
        let wanted = self.wanted.get(site as usize).copied().unwrap_or_default();
        let is_listed = |instance: &Instance| {
            let [only, never] = &instance.pids;
            (only.is_empty() || only.contains(&task.tid)) && !never.contains(&task.tid)
        };
        let (parent, graph) = match event.kind {
            EventKind::Entry | EventKind::TailEntry => (None, true),
            EventKind::EntryFrom { parent } | EventKind::TailEntryFrom { parent } => (Some(parent), true),
            EventKind::Call { parent } => (Some(parent), false),
            EventKind::Exit { pops } => {
                for _ in 0..pops {
                    let Some(frame) = task.frames.pop() else { break };
                    for (place, instance) in instances.iter_mut().enumerate() {
                        let bit = 1 << place;
                        if frame.recorded & bit != 0 {
                            task.depth[place] = task.depth[place].saturating_sub(1);
                            let (depth, start_ns) = (task.depth[place], frame.start_ns);
                            let what = What::Exit { site: frame.site, depth, start_ns };
                            instance.record(Record { ns, tid: task.tid, what });
                        }
                        task.begun[place] -= u32::from(frame.begins & bit != 0);
                        task.hidden[place] -= u32::from(frame.hides & bit != 0);
                    }
                }
                return;
            }
            EventKind::Lost { entries, exits } => {
                instances
                    .iter_mut()
                    .for_each(|instance| instance.ring.lose(u64::from(entries) + u64::from(exits)));
                return;
            }
        };
        let tid = task.tid;
        let mut frame = Frame { site, start_ns: ns, recorded: 0, begins: 0, hides: 0 };
        for (place, instance) in instances.iter_mut().enumerate() {
            let bit = 1u32 << place;
            if wanted.triggers & bit != 0
                && let Some(traced) = symbols.site(site)
            {
                let what = What::Function { site, parent: parent.unwrap_or(0) };
                instance.trigger(&traced.name, &Record { ns, tid, what }, parent.unwrap_or(0), symbols);
            }
            if !is_listed(instance) {
                continue;
            }
            if wanted.function & bit != 0
                && let Some(parent) = parent
            {
                instance.record(Record { ns, tid, what: What::Function { site, parent } });
                if instance.options.has(STACK_TRACE) {
                    instance.record(Record { ns, tid, what: What::Stack { site, parent } });
                }
            }
            if !graph {
                continue;
            }
            // (Counted whether recorded or not: a return undoes it.)
            if wanted.begins & bit != 0 {
                frame.begins |= bit;
                task.begun[place] += 1;
            }
            if wanted.hides & bit != 0 {
                frame.hides |= bit;
                task.hidden[place] += 1;
            }
            let is_beneath = self.beneath & bit == 0 || task.begun[place] > 0;
            let depth = task.depth[place];
            let deep = instance.max_depth != 0 && u32::from(depth) >= instance.max_depth;
            if wanted.graph & bit != 0 && is_beneath && task.hidden[place] == 0 && !deep && instance.is_on {
                frame.recorded |= bit;
                task.depth[place] = depth.saturating_add(1);
                instance.record(Record { ns, tid, what: What::Enter { site, depth } });
            }
        }
        if graph {
            task.frames.push(frame);
        }
    }
}

/// A function of a library that was not looked at yet.
fn unknown(name: &str, address: u64) -> Listed {
    Listed { function: name.to_owned(), address, ..Listed::default() }
}
