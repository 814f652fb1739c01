//! Questions about some functions, answered from events as they come: from a process, or from a file.
//!
//! An answer is sums: the events are read and forgotten. Memory goes with the functions, the open calls and the rows of the answer.

mod buckets;
mod count;
mod count_by;
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
pub use known::{Known, Lookup, is_place};
pub use latency::{By, Latency};
pub use lines::{Form, Lines};
pub use span::{Side, Spans};
pub use stacks::Stacks;

use crate::sources::drive::{Progress, feed_batch, stack_of};
use crate::sources::source::{Damage, Source, next_readable};
use crate::tree::{Call, Ending, Enter, Stack, Totals, Visitor};
use crate::values::Shown;
use calltap_trace::{Batch, Callers, Record, SiteId, Switch, ThreadId};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// A function, in the order in which they were first described: the same in all processes.
pub type Function = u32;

/// An open call.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its function.
    pub function: Function,
    /// Return address in the caller; 0 when unknown.
    parent: u64,
    wanted: bool,
}

/// A call that is over, of a function that was asked about.
pub struct Over<'a> {
    /// Whose.
    pub thread: ThreadId,
    /// Its function.
    pub function: Function,
    /// When and how.
    pub call: &'a Call,
    /// The calls below it, outermost first.
    pub below: &'a [Frame],
    /// What was read of it when it was entered,
    pub arguments: &'a [Shown],
    /// and when it returned.
    pub results: &'a [Shown],
    /// Its callers, if they were to be unwound.
    pub callers: Option<&'a Callers>,
    /// No other call of its function is open in the thread: what is added up of times counts a recursion once.
    pub outermost: bool,
    parent: u64,
}

/// A call of a function that was asked about begins.
pub struct Entered<'a> {
    /// Whose.
    pub thread: ThreadId,
    /// Its function.
    pub function: Function,
    /// When.
    pub ticks: u64,
    /// What was read of it.
    pub arguments: &'a [Shown],
}

/// What is said first where the caller of a call is the traced function around it.
pub(super) const AROUND: &str = "# callers are the traced functions around a call: functions between them that were not traced are left out\n";

impl Over<'_> {
    /// Is its caller the function that it returns to, if it is known at all?
    fn has_caller(&self) -> bool {
        self.parent != 0 || self.callers.is_some()
    }
}

/// What was asked.
pub trait Question: Send {
    /// A function that was asked about is entered.
    fn enter(&mut self, _function: Function) {}

    /// The same, with what is known of the call.
    fn entered(&mut self, _known: &mut Known, _entered: &Entered<'_>) {}

    /// Calls or returns of any function were lost between two times, ticks.
    fn lost(&mut self, _from: u64, _to: u64) {}

    /// A call of it is over, or was cut ([`Ending::is_cut`]).
    fn over(&mut self, _known: &mut Known, _over: &Over<'_>) {}

    /// Nothing more will come.
    fn finish(&mut self, _known: &Known) {}

    /// The answer for people.
    fn text(&self, known: &Known) -> String;

    /// The answer for programs: the members of an object, beside those that say how it came about.
    fn json(&self, known: &Known) -> Value;
}

/// A thread with open calls.
#[derive(Default)]
struct Lane {
    stack: Stack,
    frames: Vec<Frame>,
    values: Values,
    /// Events whose context switches have not come yet, oldest first.
    waiting: VecDeque<Batch>,
}

impl Lane {
    fn new(stack: Stack) -> Lane {
        Lane { stack, ..Lane::default() }
    }
}

/// Batches of a thread that wait for context switches, at most: then they are taken to be not known.
const WAITING: usize = 64;

/// What was read of calls.
#[derive(Default)]
struct Values {
    /// Of the event that comes next.
    next: Vec<Shown>,
    /// And its callers.
    callers: Option<Callers>,
    /// Arguments and callers of open calls, by their depth.
    open: Vec<(usize, Vec<Shown>, Option<Callers>)>,
}

/// How many calls of each function are open in the thread that is heard of; of no function between two threads.
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

/// The functions of frames, as far as they were asked about.
fn wanted(frames: &[Frame]) -> impl Iterator<Item = Function> {
    frames.iter().filter(|frame| frame.wanted).map(|frame| frame.function)
}

/// Hears what happens, and passes on what was asked about.
struct Ear<'a> {
    known: &'a mut Known,
    question: &'a mut dyn Question,
    frames: &'a mut Vec<Frame>,
    values: &'a mut Values,
    open: &'a mut OpenCalls,
    /// The thread was heard of before what happens now at this time, ticks.
    before: u64,
}

impl Visitor for Ear<'_> {
    fn values(&mut self, thread: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.values.next = self.known.values(thread, site, returns, bytes);
        self.values.callers =
            self.known.captured_of(site).filter(|_| !returns).and_then(|captured| captured.callers(bytes));
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.before = enter.ticks;
        let (function, wanted) = self.known.function_of(enter.site);
        let wanted = wanted && !enter.is_rest;
        // Those of a copy that was lost are not known.
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
        let results = match call.ending {
            Ending::Returned => std::mem::take(&mut self.values.next),
            _ => Vec::new(),
        };
        let Some(Frame { function, parent, wanted: true }) = frame else { return };
        let (_, arguments, callers) = arguments.unwrap_or_default();
        let open = self.open.of(function);
        *open = open.saturating_sub(1);
        let over = Over {
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
        self.question.over(self.known, &over);
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.before = enter.ticks;
        let (function, wanted) = self.known.function_of(enter.site);
        let arguments = std::mem::take(&mut self.values.next);
        if wanted {
            let entered = Entered { thread, function, ticks: enter.ticks, arguments: &arguments };
            self.question.entered(self.known, &entered);
            self.question.enter(function);
        }
    }

    fn lost(&mut self, _: ThreadId, ticks: u64, _: u32, _: u32) {
        self.question.lost(self.before, ticks);
        self.before = ticks;
    }
}

/// Takes records and events as they come, and keeps the answer.
pub struct Listener<Q> {
    /// What is known besides.
    pub known: Known,
    /// What was asked, and the answer so far.
    pub question: Q,
    lanes: HashMap<ThreadId, Lane>,
    open: OpenCalls,
    totals: Totals,
}

impl<Q: Question> Listener<Q> {
    /// Nothing has happened yet.
    pub fn new(known: Known, question: Q) -> Self {
        let (lanes, open) = (HashMap::new(), OpenCalls::default());
        Self { known, question, lanes, open, totals: Totals::default() }
    }

