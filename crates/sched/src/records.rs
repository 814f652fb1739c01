//! Decoder of the kernel's perf records: context switches, tracepoints, incidents, processes.
//!
//! A record is a header, the fields of its kind, and the thread and the time that every record ends
//! with (`sample_id_all`).

use crate::thread_event::{ThreadEvent, ThreadEventKind};
use calltap_trace::{RunState, Switch};
use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_MISC_COMM_EXEC,
    PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SAMPLE, PERF_RECORD_SWITCH,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    kind: u32,
    misc: u16,
    size: u16,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SampleId {
    pid: u32,
    tid: u32,
    time: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Lost {
    id: u64,
    lost: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Named {
    pid: u32,
    tid: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Life {
    pid: u32,
    parent: u32,
    tid: u32,
    parent_tid: u32,
}

const HEADER: usize = size_of::<Header>();
/// Size of a record of a context switch.
pub(crate) const SWITCH: usize = HEADER + size_of::<SampleId>();
/// Maximum size of a record about a process or thread: a name has up to 16 bytes.
pub(crate) const TASK: usize = SWITCH + size_of::<Named>() + 16;
const LOST: usize = SWITCH + size_of::<Lost>();

/// A decoded record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item<T> {
    /// A record of the thread with this id.
    Of(u32, T),
    /// Number of records before `at` that found no room.
    Lost { at: u64, lost: u64 },
}

/// Passes the records of context switches in `bytes` to `take`, up to the first incomplete record.
pub(crate) fn read(bytes: &[u8], take: &mut dyn FnMut(Item<Switch>)) {
    each(bytes, &mut |header, body| item(header, body).into_iter().for_each(&mut *take));
}

/// Calls `show` for every record, with its header and the bytes that follow.
fn each(mut bytes: &[u8], show: &mut dyn FnMut(&Header, &[u8])) {
    while let Ok((header, _)) = Header::read_from_prefix(bytes) {
        let size = usize::from(header.size);
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= HEADER) else { return };
        bytes = rest;
        show(&header, &record[HEADER..]);
    }
}

fn item(header: &Header, body: &[u8]) -> Option<Item<Switch>> {
    let (_, SampleId { tid, time: at, .. }) = SampleId::read_from_suffix(body).ok()?;
    if header.kind != PERF_RECORD_SWITCH || usize::from(header.size) < SWITCH {
        return lost(header, body);
    }
    let has = |flag: u32| u32::from(header.misc) & flag != 0;
    let to = match (has(PERF_RECORD_MISC_SWITCH_OUT), has(PERF_RECORD_MISC_SWITCH_OUT_PREEMPT)) {
        (false, _) => RunState::Running,
        (true, true) => RunState::Runnable,
        (true, false) => RunState::Blocked,
    };
    Some(Item::Of(tid, Switch { at, to }))
}

/// Decodes a record of losses.
fn lost<T>(header: &Header, body: &[u8]) -> Option<Item<T>> {
    if header.kind != PERF_RECORD_LOST || usize::from(header.size) < LOST {
        return None;
    }
    let (_, SampleId { time: at, .. }) = SampleId::read_from_suffix(body).ok()?;
    let (Lost { lost, .. }, _) = Lost::read_from_prefix(body).ok()?;
    Some(Item::Lost { at, lost })
}

/// A hit of a tracepoint.
#[derive(Clone, Copy)]
pub(crate) struct Sample<'b> {
    /// Time, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) at: u64,
    /// The process that ran.
    pub(crate) pid: u32,
    /// The thread that ran.
    pub(crate) tid: u32,
    /// Data of the tracepoint.
    pub(crate) raw: &'b [u8],
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SampleCpu {
    cpu: u32,
    reserved: u32,
}

/// A page fault as of [`crate::perf::PerfEvent::PageFaults`]; for a major one, the period follows.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Fault {
    id: SampleId,
    address: u64,
    place: SampleCpu,
}

