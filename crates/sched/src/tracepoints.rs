//! The system calls of threads, recorded as perf events.
//!
//! The events end with the process that opened them: nothing stays enabled in the kernel.

use crate::events::Events;
use crate::perf::PerfEvent;
use crate::records::{self, Item, Sample};
use crate::refused::{Cause, Refused, Subject};
use crate::rings::Opening;
use crate::stream::Stream;
use crate::tracefs::{Tracefs, Tracepoint};
use calltap_trace::{Edge, SystemCall};

/// Bytes of a processor's ring.
const RING: usize = 4 << 20;
/// Maximum bytes of a record.
const RECORD: usize = 128;

/// Records the system calls of a process's threads, and of the threads and processes that they
/// start; with `follow`, also after those execute other programs.
pub fn system_calls(pid: u32, follow: bool) -> Result<Stream<SystemCall>, Refused> {
    let refused = |cause| Refused::of(Subject::SystemCalls, cause);
    let points = Tracefs::open().and_then(|tracefs| {
        Ok((tracefs.tracepoint("raw_syscalls/sys_enter")?, tracefs.tracepoint("raw_syscalls/sys_exit")?))
    });
    let (enter, exit) = points.map_err(|error| refused(Cause::of_tracefs(error)))?;
    let mut opening = Opening::new(RING);
    let kinds = [PerfEvent::Tracepoint(enter.id), PerfEvent::Tracepoint(exit.id)];
    opening.open_threads(pid, follow, &kinds).map_err(refused)?;
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<SystemCall>)| {
        records::read_samples(bytes, &mut |sample| called(&enter, &exit, sample), take);
    };
    let threads = std::mem::take(&mut opening.threads);
    Ok(Stream::new(Box::new(Events::new(opening, RECORD, Box::new(decode))), threads))
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
    // The exit of rt_sigreturn, which restores the interrupted state, has no number.
    let number = match (enter.number(raw, "id")?, &edge) {
        (-1, Edge::Exit(_)) => libc::SYS_rt_sigreturn,
        (number, _) => number,
    };
    let number = u32::try_from(number).ok()?;
    Some(Item::Of(tid, SystemCall { at, number, edge }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::tests::{ENTER, EXIT, point};

    #[test]
    fn system_call_is_identified_by_tracepoint() {
        let (enter, exit) = (point("401", ENTER), point("400", EXIT));
        let words = |kind: u64, words: &[u64]| -> Vec<u8> {
            [&[kind][..], words].concat().iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let read = |raw: Vec<u8>| called(&enter, &exit, Sample { at: 5, pid: 3, tid: 4, raw: &raw });
        let call = |number, edge| Some(Item::Of(4, SystemCall { at: 5, number, edge }));
        assert_eq!(read(words(401, &[202, 1, 2, 3, 4, 5, 6])), call(202, Edge::Enter([1, 2, 3, 4, 5, 6])));
        assert_eq!(read(words(400, &[202, u64::MAX])), call(202, Edge::Exit(-1)));
        assert_eq!(
            read(words(400, &[u64::MAX, 7])),
            call(15, Edge::Exit(7)),
            "the handler of a signal is over"
        );
        assert_eq!(read(words(401, &[u64::MAX, 1, 2, 3, 4, 5, 6])), None);
        assert_eq!((read(words(399, &[202, 1])), read(words(401, &[202, 1]))), (None, None));
    }
}