    /// Takes a record.
    pub fn record(&mut self, record: &Record) {
        self.known.record(record);
    }

    /// Takes events of one thread.
    pub fn events(&mut self, batch: &Batch) {
        if !self.known.switches {
            return self.happen(batch);
        }
        let lane = self.lanes.entry(batch.thread).or_insert_with(|| Lane::new(Stack::switching(&[])));
        lane.waiting.push_back(batch.clone());
        if lane.waiting.len() > WAITING
            && let Some(oldest) = lane.waiting.pop_front()
        {
            self.happen(&oldest);
        }
    }

    /// Takes context switches of a thread, nanoseconds of CLOCK_MONOTONIC, which made no others before `until`.
    pub fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) {
        let switches: Vec<Switch> =
            switches.iter().map(|switch| Switch { at: self.known.ticks_at(switch.at), ..*switch }).collect();
        // They may come before the thread's first events.
        let lane = self.lanes.entry(thread).or_insert_with(|| Lane::new(Stack::switching(&[])));
        lane.stack.add_switches(&switches);
        self.happen_until(thread, self.known.ticks_at(until));
    }

    /// What has waited happens, as far as it was before `until`.
    fn happen_until(&mut self, thread: ThreadId, until: u64) {
        let is_before = |batch: &Batch| batch.events.last().is_none_or(|event| event.ticks <= until);
        while let Some(lane) = self.lanes.get_mut(&thread)
            && lane.waiting.front().is_some_and(is_before)
            && let Some(batch) = lane.waiting.pop_front()
        {
            self.happen(&batch);
        }
    }

    fn happen(&mut self, batch: &Batch) {
        let sites = self.known.sites();
        let lane = self.lanes.entry(batch.thread).or_default();
        let Lane { stack, frames, values, .. } = lane;
        let before = stack.now();
        self.open.enter_thread(frames);
        let (known, question, open) = (&mut self.known, &mut self.question, &mut self.open);
        let mut ear = Ear { known, question, frames, values, open, before };
        feed_batch(stack, batch.thread, batch, sites, &mut ear, &mut self.totals);
        self.open.leave_thread(frames);
        self.known.lost = self.totals.lost_entries + self.totals.lost_exits;
    }

    /// A thread has ended.
    pub fn end(&mut self, thread: ThreadId) {
        self.end_with(thread, Ending::Running);
    }

    fn end_with(&mut self, thread: ThreadId, otherwise: Ending) {
        self.happen_until(thread, u64::MAX);
        if let Some(Lane { mut stack, mut frames, mut values, .. }) = self.lanes.remove(&thread) {
            let (frames, values) = (&mut frames, &mut values);
            let before = stack.now();
            self.open.enter_thread(frames);
            let (known, question, open) = (&mut self.known, &mut self.question, &mut self.open);
            let mut ear = Ear { known, question, frames, values, open, before };
            stack.finish(thread, otherwise, &mut ear, &mut self.totals);
        }
        self.known.forget(thread);
    }

    /// Nothing more will come, and the program goes on.
    pub fn finish(&mut self) {
        self.finish_with(Ending::Detached);
    }

    fn finish_with(&mut self, otherwise: Ending) {
        let mut left: Vec<ThreadId> = self.lanes.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|thread| self.end_with(thread, otherwise));
        self.question.finish(&self.known);
    }

    /// Takes all of a recording, as the file has it, until `enough` says so, which is asked all the time. What could not be read.
    pub fn read(
        &mut self,
        source: &dyn Source,
        mut progress: Progress<'_>,
        enough: &mut dyn FnMut(&mut Q) -> bool,
    ) -> Totals {
        self.known.meta(source.meta());
        let (mut damage, mut batch, mut stream) = (Damage::default(), Batch::default(), source.batches());
        while !enough(&mut self.question) && next_readable(&mut *stream, &mut batch, &mut damage) {
            // Without its switches, all else is known of a thread.
            let lane = || Lane::new(stack_of(source, batch.thread).unwrap_or_default());
            self.lanes.entry(batch.thread).or_insert_with(lane);
            self.happen(&batch);
            crate::sources::drive::tell(&mut progress, self.totals.events);
        }
        self.finish_with(source.meta().open_at_end());
        let mut totals = self.totals.clone();
        damage.report(&mut totals);
        totals
    }

    /// The answer as one object: `calltap_NAME` is its version.
    pub fn json(&self, name: &str) -> Value {
        let Known { lost, elapsed_ns, .. } = self.known;
        let mut object = serde_json::json!({ "elapsed_ns": elapsed_ns, "lost": lost });
        object[format!("calltap_{name}")] = 1.into();
        if let (Some(object), Value::Object(answer)) =
            (object.as_object_mut(), self.question.json(&self.known))
        {
            object.extend(answer);
        }
        object
    }
}
