//! A batch of changes, carried out on a [`Text`]: all sites are verified before any is written, then all take each step together, so that
//! a hundred thousand sites cost three core syncs (or six) like one.
//!
//! Code is read and written in spans. The kernel charges for calls and pages, hardly for bytes, and has no call that writes to many places of
//! read-only text at once: a call for each site would take fifty times as long. So what lies between the sites of a span is written again as it was
//! read. Debuggers and the kernel's uprobes may set or take away a breakpoint there meanwhile, which would be lost, or come back. Each step
//! therefore reads a span anew, right before it is written: meanwhile is some ten microseconds, not all of the batch. And no slower: one
//! buffer for all spans stays in the cache.

use crate::address::Avma;
use crate::site::{Demand, Site, State};
use crate::steps::{STEPS, Steps, Transition};
use calltap_abi::PAGE;

/// The code of a program: of another process, or of a simulated machine.
pub trait Text {
    /// Why it could not be read or written.
    type Error;
    /// Reads bytes.
    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), Self::Error>;
    /// Stores bytes, in any order, one by one if it must be.
    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Returns when every processor has executed a serialising instruction, or will before it runs the program's code again.
    fn sync(&mut self) -> Result<(), Self::Error>;
    /// What sites are while they are changed.
    fn transition(&self) -> Transition {
        Transition::Test
    }
    /// May batches that were cut short have left a breakpoint?
    fn after_int3(&self) -> bool {
        self.transition() == Transition::Int3
    }
    /// A batch begins: these changes, with this seen to. A [log](crate::log) notes it, and the next.
    fn begin(&mut self, _changes: &mut dyn Iterator<Item = Change<'_>>, _granted: Demand) {}
    /// It is over.
    fn end(&mut self) {}
}

/// A site's way from one state to another.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Which.
    pub site: &'a Site,
    /// Its bytes now.
    pub from: State,
    /// Its bytes then.
    pub to: State,
    /// Where batches that were cut short here led to (their writer was killed): the site may be anywhere between `from` and these.
    pub recover: &'a [State],
}

/// Why a site is not in its new state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError<E> {
    /// Other bytes were there than expected: nothing was written.
    Mismatch(Vec<u8>),
    /// It demands more than the caller has seen to: nothing was written.
    Demands(Demand),
    /// Its new state is out of its reach: nothing was written.
    OutOfReach,
    /// It could not be read: nothing was written.
    ReadFailed(E),
    /// Writing failed: it is between its states, each of which is as good as off.
    PartialWrite(E),
}

/// The changes of a batch that were not made, by their number in it, in order.
pub type Failed<E> = Vec<(usize, ChangeError<E>)>;

/// Spans are no longer than this: places in them have 16 bits.
const SPAN: u64 = 1 << 16;

/// Carries out a batch; fastest if it is in the order of addresses. `granted` is what the caller has seen to. All changes that are not returned were made.
pub fn carry_out<'a, T: Text>(
    text: &mut T,
    changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>,
    granted: Demand,
) -> Failed<T::Error>
where
    T::Error: Clone,
{
    carry_out_from(None, text, changes.into_iter(), granted)
}

/// A batch that is planned before threads are stopped for it: then it remains to compare the code with what it was, and to write.
pub struct Prepared<E> {
    plan: Plan<E>,
    /// What the spans held, one after the other.
    seen: Vec<u8>,
}

