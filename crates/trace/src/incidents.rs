//! Incidents of a thread that it did not request: page faults, signals, moves to another processor.

use crate::codec::Damage;
use crate::codec::streams::{Cursor, narrow, put_varint};
use crate::kernel_log::Entry;

/// An incident of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incident {
    /// Time, as in `Waking::at`.
    pub at: u64,
    /// The kind of the incident, with its data.
    pub what: IncidentKind,
}

/// The kinds of incidents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IncidentKind {
    /// A page was not mapped, or not yet the thread's own.
    PageFault {
        /// Address that the thread read or wrote.
        address: u64,
        /// Whether the page had to be read from a disk.
        major: bool,
    },
    /// A signal reached the thread.
    Signal {
        /// Number of the signal.
        number: u32,
    },
    /// The thread moved to another processor.
    Migration {
        /// Former processor.
        from: u32,
        /// New processor.
        to: u32,
    },
}

impl IncidentKind {
    /// Returns the name in JSON and in other programs' formats.
    pub fn name(&self) -> &'static str {
        match self {
            IncidentKind::PageFault { major: false, .. } => "page fault",
            IncidentKind::PageFault { major: true, .. } => "major page fault",
            IncidentKind::Signal { .. } => "signal",
            IncidentKind::Migration { .. } => "migration",
        }
    }
}

const MINOR: u64 = 0;
const MAJOR: u64 = 1;
const SIGNAL: u64 = 2;
const MIGRATION: u64 = 3;

impl Entry for Incident {
    fn at(&self) -> u64 {
        self.at
    }

    fn set_at(&mut self, at: u64) {
        self.at = at;
    }

    fn put(&self, out: &mut Vec<u8>) {
        let words: [u64; 3] = match self.what {
            IncidentKind::PageFault { address, major } => [if major { MAJOR } else { MINOR }, address, 0],
            IncidentKind::Signal { number } => [SIGNAL, number.into(), 0],
            IncidentKind::Migration { from, to } => [MIGRATION, from.into(), to.into()],
        };
        let count = if words[0] == MIGRATION { 3 } else { 2 };
        words[..count].iter().for_each(|word| put_varint(out, *word));
    }

    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<Incident, Damage> {
        let (kind, first) = (cursor.varint()?, cursor.varint()?);
        let what = match kind {
            MINOR | MAJOR => IncidentKind::PageFault { address: first, major: kind == MAJOR },
            SIGNAL => IncidentKind::Signal { number: narrow(first)? },
            MIGRATION => IncidentKind::Migration { from: narrow(first)?, to: narrow(cursor.varint()?)? },
            _ => return Err(Damage("an incident of no known kind")),
        };
        Ok(Incident { at, what })
    }
}
