//! Cost of the recorder for an event: reading a thread's chunks, pairing, encoding, and compressing
//! into a file.
//!
//! `cargo bench -p calltap-collect --bench reader` prints nanoseconds of processor time per event,
//! without and with compression: the least of several rounds. The words are in this processor's
//! cache or memory, where a recording finds them in another's.
#![allow(missing_docs)]

#[path = "../../trace/tests/synthetic/mod.rs"]
#[allow(dead_code)]
mod synthetic;

use calltap_abi::event::{code, epoch_word, event_word, stack_word};
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT};
use calltap_collect::callers::Unwinding;
use calltap_collect::output::{Consumer, Output};
use calltap_collect::reader::{Extent, Reader};
use calltap_collect::shm::{Shared, control_size};
use calltap_trace::{
    ClockKind, ClockPair, Error, Event, EventKind, Record, ThreadEncoder, ThreadId, TraceWriter,
};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use synthetic::{Machine, Tracer};

const EVENTS: usize = 1_000_000;
const ROUNDS: u32 = 25;
const CHUNKS: u32 = 192;
/// Slot of the outermost call.
const TOP: u64 = 0x7fff_ffff_e000;

/// Returns the processor time of this thread: the cost of the recorder, whatever else runs on the
/// machine.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A consumer that discards the events.
struct Discard;

impl Consumer for Discard {
    fn record(&mut self, _: &Record) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        *encoder = ThreadEncoder::new(encoder.thread());
        Ok(())
    }

    fn flush(&mut self, _: ClockPair) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns the words that the agent writes for these events.
fn words(events: &[Event]) -> Vec<u64> {
    let (mut depth, mut high) = (0_u64, u64::MAX);
    let mut words = Vec::new();
    for event in events {
        let exits = matches!(event.kind, EventKind::Exit { .. });
        depth = if exits { depth - 1 } else { depth };
        let slot = TOP - 64 * depth;
        let low = (slot as u32) << 22 ^ (event.site.0 << 5 | if exits { code::EXIT } else { code::ENTRY });
        if event.ticks >> 24 != high {
            high = event.ticks >> 24;
            words.extend([stack_word(slot, low), epoch_word(event.ticks)]);
        }
        words.push(event_word(event.ticks, slot, low));
        depth = if exits { depth } else { depth + 1 };
    }
    words
}

/// Writes the words into consecutive chunks.
fn fill(shared: &Shared, words: &[u64]) {
    let room = (CHUNK_LIMIT - CHUNK_DATA) / 8;
    let count = words.len().div_ceil(room) as u32;
    assert!(count <= CHUNKS);
    for (index, words) in (0..).zip(words.chunks(room)) {
        let places = &shared.chunk(index).expect("a chunk")[CHUNK_DATA / 8..];
        places.iter().zip(words).for_each(|(place, word)| place.store(*word, Relaxed));
        let next = if index + 1 < count { index + 2 } else { 0 };
        shared.chunk_header(index).expect("a chunk").next.store(next, Relaxed);
    }
    shared.thread(0).expect("an entry").first_chunk.store(1, Relaxed);
}

/// Returns nanoseconds per event: the least of many rounds.
fn measure(
    shared: &Shared,
    words: &[u64],
    events: usize,
    consumer: &mut dyn FnMut() -> Box<dyn Consumer>,
) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        fill(shared, words);
        let mut consumer = consumer();
        let mut output = Output::new(&mut *consumer);
        let mut reader = Reader::new(ThreadId(0), 0, 0, 1, false, None);
        let mut unwinding = Unwinding::default();
        let began = now();
        reader.read(shared, Extent::Rest, u32::MAX, &mut output, &mut unwinding);
        best = best.min(now() - began);
        assert_eq!(reader.totals.entries + reader.totals.exits, events as u64);
        reader.end(shared, (false, 0), &mut output, &mut unwinding);
    }
    best.as_nanos() as f64 / events as f64
}

fn main() {
    let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let file = tempfile::tempfile_in(folder.path()).unwrap();
    file.set_len(control_size(CHUNKS)).unwrap();
    let shared = Shared::map(&file, CHUNKS, CHUNKS).unwrap();
    shared.provide_all();
    let path = folder.path().join("trace");
    println!("{:20} {:>14} {:>14}", "ns an event", "read, encode", "and write");
    type Make = fn(Tracer, Machine, usize) -> Vec<Event>;
    for (name, make) in [("fib", synthetic::fib as Make), ("lua", synthetic::lua as Make)] {
        let events = make(Tracer::Graph, Machine::Intel, EVENTS);
        let words = words(&events);
        let encoded = measure(&shared, &words, events.len(), &mut || Box::new(Discard));
        let written = measure(&shared, &words, events.len(), &mut || {
            Box::new(TraceWriter::create(&path, synthetic::session(ClockKind::Tsc)).unwrap())
        });
        println!("{name:20} {encoded:14.2} {written:14.2}");
    }
}
