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

/// Carries out a batch. `granted` is what the caller has seen to.
pub fn carry_out<T: Text>(text: &mut T, changes: &[Change<'_>], granted: Demand) -> Vec<Fate<T::Error>>
where
    T::Error: Clone,
{
    let mut fates: Vec<Fate<T::Error>> = Vec::with_capacity(changes.len());
    let mut steps: [Vec<Poke>; STEPS] = Default::default();
    let mut pages = Pages { page: None, bytes: Vec::new() };
    for change in changes {
        let plan = |from| match change.site.demand(from, change.to) {
            demand if demand > granted => Err(Fate::Demands(demand)),
            _ => change.site.add_steps(from, change.to, &mut steps).map_err(|_| Fate::OutOfReach),
        };
        let planned = verify(text, change, &mut pages).and_then(plan);
        fates.push(planned.err().unwrap_or(Fate::Done));
    }
    // Whoever was cut short may not have come to its core sync.
    if changes.iter().any(|change| !change.recover.is_empty())
        && let Err(error) = text.sync()
    {
        steps = Default::default();
        fates
            .iter_mut()
            .filter(|fate| matches!(fate, Fate::Done))
            .for_each(|fate| *fate = Fate::Torn(error.clone()));
    }
    for step in &mut steps {
        step.sort_by_key(|poke| poke.address);
        if let Err(error) = take(text, step) {
            let torn = |fate: &mut Fate<T::Error>| {
                if matches!(fate, Fate::Done) {
                    *fate = Fate::Torn(error.clone());
                }
            };
            fates.iter_mut().for_each(torn);
            break;
        }
    }
    fates
}

/// The page read last: sites lie close together.
struct Pages {
    page: Option<u64>,
    bytes: Vec<u8>,
}

impl Pages {
    /// The bytes at an address.
    fn read<T: Text>(&mut self, text: &mut T, at: Avma, length: usize) -> Result<&[u8], T::Error> {
        let (page, offset) = (at.0 / PAGE, (at.0 % PAGE) as usize);
        if offset + length > PAGE as usize {
            self.page = None;
            self.bytes.resize(length, 0);
            text.read(at, &mut self.bytes)?;
            return Ok(&self.bytes);
        }
        if self.page != Some(page) {
            self.page = None;
            self.bytes.resize(PAGE as usize, 0);
            text.read(Avma(page * PAGE), &mut self.bytes)?;
            self.page = Some(page);
        }
        Ok(&self.bytes[offset..offset + length])
    }
}

/// The state that a change begins from.
fn verify<T: Text>(text: &mut T, change: &Change<'_>, pages: &mut Pages) -> Result<State, Fate<T::Error>> {
    let expected = change.site.bytes(change.from).map_err(|_| Fate::OutOfReach)?;
    let actual = pages.read(text, change.site.address(), expected.len()).map_err(Fate::Unread)?;
    let known = match change.recover {
        [] => (*actual == *expected).then_some(change.from),
        cut_short => change.site.recognise(actual, &[&[change.from], cut_short].concat(), change.to),
    };
    known.ok_or_else(|| Fate::Surprise(actual.to_vec()))
}

/// Writes what belongs to one step, a page at a time, and syncs.
fn take<T: Text>(text: &mut T, pokes: &[Poke]) -> Result<(), T::Error> {
    if pokes.is_empty() {
        return Ok(());
    }
    for page in pokes.chunk_by(|a, b| a.address.0 / PAGE == b.address.0 / PAGE) {
        let start = page[0].address;
        let end = page.iter().map(|poke| poke.address.0 + poke.bytes.len() as u64).max().unwrap_or(start.0);
        let mut bytes = vec![0; (end - start.0) as usize];
        // What is between is written again as it is.
        if page.len() > 1 {
            text.read(start, &mut bytes)?;
        }
        for poke in page {
            let at = (poke.address.0 - start.0) as usize;
            bytes[at..at + poke.bytes.len()].copy_from_slice(&poke.bytes);
        }
        text.write(start, &bytes)?;
    }
    text.sync()
}
