//! The threads that run a goroutine.

use super::Entry;
use crate::codec::Damage;
use crate::codec::streams::{Cursor, narrow, put_varint};
use crate::meta::ThreadId;

/// A thread was found to run a goroutine: it recorded an event of the goroutine, and its event
/// before that was of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Time of that event, in ticks of the trace's clock.
    pub at: u64,
    /// The thread.
    pub on: ThreadId,
}

impl Entry for Stay {
    fn at(&self) -> u64 {
        self.at
    }

    fn set_at(&mut self, at: u64) {
        self.at = at;
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.on.0.into());
    }

    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<Stay, Damage> {
        Ok(Stay { at, on: ThreadId(narrow(cursor.varint()?)?) })
    }
}
