//! The open calls of threads at given times, and the functions in which given intervals were spent.
//! Questions are collected first, then answered in one pass over the events.

use crate::error::Error;
use crate::sources::drive::checked_site;
use crate::sources::source::{Damage, Source, next_readable};
use crate::tree::{Stack, Totals, Visitor};
use calltap_trace::{Batch, EventKind, SiteId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Number of a question about the open calls at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(usize);

/// Number of a question about intervals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run(usize);

/// An open call, and whether that is certain: it may have ended in a loss.
pub(crate) type Frame = (SiteId, bool);

#[derive(Clone, Copy)]
enum Mark {
    Moment(usize),
    Begin(usize),
    End(usize),
}

/// Questions, then answers.
#[derive(Default)]
pub(crate) struct Stacks {
    marks: BTreeMap<ThreadId, Vec<(u64, Mark)>>,
    /// Open calls by moment, outermost first.
    stacks: Vec<Rc<[Frame]>>,
    /// By moment, whether a call may be open whose entry was lost.
    incomplete: Vec<bool>,
    /// Ticks by run and innermost function; `None`: outside of traced functions.
    runs: Vec<BTreeMap<Option<SiteId>, u64>>,
}

struct Nothing;
impl Visitor for Nothing {}

impl Stacks {
    /// Asks for the open calls of a thread at `at`.
    pub(crate) fn moment(&mut self, thread: ThreadId, at: u64) -> Moment {
        self.marks.entry(thread).or_default().push((at, Mark::Moment(self.stacks.len())));
        self.stacks.push(Rc::default());
        self.incomplete.push(false);
        Moment(self.stacks.len() - 1)
    }

    /// Makes a question about intervals, still without any.
    pub(crate) fn run(&mut self) -> Run {
        self.runs.push(BTreeMap::new());
        Run(self.runs.len() - 1)
    }

    /// Adds an interval to a question.
    pub(crate) fn stretch(&mut self, run: Run, thread: ThreadId, start: u64, end: u64) {
        let marks = self.marks.entry(thread).or_default();
        marks.extend([(start, Mark::Begin(run.0)), (end, Mark::End(run.0))]);
    }

    /// Answers all questions.
    pub(crate) fn answer(&mut self, source: &dyn Source) -> Result<(), Error> {
        let sites = source.meta().sites.len() as u32;
        let mut interned = HashMap::new();
        for (thread, mut marks) in std::mem::take(&mut self.marks) {
            marks.sort_by_key(|(at, _)| *at);
            let (mut sweep, mut next) = (Sweep::default(), 0);
            let (mut batch, mut damage) = (Batch::default(), Damage::default());
            let mut stream = source.thread_batches(thread);
            while next < marks.len() && next_readable(&mut *stream, &mut batch, &mut damage) {
                for event in &batch.events {
                    let now = event.ticks.max(sweep.stack.now());
                    while let Some((at, mark)) = marks.get(next).filter(|(at, _)| *at <= now) {
                        sweep.mark(*at, *mark, self, &mut interned);
                        next += 1;
                    }
                    sweep.pass(now, self);
                    let mut event = *event;
                    event.site = checked_site(event.site, sites);
                    sweep.stack.feed(thread, &event, &mut Nothing, &mut sweep.totals);
                    sweep.has_loss |= matches!(event.kind, EventKind::Lost { entries: 1.., .. });
                }
            }
            for (at, mark) in &marks[next..] {
                sweep.mark(*at, *mark, self, &mut interned);
            }
        }
        Ok(())
    }

    /// Returns the calls open at a moment, outermost first.
    pub(crate) fn of(&self, moment: Moment) -> &Rc<[Frame]> {
        &self.stacks[moment.0]
    }

    /// Whether a call may be open at a moment whose entry was lost.
    pub(crate) fn is_incomplete(&self, moment: Moment) -> bool {
        self.incomplete[moment.0]
    }

    /// Returns the ticks of a run by innermost function.
    pub(crate) fn times(&self, run: Run) -> &BTreeMap<Option<SiteId>, u64> {
        &self.runs[run.0]
    }
}

/// State of the pass through the events of one thread.
#[derive(Default)]
struct Sweep {
    stack: Stack,
    totals: Totals,
    now: u64,
    /// Runs with an interval that has begun and not ended.
    active: Vec<usize>,
    /// Whether entries were lost so far.
    has_loss: bool,
}

impl Sweep {
    fn pass(&mut self, to: u64, stacks: &mut Stacks) {
        let ticks = to.saturating_sub(self.now);
        if ticks > 0 && !self.active.is_empty() {
            let top = self.stack.top();
            for run in &self.active {
                *stacks.runs[*run].entry(top).or_default() += ticks;
            }
        }
        self.now = to.max(self.now);
    }

    fn mark(
        &mut self,
        at: u64,
        mark: Mark,
        stacks: &mut Stacks,
        interned: &mut HashMap<Vec<Frame>, Rc<[Frame]>>,
    ) {
        self.pass(at, stacks);
        match mark {
            Mark::Begin(run) => self.active.push(run),
            Mark::End(run) => {
                if let Some(place) = self.active.iter().position(|active| *active == run) {
                    self.active.swap_remove(place);
                }
            }
            Mark::Moment(place) => {
                let open: Vec<Frame> =
                    self.stack.open().map(|open| (open.site, open.cut.is_none())).collect();
                let known = interned.entry(open).or_insert_with_key(|open| Rc::from(&open[..]));
                stacks.stacks[place] = Rc::clone(known);
                stacks.incomplete[place] = self.has_loss;
            }
        }
    }
}