/// The end of all records in a ring of incidents.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Trailer {
    id: SampleId,
    place: SampleCpu,
}

/// Passes incidents of threads, and losses, to `take`; `signal` returns the signal number in a
/// tracepoint's data.
pub(crate) fn read_incidents(
    bytes: &[u8],
    signal: &mut dyn FnMut(&[u8]) -> Option<u32>,
    take: &mut dyn FnMut(Item<ThreadEvent>),
) {
    each(bytes, &mut |header, body| incident(header, body, signal).into_iter().for_each(&mut *take));
}

fn incident(
    header: &Header,
    body: &[u8],
    signal: &mut dyn FnMut(&[u8]) -> Option<u32>,
) -> Option<Item<ThreadEvent>> {
    const MINOR: usize = size_of::<Fault>();
    const MAJOR: usize = MINOR + size_of::<u64>();
    let of = |id: &SampleId, place: &SampleCpu, kind| {
        Some(Item::Of(id.tid, ThreadEvent { at: id.time, cpu: place.cpu, kind }))
    };
    match (header.kind, body.len()) {
        (PERF_RECORD_SAMPLE, MINOR | MAJOR) => {
            let (Fault { id, address, place }, _) = Fault::read_from_prefix(body).ok()?;
            of(&id, &place, ThreadEventKind::PageFault { address, major: body.len() == MAJOR })
        }
        (PERF_RECORD_SAMPLE, _) => {
            let (Trailer { id, place }, rest) = Trailer::read_from_prefix(body).ok()?;
            let (size, raw) = u32::read_from_prefix(rest).ok()?;
            of(&id, &place, ThreadEventKind::Signal { number: signal(raw.get(..size as usize)?)? })
        }
        (PERF_RECORD_SWITCH, _) if u32::from(header.misc) & PERF_RECORD_MISC_SWITCH_OUT == 0 => {
            let (_, Trailer { id, place }) = Trailer::read_from_suffix(body).ok()?;
            of(&id, &place, ThreadEventKind::SwitchedIn)
        }
        (PERF_RECORD_LOST, _) => {
            let (_, Trailer { id, .. }) = Trailer::read_from_suffix(body).ok()?;
            let (Lost { lost, .. }, _) = Lost::read_from_prefix(body).ok()?;
            Some(Item::Lost { at: id.time, lost })
        }
        _ => None,
    }
}

