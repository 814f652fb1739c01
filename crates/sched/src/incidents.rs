//! Incidents of threads, recorded as perf events: page faults and moves to other processors, for
//! unprivileged users as well; signals, with more privileges.
//!
//! The events end with the process that opened them: nothing stays enabled in the kernel.

use crate::events::Events;
use crate::perf::PerfEvent;
use crate::records::{self, Item};
use crate::refused::{Cause, Refused, Subject};
use crate::rings::Opening;
use crate::stream::Stream;
use crate::thread_event::ThreadEvent;
use crate::tracefs::{Tracefs, Tracepoint};

/// Bytes of a processor's ring.
const RING: usize = 1 << 20;
/// Maximum bytes of a record.
const RECORD: usize = 128;

/// Incidents of a process's threads.
pub struct Incidents {
    /// All incidents, in order.
    pub stream: Stream<ThreadEvent>,
    /// Why signals are not recorded, if so.
    pub signals: Option<Refused>,
}

/// Records incidents of a process's threads, and of the threads and processes that they start; with
/// `follow`, also after those execute other programs.
pub fn incidents(pid: u32, follow: bool) -> Result<Incidents, Refused> {
    let refused = |cause| Refused::of(Subject::Faults, cause);
    let mut opening = Opening::new(RING);
    let own =
        [PerfEvent::PageFaults { major: false }, PerfEvent::PageFaults { major: true }, PerfEvent::SwitchIns];
    opening.open_threads(pid, follow, &own).map_err(refused)?;
    let threads = std::mem::take(&mut opening.threads);
    let point = Tracefs::open().and_then(|tracefs| tracefs.tracepoint("signal/signal_deliver"));
    let point = point.map_err(Cause::of_tracefs).and_then(|point| {
        opening.open_threads(pid, follow, &[PerfEvent::SignalDeliveries(point.id)])?;
        Ok(point)
    });
    opening.threads.clear();
    let (point, signals) = match point {
        Ok(point) => (Some(point), None),
        Err(cause) => (None, Some(Refused::of(Subject::Signals, cause))),
    };
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<ThreadEvent>)| {
        records::read_incidents(bytes, &mut |raw| delivered(point.as_ref()?, raw), take);
    };
    let events = Events::new(opening, RECORD, Box::new(decode));
    Ok(Incidents { stream: Stream::new(Box::new(events), threads), signals })
}

/// Returns the signal in a tracepoint's data.
fn delivered(point: &Tracepoint, raw: &[u8]) -> Option<u32> {
    u32::try_from(point.number(raw, "sig")?).ok()
}
