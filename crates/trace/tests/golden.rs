//! A file recorded once is readable for ever: `data/v1.calltap`, `data/v2.calltap` and their
//! contents.
//!
//! `BLESS=1` records the newest one again, which is only right while no version 2 has been
//! released.
#![allow(missing_docs)]

use crate::synthetic::{self, Machine, Tracer, session};
use calltap_trace::*;
use std::path::Path;

/// Checksum of `data/kernel.calltap`.
const KERNEL: u32 = 3590829804;

fn events() -> Vec<Event> {
    let mut events = synthetic::lua(Tracer::Both, Machine::Amd, 700);
    let now = events[events.len() - 1].ticks;
    let kinds = [
        (5, EventKind::TailEntry),
        (300, EventKind::TailEntryFrom { parent: u64::MAX }),
        (9_000, EventKind::Exit { pops: 2 }),
        (90_000, EventKind::Exit { pops: 0 }),
        (20_000_000, EventKind::Exit { pops: u32::MAX }),
        (20_000_000_000, EventKind::Lost { entries: 3, exits: u32::MAX }),
        (20_000_000_000 - 7, EventKind::Call { parent: 0 }),
        (u64::MAX - now, EventKind::Entry),
        (0_u64.wrapping_sub(now), EventKind::Exit { pops: 1 }),
    ];
    let more = kinds.map(|(later, kind)| Event { ticks: now.wrapping_add(later), site: SiteId(9), kind });
    events.extend(more);
    events
}

/// Returns the events of version 2, among them those that version 1 did not have.
fn newer_events() -> Vec<Event> {
    let mut events = events();
    let kinds = [
        EventKind::Left { pops: 1 },
        EventKind::Entry,
        EventKind::Left { pops: u32::MAX },
        EventKind::SwitchedOff,
        EventKind::Lost { entries: 0, exits: 1 },
        EventKind::Exit { pops: 1 },
    ];
    events.extend(kinds.map(|kind| Event { ticks: 1_000, site: SiteId(9), kind }));
    events
}

fn record(path: &Path) {
    let mut writer = TraceWriter::create(path, session(ClockKind::Tsc)).unwrap();
    writer
        .record(&Record::Thread(Thread {
            id: ThreadId(0),
            process: 0,
            tid: 7,
            comm: "t".to_owned(),
            goroutine: None,
            started: None,
        }))
        .unwrap();
    writer.record(&Record::Clock(ClockPair { ticks: 1 << 44, monotonic_ns: 5_000_000_000 })).unwrap();
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    newer_events().into_iter().for_each(|event| encoder.push(event));
    writer.events(&mut encoder).unwrap();
    writer.record(&Record::Clock(ClockPair { ticks: 1 << 45, monotonic_ns: 6_000_000_000 })).unwrap();
    writer.finish(End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 2, recorder_cpu_ns: 3 }).unwrap();
}

fn check(name: &str, crc: u32, events: &[Event]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    assert_eq!(crc32fast::hash(&std::fs::read(&path).unwrap()), crc, "the file itself has changed");
    let reader = TraceReader::open(&path).unwrap();
    let meta = reader.meta();
    assert_eq!(meta.session, Some(session(ClockKind::Tsc)));
    assert_eq!((meta.threads[0].tid, meta.clock.len()), (7, 2));
    assert_eq!(meta.end.as_ref().unwrap().recorder_cpu_ns, 3);
    let back: Vec<Event> = reader.batches().flat_map(|batch| batch.unwrap().events).collect();
    assert!(back == events);
}

fn wakings() -> [Waking; 2] {
    let waking =
        |at, interrupt, comm: &str| Waking { at, interrupt, pid: 7, tid: 1 << 30, comm: comm.to_owned() };
    [waking(5_100_000_000, false, "waker"), waking(5_100_000_001, true, "")]
}

fn system_calls() -> [SystemCall; 3] {
    let call = |at, number, edge| SystemCall { at, number, edge };
    [
        call(5_000_000_100, 202, Edge::Enter([1 << 47, 128, u64::MAX, 0, 5, 1])),
        call(5_100_000_200, 202, Edge::Exit(-110)),
        call(5_200_000_000, u32::MAX, Edge::Exit(i64::MIN)),
    ]
}

/// Writes the kernel's entries about a thread, with a gap in their times.
fn record_kernel(path: &Path) {
    // Ticks are nanoseconds.
    let mut writer = TraceWriter::create(path, session(ClockKind::Tsc)).unwrap();
    let process = Process::new(0, 7, "t");
    writer.record(&Record::Process(process)).unwrap();
    let thread =
        Thread { id: ThreadId(0), process: 0, tid: 7, comm: "t".to_owned(), goroutine: None, started: None };
    writer.record(&Record::Thread(thread)).unwrap();
    for ns in [5_000_000_000, 6_000_000_000] {
        writer.record(&Record::Clock(ClockPair { ticks: ns, monotonic_ns: ns })).unwrap();
    }
    let events =
        KernelEvents { wakings: true, system_calls: true, lost: 3, recorder: 9, ..KernelEvents::default() };
    writer.record(&Record::KernelEvents(events)).unwrap();
    let (name, place) = (Some("lock+8".to_owned()), "/bin/t".to_owned());
    let address = Address { process: 0, address: 1 << 47, name, object: None, place, recorder: false };
    writer.record(&Record::Addresses { addresses: vec![address] }).unwrap();
    writer.wakings(ThreadId(0), 5_000_000_000, &wakings(), 5_200_000_000).unwrap();
    writer.wakings(ThreadId(0), 5_300_000_000, &[], 5_400_000_000).unwrap();
    writer.system_calls(ThreadId(0), 5_000_000_000, &system_calls(), 5_200_000_000).unwrap();
    writer.finish(End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 2, recorder_cpu_ns: 3 }).unwrap();
}

#[test]
fn kernel_events_of_golden_file_are_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kernel.calltap");
    if std::env::var_os("BLESS").is_some() {
        record_kernel(&path);
    }
    assert_eq!(crc32fast::hash(&std::fs::read(&path).unwrap()), KERNEL, "the file itself has changed");
    let reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.complaints(), [] as [String; 0]);
    let (told, calls) = (reader.wakings(ThreadId(0)).unwrap(), reader.system_calls(ThreadId(0)).unwrap());
    assert_eq!(told.entries, wakings());
    assert_eq!(told.known, [(5_000_000_000, 5_200_000_000), (5_300_000_000, 5_400_000_000)]);
    assert_eq!((&calls.entries[..], calls.known.len()), (&system_calls()[..], 1));
    let meta = reader.meta();
    let events = meta.kernel_events.as_ref().unwrap();
    assert_eq!((events.recorder, events.lost), (9, 3));
    assert_eq!(meta.addresses[0].name.as_deref(), Some("lock+8"));
}

#[test]
fn version_1_is_readable() {
    check("v1.calltap", 3360397142, &events());
}

#[test]
fn version_2_is_readable() {
    if std::env::var_os("BLESS").is_some() {
        record(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v2.calltap"));
    }
    check("v2.calltap", 2015430677, &newer_events());
}
