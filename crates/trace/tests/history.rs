//! The newest events in memory: which of them are written, and the totals of the rest.
#![allow(missing_docs)]

use crate::synthetic;
use calltap_trace::*;

const THREADS: u32 = 3;

fn history(limit: u64) -> History {
    let mut history = History::new(synthetic::session(ClockKind::Tsc), limit).unwrap();
    history.record(&Record::Process(Process::new(0, 7, "app")));
    for id in 0..THREADS {
        let thread = Thread {
            id: ThreadId(id),
            process: 0,
            tid: 100 + id,
            comm: "worker".into(),
            goroutine: None,
            started: None,
        };
        history.record(&Record::Thread(thread));
    }
    for ticks in [0, 500_000] {
        history.record(&Record::Clock(ClockPair { ticks, monotonic_ns: ticks }));
    }
    history
}

/// Adds a call of `f` at this time, in a chunk of its own.
fn call(history: &mut History, thread: u32, ticks: u64) {
    let mut encoder = ThreadEncoder::new(ThreadId(thread));
    let mut seen = 0;
    for (ticks, kind) in [(ticks, EventKind::Entry), (ticks + 1, EventKind::Exit { pops: 1 })] {
        encoder.push(Event { ticks, site: SiteId(0), kind });
    }
    history.events(&mut encoder, &mut |batch| seen += batch.events.len()).unwrap();
    assert!(encoder.is_empty() && seen == 2);
}

fn written(history: &History) -> TraceReader {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history");
    let end = End { status: "snapshot".into(), wall_ns: 1, cpu_ns: 2, recorder_cpu_ns: 3 };
    let size = history.write(&path, end).unwrap();
    assert_eq!(size, std::fs::metadata(&path).unwrap().len());
    TraceReader::open(&path).unwrap()
}

fn ticks(reader: &TraceReader) -> Vec<(u32, u64)> {
    let batches = reader.batches().map(Result::unwrap);
    let tid = |batch: &Batch| reader.meta().threads[batch.thread.0 as usize].tid;
    batches.map(|batch| (tid(&batch), batch.events[0].ticks)).collect()
}

#[test]
fn history_keeps_all_events_below_limit() {
    let mut history = history(1 << 20);
    let all: Vec<(u32, u64)> = (0..30).map(|n| (n % THREADS, 1000 * u64::from(n))).collect();
    all.iter().for_each(|(thread, ticks)| call(&mut history, *thread, *ticks));
    let reader = written(&history);
    // A site is used without a description.
    assert_eq!(ticks(&reader), all.iter().map(|(thread, ticks)| (100 + thread, *ticks)).collect::<Vec<_>>());
    assert!(reader.meta().loss.iter().all(|loss| (loss.entries, loss.dropped_entries) == (10, 0)));
    // The history stays, to be written again.
    assert_eq!(written(&history).event_count(), 60);
}

#[test]
fn history_drops_and_counts_oldest_events() {
    let mut history = history(300);
    (0..30).for_each(|n| call(&mut history, u32::from(n >= 20), 1000 * n));
    let reader = written(&history);
    let last = ticks(&reader);
    assert!((2..10).contains(&last.len()) && last.iter().all(|(tid, _)| *tid == 101), "{last:?}");
    assert_eq!(last.last(), Some(&(101, 29_000)));
    let sums = |loss: &Loss| (loss.entries + loss.dropped_entries, loss.exits + loss.dropped_exits);
    assert_eq!(reader.meta().loss.iter().map(sums).collect::<Vec<_>>(), [(20, 20), (10, 10), (0, 0)]);
    // Only the number of a thread that has ended is left.
    history.end(ThreadId(0));
    let reader = written(&history);
    assert_eq!(reader.meta().threads.iter().map(|thread| thread.tid).collect::<Vec<_>>(), [101, 102]);
    assert_eq!(ticks(&reader), last);
    assert!(reader.meta().notes[0].contains("20 calls"), "{:?}", reader.meta().notes);
}

#[test]
fn history_drops_events_beyond_age() {
    let mut history = history(1 << 20);
    (0..30).for_each(|n| call(&mut history, 0, 1000 * n));
    (1..100).for_each(|n| {
        history.record(&Record::Clock(ClockPair { ticks: 500_000 + n, monotonic_ns: 500_000 + n }))
    });
    history.forget_before(25_000);
    assert_eq!(ticks(&written(&history)).first(), Some(&(100, 25_000)));
    history.forget_before(1_000_000);
    let reader = written(&history);
    assert_eq!((reader.event_count(), reader.meta().loss[0].dropped_entries), (0, 30));
    assert!(reader.meta().clock.len() < 5);
}
