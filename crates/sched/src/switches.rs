//! Context switches of a process's threads, and the names that the threads get.

use crate::events::Events;
use crate::perf::PerfEvent;
use crate::records::{self, Item};
use crate::refused::{Refused, Subject};
use crate::rings::Opening;
use crate::stream::Stream;
use crate::thread_names::ThreadNames;
use calltap_trace::Switch;

/// Bytes of a processor's ring: enough for ten thousand switches.
const RING: usize = 256 << 10;

/// The context switches of a process.
pub struct Sched {
    /// The switches.
    pub stream: Stream<Switch>,
    names: ThreadNames,
}

impl Sched {
    /// Returns the last name that a thread has got since the recording began, as far as the rings
    /// were read.
    pub fn name_of(&self, tid: u32) -> Option<String> {
        self.names.of(tid)
    }
}

/// Records the context switches of all threads of a process, and of the threads and processes that
/// they start; with `follow`, also after those execute other programs.
pub fn switches(pid: u32, follow: bool) -> Result<Sched, Refused> {
    let mut opening = Opening::new(RING);
    let opened = opening.open_threads(pid, follow, &[PerfEvent::Switches]);
    opened.map_err(|cause| Refused::of(Subject::Switches, cause))?;
    let threads = std::mem::take(&mut opening.threads);
    let names = ThreadNames::default();
    let own = names.clone();
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<Switch>)| {
        records::read(bytes, take);
        records::read_tasks(bytes, &mut |at, task| own.take(at, task));
    };
    let events = Events::new(opening, records::TASK, Box::new(decode));
    Ok(Sched { stream: Stream::new(Box::new(events), threads), names })
}
