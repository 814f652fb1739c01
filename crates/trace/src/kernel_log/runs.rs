//! Runs of goroutines: which thread begins to run a goroutine, and when.

use super::Entry;
use crate::codec::Damage;
use crate::codec::streams::{Cursor, narrow, put_varint};
use crate::meta::ThreadId;

/// A thread begins to run a goroutine: its event at `at` is of this goroutine, and its event before
/// is of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoroutineRun {
    /// Time of that event, in ticks of the trace's clock.
    pub at: u64,
    /// The thread.
    pub on: ThreadId,
}

impl Entry for GoroutineRun {
    fn at(&self) -> u64 {
        self.at
    }

    fn set_at(&mut self, at: u64) {
        self.at = at;
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.on.0.into());
    }

    fn get(at: u64, cursor: &mut Cursor<'_>) -> Result<GoroutineRun, Damage> {
        Ok(GoroutineRun { at, on: ThreadId(narrow(cursor.varint()?)?) })
    }
}
