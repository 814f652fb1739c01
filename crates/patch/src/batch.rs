//! A batch of changes, carried out on a [`Text`]. All sites are verified before any is written,
//! then all take each step together, so that a hundred thousand sites cost as many core syncs as
//! one: three, or six.
//!
//! Code is read and written in spans. The kernel charges for calls and pages, hardly for bytes, and
//! has no call that writes to many places of read-only text at once: a call for each site would
//! take fifty times as long. So the bytes between the sites of a span are written back as they were
//! read. If a debugger or the kernel's uprobes set or remove a breakpoint there in the meantime,
//! that change is lost. Each step therefore reads a span again directly before writing it, so the
//! window is some ten microseconds instead of the whole batch. One buffer for all spans stays in
//! the cache, so this costs no time. Where the program itself may write meanwhile, each site is a
//! span of its own; and so is each of a few sites that are changed while threads run, as a program
//! may make its text writable for the moment in which it writes.

use crate::address::Avma;
use crate::site::{Demand, Site, State};
use crate::steps::{STEPS, Steps, Transition};
use calltap_abi::PAGE;

/// The code of a program: of another process, or of a simulated machine.
pub trait Text {
    /// The reason why the code could not be read or written.
    type Error;
    /// Reads bytes.
    fn read(&mut self, at: Avma, into: &mut [u8]) -> Result<(), Self::Error>;
    /// Stores bytes, in any order, possibly one by one.
    fn write(&mut self, at: Avma, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Returns when every processor has executed a serialising instruction, or will before it runs
    /// the program's code again.
    fn sync(&mut self) -> Result<(), Self::Error>;
    /// The instruction of a site while its bytes are changed.
    fn transition(&self) -> Transition {
        Transition::Test
    }
    /// Whether the program itself may write at this address during a batch.
    fn may_program_write(&self, _at: Avma) -> bool {
        false
    }
    /// Whether interrupted batches may have left a breakpoint.
    fn after_int3(&self) -> bool {
        self.transition() == Transition::Int3
    }
    /// Notes the beginning of a batch: its changes, and the demand that the caller has met. For a
    /// [log](crate::log).
    fn begin(&mut self, _changes: &mut dyn Iterator<Item = Change<'_>>, _granted: Demand) {}
    /// Notes the end of the batch.
    fn end(&mut self) {}
}

/// A change of a site from one state to another.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The site.
    pub site: &'a Site,
    /// State of the site before.
    pub from: State,
    /// State of the site afterwards.
    pub to: State,
    /// The target states of interrupted batches on this site (their writer was killed): its bytes
    /// may be anywhere between `from` and these.
    pub recover: &'a [State],
}

/// The reason why a site is not in its new state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeError<E> {
    /// The site had other bytes than expected: nothing was written.
    Mismatch(Vec<u8>),
    /// The change demands more than the caller has met: nothing was written.
    Demands(Demand),
    /// The target is out of the site's reach: nothing was written.
    OutOfReach,
    /// The site could not be read: nothing was written.
    ReadFailed(E),
    /// Writing failed: the site is between its states, and behaves as if disabled in each.
    PartialWrite(E),
}

/// Changes of a batch that were not made, by their index in it, in order.
pub type Failed<E> = Vec<(usize, ChangeError<E>)>;

/// Maximum number of changes that are made one by one while threads run: for more, a call for each
/// takes too long.
const FEW: usize = 1 << 10;
/// Maximum number of bytes of a span: offsets in it have 16 bits.
const SPAN: u64 = 1 << 16;

/// Carries out a batch, fastest in address order. `granted` is the demand that the caller has met.
/// Returns the changes that were not made.
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

/// A batch that is planned before threads are stopped for it. Once they are, it only compares the
/// code with the earlier bytes, and writes.
pub struct Prepared<E> {
    plan: Plan<E>,
    /// Bytes of the spans when they were planned, one after the other.
    seen: Vec<u8>,
}

impl<E: Clone> Prepared<E> {
    /// Plans a batch without writing. None if a part of the code cannot be read.
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

