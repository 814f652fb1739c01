//! Questions about functions, answered from events as they arrive, live from a process or from a
//! trace file.
//!
//! A [`Listener`] takes records and batches of events, pairs the events into calls, and passes the
//! calls of the functions asked about to a [`Question`], which keeps sums. Events are not kept:
//! memory grows with the functions, the open calls and the rows of the answer.

mod buckets;
mod count;
mod count_by;
mod cut;
mod elapsed;
mod entries_only;
mod futures;
mod histogram;
mod known;
mod latency;
mod lines;
mod numbers;
mod span;
mod stacks;

pub use buckets::Buckets;
pub use count::Count;
pub use count_by::CountBy;
pub use futures::Futures;
pub(crate) use futures::seen as seen_future;
pub use histogram::{Histogram, Widths};
pub use known::{Lookup, QueryContext, is_place};
pub use latency::{By, Latency};
pub use lines::{Form, Lines};
pub use span::{Side, Spans};
pub use stacks::Stacks;

use crate::off::Off;
use crate::sources::drive::{Progress, feed_batch, stack_of};
use crate::sources::source::{Damage, Source, next_readable};
use crate::tree::{Call, Ending, Enter, Stack, Totals, Visitor};
use crate::values::FormattedValue;
use calltap_trace::{Batch, Callers, Record, SiteId, Switch, ThreadId};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// A function's number, in the order in which functions were first described; the same in all
/// processes.
pub type Function = u32;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The called function.
    pub function: Function,
    /// Return address in the caller; 0 when unknown.
    parent: u64,
    wanted: bool,
}

/// A call that ended or was cut, of a function that is asked about.
pub struct EndedCall<'a> {
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The called function.
    pub function: Function,
    /// Times, depth and ending of the call.
    pub call: &'a Call,
    /// The calls on the stack below it, outermost first.
    pub below: &'a [Frame],
    /// Values captured at its entry.
    pub arguments: &'a [FormattedValue],
    /// Values captured at its return.
    pub results: &'a [FormattedValue],
    /// Callers of the call, if they are unwound.
    pub callers: Option<&'a Callers>,
    /// Whether no other call of the function is open in the thread. Sums of times count outermost
    /// calls only, so that recursion counts once.
    pub outermost: bool,
    parent: u64,
}

/// The beginning of a call of a function that is asked about.
pub struct Entered<'a> {
    /// The calling thread.
    pub thread: ThreadId,
    /// The called function.
    pub function: Function,
    /// Time of the entry, ticks.
    pub ticks: u64,
    /// Values captured at the entry.
    pub arguments: &'a [FormattedValue],
}

/// The note that precedes an answer where enclosing traced functions stand in for callers.
pub(super) const AROUND: &str = "# callers are the traced functions around a call: functions between them that were not traced are left out\n";

impl EndedCall<'_> {
    /// Whether the function that made the call is known, or callers were unwound.
    fn has_caller(&self) -> bool {
        self.parent != 0 || self.callers.is_some()
    }
}

/// A question, and its answer so far.
pub trait Question: Send {
    /// Called when a function that is asked about is entered.
    fn enter(&mut self, _function: Function) {}

