//! A file recorded once is read for ever: `data/v1.calltap`, `data/v2.calltap` and what is in them.
//!
//! `BLESS=1` records the newest anew, which is only right while no version 2 has been released.
#![allow(missing_docs)]

use crate::synthetic::{self, Machine, Tracer, session};
use calltap_trace::*;
use std::path::Path;

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

/// What version 2 has besides.
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
        .record(&Record::Thread(Thread { id: ThreadId(0), process: 0, tid: 7, comm: "t".to_owned() }))
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
