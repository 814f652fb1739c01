//! Turns the events of threads into the records of instances.
//!
//! Events of several threads are collected, sorted by time, and followed as calls and returns. Each
//! call is offered to the instances that trace its function: to the function and graph tracers, to
//! triggers, and to the stack tracer.

use crate::clocks::When;
use crate::control::TRACE;
use crate::instance::{Instance, STACK_TRACE, wants};
use crate::ring::Payload;
use crate::stack::{Call, levels};
use crate::stack_tracer::{StackTracer, slot};
use crate::symbols::Symbols;
use calltap_names::GlobSet;
use calltap_selection::Listed;
use calltap_trace::{Batch, Calls, Event, EventKind, ThreadId, TracerKind};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The record of an open call. Instances are bits, by their index.
#[derive(Clone, Copy, Default, Debug)]
struct Frame {
    call: Call,
    start_ns: u64,
    /// The instances that have recorded the entry.
    recorded: u32,
    /// The instances of which this call is in `set_graph_function`, and in `set_graph_notrace`.
    begins: u32,
    hides: u32,
}

/// The state of a thread.
#[derive(Default, Debug)]
struct Task {
    tid: u32,
    calls: Calls<Frame>,
    /// Counts by the index of the instance.
    counts: Vec<Counts>,
    /// The mapping of the thread's stack; while it is not known, `within` is an address in it, or
    /// 0.
    stack: Option<Range<u64>>,
    within: u64,
}

/// The open calls of an instance: depth of the recorded ones, number of those in
/// `set_graph_function`, number of those in `set_graph_notrace`.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    depth: u16,
    begun: u32,
    hidden: u32,
}

/// The instances with an interest in a site, as bits by their index.
#[derive(Clone, Copy, Default, Debug)]
struct Interest {
    function: u32,
    graph: u32,
    triggers: u32,
    begins: u32,
    hides: u32,
    /// Whether the stack tracer looks at the function's calls.
    measured: bool,
}

impl Interest {
    /// Returns the instances with any interest.
    fn any(&self) -> u32 {
        self.function | self.graph | self.triggers | self.begins | self.hides
    }
}

/// An instance's selection, prepared for lookups.
struct InstanceFilter<'a> {
    /// Linker symbols of the functions with triggers.
    triggers: HashSet<&'a str>,
    bit: u32,
    kind: Option<TracerKind>,
    sets: Option<(GlobSet, GlobSet)>,
}

/// A write to an instance's `trace_marker`.
#[derive(Debug)]
struct Mark {
    instance: u32,
    ns: u64,
    tid: u32,
    payload: Payload,
}

/// A pending event of a thread.
#[derive(Clone, Copy, Debug)]
struct PendingEvent {
    thread: ThreadId,
    event: Event,
    /// Address of the slot of the return address, 0 if it was not read.
    slot: u64,
}

/// The events that wait, and the state of all threads.
#[derive(Default, Debug)]
pub(crate) struct Ingest {
    /// Events since the last call of `settle`, in the order of arrival.
    pending: Vec<PendingEvent>,
    marks: Vec<Mark>,
    tasks: HashMap<ThreadId, Task>,
    ended: Vec<ThreadId>,
    /// The interests, by site.
    wanted: Vec<Interest>,
    /// The instances with a `set_graph_function`: they record only calls beneath its functions.
    beneath: u32,
}

impl Ingest {
    /// Adds a thread.
    pub(crate) fn add_thread(&mut self, thread: ThreadId, tid: u32) {
        self.tasks.insert(thread, Task { tid, ..Task::default() });
    }

    /// Marks a thread as ended: it has no events except the pending ones.
    pub(crate) fn end_thread(&mut self, thread: ThreadId) {
        self.ended.push(thread);
    }

