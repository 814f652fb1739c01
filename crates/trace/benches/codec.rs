//! Speed of encoding events to chunks and decoding them, and bytes per event.
//!
//! `cargo bench -p calltap-trace` prints millions of events per second for encoding alone, encoding
//! with compression and writing, and reading with decoding; best of several rounds.
#![allow(missing_docs)]

#[path = "../tests/synthetic/mod.rs"]
#[allow(dead_code)]
mod synthetic;

use calltap_trace::{
    Batch, ClockKind, End, Event, EventKind, GraphEnd, GraphEvent, SiteId, ThreadEncoder, ThreadId,
    TraceReader, TraceWriter,
};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;
use synthetic::{Machine, Tracer};

const EVENTS: usize = 1_000_000;
const ROUNDS: u32 = 15;

/// Returns the processor time of this thread: the cost of the recorder, whatever else runs on the
/// machine.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An event about as small as a recorder finds it; reading 32 bytes each would be a good part of
/// the measured time.
#[derive(Clone, Copy)]
struct Raw {
    delta: u32,
    site_and_kind: u32,
    parent: u64,
}

fn pack(events: &[Event]) -> Vec<Raw> {
    let mut last = 0;
    let pack = |event: &Event| {
        let (kind, parent) = match event.kind {
            EventKind::Entry => (0, 0),
            EventKind::Exit { .. } => (1, 0),
            EventKind::Call { parent } => (2, parent),
            EventKind::EntryFrom { parent } => (3, parent),
            _ => unreachable!(),
        };
        let delta = (event.ticks - last) as u32;
        last = event.ticks;
        Raw { delta, site_and_kind: event.site.0 << 2 | kind, parent }
    };
    events.iter().map(pack).collect()
}

/// Adds the events at the start that are of one sort; returns how many.
#[inline(always)]
fn push(events: &[Raw], ticks: &mut u64, encoder: &mut ThreadEncoder) -> usize {
    let (mut now, kind) = (*ticks, events[0].site_and_kind & 3);
    let site = |raw: &Raw| SiteId(raw.site_and_kind >> 2);
    let mut step = |raw: &Raw| {
        now += u64::from(raw.delta);
        now
    };
    let count = match kind {
        0 | 1 => encoder.push_graph(events, |raw| {
            let end = [GraphEnd::ENTRY, GraphEnd::RETURN].get(raw.site_and_kind as usize & 3)?;
            Some(GraphEvent { ticks: step(raw), site: site(raw), end: *end })
        }),
        2 => encoder.push_calls(events, |raw| {
            (raw.site_and_kind & 3 == 2).then(|| (step(raw), site(raw), raw.parent))
        }),
        _ => {
            let kind = EventKind::EntryFrom { parent: events[0].parent };
            encoder.push(Event { ticks: step(&events[0]), site: site(&events[0]), kind });
            1
        }
    };
    *ticks = now;
    count
}

fn best<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let start = now();
        let result = run();
        (now() - start, result)
    };
    let mut best = once();
    for _ in 1..ROUNDS {
        let next = once();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

fn push_only(events: &[Raw]) -> usize {
    let (mut pending, mut ticks) = (0, 1 << 40);
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    let mut rest = events;
    while !rest.is_empty() {
        rest = &rest[push(rest, &mut ticks, &mut encoder)..];
        pending += std::hint::black_box(&encoder).is_full() as usize;
    }
    pending
}

fn write(events: &[Raw], path: &Path) -> u64 {
    let mut writer = TraceWriter::create(path, synthetic::session(ClockKind::Tsc)).unwrap();
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    let mut ticks = 1 << 40;
    let mut rest = events;
    while !rest.is_empty() {
        rest = &rest[push(rest, &mut ticks, &mut encoder)..];
        if encoder.is_full() {
            writer.events(&mut encoder).unwrap();
        }
    }
    writer.events(&mut encoder).unwrap();
    writer.finish(End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 1, recorder_cpu_ns: 1 }).unwrap()
}

fn read(path: &Path) -> usize {
    let reader = TraceReader::open(path).unwrap();
    let (mut batches, mut batch, mut count) = (reader.batches(), Batch::default(), 0);
    while batches.next_into(&mut batch).unwrap() {
        count += batch.events.len();
    }
    count
}

fn main() {
    let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let path = folder.path().join("trace");
    println!("{:26} {:>9} {:>9} {:>9} {:>12}", "", "push M/s", "write M/s", "read M/s", "bytes/event");
    type Make = fn(Tracer, Machine, usize) -> Vec<Event>;
    for (name, make) in [("fib", synthetic::fib as Make), ("lua", synthetic::lua as Make)] {
        for tracer in [Tracer::Graph, Tracer::Function, Tracer::Both] {
            for machine in [Machine::Amd, Machine::Intel, Machine::Coarse, Machine::Counter] {
                let name_of = format!("{name} {tracer:?} {machine:?}");
                if !std::env::args().skip(1).all(|word| word == "--bench" || name_of.contains(&word)) {
                    continue;
                }
                let events = make(tracer, machine, EVENTS);
                let raw = pack(&events);
                let rate = |time: Duration| events.len() as f64 / time.as_secs_f64() / 1e6;
                let (push, _) = best(|| push_only(&raw));
                let (wrote, size) = best(|| write(&raw, &path));
                let (decode, count) = best(|| read(&path));
                assert_eq!(count, events.len());
                println!(
                    "{:26} {:9.0} {:9.0} {:9.0} {:12.3}",
                    name_of,
                    rate(push),
                    rate(wrote),
                    rate(decode),
                    size as f64 / events.len() as f64
                );
            }
        }
    }
}