    /// Called with the details of an entry of a function that is asked about.
    fn entered(&mut self, _known: &mut QueryContext, _entered: &Entered<'_>) {}

    /// Whether the answer is about this value of a call; a trace may have others.
    fn is_about(&self, _value: &str) -> bool {
        true
    }

    /// Called when calls or returns of any function were lost between two times, ticks.
    fn lost(&mut self, _from: u64, _to: u64) {}

    /// Called when a call ends or is cut ([`Ending::is_cut`]).
    fn ended(&mut self, _known: &mut QueryContext, _ended: &EndedCall<'_>) {}

    /// Called with a call of which only the entry is recorded: its duration is 0. Returns whether
    /// the answer counts it.
    fn marked(&mut self, _known: &mut QueryContext, _call: &EndedCall<'_>) -> bool {
        false
    }

    /// Called once, after the last event.
    fn finish(&mut self, _known: &QueryContext) {}

    /// Formats the answer as text.
    fn text(&self, known: &QueryContext) -> String;

    /// Returns the answer as the members of a JSON object.
    fn json(&self, known: &QueryContext) -> Value;
}

/// The open calls of a thread.
#[derive(Default)]
struct ThreadCalls {
    stack: Stack,
    frames: Vec<Frame>,
    values: Values,
    /// Events that wait for the context switches of their time, oldest first.
    waiting: VecDeque<Batch>,
}

impl ThreadCalls {
    fn new(stack: Stack) -> ThreadCalls {
        ThreadCalls { stack, ..ThreadCalls::default() }
    }
}

/// Maximum number of waiting batches of a thread; of older ones context switches count as unknown.
const WAITING: usize = 64;

/// Values captured with calls.
#[derive(Default)]
struct Values {
    /// Arguments or results of the next event.
    next: Vec<FormattedValue>,
    /// Callers of the next event.
    callers: Option<Callers>,
    /// Arguments and callers of open calls, by their depth.
    open: Vec<(usize, Vec<FormattedValue>, Option<Callers>)>,
}

/// Number of open calls of each function in the thread whose events are being processed; all 0
/// between threads.
#[derive(Default)]
struct OpenCalls(Vec<u32>);

impl OpenCalls {
    fn of(&mut self, function: Function) -> &mut u32 {
        let place = function as usize;
        if place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        &mut self.0[place]
    }

    fn enter_thread(&mut self, frames: &[Frame]) {
        wanted(frames).for_each(|function| *self.of(function) += 1);
    }

    fn leave_thread(&mut self, frames: &[Frame]) {
        wanted(frames).for_each(|function| *self.of(function) = 0);
    }
}

/// Iterates over the functions of `frames` that are asked about.
fn wanted(frames: &[Frame]) -> impl Iterator<Item = Function> {
    frames.iter().filter(|frame| frame.wanted).map(|frame| frame.function)
}

/// Receives the calls of a batch, and forwards those of functions asked about to the question.
struct Forwarder<'a> {
    known: &'a mut QueryContext,
    question: &'a mut dyn Question,
    frames: &'a mut Vec<Frame>,
    values: &'a mut Values,
    open: &'a mut OpenCalls,
    /// Ticks of the thread's previous event.
    before: u64,
}

impl Forwarder<'_> {
    /// Forwards a call of which only the entry is recorded. Returns whether the answer counts it.
    fn mark_counts(
        &mut self,
        thread: ThreadId,
        function: Function,
        enter: &Enter,
        arguments: &[FormattedValue],
    ) -> bool {
        let callers = self.values.callers.take();
        let call = Call {
            site: enter.site,
            caller: None,
            start: enter.ticks,
            end: enter.ticks,
            total: 0,
            self_ticks: 0,
            depth: enter.depth,
            ending: Ending::Outside,
            off: Off::default(),
            self_off: Off::default(),
        };
        let marked = EndedCall {
            thread,
            function,
            call: &call,
            below: self.frames,
            arguments,
            results: &[],
            callers: callers.as_ref(),
            outermost: true,
            parent: enter.parent,
        };
        self.question.marked(self.known, &marked)
    }
}

