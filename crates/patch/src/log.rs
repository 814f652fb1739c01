//! A log of everything read from and written to a program's code, as lines of text:
//!
//! ```text
//! batch PID barrier|quiet nothing|outside|stopped [jmp3f|int3] [after_int3]
//!                     a batch begins: how it syncs, which demand is met, the transition, and whether interrupted batches may have left breakpoints
//! site ADDRESS KIND BYTES FROM TO [RECOVER...]                 one of its changes; states are original, disabled, enabled:TARGET
//! read ADDRESS BYTES
//! write ADDRESS BYTES
//! sync
//! end                                                          of the batch
//! poke PID ADDRESS BYTES                                       a write outside of batches, to bytes that no thread executes
//! ```

use crate::address::Avma;
use crate::batch::Change;
use crate::site::{Demand, Site, State};
use crate::steps::Transition;
use std::fmt::{self, Display, Formatter};
use std::str::{FromStr, SplitAsciiWhitespace};

/// An entry of the log, one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The beginning of a batch.
    Batch {
        /// Process.
        pid: u32,
        /// Whether no thread runs the code, so that syncs do nothing.
        quiet: bool,
        /// The demand that the caller has met.
        granted: Demand,
        /// The instruction of a site while it is changed.
        transition: Transition,
        /// Whether interrupted batches may have left breakpoints.
        after_int3: bool,
    },
    /// A change of the batch.
    Change {
        /// The site.
        site: Box<Site>,
        /// State of the site before.
        from: State,
        /// State of the site afterwards.
        to: State,
        /// Target states of interrupted batches on this site.
        recover: Vec<State>,
    },
    /// A read, with the bytes found.
    Read(Avma, Vec<u8>),
    /// A write, with the bytes stored.
    Write(Avma, Vec<u8>),
    /// A core sync of all processors.
    Sync,
    /// The end of the batch.
    End,
    /// A write outside of batches.
    Poke(u32, Avma, Vec<u8>),
}

impl From<Change<'_>> for Entry {
    fn from(change: Change<'_>) -> Entry {
        Entry::Change {
            site: Box::new(*change.site),
            from: change.from,
            to: change.to,
            recover: change.recover.to_vec(),
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            State::Original => f.write_str("original"),
            State::Disabled => f.write_str("disabled"),
            State::Enabled(target) => write!(f, "enabled:{:#x}", target.0),
        }
    }
}

const DEMANDS: [(Demand, &str); 3] =
    [(Demand::Nothing, "nothing"), (Demand::Outside, "outside"), (Demand::Stopped, "stopped")];

/// Names of transitions. The default one, [`Transition::Test`], is not written.
const TRANSITIONS: [(Transition, &str); 2] = [(Transition::Jmp3f, "jmp3f"), (Transition::Int3, "int3")];
const AFTER_INT3: &str = "after_int3";

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Batch { pid, quiet, granted, transition, after_int3 } => {
                let how = if *quiet { "quiet" } else { "barrier" };
                let name = DEMANDS.iter().find(|(demand, _)| demand == granted).map_or("", |(_, name)| name);
                write!(f, "batch {pid} {how} {name}")?;
                let through = TRANSITIONS.iter().find(|(other, _)| other == transition);
                through.map_or(Ok(()), |(_, name)| write!(f, " {name}"))?;
                if *after_int3 { write!(f, " {AFTER_INT3}") } else { Ok(()) }
            }
            Entry::Change { site, from, to, recover } => {
                let (kind, bytes) = site.parts();
                write!(f, "site {:#x} {kind} {} {from} {to}", site.address().0, Hex(bytes))?;
                recover.iter().try_for_each(|state| write!(f, " {state}"))
            }
            Entry::Read(at, bytes) => write!(f, "read {:#x} {}", at.0, Hex(bytes)),
            Entry::Write(at, bytes) => write!(f, "write {:#x} {}", at.0, Hex(bytes)),
            Entry::Sync => f.write_str("sync"),
            Entry::End => f.write_str("end"),
            Entry::Poke(pid, at, bytes) => write!(f, "poke {pid} {:#x} {}", at.0, Hex(bytes)),
        }
    }
}

/// Error of a line that is no entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown;

impl FromStr for Entry {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Entry, Unknown> {
        let mut words = line.split_ascii_whitespace();
        let entry = parse(&mut words).ok_or(Unknown)?;
        if words.next().is_some() { Err(Unknown) } else { Ok(entry) }
    }
}

fn parse(words: &mut SplitAsciiWhitespace<'_>) -> Option<Entry> {
    Some(match words.next()? {
        "batch" => {
            let pid = words.next()?.parse().ok()?;
            let quiet = match words.next()? {
                "quiet" => true,
                "barrier" => false,
                _ => return None,
            };
            let granted = demand(words.next()?)?;
            let mut word = words.next();
            let known = TRANSITIONS.iter().find(|(_, name)| Some(*name) == word);
            if known.is_some() {
                word = words.next();
            }
            let transition = known.map_or(Transition::Test, |(transition, _)| *transition);
            let after_int3 = word == Some(AFTER_INT3);
            if word.is_some() && !after_int3 {
                return None;
            }
            Entry::Batch { pid, quiet, granted, transition, after_int3 }
        }
        "site" => {
            let (at, kind, bytes) =
                (address(words.next()?)?, words.next()?.parse().ok()?, bytes(words.next()?)?);
            let site = Box::new(Site::from_parts(at, kind, &bytes)?);
            let (from, to) = (state(words.next()?)?, state(words.next()?)?);
            Entry::Change { site, from, to, recover: words.map(state).collect::<Option<_>>()? }
        }
        "read" => Entry::Read(address(words.next()?)?, bytes(words.next()?)?),
        "write" => Entry::Write(address(words.next()?)?, bytes(words.next()?)?),
        "sync" => Entry::Sync,
        "end" => Entry::End,
        "poke" => Entry::Poke(words.next()?.parse().ok()?, address(words.next()?)?, bytes(words.next()?)?),
        _ => return None,
    })
}

fn demand(word: &str) -> Option<Demand> {
    DEMANDS.iter().find(|(_, name)| *name == word).map(|(demand, _)| *demand)
}

/// Upper bound of a program's addresses.
const USER_END: u64 = 1 << 56;

fn address(word: &str) -> Option<Avma> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().filter(|address| *address < USER_END).map(Avma)
}

fn state(word: &str) -> Option<State> {
    match word {
        "original" => Some(State::Original),
        "disabled" => Some(State::Disabled),
        _ => address(word.strip_prefix("enabled:")?).map(State::Enabled),
    }
}

fn bytes(word: &str) -> Option<Vec<u8>> {
    if !word.is_ascii() || !word.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&word[at..at + 2], 16).ok();
    (0..word.len()).step_by(2).map(byte).collect()
}
