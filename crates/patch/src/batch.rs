//! A batch of changes, carried out on a [`Text`]: all sites are verified before any is written, then all take each step together, so that
//! a hundred thousand sites cost three core syncs like one.

use crate::{Avma, Demand, Poke, STEPS, Site, State};

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
}

/// A site's way from one state to another.
#[derive(Clone, Debug)]
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

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate<E> {
    /// It is in its new state.
    Done,
    /// Other bytes were there than expected: nothing was written.
    Surprise(Vec<u8>),
    /// It demands more than the caller has seen to: nothing was written.
    Demands(Demand),
    /// Its new state is out of its reach: nothing was written.
    OutOfReach,
    /// It could not be read: nothing was written.
    Unread(E),
    /// Writing failed: it is between its states, each of which is as good as off.
    Torn(E),
}

const PAGE: u64 = 4096;
/// Code is read and written in spans of neighbouring pages, of no more than this.
const SPAN: u64 = 64 * PAGE;

/// Carries out a batch. `granted` is what the caller has seen to.
pub fn carry_out<T: Text>(text: &mut T, changes: &[Change<'_>], granted: Demand) -> Vec<Fate<T::Error>>
where
    T::Error: Clone,
{
    let mut fates: Vec<Fate<T::Error>> = vec![Fate::Done; changes.len()];
    let mut steps: [Vec<Poke>; STEPS] = Default::default();
    let mut spans = Span::of(changes);
    for span in &mut spans {
        let read = text.read(Avma(span.start), &mut span.bytes);
        for &n in &span.changes {
            let change = &changes[n];
            let verified = match &read {
                Ok(()) => verify(change, span.at(change.site)),
                Err(error) => Err(Fate::Unread(error.clone())),
            };
            let planned = verified.and_then(|from| match change.site.demand(from, change.to) {
                demand if demand > granted => Err(Fate::Demands(demand)),
                _ => change.site.add_steps(from, change.to, &mut steps).map_err(|_| Fate::OutOfReach),
            });
            if let Err(fate) = planned {
                fates[n] = fate;
            }
        }
    }
    // Whoever was cut short may not have come to its core sync.
    let torn = changes.iter().any(|change| !change.recover.is_empty());
    let mut done = if torn { text.sync() } else { Ok(()) };
    for step in &steps {
        done = done.and_then(|()| take(text, step, &mut spans));
    }
    if let Err(error) = done {
        let written = fates.iter_mut().filter(|fate| matches!(fate, Fate::Done));
        written.for_each(|fate| *fate = Fate::Torn(error.clone()));
    }
    fates
}

/// Neighbouring pages, as they are in the program.
struct Span {
    start: u64,
    bytes: Vec<u8>,
    /// The changes in it.
    changes: Vec<usize>,
}

impl Span {
    /// Those that some changes need, by address. Pages without a site are left out.
    fn of(changes: &[Change<'_>]) -> Vec<Span> {
        let start = |n: &usize| changes[*n].site.address().0;
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by_key(start);
        let mut spans: Vec<(u64, u64, Vec<usize>)> = Vec::new();
        for n in order {
            let (first, end) = (start(&n), start(&n) + changes[n].site.len() as u64);
            match spans
                .last_mut()
                .filter(|(from, to, _)| first / PAGE <= to / PAGE + 1 && end - *from <= SPAN)
            {
                Some((_, to, all)) => {
                    *to = end.max(*to);
                    all.push(n);
                }
                None => spans.push((first, end, vec![n])),
            }
        }
        let span = |(start, end, changes)| Span { start, bytes: vec![0; (end - start) as usize], changes };
        spans.into_iter().map(span).collect()
    }

    fn at(&self, site: &Site) -> &[u8] {
        let offset = (site.address().0 - self.start) as usize;
        &self.bytes[offset..offset + site.len()]
    }
}

/// The state that a change begins from.
fn verify<E>(change: &Change<'_>, actual: &[u8]) -> Result<State, Fate<E>> {
    let expected = change.site.bytes(change.from).map_err(|_| Fate::OutOfReach)?;
    let known = match change.recover {
        [] => (*actual == *expected).then_some(change.from),
        cut_short => change.site.recognise(actual, &[&[change.from], cut_short].concat(), change.to),
    };
    known.ok_or_else(|| Fate::Surprise(actual.to_vec()))
}

/// Writes what belongs to one step (by address, as spans are), and syncs. What is between is written again as it was.
fn take<T: Text>(text: &mut T, pokes: &[Poke], spans: &mut [Span]) -> Result<(), T::Error> {
    if pokes.is_empty() {
        return Ok(());
    }
    let mut rest = pokes;
    for span in spans {
        let end = span.start + span.bytes.len() as u64;
        let own;
        (own, rest) = rest.split_at(rest.partition_point(|poke| poke.address.0 < end));
        let (mut low, mut high) = (usize::MAX, 0);
        for poke in own {
            let at = (poke.address.0 - span.start) as usize;
            span.bytes[at..at + poke.bytes().len()].copy_from_slice(poke.bytes());
            (low, high) = (low.min(at), high.max(at + poke.bytes().len()));
        }
        if low < high {
            text.write(Avma(span.start + low as u64), &span.bytes[low..high])?;
        }
    }
    text.sync()
}
