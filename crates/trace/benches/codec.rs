//! How fast events become chunks and chunks events, and how many bytes an event takes.
//!
//! `cargo bench -p calltap-trace` prints millions of events per second for encoding alone, encoding with compression
//! and writing, and reading with decoding; best of several rounds.
#![allow(missing_docs)]

#[path = "../tests/synthetic/mod.rs"]
#[allow(dead_code)]
mod synthetic;

use calltap_trace::{Batch, ClockKind, End, Event, ThreadEncoder, ThreadId, TraceReader, TraceWriter};
use std::path::Path;
use std::time::{Duration, Instant};
use synthetic::{Machine, Tracer};

const EVENTS: usize = 4_000_000;
const ROUNDS: u32 = 5;

fn best<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let start = Instant::now();
        let result = run();
        (start.elapsed(), result)
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

fn push_only(events: &[Event]) -> usize {
    let mut pending = 0;
    for chunk in events.chunks(1 << 16) {
        let mut encoder = ThreadEncoder::new(ThreadId(0));
        for &event in chunk {
            encoder.push(event);
        }
        pending += std::hint::black_box(&encoder).len();
    }
    pending
}

fn write(events: &[Event], path: &Path) -> u64 {
    let mut writer = TraceWriter::create(path, synthetic::session(ClockKind::Tsc)).unwrap();
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    for &event in events {
        encoder.push(event);
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
                let events = make(tracer, machine, EVENTS);
                let rate = |time: Duration| events.len() as f64 / time.as_secs_f64() / 1e6;
                let (push, _) = best(|| push_only(&events));
                let (wrote, size) = best(|| write(&events, &path));
                let (decode, count) = best(|| read(&path));
                assert_eq!(count, events.len());
                println!(
                    "{:26} {:9.0} {:9.0} {:9.0} {:12.3}",
                    format!("{name} {tracer:?} {machine:?}"),
                    rate(push),
                    rate(wrote),
                    rate(decode),
                    size as f64 / events.len() as f64
                );
            }
        }
    }
}
