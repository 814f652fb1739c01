//! Files that are cut off, changed, foreign or hostile: the reader gives their whole parts,
//! complains about the rest, and makes up nothing.
#![allow(missing_docs)]

use crate::synthetic::{self, Machine, Tracer, session};
use calltap_trace::*;
use std::path::{Path, PathBuf};

fn end() -> End {
    End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 2, recorder_cpu_ns: 3 }
}

fn sites(count: u32) -> Record {
    let site = |id| Site {
        id: SiteId(id),
        module: 0,
        address: 0x1000,
        size: 16,
        name: format!("f{id}"),
        kind: "patchable".to_owned(),
        tracers: 1,
        aliases: Vec::new(),
        captured: None,
    };
    Record::Sites { sites: (0..count).map(site).collect() }
}

/// A small trace of two threads and several chunks; returns its bytes and its events in file order.
fn small(path: &Path) -> (Vec<u8>, Vec<Event>) {
    let mut writer = TraceWriter::create(path, session(ClockKind::Tsc)).unwrap();
    writer.record(&Record::Process(Process::new(0, 1, "p"))).unwrap();
    writer
        .record(&Record::Module(Module {
            id: 0,
            process: 0,
            path: "/p".to_owned(),
            link: None,
            build_id: None,
            bias: 0,
            range: (0, 1),
            unloaded_ticks: None,
            untraceable: calltap_trace::Untraceable::default(),
        }))
        .unwrap();
    writer.record(&sites(16)).unwrap();
    let mut all = Vec::new();
    for (id, tracer) in [Tracer::Graph, Tracer::Both].into_iter().enumerate() {
        let thread = ThreadId(id as u32);
        let record =
            Thread { id: thread, process: 0, tid: 7, comm: "t".to_owned(), goroutine: None, started: None };
        writer.record(&Record::Thread(record)).unwrap();
        let mut encoder = ThreadEncoder::new(thread);
        let mut events = synthetic::lua(tracer, Machine::Amd, 900);
        events.iter_mut().for_each(|event| event.site.0 %= 16);
        for events in events.chunks(300) {
            events.iter().for_each(|&event| encoder.push(event));
            all.extend_from_slice(events);
            writer.events(&mut encoder).unwrap();
            let ticks = all.len() as u64;
            writer.record(&Record::Clock(ClockPair { ticks, monotonic_ns: ticks * 2 })).unwrap();
        }
        let to = |n| if n % 2 == 0 { RunState::Blocked } else { RunState::Running };
        let switches: Vec<Switch> = (1..40).map(|n| Switch { at: n * n * 10, to: to(n) }).collect();
        writer.switches(thread, &switches, 20_000).unwrap();
    }
    writer.finish(end()).unwrap();
    (std::fs::read(path).unwrap(), all)
}

struct Seen {
    events: Vec<Event>,
    /// Complaints of the reader and of its batches.
    complaints: Vec<String>,
}

fn look(path: &Path, bytes: &[u8]) -> Result<Seen, Error> {
    std::fs::write(path, bytes).unwrap();
    let reader = TraceReader::open(path)?;
    let mut seen = Seen { events: Vec::new(), complaints: reader.complaints().to_vec() };
    // Views find the same damage by decoding.
    let damaged: Vec<String> = reader.damaged_chunks().map(|error| error.to_string()).collect();
    let unreadable = reader.batches().filter_map(|batch| batch.err().map(|error| error.to_string()));
    assert_eq!(damaged, unreadable.collect::<Vec<_>>());
    for batch in reader.batches() {
        match batch {
            Ok(batch) => {
                assert!((batch.thread.0 as usize) < reader.meta().threads.len());
                for event in batch.events {
                    assert!((event.site.0 as usize) < reader.meta().sites.len());
                    seen.events.push(event);
                }
            }
            Err(error) => seen.complaints.push(error.to_string()),
        }
    }
    Ok(seen)
}

fn place(folder: &tempfile::TempDir) -> (PathBuf, PathBuf) {
    (folder.path().join("whole.calltap"), folder.path().join("damaged.calltap"))
}

