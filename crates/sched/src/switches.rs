//! Context switches of a process's threads.

use crate::events::Events;
use crate::perf::PerfEvent;
use crate::records;
use crate::refused::{Refused, Subject};
use crate::rings::Opening;
use crate::stream::Stream;
use calltap_trace::Switch;

/// Bytes of a processor's ring: enough for ten thousand switches.
const RING: usize = 256 << 10;

/// The context switches of a process.
pub type Sched = Stream<Switch>;

/// Records the context switches of all threads of a process, and of the threads and processes that
/// they start; with `follow`, also after those execute other programs.
pub fn switches(pid: u32, follow: bool) -> Result<Sched, Refused> {
    let mut opening = Opening::new(RING);
    let opened = opening.open_threads(pid, follow, &[PerfEvent::Switches]);
    opened.map_err(|cause| Refused::of(Subject::Switches, cause))?;
    let threads = std::mem::take(&mut opening.threads);
    let events = Events::new(opening, records::SWITCH, Box::new(|bytes, take| records::read(bytes, take)));
    Ok(Stream::new(Box::new(events), threads))
}
