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
    /// Its bytes now. With [`Change::recover`] they may be any that were ever on the way to these targets.
    pub from: State,
    /// Its bytes then.
    pub to: State,
    /// A batch was cut short here (its writer was killed): the site may be anywhere between its states.
    pub recover: bool,
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
        let planned = change.site.steps(change.from, change.to);
        let fate = match (verify(text, change, &mut pages), planned) {
            (Err(fate), _) => fate,
            (_, Err(_)) => Fate::OutOfReach,
            _ if change.site.demand(change.from, change.to) > granted => {
                Fate::Demands(change.site.demand(change.from, change.to))
            }
            (Ok(()), Ok(planned)) => {
                for (all, own) in steps.iter_mut().zip(planned) {
                    all.extend(own);
                }
                Fate::Done
            }
        };
        fates.push(fate);
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
    fn read<T: Text>(&mut self, text: &mut T, at: Avma, length: usize) -> Result<Vec<u8>, T::Error> {
        let (page, offset) = (at.0 / PAGE, (at.0 % PAGE) as usize);
        if offset + length > PAGE as usize {
            let mut bytes = vec![0; length];
            return text.read(at, &mut bytes).map(|()| bytes);
        }
        if self.page != Some(page) {
            self.bytes.resize(PAGE as usize, 0);
            self.page = None;
            text.read(Avma(page * PAGE), &mut self.bytes)?;
            self.page = Some(page);
        }
        Ok(self.bytes[offset..offset + length].to_vec())
    }
}

fn verify<T: Text>(text: &mut T, change: &Change<'_>, pages: &mut Pages) -> Result<(), Fate<T::Error>> {
    let expected = change.site.bytes(change.from).map_err(|_| Fate::OutOfReach)?;
    let actual = pages.read(text, change.site.address(), expected.len()).map_err(Fate::Unread)?;
    let known = actual == expected || change.recover && change.site.may_be(&actual, change.from);
    if known { Ok(()) } else { Err(Fate::Surprise(actual)) }
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
