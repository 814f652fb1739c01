//! The kernel's tracepoints about threads: who wakes them, and their system calls.
//!
//! Both are perf events, which end with the process that has opened them: nothing stays switched on in the kernel.

use crate::names::Names;
use crate::perf::What;
use crate::records::{self, Item, Sample};
use crate::refused::{Cause, Refused, Subject};
use crate::rings::{self, Opening};
use crate::stream::Stream;
use crate::tracefs::{Tracefs, Tracepoint};
use calltap_trace::{Edge, SystemCall, Waking};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The first pid namespace, which wakings tell ids of.
const FIRST_NAMESPACE: u64 = 0xeffffffc;
/// In [`Tracepoint`]'s `common_flags`: an interrupt's code ran, not the thread's.
const INTERRUPT: i64 = 0x08 | 0x10 | 0x40;
/// Bytes of a processor's ring of wakings: room for some ten thousand,
const WAKINGS_RING: usize = 1 << 20;
/// and of system calls, which are more.
const CALLS_RING: usize = 4 << 20;
/// What a record of either takes at most.
const RECORD: usize = 128;

/// The wakings of all threads of the machine, and the names of those that woke them.
pub struct Wakings {
    /// Who woke whom. The name of the waker's process is left empty.
    pub stream: Stream<Waking>,
    /// What the processes of the wakers were called.
    pub names: Names,
}

/// Records who wakes which thread, on all of the machine: others wake, too.
///
/// The kernel could leave out the wakings of other processes' threads, by a list of ids; but a thread that begins would be missing in it for some
/// time, and nothing would show that.
pub fn wakings() -> Result<Wakings, Refused> {
    let refused = |cause| Refused::of(Subject::Wakings, cause);
    if fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() != FIRST_NAMESPACE) {
        return Err(refused(Cause::Namespace));
    }
    let waking = Tracefs::open().and_then(|tracefs| tracefs.tracepoint("sched/sched_waking"));
    let waking = waking.map_err(|error| refused(Cause::of_tracefs(error)))?;
    let mut opening = Opening::new(WAKINGS_RING);
    for cpu in rings::processors() {
        opening.open_all(What::Tracepoint(waking.id), cpu).map_err(refused)?;
    }
    let names = Names::of_now();
    let told = names.clone();
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<Waking>)| {
        records::read_tasks(bytes, &mut |at, task| told.take(at, task));
        records::read_samples(bytes, &mut |sample| woken(&waking, sample), take);
    };
    Ok(Wakings { stream: Stream::new(opening, RECORD, Box::new(decode)), names })
}

/// Records the system calls of a process's threads, and of those they begin; with `follow`, also of the processes they begin.
pub fn system_calls(pid: u32, follow: bool) -> Result<Stream<SystemCall>, Refused> {
    let refused = |cause| Refused::of(Subject::SystemCalls, cause);
    let points = Tracefs::open().and_then(|tracefs| {
        Ok((tracefs.tracepoint("raw_syscalls/sys_enter")?, tracefs.tracepoint("raw_syscalls/sys_exit")?))
    });
    let (enter, exit) = points.map_err(|error| refused(Cause::of_tracefs(error)))?;
    let mut opening = Opening::new(CALLS_RING);
    let whats = [What::Tracepoint(enter.id), What::Tracepoint(exit.id)];
    opening.open_threads(pid, follow, &whats).map_err(refused)?;
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<SystemCall>)| {
        records::read_samples(bytes, &mut |sample| called(&enter, &exit, sample), take);
    };
    Ok(Stream::new(opening, RECORD, Box::new(decode)))
}

fn woken(point: &Tracepoint, sample: Sample<'_>) -> Option<Item<Waking>> {
    let Sample { at, pid, tid, raw } = sample;
    let woken = u32::try_from(point.number(raw, "pid")?).ok()?;
    let interrupt = point.number(raw, "common_flags")? & INTERRUPT != 0;
    Some(Item::Of(woken, Waking { at, interrupt, pid, tid, comm: String::new() }))
}

fn called(enter: &Tracepoint, exit: &Tracepoint, sample: Sample<'_>) -> Option<Item<SystemCall>> {
    let Sample { at, tid, raw, .. } = sample;
    let kind = enter.number(raw, "common_type")? as u16;
    let edge = if u64::from(kind) == enter.id {
        let mut arguments = [0; 6];
        let bytes = enter.bytes(raw, "args")?;
        for (argument, bytes) in arguments.iter_mut().zip(bytes.chunks_exact(8)) {
            *argument = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Edge::Enter(arguments)
    } else if u64::from(kind) == exit.id {
        Edge::Exit(exit.number(raw, "ret")?)
    } else {
        return None;
    };
    let number = u32::try_from(enter.number(raw, "id")?).ok()?;
    Some(Item::Of(tid, SystemCall { at, number, edge }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::tests::{ENTER, EXIT, WAKING, point};

    #[test]
    fn a_waking_tells_the_waker_and_whether_it_was_an_interrupt() {
        let waking = point("317", WAKING);
        let mut raw = [0; 36];
        raw[24] = 9;
        let woken_by = |flags: u8, raw: &mut [u8; 36]| {
            raw[2] = flags;
            woken(&waking, Sample { at: 5, pid: 3, tid: 4, raw: &raw[..] })
        };
        let expect =
            |interrupt| Some(Item::Of(9, Waking { at: 5, interrupt, pid: 3, tid: 4, comm: String::new() }));
        assert_eq!(woken_by(0x01, &mut raw), expect(false));
        assert_eq!((woken_by(0x08, &mut raw), woken_by(0x10, &mut raw)), (expect(true), expect(true)));
        assert_eq!(woken(&waking, Sample { at: 5, pid: 3, tid: 4, raw: &raw[..20] }), None);
    }

    #[test]
    fn a_system_call_is_told_by_its_tracepoint() {
        let (enter, exit) = (point("401", ENTER), point("400", EXIT));
        let words = |kind: u64, words: &[u64]| -> Vec<u8> {
            [&[kind][..], words].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let read = |raw: Vec<u8>| called(&enter, &exit, Sample { at: 5, pid: 3, tid: 4, raw: &raw });
        let call = |number, edge| Some(Item::Of(4, SystemCall { at: 5, number, edge }));
        assert_eq!(read(words(401, &[202, 1, 2, 3, 4, 5, 6])), call(202, Edge::Enter([1, 2, 3, 4, 5, 6])));
        assert_eq!(read(words(400, &[202, u64::MAX])), call(202, Edge::Exit(-1)));
        assert_eq!((read(words(399, &[202, 1])), read(words(401, &[202, 1]))), (None, None));
    }
}