impl Visitor for Forwarder<'_> {
    fn values(&mut self, thread: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.values.next = self.known.values(thread, site, returns, bytes);
        self.values.next.retain(|value| self.question.is_about(&value.name));
        self.values.callers =
            self.known.captured_of(site).filter(|_| !returns).and_then(|captured| captured.callers(bytes));
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.before = enter.ticks;
        let (function, wanted) = self.known.function_of(enter.site);
        let wanted = wanted && !enter.is_rest;
        if wanted {
            let arguments = &self.values.next;
            let entered = Entered { thread, function, ticks: enter.ticks, arguments };
            self.question.entered(self.known, &entered);
        }
        let unwinds = self.known.captured_of(enter.site).is_some_and(|captured| captured.unwinds());
        let callers = self.values.callers.take().or_else(|| unwinds.then(Callers::default));
        if !self.values.next.is_empty() || callers.is_some() {
            self.values.open.push((self.frames.len(), std::mem::take(&mut self.values.next), callers));
        }
        self.frames.push(Frame { function, parent: enter.parent, wanted });
        if wanted {
            *self.open.of(function) += 1;
            self.question.enter(function);
        }
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.before = self.before.max(call.end);
        let frame = self.frames.pop();
        let arguments = self.values.open.pop_if(|(depth, ..)| *depth >= self.frames.len());
        let mut results = match call.ending {
            Ending::Returned => std::mem::take(&mut self.values.next),
            _ => Vec::new(),
        };
        let Some(Frame { function, parent, wanted: true }) = frame else { return };
        if results.is_empty() && !call.ending.is_cut() {
            results = self.known.unknown_results(call.site);
            results.retain(|result| self.question.is_about(&result.name));
        }
        let (_, arguments, callers) = arguments.unwrap_or_default();
        let open = self.open.of(function);
        *open = open.saturating_sub(1);
        let ended = EndedCall {
            thread,
            function,
            call,
            below: self.frames,
            arguments: &arguments,
            results: &results,
            callers: callers.as_ref(),
            outermost: *open == 0,
            parent,
        };
        self.question.ended(self.known, &ended);
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.before = enter.ticks;
        let (function, wanted) = self.known.function_of(enter.site);
        let arguments = std::mem::take(&mut self.values.next);
        if wanted {
            let entered = Entered { thread, function, ticks: enter.ticks, arguments: &arguments };
            self.question.entered(self.known, &entered);
            self.question.enter(function);
            if !self.mark_counts(thread, function, enter, &arguments) {
                self.known.entries_only.add(function);
            }
        }
    }

    fn lost(&mut self, _: ThreadId, ticks: u64, _: u32, _: u32) {
        self.question.lost(self.before, ticks);
        self.before = ticks;
    }
}

/// Takes records and events as they arrive, and keeps the answer.
pub struct Listener<Q> {
    /// Metadata of the recording.
    pub known: QueryContext,
    /// The question, and the answer so far.
    pub question: Q,
    lanes: HashMap<ThreadId, ThreadCalls>,
    open: OpenCalls,
    totals: Totals,
}

impl<Q: Question> Listener<Q> {
    /// Makes a listener that has seen no event.
    pub fn new(known: QueryContext, question: Q) -> Self {
        let (lanes, open) = (HashMap::new(), OpenCalls::default());
        Self { known, question, lanes, open, totals: Totals::default() }
    }

    /// Applies a record.
    pub fn record(&mut self, record: &Record) {
        self.known.record(record);
    }

    /// Processes a batch of events of one thread, or queues it until its context switches have
    /// arrived.
    pub fn events(&mut self, batch: &Batch) {
        self.known.see_times(batch);
        if !self.known.switches {
            return self.process(batch);
        }
        let lane = self.lanes.entry(batch.thread).or_insert_with(|| ThreadCalls::new(Stack::switching(&[])));
        lane.waiting.push_back(batch.clone());
        if lane.waiting.len() > WAITING
            && let Some(oldest) = lane.waiting.pop_front()
        {
            self.process(&oldest);
        }
    }