/// A record about a process or thread as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task<'b> {
    /// The process has this name from now on.
    Named { pid: u32, name: &'b [u8] },
    /// The process has executed a program, whose name it has.
    Executed { pid: u32, name: &'b [u8] },
    /// The thread, not the first of its process, has this name from now on.
    ThreadNamed { tid: u32, name: &'b [u8] },
    /// The process starts, as a copy of its parent.
    Begun { pid: u32, parent: u32 },
    /// The process ends.
    Ended { pid: u32 },
    /// A thread of the process starts.
    ThreadBegun { tid: u32, pid: u32 },
    /// A thread ends.
    ThreadEnded { tid: u32 },
}

/// Passes the samples and losses in `bytes` to `take`, decoded by `decode`.
pub(crate) fn read_samples<T>(
    bytes: &[u8],
    decode: &mut dyn FnMut(Sample<'_>) -> Option<Item<T>>,
    take: &mut dyn FnMut(Item<T>),
) {
    each(bytes, &mut |header, body| {
        let item = match header.kind {
            PERF_RECORD_SAMPLE => sample(body).and_then(&mut *decode),
            _ => lost(header, body),
        };
        item.into_iter().for_each(&mut *take);
    });
}

/// Passes the records about processes and threads in `bytes` to `take`, with their times.
pub(crate) fn read_tasks(bytes: &[u8], take: &mut dyn FnMut(u64, Task<'_>)) {
    each(bytes, &mut |header, body| {
        if let Some((time, task)) = task(header, body) {
            take(time, task);
        }
    });
}

/// Passes the processes that executed a program to `take`: id, time, and name of the program.
pub(crate) fn read_execs(bytes: &[u8], take: &mut dyn FnMut(u32, u64, &[u8])) {
    each(bytes, &mut |header, body| {
        if let Some((time, Task::Executed { pid, name })) = task(header, body) {
            take(pid, time, name);
        }
    });
}

/// Decodes a record about a process or thread, with its time.
fn task<'b>(header: &Header, body: &'b [u8]) -> Option<(u64, Task<'b>)> {
    // Most records in a ring of context switches are of another kind.
    if !matches!(header.kind, PERF_RECORD_COMM | PERF_RECORD_FORK | PERF_RECORD_EXIT) {
        return None;
    }
    let (body, SampleId { time, .. }) = SampleId::read_from_suffix(body).ok()?;
    let task = match header.kind {
        PERF_RECORD_COMM => {
            let (Named { pid, tid }, name) = Named::read_from_prefix(body).ok()?;
            let name = name.split(|byte| *byte == 0).next()?;
            let is_exec = u32::from(header.misc) & PERF_RECORD_MISC_COMM_EXEC != 0;
            match pid == tid {
                true if is_exec => Task::Executed { pid, name },
                true => Task::Named { pid, name },
                false => Task::ThreadNamed { tid, name },
            }
        }
        _ => {
            let (Life { pid, parent, tid, .. }, _) = Life::read_from_prefix(body).ok()?;
            match (header.kind, pid == tid) {
                (PERF_RECORD_FORK, true) => Task::Begun { pid, parent },
                (PERF_RECORD_FORK, false) => Task::ThreadBegun { tid, pid },
                (_, true) => Task::Ended { pid },
                (_, false) => Task::ThreadEnded { tid },
            }
        }
    };
    Some((time, task))
}

fn sample(body: &[u8]) -> Option<Sample<'_>> {
    let (SampleId { pid, tid, time: at }, rest) = SampleId::read_from_prefix(body).ok()?;
    let (size, rest) = u32::read_from_prefix(rest).ok()?;
    Some(Sample { at, pid, tid, raw: rest.get(..size as usize)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u32, words: &[u64]) -> Vec<u8> {
        let size = (HEADER + 8 * words.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &(misc as u16).to_le_bytes(), &size.to_le_bytes()].concat();
        header.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    fn all(bytes: &[u8]) -> Vec<Item<Switch>> {
        let mut items = Vec::new();
        read(bytes, &mut |item| items.push(item));
        items
    }

    const ID: u64 = 7 << 32 | 5;

    #[test]
    fn switches_and_losses_are_read_and_the_rest_is_left_out() {
        let (out, preempted) = (PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
        let bytes = [
            record(PERF_RECORD_SWITCH, 0, &[ID, 10]),
            record(PERF_RECORD_SWITCH, out, &[ID, 20]),
            record(PERF_RECORD_SWITCH, out | preempted, &[ID, 30]),
            record(99, 0, &[1, 2, 3, ID, 40]),
            record(PERF_RECORD_LOST, 0, &[1, 17, ID, 50]),
        ];
        let switch = |at, to| Item::Of(7, Switch { at, to });
        let expected = [
            switch(10, RunState::Running),
            switch(20, RunState::Blocked),
            switch(30, RunState::Runnable),
            Item::Lost { at: 50, lost: 17 },
        ];
        assert_eq!(all(&bytes.concat()), expected);
        assert_eq!(all(&bytes.concat()[..SWITCH + 9]), expected[..1]);
    }

    #[test]
    fn page_faults_signals_and_arrivals_are_distinguished() {
        // Twenty bytes of data, longer than a page fault's record with its length.
        let raw = 0x0000_000a_0000_0014_u64;
        let bytes = [
            record(PERF_RECORD_SAMPLE, 0, &[ID, 10, 0xabc000, 1]),
            record(PERF_RECORD_SAMPLE, 0, &[ID, 20, 0xdef000, 1, 1]),
            record(PERF_RECORD_SAMPLE, 0, &[ID, 30, 1, raw, 0, 0]),
            record(PERF_RECORD_SWITCH, PERF_RECORD_MISC_SWITCH_OUT, &[ID, 40, 1]),
            record(PERF_RECORD_SWITCH, 0, &[ID, 50, 3]),
            record(PERF_RECORD_LOST, 0, &[1, 17, ID, 60, 1]),
        ];
        let mut items = Vec::new();
        let mut signal = |raw: &[u8]| Some(u32::from(*raw.first()?));
        read_incidents(&bytes.concat(), &mut signal, &mut |item| items.push(item));
        let of = |at, cpu, kind| Item::Of(7, ThreadEvent { at, cpu, kind });
        let expected = [
            of(10, 1, ThreadEventKind::PageFault { address: 0xabc000, major: false }),
            of(20, 1, ThreadEventKind::PageFault { address: 0xdef000, major: true }),
            of(30, 1, ThreadEventKind::Signal { number: 10 }),
            of(50, 3, ThreadEventKind::SwitchedIn),
            Item::Lost { at: 60, lost: 17 },
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn samples_are_read_with_their_raw_data() {
        // Twelve bytes of data: two words with their length and padding.
        let bytes = [
            record(PERF_RECORD_SAMPLE, 0, &[ID, 10, 0x0807_0605_0000_000c, 0x100f_0e0d_0c0b_0a09]),
            record(PERF_RECORD_LOST, 0, &[1, 17, ID, 50]),
            record(PERF_RECORD_SAMPLE, 0, &[ID, 60, 0x0000_0000_0000_ffff]),
        ];
        let mut items = Vec::new();
        let mut decode =
            |sample: Sample<'_>| Some(Item::Of(sample.tid, (sample.at, sample.pid, sample.raw.to_vec())));
        read_samples(&bytes.concat(), &mut decode, &mut |item| items.push(item));
        let raw = vec![5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let expected = [Item::Of(7, (10, 5, raw)), Item::Lost { at: 50, lost: 17 }];
        assert_eq!(items, expected, "one that is longer than its record is left out");
    }

    #[test]
    fn processes_threads_and_process_names_are_reported() {
        let (life, name) =
            (|pid: u64, tid: u64| [3 << 32 | pid, 3 << 32 | tid], u64::from_le_bytes(*b"sleep\0\0\0"));
        let record = |kind, words: [u64; 2], time| record(kind, 0, &[&words[..], &[time, ID, time]].concat());
        let bytes = [
            record(PERF_RECORD_FORK, life(5, 5), 10),
            record(PERF_RECORD_FORK, life(5, 6), 20),
            super::tests::record(PERF_RECORD_COMM, 0, &[5 << 32 | 5, name, ID, 30]),
            super::tests::record(PERF_RECORD_COMM, 0, &[6 << 32 | 5, name, ID, 40]),
            record(PERF_RECORD_EXIT, life(5, 6), 50),
            record(PERF_RECORD_EXIT, life(5, 5), 60),
        ];
        let mut tasks = Vec::new();
        read_tasks(&bytes.concat(), &mut |at, task| tasks.push((at, format!("{task:?}"))));
        let expected = [
            (10, Task::Begun { pid: 5, parent: 3 }),
            (20, Task::ThreadBegun { tid: 6, pid: 5 }),
            (30, Task::Named { pid: 5, name: b"sleep" }),
            (40, Task::ThreadNamed { tid: 6, name: b"sleep" }),
            (50, Task::ThreadEnded { tid: 6 }),
            (60, Task::Ended { pid: 5 }),
        ];
        assert_eq!(tasks, expected.map(|(at, task)| (at, format!("{task:?}"))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(all(&bytes).len() <= bytes.len() / SWITCH);
            read_tasks(&bytes, &mut |_, _| ());
        }
    }
}
