//! Reports waits for the recorder to it, so that their time does not count as the program's.

use crate::state::Session;
use crate::sys;
use calltap_abi::waits::{self, WaitInterval};
use core::sync::atomic::Ordering::*;

/// Runs `wait`, in which the calling thread waits for the recorder, for at most `limit_ns`, and
/// reports the time.
pub fn waiting<T>(session: Session, limit_ns: u64, wait: impl FnOnce() -> T) -> T {
    let Some(process) = session.private().process.load(Relaxed).checked_sub(1) else { return wait() };
    let number = session.control().waits.fetch_add(1, AcqRel);
    let from = sys::monotonic_ns();
    let slot = waits::slot(session.waits(), number);
    slot.begin(number, WaitInterval { process, tid: sys::tid(), from, to: from.saturating_add(limit_ns) });
    let result = wait();
    slot.end(number, sys::monotonic_ns());
    result
}