impl<E: Clone> Prepared<E> {
    /// Plans a batch. Nothing is written. None: a part of the code could not be read.
    pub fn new<'a, T: Text<Error = E>>(
        text: &mut T,
        changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>,
        granted: Demand,
    ) -> Option<Prepared<E>> {
        let mut seen = Vec::new();
        let plan = Plan::of(text, changes.into_iter(), granted, &mut |bytes| seen.extend_from_slice(bytes));
        let length: usize = plan.spans.iter().map(|span| span.length).sum();
        (seen.len() == length).then_some(Prepared { plan, seen })
    }

    /// Carries the batch out, with the same changes. If any of the code has changed since, the batch is planned anew.
    pub fn carry_out<'a, T: Text<Error = E>>(
        self,
        text: &mut T,
        changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>,
    ) -> Failed<E> {
        let granted = self.plan.granted;
        carry_out_from(Some(self), text, changes.into_iter(), granted)
    }

    /// Its plan, if the code is what it was.
    fn verify<T: Text<Error = E>>(mut self, text: &mut T) -> Option<Plan<E>> {
        let Plan { transition, after_int3, spans, bytes, .. } = &mut self.plan;
        let mut seen = &self.seen[..];
        let mut is_as_it_was = |span: &Span| {
            let (expected, rest) = seen.split_at(span.length);
            seen = rest;
            text.read(Avma(span.start), &mut bytes[..span.length]).is_ok()
                && bytes[..span.length] == *expected
        };
        let is_same = spans.iter().all(&mut is_as_it_was);
        (is_same && (*transition, *after_int3) == (text.transition(), text.after_int3())).then_some(self.plan)
    }
}

/// Carries out a batch, by a plan that may have been made before.
fn carry_out_from<'a, T: Text<Error: Clone>>(
    prepared: Option<Prepared<T::Error>>,
    text: &mut T,
    changes: impl Iterator<Item = Change<'a>> + Clone,
    granted: Demand,
) -> Failed<T::Error> {
    text.begin(&mut changes.clone(), granted);
    let verified = prepared.and_then(|prepared| prepared.verify(text));
    let mut plan = verified.unwrap_or_else(|| Plan::of(text, changes, granted, &mut |_| {}));
    let done = plan.take_all(text);
    text.end();
    let Plan { size, mut failed, .. } = plan;
    failed.sort_by_key(|(n, _)| *n);
    if let Err(error) = done {
        let mut untouched = failed.into_iter().peekable();
        let failure = |n| {
            untouched
                .next_if(|(other, _)| *other == n)
                .unwrap_or((n, ChangeError::PartialWrite(error.clone())))
        };
        failed = (0..size).map(failure).collect();
    }
    failed
}

/// What will be written, of sites that were all read already.
struct Plan<E> {
    granted: Demand,
    transition: Transition,
    after_int3: bool,
    /// Number of changes.
    size: usize,
    failed: Failed<E>,
    /// One of them recovers.
    torn: bool,
    spans: Vec<Span>,
    /// Room for the bytes of a span.
    bytes: Vec<u8>,
}

/// Pages with sites, one next to the other.
struct Span {
    start: u64,
    length: usize,
    steps: Steps,
}

impl<E: Clone> Plan<E> {
    fn new<T: Text>(granted: Demand, text: &T) -> Plan<E> {
        let (transition, after_int3) = (text.transition(), text.after_int3());
        let (size, torn, failed, spans, bytes) = (0, false, Vec::new(), Vec::new(), Vec::new());
        Plan { granted, transition, after_int3, size, failed, torn, spans, bytes }
    }