#[test]
fn every_prefix_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = place(&folder);
    let (bytes, events) = small(&whole);
    let mut most = 0;
    for length in 1..=bytes.len() {
        let seen = look(&damaged, &bytes[..length]).unwrap();
        assert_eq!(seen.events, events[..seen.events.len()], "{length}");
        assert!(seen.events.len() >= most, "{length}");
        assert_eq!(seen.complaints.is_empty(), length == bytes.len(), "{length}: {:?}", seen.complaints);
        most = seen.events.len();
    }
    assert_eq!(most, events.len());
}

#[test]
fn flipped_bits_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = place(&folder);
    let (mut bytes, events) = small(&whole);
    // Every byte where headers are dense, every third byte elsewhere.
    for at in (0..200).chain((200..bytes.len() - 100).step_by(3)).chain(bytes.len() - 100..bytes.len()) {
        let bit = 1 << (at * 5 % 8);
        bytes[at] ^= bit;
        match look(&damaged, &bytes) {
            Ok(seen) => {
                assert!(!seen.complaints.is_empty(), "byte {at}");
                assert!(seen.events.len() + 300 >= events.len(), "byte {at}: one chunk is lost at most");
                let mut rest = events.iter();
                assert!(seen.events.iter().all(|event| rest.any(|other| other == event)), "byte {at}");
            }
            Err(error) => assert!(at < 16, "byte {at}: {error}"),
        }
        bytes[at] ^= bit;
    }
}

/// Parts of a file are missing, doubled, swapped or overwritten. Damage with valid checksums, as in
/// a hostile file, is tested with the codec.
#[test]
fn missing_and_duplicate_parts_are_tolerated() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = place(&folder);
    let (bytes, _) = small(&whole);
    let mut random = synthetic::Random::new(3);
    for _ in 0..400 {
        let mut bytes = bytes.clone();
        let (a, b) = (random.below(bytes.len() as u64) as usize, random.below(bytes.len() as u64) as usize);
        let (a, b) = (a.min(b), a.max(b));
        match random.below(3) {
            0 => drop(bytes.drain(a..b)),
            1 => bytes = [&bytes[..b], &bytes[a..]].concat(),
            _ => bytes[a..b].fill(random.next() as u8),
        }
        if let Ok(seen) = look(&damaged, &bytes) {
            assert!(a == b || !seen.complaints.is_empty());
        }
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let message = TraceReader::open(&path).err().unwrap().to_string();
        message.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    assert_eq!(message(b""), "not a calltap trace: the file is empty");
    assert_eq!(message(b"\x7fELF\x02\x01\x01"), "not a calltap trace");
    assert_eq!(message(b"#!/bin/sh\n"), "not a calltap trace");
    let mut newer = *b"\x89calltp\n\x03\0\0\0\0\0\0\0";
    let sum = crc32fast::hash(&newer[..12]);
    newer[12..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(message(&newer), "trace format 3 is newer than this calltap reads (2)");
    let text = TraceReader::open(folder.path()).err().unwrap().to_string();
    assert_eq!(text, format!("{}: not a calltap trace: not a regular file", folder.path().display()));
    let text = TraceReader::open(&folder.path().join("none")).err().unwrap().to_string();
    assert!(text.starts_with(&format!("{}: cannot open: ", folder.path().join("none").display())), "{text}");
    let text = TraceWriter::create(folder.path(), session(ClockKind::Tsc)).err().unwrap().to_string();
    assert!(text.starts_with(&format!("{}: cannot create: ", folder.path().display())), "{text}");
}

/// Events whose site and thread records are missing: names are made up, indices are valid, and
/// there is a complaint.
#[test]
fn undescribed_sites_and_threads_get_placeholders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = TraceWriter::create(&path, session(ClockKind::Counter)).unwrap();
    let mut encoder = ThreadEncoder::new(ThreadId(3));
    encoder.push(Event { ticks: 1, site: SiteId(40), kind: EventKind::Entry });
    writer.events(&mut encoder).unwrap();
    let mut far = ThreadEncoder::new(ThreadId(u32::MAX));
    far.push(Event { ticks: 1, site: SiteId(1), kind: EventKind::Entry });
    writer.events(&mut far).unwrap();
    writer.finish(end()).unwrap();
    let reader = TraceReader::open(&path).unwrap();
    let meta = reader.meta();
    assert_eq!(
        (meta.sites.len(), meta.threads.len(), meta.modules.len(), meta.processes.len()),
        (41, 4, 1, 1)
    );
    assert_eq!(meta.sites[40].id, SiteId(40));
    assert_eq!(reader.event_count(), 1);
    assert!(reader.complaints().iter().any(|text| text == "41 sites are used but not described"));
    assert!(reader.complaints().iter().any(|text| text.contains("is nonsense")), "{:?}", reader.complaints());
}

