//! Programs that a process and its descendants execute.

use crate::events::Events;
use crate::perf::PerfEvent;
use crate::records::{self, Item};
use crate::refused::Cause;
use crate::rings::Opening;
use crate::stream::Rings;
use calltap_names::printable_bytes;

/// Bytes of a processor's ring: enough for a hundred programs. The first ones matter.
const RING: usize = 8 << 10;

/// A record of the programs that a process and its descendants execute, which ends when it is
/// dropped.
pub struct Execs(Events<(u64, String)>);

impl Execs {
    /// Records the programs that a process, and the processes that it starts, execute from now on.
    /// Fails where the kernel does not allow users to record events of their own processes.
    pub fn of(pid: u32) -> Result<Execs, Cause> {
        let mut opening = Opening::new(RING);
        opening.open_threads(pid, true, &[PerfEvent::Execs])?;
        let decode = |bytes: &[u8], take: &mut dyn FnMut(_)| {
            records::read_execs(bytes, &mut |pid, at, name| take(Item::Of(pid, (at, printable_bytes(name)))));
        };
        Ok(Execs(Events::new(opening, records::TASK, Box::new(decode))))
    }

    /// Returns the name of the first program that was executed, of 15 bytes at most.
    pub fn first(&mut self) -> Option<String> {
        let taken = self.0.take().into_iter().flat_map(|taken| taken.items);
        let named = taken.filter_map(|item| match item {
            Item::Of(_, named) => Some(named),
            Item::Lost { .. } => None,
        });
        named.min_by_key(|(at, _)| *at).map(|(_, name)| name)
    }
}