    /// Removes the ended threads whose events are all settled, and returns them.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        let ended = std::mem::take(&mut self.ended);
        ended.into_iter().filter_map(|thread| self.tasks.remove(&thread)).map(|task| task.tid).collect()
    }

    /// Returns the threads that have not ended.
    pub(crate) fn threads(&self) -> Vec<u32> {
        self.tasks.values().map(|task| task.tid).collect()
    }

    /// Adds events of one thread.
    pub(crate) fn add(&mut self, batch: &Batch) {
        let (before, thread) = (self.pending.len(), batch.thread);
        let slots = (0..).map(|n| slot(batch.values.of(n)));
        let events = batch.events.iter().zip(slots);
        self.pending.extend(events.map(|(event, slot)| PendingEvent { thread, event: *event, slot }));
        if !batch.values.is_empty()
            && let Some(task) = self.tasks.get_mut(&thread).filter(|task| task.stack.is_none())
        {
            let first = self.pending[before..].iter().find(|waiting| waiting.slot != 0);
            task.within = first.map_or(task.within, |waiting| waiting.slot);
        }
    }

    /// Returns the threads whose stack mappings are sought, each with an address in its stack.
    pub(crate) fn sought(&self) -> Vec<(ThreadId, u32, u64)> {
        let tasks = self.tasks.iter().filter(|(_, task)| task.within != 0);
        tasks.map(|(thread, task)| (*thread, task.tid, task.within)).collect()
    }

    /// Sets the mapping of a thread's stack; `None` if it is not known.
    pub(crate) fn set_stack(&mut self, thread: ThreadId, stack: Option<Range<u64>>) {
        if let Some(task) = self.tasks.get_mut(&thread) {
            (task.stack, task.within) = (stack, 0);
        }
    }

    /// Adds a write to the `trace_marker` of an instance.
    pub(crate) fn mark(&mut self, instance: u32, ns: u64, tid: u32, payload: Payload) {
        self.marks.push(Mark { instance, ns, tid, payload });
    }

    /// Removes an instance; the indexes of those behind it decrease by one.
    pub(crate) fn forget(&mut self, place: usize) {
        let shut = |mask: &mut u32| *mask = *mask & ((1 << place) - 1) | *mask >> 1 & !((1u32 << place) - 1);
        for task in self.tasks.values_mut() {
            for frame in task.calls.open_mut().iter_mut().map(|call| &mut call.data) {
                [&mut frame.recorded, &mut frame.begins, &mut frame.hides].into_iter().for_each(shut);
            }
            if place < task.counts.len() {
                task.counts.remove(place);
            }
        }
    }

    /// Computes the interests in all sites anew, after a change of the instances' selections or of
    /// the sites.
    pub(crate) fn choose(&mut self, instances: &[Instance], stack_tracer: &StackTracer, symbols: &Symbols) {
        let measured = stack_tracer.sets();
        let selections: Vec<InstanceFilter<'_>> = instances
            .iter()
            .enumerate()
            .map(|(place, instance)| InstanceFilter {
                triggers: instance.triggers.all().iter().map(|trigger| trigger.function.as_str()).collect(),
                bit: 1 << place,
                kind: instance.tracer(),
                sets: instance.sets(TRACE),
            })
            .collect();
        self.wanted.clear();
        self.wanted.resize(symbols.site_count(), Interest::default());
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
            wanted.measured = measured.as_ref().is_some_and(|sets| wants(sets, function));
            for (selection, instance) in selections.iter().zip(instances) {
                let bit = selection.bit;
                if selection.sets.as_ref().is_some_and(|sets| wants(sets, function)) {
                    match selection.kind {
                        Some(TracerKind::FunctionGraph) => wanted.graph |= bit,
                        Some(TracerKind::Function) => wanted.function |= bit,
                        Some(TracerKind::Profile) | None => {}
                    }
                }
                if selection.triggers.contains(function.function.as_str()) {
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

    /// Passes all collected events to the instances, in the order of time.
    pub(crate) fn settle(
        &mut self,
        instances: &mut [Instance],
        stack_tracer: &mut StackTracer,
        symbols: &Symbols,
        to_ns: &dyn Fn(u64) -> u64,
    ) {
        let mut pending = std::mem::take(&mut self.pending);
        // The sort is stable: events of a thread keep their order.
        pending.sort_by_key(|waiting| waiting.event.ticks);
        let mut marks = std::mem::take(&mut self.marks).into_iter().peekable();
        let write = |mark: Mark, instances: &mut [Instance]| {
            if let Some(own) = instances.iter_mut().find(|instance| instance.id == mark.instance) {
                own.record(When { ns: mark.ns, ticks: None }, mark.tid, mark.payload);
            }
        };
        for waiting in pending.drain(..) {
            let ticks = waiting.event.ticks;
            let ns = to_ns(ticks);
            while let Some(mark) = marks.next_if(|mark| mark.ns < ns) {
                write(mark, instances);
            }
            self.dispatch(waiting, When { ns, ticks: Some(ticks) }, instances, stack_tracer, symbols);
        }
        marks.for_each(|mark| write(mark, instances));
        self.pending = pending;
    }

    fn dispatch(
        &mut self,
        PendingEvent { thread, event, slot }: PendingEvent,
        when: When,
        instances: &mut [Instance],
        stack_tracer: &mut StackTracer,
        symbols: &Symbols,
    ) {
        let Some(task) = self.tasks.get_mut(&thread) else { return };
        let site = event.site.0;
        let (parent, graph, tail) = match event.kind {
            EventKind::Entry => (None, true, false),
            EventKind::TailEntry => (None, true, true),
            EventKind::EntryFrom { parent } => (Some(parent), true, false),
            EventKind::TailEntryFrom { parent } => (Some(parent), true, true),
            EventKind::Call { parent } => (Some(parent), false, false),
            EventKind::Resumed => {
                let call = Call { site, parent: 0, tail: false, slot };
                let frame = Frame { call, start_ns: when.ns, ..Frame::default() };
                return task.calls.resume(event.site, frame);
            }
            EventKind::Exit { .. }
            | EventKind::Left { .. }
            | EventKind::Outside { .. }
            | EventKind::SwitchedOff
            | EventKind::ThreadEnded => {
                return task.end_calls(&event, when, instances);
            }
            EventKind::Lost { entries, exits } => {
                let lost = u64::from(entries) + u64::from(exits);
                task.end_calls(&event, when, instances);
                return instances.iter_mut().for_each(|instance| instance.ring.lose(lost));
            }
        };
        let wanted = self.wanted.get(site as usize).copied().unwrap_or_default();
        let call = Call { site, parent: parent.unwrap_or(0), tail, slot };
        if wanted.measured
            && let Some(stack) = &task.stack
        {
            stack_tracer.meet(stack, call, task.open());
        }
        let mut frame = Frame { call, start_ns: when.ns, ..Frame::default() };
        for place in places(wanted.any()) {
            let Some(instance) = instances.get_mut(place) else { break };
            let bit = 1u32 << place;
            if wanted.triggers & bit != 0 {
                let stack = || levels(call, task.open(), symbols);
                instance.trigger(when, task.tid, site, symbols, &stack);
            }
            if !instance.lists(task.tid) {
                continue;
            }
            if wanted.function & bit != 0
                && let Some(parent) = parent
            {
                instance.record(when, task.tid, Payload::Function { site, parent });
                if instance.options.has(STACK_TRACE) {
                    instance.record(when, task.tid, Payload::Stack(levels(call, task.open(), symbols)));
                }
            }
            if !graph {
                continue;
            }
            let anywhere = self.beneath & bit == 0;
            task.enter_graph(instance, (place, when), wanted, anywhere, &mut frame);
        }
        if graph {
            task.calls.enter(event.site, tail, frame);
        }
    }
}

impl Task {
    /// Returns the open calls, innermost first.
    fn open(&self) -> impl Iterator<Item = Call> {
        self.calls.open().iter().rev().map(|call| call.data.call)
    }

    fn counts(&mut self, place: usize) -> &mut Counts {
        if self.counts.len() <= place {
            self.counts.resize(place + 1, Counts::default());
        }
        &mut self.counts[place]
    }

    /// Enters a call for the graph tracer of an instance. Calls are counted even while they are not
    /// recorded, as their returns are counted as well. `anywhere`: there is no
    /// `set_graph_function`.
    fn enter_graph(
        &mut self,
        instance: &mut Instance,
        (place, when): (usize, When),
        wanted: Interest,
        anywhere: bool,
        frame: &mut Frame,
    ) {
        let (bit, tid) = (1u32 << place, self.tid);
        let counts = self.counts(place);
        if wanted.begins & bit != 0 {
            frame.begins |= bit;
            counts.begun += 1;
        }
        if wanted.hides & bit != 0 {
            frame.hides |= bit;
            counts.hidden += 1;
        }
        let is_beneath = anywhere || counts.begun > 0;
        let depth = counts.depth;
        let deep = instance.max_depth != 0 && u32::from(depth) >= instance.max_depth;
        if wanted.graph & bit != 0 && is_beneath && counts.hidden == 0 && !deep && instance.is_on {
            frame.recorded |= bit;
            counts.depth = depth.saturating_add(1);
            instance.record(when, tid, Payload::Enter { site: frame.call.site, depth });
        }
    }

    /// Ends the calls that an event ends. A cut call has no record, as its duration is not known.
    fn end_calls(&mut self, event: &Event, when: When, instances: &mut [Instance]) {
        let Some(closing) = self.calls.end(event) else { return };
        while let Some((call, ending)) = self.calls.close(&closing) {
            let frame = call.data;
            for place in places(frame.recorded | frame.begins | frame.hides) {
                let Some(instance) = instances.get_mut(place) else { break };
                let (bit, tid) = (1 << place, self.tid);
                let counts = self.counts(place);
                counts.begun -= u32::from(frame.begins & bit != 0);
                counts.hidden -= u32::from(frame.hides & bit != 0);
                if frame.recorded & bit != 0 {
                    counts.depth = counts.depth.saturating_sub(1);
                    let depth = counts.depth;
                    if !ending.is_cut() {
                        let ns = when.ns.saturating_sub(frame.start_ns);
                        instance.record(when, tid, Payload::Exit { site: frame.call.site, depth, ns });
                    }
                }
            }
        }
    }
}

/// Returns the indexes of the bits that are set.
fn places(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (place < u32::BITS).then_some(place as usize)
    })
}

/// Returns a function of a library that is not in the list of functions yet.
fn unknown(name: &str, address: u64) -> Listed {
    Listed { function: name.to_owned(), address, ..Listed::default() }
}
