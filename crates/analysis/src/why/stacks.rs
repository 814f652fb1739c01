//! Open calls of threads at some moments, and whose time some stretches were: asked for first, and answered in one pass over the events.

use crate::error::Error;
use crate::sources::drive::checked_site;
use crate::sources::source::{Damage, Source, next_readable};
use crate::tree::{Stack, Totals, Visitor};
use calltap_trace::{Batch, SiteId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// A question about a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Moment(usize);

/// A question about stretches of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run(usize);

/// An open call, and whether that is certain: a call may have ended in what was lost.
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
    /// By moment: open calls, outermost first.
    stacks: Vec<Rc<[Frame]>>,
    /// By run: ticks by the innermost function; None: no traced one.
    runs: Vec<BTreeMap<Option<SiteId>, u64>>,
}

struct Nothing;
impl Visitor for Nothing {}

impl Stacks {
    /// Which calls of the thread are open at `at`?
    pub(crate) fn moment(&mut self, thread: ThreadId, at: u64) -> Moment {
        self.marks.entry(thread).or_default().push((at, Mark::Moment(self.stacks.len())));
        self.stacks.push(Rc::default());
        Moment(self.stacks.len() - 1)
    }

    /// A question without stretches yet.
    pub(crate) fn run(&mut self) -> Run {
        self.runs.push(BTreeMap::new());
        Run(self.runs.len() - 1)
    }

    /// Adds a stretch to a question.
    pub(crate) fn stretch(&mut self, run: Run, thread: ThreadId, start: u64, end: u64) {
        let marks = self.marks.entry(thread).or_default();
        marks.extend([(start, Mark::Begin(run.0)), (end, Mark::End(run.0))]);
    }

    /// Finds the answers.
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
                }
            }
            for (at, mark) in &marks[next..] {
                sweep.mark(*at, *mark, self, &mut interned);
            }
        }
        Ok(())
    }

    /// The calls that were open, outermost first.
    pub(crate) fn of(&self, moment: Moment) -> &Rc<[Frame]> {
        &self.stacks[moment.0]
    }

    /// Whose time it was.
    pub(crate) fn times(&self, run: Run) -> &BTreeMap<Option<SiteId>, u64> {
        &self.runs[run.0]
    }
}

/// The way through the events of one thread.
#[derive(Default)]
struct Sweep {
    stack: Stack,
    totals: Totals,
    now: u64,
    /// Questions of which a stretch has begun and not ended.
    active: Vec<usize>,
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
            }
        }
    }
}