    /// Applies context switches of a thread, times in nanoseconds of CLOCK_MONOTONIC, complete up
    /// to `until`.
    pub fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) {
        let switches: Vec<Switch> =
            switches.iter().map(|switch| Switch { at: self.known.ticks_at(switch.at), ..*switch }).collect();
        // Switches may arrive before the thread's first events.
        let lane = self.lanes.entry(thread).or_insert_with(|| ThreadCalls::new(Stack::switching(&[])));
        lane.stack.add_switches(&switches);
        self.process_until(thread, self.known.ticks_at(until));
    }

    /// Processes the waiting batches of a thread that end before `until`, ticks.
    fn process_until(&mut self, thread: ThreadId, until: u64) {
        let is_before = |batch: &Batch| batch.events.last().is_none_or(|event| event.ticks <= until);
        while let Some(lane) = self.lanes.get_mut(&thread)
            && lane.waiting.front().is_some_and(is_before)
            && let Some(batch) = lane.waiting.pop_front()
        {
            self.process(&batch);
        }
    }

    fn process(&mut self, batch: &Batch) {
        let sites = self.known.sites();
        let lane = self.lanes.entry(batch.thread).or_default();
        let ThreadCalls { stack, frames, values, .. } = lane;
        let before = stack.now();
        self.open.enter_thread(frames);
        let (known, question, open) = (&mut self.known, &mut self.question, &mut self.open);
        let mut forwarder = Forwarder { known, question, frames, values, open, before };
        feed_batch(stack, batch.thread, batch, sites, &mut forwarder, &mut self.totals);
        self.open.leave_thread(frames);
        self.known.lost = self.totals.lost_entries + self.totals.lost_exits;
    }

    /// Ends a thread: its open calls are closed.
    pub fn end(&mut self, thread: ThreadId) {
        self.end_with(thread, Ending::Running);
    }

    fn end_with(&mut self, thread: ThreadId, otherwise: Ending) {
        self.process_until(thread, u64::MAX);
        if let Some(ThreadCalls { mut stack, mut frames, mut values, .. }) = self.lanes.remove(&thread) {
            let (frames, values) = (&mut frames, &mut values);
            let before = stack.now();
            self.open.enter_thread(frames);
            let (known, question, open) = (&mut self.known, &mut self.question, &mut self.open);
            let mut forwarder = Forwarder { known, question, frames, values, open, before };
            stack.finish(thread, otherwise, &mut forwarder, &mut self.totals);
        }
        self.known.forget(thread);
    }

    /// Ends all threads, as calltap detaches from a program that keeps running.
    pub fn finish(&mut self) {
        self.finish_with(Ending::Detached);
    }

    fn finish_with(&mut self, otherwise: Ending) {
        let mut left: Vec<ThreadId> = self.lanes.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|thread| self.end_with(thread, otherwise));
        self.question.finish(&self.known);
    }

    /// Processes a whole recording in file order, until `enough` returns true. Returns the totals,
    /// with what could not be read.
    pub fn read(
        &mut self,
        source: &dyn Source,
        mut progress: Progress<'_>,
        enough: &mut dyn FnMut(&mut Q) -> bool,
    ) -> Totals {
        self.known.meta(source.meta());
        let (mut damage, mut batch, mut stream) = (Damage::default(), Batch::default(), source.batches());
        while !enough(&mut self.question) && next_readable(&mut *stream, &mut batch, &mut damage) {
            // A thread whose switches cannot be read is analysed without them.
            let lane = || ThreadCalls::new(stack_of(source, batch.thread).unwrap_or_default());
            self.lanes.entry(batch.thread).or_insert_with(lane);
            self.process(&batch);
            crate::sources::drive::tell(&mut progress, self.totals.events);
        }
        self.finish_with(source.meta().open_at_end());
        let mut totals = self.totals.clone();
        damage.report(&mut totals);
        totals
    }

    /// Returns the answer as one JSON object, with its version under the key `calltap_NAME`.
    pub fn json(&self, name: &str) -> Value {
        let QueryContext { lost, elapsed, .. } = self.known;
        let mut object = serde_json::json!({ "elapsed_ns": elapsed.ns(), "lost": lost });
        object[format!("calltap_{name}")] = 1.into();
        if let (Some(object), Value::Object(answer)) =
            (object.as_object_mut(), self.question.json(&self.known))
        {
            object.extend(answer);
        }
        object
    }
}