/// A full disk: the error names the file, and the file stays readable. `/dev/full` is a disk that
/// is always full.
#[test]
fn a_full_disk_is_an_error_with_the_name() {
    if Path::new("/dev/full").exists() {
        let text =
            TraceWriter::create(Path::new("/dev/full"), session(ClockKind::Tsc)).err().unwrap().to_string();
        assert!(text.starts_with("/dev/full: cannot write: "), "{text}");
    }
}

/// Returns all that a stream gives up to its end: batches, and the errors in between.
fn stream(mut next: impl FnMut(&mut Batch) -> Result<bool, Error>) -> Vec<Result<Batch, String>> {
    let mut all = Vec::new();
    loop {
        let mut batch = Batch::default();
        match next(&mut batch) {
            Ok(true) => all.push(Ok(batch)),
            Ok(false) => return all,
            Err(error) => all.push(Err(error.to_string())),
        }
    }
}

/// Enough chunks that some are decoded ahead, one of them damaged.
#[test]
fn parallel_decoding_equals_sequential_decoding() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, damaged) = place(&folder);
    let mut writer = TraceWriter::create(&whole, session(ClockKind::Tsc)).unwrap();
    writer.record(&sites(16)).unwrap();
    let mut encoders: Vec<ThreadEncoder> = (0..3).map(|id| ThreadEncoder::new(ThreadId(id))).collect();
    for part in 0..20 {
        for (id, encoder) in encoders.iter_mut().enumerate().filter(|(id, _)| *id != 1 || part < 2) {
            let mut events = synthetic::lua(Tracer::Graph, Machine::Amd, 500 + 37 * part + id);
            events.iter_mut().for_each(|event| event.site.0 %= 16);
            events.into_iter().for_each(|event| encoder.push(event));
            writer.events(encoder).unwrap();
            writer.record(&Record::Clock(ClockPair { ticks: part as u64, monotonic_ns: 1 })).unwrap();
        }
    }
    writer.finish(end()).unwrap();
    let mut bytes = std::fs::read(&whole).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&damaged, bytes).unwrap();
    for (path, broken) in [(&whole, 0), (&damaged, 1)] {
        let reader = TraceReader::open(path).unwrap();
        let threads = [2, 0, 1].map(ThreadId);
        let alone = threads.map(|thread| {
            let mut batches = reader.thread_batches(thread);
            stream(|batch| batches.next_into(batch))
        });
        assert_eq!(alone.each_ref().map(Vec::len), [20, 20, 2]);
        assert_eq!(alone.iter().flatten().filter(|batch| batch.is_err()).count(), broken);
        let mut ahead = reader.batches_of(&threads);
        let of_threads = threads.map(|_| stream(|batch| ahead.next_into(batch)));
        assert!(of_threads == alone, "thread after thread");
        assert!(!ahead.next_into(&mut Batch::default()).unwrap());
        let mut all = reader.batches();
        let in_order = stream(|batch| all.next_into(batch));
        for (thread, alone) in threads.iter().zip(&alone) {
            let own =
                |batch: &&Result<Batch, String>| batch.as_ref().is_ok_and(|batch| batch.thread == *thread);
            assert!(in_order.iter().filter(own).eq(alone.iter().filter(|batch| batch.is_ok())), "{thread:?}");
        }
        assert_eq!(in_order.len(), 42);
        // The stream is dropped in the middle.
        let mut some = reader.batches();
        assert!((0..9).all(|_| some.next_into(&mut Batch::default()).unwrap_or(true)));
    }
}