    /// Carries out the batch, with the same changes. Plans it again if any of the code has changed
    /// since.
    pub fn carry_out<'a, T: Text<Error = E>>(
        self,
        text: &mut T,
        changes: impl IntoIterator<Item = Change<'a>, IntoIter: Clone>,
    ) -> Failed<E> {
        let granted = self.plan.granted;
        carry_out_from(Some(self), text, changes.into_iter(), granted)
    }

    /// Returns the plan if the code and the transition are as they were.
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

/// Carries out a batch, by a prepared plan if that is still valid.
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

/// The stores of a batch whose sites were all read.
struct Plan<E> {
    granted: Demand,
    transition: Transition,
    after_int3: bool,
    /// Number of changes.
    size: usize,
    failed: Failed<E>,
    /// Whether a change recovers from an interrupted batch.
    torn: bool,
    /// Whether each site is a span of its own.
    one_by_one: bool,
    spans: Vec<Span>,
    /// Buffer for the bytes of a span.
    bytes: Vec<u8>,
}

/// Adjacent pages with sites.
struct Span {
    start: u64,
    length: usize,
    steps: Steps,
}

impl<E: Clone> Plan<E> {
    fn new<T: Text>(granted: Demand, text: &T) -> Plan<E> {
        let (transition, after_int3) = (text.transition(), text.after_int3());
        let (size, torn, failed, spans, bytes) = (0, false, Vec::new(), Vec::new(), Vec::new());
        let one_by_one = false;
        Plan { granted, transition, after_int3, size, failed, torn, one_by_one, spans, bytes }
    }

    /// Plans a batch. `see` receives the bytes of each of its spans that can be read.
    fn of<'a, T: Text<Error = E>>(
        text: &mut T,
        changes: impl Iterator<Item = Change<'a>> + Clone,
        granted: Demand,
        see: &mut dyn FnMut(&[u8]),
    ) -> Plan<E> {
        let mut plan = Plan::new(granted, text);
        plan.one_by_one = granted != Demand::Stopped && changes.clone().nth(FEW).is_none();
        if changes.clone().is_sorted_by_key(|change| change.site.address()) {
            plan.add_all(text, changes.enumerate(), see);
        } else {
            let mut sorted: Vec<(usize, Change<'a>)> = changes.enumerate().collect();
            sorted.sort_by_key(|(_, change)| change.site.address());
            plan.add_all(text, sorted.into_iter(), see);
        }
        plan
    }

    /// Plans numbered changes, in address order.
    fn add_all<'a, T: Text<Error = E>>(
        &mut self,
        text: &mut T,
        changes: impl Iterator<Item = (usize, Change<'a>)>,
        see: &mut dyn FnMut(&[u8]),
    ) {
        let mut span: Vec<(usize, Change<'a>)> = Vec::new();
        let (mut first, mut end, mut is_alone) = (0, 0, false);
        for (n, change) in changes {
            let start = change.site.address().0;
            let next = start + change.site.len() as u64;
            let was_alone =
                std::mem::replace(&mut is_alone, self.one_by_one || text.may_program_write(Avma(start)));
            let is_far = start / PAGE > end / PAGE + 1 || next.max(end) - first > SPAN;
            if span.is_empty() || is_far || is_alone || was_alone {
                self.add_span(text, first, end, &span, see);
                span.clear();
                first = start;
            }
            end = next.max(end);
            span.push((n, change));
        }
        self.add_span(text, first, end, &span, see);
    }

    /// Reads a span, verifies its sites, and plans its changes.
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

    /// Writes the steps of all sites, each followed by a core sync.
    fn take_all<T: Text<Error = E>>(&mut self, text: &mut T) -> Result<(), E> {
        // An interrupted writer may not have reached its core sync.
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
    /// Writes one step of the span, and writes the bytes between its stores back as they are.
    /// `by_pages` splits the write at a page boundary: if calltap is killed while the kernel
    /// writes, each page is written as a whole or not at all.
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

/// Returns the state that a change begins from.
fn verify<E>(change: &Change<'_>, actual: &[u8], after_int3: bool) -> Result<State, ChangeError<E>> {
    let known = match change.recover {
        [] => change.site.is(change.from, actual).then_some(change.from),
        cut_short => {
            change.site.recognise(actual, &[&[change.from], cut_short].concat(), change.to, after_int3)
        }
    };
    known.ok_or_else(|| ChangeError::Mismatch(actual.to_vec()))
}