    /// The plan of a batch. `see` is given the bytes of each of its spans that can be read.
    fn of<'a, T: Text<Error = E>>(
        text: &mut T,
        changes: impl Iterator<Item = Change<'a>> + Clone,
        granted: Demand,
        see: &mut dyn FnMut(&[u8]),
    ) -> Plan<E> {
        let mut plan = Plan::new(granted, text);
        if changes.clone().is_sorted_by_key(|change| change.site.address()) {
            plan.add_all(text, changes.enumerate(), see);
        } else {
            let mut sorted: Vec<(usize, Change<'a>)> = changes.enumerate().collect();
            sorted.sort_by_key(|(_, change)| change.site.address());
            plan.add_all(text, sorted.into_iter(), see);
        }
        plan
    }

    /// Plans numbered changes, which are in the order of addresses.
    fn add_all<'a, T: Text<Error = E>>(
        &mut self,
        text: &mut T,
        changes: impl Iterator<Item = (usize, Change<'a>)>,
        see: &mut dyn FnMut(&[u8]),
    ) {
        let mut span: Vec<(usize, Change<'a>)> = Vec::new();
        let (mut first, mut end) = (0, 0);
        for (n, change) in changes {
            let start = change.site.address().0;
            let next = start + change.site.len() as u64;
            if span.is_empty() || start / PAGE > end / PAGE + 1 || next.max(end) - first > SPAN {
                self.add_span(text, first, end, &span, see);
                span.clear();
                first = start;
            }
            end = next.max(end);
            span.push((n, change));
        }
        self.add_span(text, first, end, &span, see);
    }

    /// Reads a span, verifies what is in it, and plans its changes.
    fn add_span<T: Text<Error = E>>(
        &mut self,
        text: &mut T,
        start: u64,
        end: u64,
        changes: &[(usize, Change<'_>)],
        see: &mut dyn FnMut(&[u8]),
    ) {
        if changes.is_empty() {
            return;
        }
        let length = (end - start) as usize;
        let mut span = Span { start, length, steps: Steps::with_capacity(changes.len()) };
        self.bytes.resize(length.max(self.bytes.len()), 0);
        let mut bytes = std::mem::take(&mut self.bytes);
        let read = text.read(Avma(start), &mut bytes[..length]);
        if read.is_ok() {
            see(&bytes[..length]);
        }
        for (n, change) in changes {
            let planned = match &read {
                Ok(()) => self.add(&mut span, change, &bytes),
                Err(error) => Err(ChangeError::ReadFailed(error.clone())),
            };
            self.failed.extend(planned.err().map(|failure| (*n, failure)));
            self.torn |= !change.recover.is_empty();
        }
        (self.bytes, self.size) = (bytes, self.size + changes.len());
        self.spans.push(span);
    }

    /// Plans one change.
    fn add(&self, span: &mut Span, change: &Change<'_>, bytes: &[u8]) -> Result<(), ChangeError<E>> {
        let offset = (change.site.address().0 - span.start) as usize;
        let from = verify(change, &bytes[offset..offset + change.site.len()], self.after_int3)?;
        match change.site.demand(from, change.to) {
            demand if demand > self.granted => Err(ChangeError::Demands(demand)),
            _ => change
                .site
                .add_steps(from, change.to, self.transition, offset as u16, &mut span.steps)
                .map_err(|_| ChangeError::OutOfReach),
        }
    }

    /// Has all sites take all steps.
    fn take_all<T: Text<Error = E>>(&mut self, text: &mut T) -> Result<(), E> {
        // A writer that was cut short may not have come to its core sync.
        if self.torn {
            text.sync()?;
        }
        for step in 0..STEPS {
            if self.spans.iter().all(|span| span.steps.is_empty(step)) {
                continue;
            }
            for span in &self.spans {
                span.take(step, text, &mut self.bytes, self.granted == Demand::Stopped)?;
            }
            text.sync()?;
        }
        Ok(())
    }
}

impl Span {
    /// Writes what belongs to one step. What is between is written again as it was. By pages: where the kernel, going from page to page, is interrupted
    /// because calltap is killed, the bytes of a page are all written or none.
    fn take<T: Text>(
        &self,
        step: usize,
        text: &mut T,
        bytes: &mut [u8],
        by_pages: bool,
    ) -> Result<(), T::Error> {
        if self.steps.is_empty(step) {
            return Ok(());
        }
        let bytes = &mut bytes[..self.length];
        text.read(Avma(self.start), bytes)?;
        let (mut low, mut high) = (usize::MAX, 0);
        self.steps.each(step, |at, new| {
            let (at, end) = (at as usize, at as usize + new.len());
            bytes[at..end].copy_from_slice(new);
            (low, high) = (low.min(at), high.max(end));
        });
        let first = self.start + low as u64;
        let page = (first.next_multiple_of(PAGE) - self.start) as usize;
        if by_pages && (low + 1..high).contains(&page) {
            text.write(Avma(first), &bytes[low..page])?;
            low = page;
        }
        text.write(Avma(self.start + low as u64), &bytes[low..high])
    }
}

/// The state that a change begins from.
fn verify<E>(change: &Change<'_>, actual: &[u8], after_int3: bool) -> Result<State, ChangeError<E>> {
    let known = match change.recover {
        [] => change.site.is(change.from, actual).then_some(change.from),
        cut_short => {
            change.site.recognise(actual, &[&[change.from], cut_short].concat(), change.to, after_int3)
        }
    };
    known.ok_or_else(|| ChangeError::Mismatch(actual.to_vec()))
}
