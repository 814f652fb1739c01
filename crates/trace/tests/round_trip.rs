//! Written traces are read unchanged: any events of any threads, and every kind of record.
#![allow(missing_docs)]

use crate::synthetic::{self, Machine, Tracer, session};
use calltap_trace::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn end() -> End {
    End { status: "exit 0".to_owned(), wall_ns: 1, cpu_ns: 2, recorder_cpu_ns: 3 }
}

fn site(id: u32) -> Site {
    Site {
        id: SiteId(id),
        module: 0,
        address: 0x1000,
        size: 16,
        name: format!("f{id}"),
        kind: "mcount_loc".to_owned(),
        tracers: 1,
        aliases: Vec::new(),
        captured: None,
    }
}

fn thread(id: u32) -> Record {
    Record::Thread(Thread {
        id: ThreadId(id),
        process: 0,
        tid: 100 + id,
        comm: "worker".to_owned(),
        goroutine: None,
        started: None,
    })
}

fn events_of(reader: &TraceReader) -> BTreeMap<ThreadId, Vec<Event>> {
    let mut all: BTreeMap<ThreadId, Vec<Event>> = BTreeMap::new();
    for batch in reader.batches() {
        let batch = batch.unwrap();
        all.entry(batch.thread).or_default().extend(batch.events);
    }
    all
}

/// Writes `events` of thread 0 with a chunk at every `chunk` events, and checks that they are read
/// back.
fn check(path: &Path, events: &[Event], chunk: usize) {
    let mut writer = TraceWriter::create(path, session(ClockKind::Tsc)).unwrap();
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    for (at, &event) in events.iter().enumerate() {
        if at % chunk == chunk - 1 {
            writer.events(&mut encoder).unwrap();
            assert!(encoder.is_empty());
        }
        encoder.push(event);
    }
    writer.events(&mut encoder).unwrap();
    let size = writer.finish(end()).unwrap();
    assert_eq!(size, std::fs::metadata(path).unwrap().len());
    let reader = TraceReader::open(path).unwrap();
    assert_eq!(reader.event_count(), events.len() as u64);
    let back: Vec<Event> = reader.batches().flat_map(|batch| batch.unwrap().events).collect();
    assert!(back == events, "{} events differ", events.len());
    let sites = reader.meta().sites.len();
    assert!(
        events
            .iter()
            .all(|event| matches!(event.kind, EventKind::Lost { .. }) || (event.site.0 as usize) < sites)
    );
    let span = events.iter().map(|event| event.ticks).min().zip(events.iter().map(|event| event.ticks).max());
    assert_eq!(reader.thread_span(ThreadId(0)), span);
}

fn any_ticks() -> impl Strategy<Value = (bool, u64)> {
    prop_oneof![
        6 => (0..300_u64).prop_map(|delta| (true, delta)),
        2 => (0..70_000_u64).prop_map(|delta| (true, delta)),
        1 => any::<u64>().prop_map(|delta| (true, delta)),
        1 => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(|ticks| (false, ticks)),
        1 => (0..500_u64).prop_map(|back| (true, back.wrapping_neg())),
        1 => (0..64_u32, 0..3_u64).prop_map(|(bit, off)| (true, (1_u64 << bit).wrapping_add(off).wrapping_sub(1))),
    ]
}

fn any_kind() -> impl Strategy<Value = EventKind> {
    let parent = || prop_oneof![4 => 0x40_0000..0x40_0010_u64, 1 => any::<u64>(), 1 => Just(0)];
    prop_oneof![
        5 => Just(EventKind::Entry),
        5 => Just(EventKind::Exit { pops: 1 }),
        1 => Just(EventKind::TailEntry),
        2 => parent().prop_map(|parent| EventKind::Call { parent }),
        2 => parent().prop_map(|parent| EventKind::EntryFrom { parent }),
        1 => parent().prop_map(|parent| EventKind::TailEntryFrom { parent }),
        1 => prop_oneof![0..4_u32, any::<u32>(), Just(u32::MAX)].prop_map(|pops| EventKind::Exit { pops }),
        1 => any::<(u32, u32)>().prop_map(|(entries, exits)| EventKind::Lost { entries, exits }),
        1 => prop_oneof![0..4_u32, Just(u32::MAX)].prop_map(|pops| EventKind::Left { pops }),
        1 => prop_oneof![0..4_u32, Just(u32::MAX)].prop_map(|pops| EventKind::Outside { pops }),
        1 => prop_oneof![Just(EventKind::SwitchedOff), Just(EventKind::ThreadEnded)],
    ]
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let site = prop_oneof![8 => 0..6_u32, 1 => 0..5000_u32, 1 => Just(20_000)];
    vec((any_ticks(), site, any_kind()), 1..900).prop_map(|drafts| {
        let mut now = 1 << 40;
        let event = |((relative, ticks), site, kind)| {
            now = if relative { u64::wrapping_add(now, ticks) } else { ticks };
            Event { ticks: now, site: SiteId(site), kind }
        };
        drafts.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_events_survive(events in any_events(), chunk in 1..2000_usize) {
        let folder = tempfile::tempdir().unwrap();
        check(&folder.path().join("t"), &events, chunk);
    }
}

#[test]
fn synthetic_traces_survive() {
    let folder = tempfile::tempdir().unwrap();
    for tracer in [Tracer::Graph, Tracer::Function, Tracer::Both] {
        check(&folder.path().join("t"), &synthetic::fib(tracer, Machine::Amd, 100_000), usize::MAX);
        check(&folder.path().join("t"), &synthetic::lua(tracer, Machine::Intel, 200_000), usize::MAX);
    }
}

/// Small steps in which the clock wraps around go backwards, wherever in a row of events they are
/// and whatever follows.
#[test]
fn a_clock_that_wraps_around() {
    let folder = tempfile::tempdir().unwrap();
    for place in 0..17 {
        for after in [4, 100_000, u64::MAX - 2] {
            let ticks = |at: usize| {
                if at < place {
                    u64::MAX - 9
                } else if at == place {
                    3
                } else {
                    after
                }
            };
            let event = |at| Event { ticks: ticks(at), site: SiteId(1), kind: EventKind::Entry };
            check(&folder.path().join("t"), &(0..40).map(event).collect::<Vec<_>>(), usize::MAX);
        }
    }
}

/// Many more events than a chunk holds, pushed without calling [`ThreadEncoder::is_full`].
#[test]
fn an_encoder_that_is_not_emptied_splits_by_itself() {
    let events = synthetic::lua(Tracer::Graph, Machine::Amd, 300_000);
    let mut encoder = ThreadEncoder::new(ThreadId(0));
    assert!(!encoder.is_full() && encoder.is_empty());
    for &event in &events {
        encoder.push(event);
    }
    assert_eq!(encoder.len(), events.len());
    assert!(encoder.is_full());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = TraceWriter::create(&path, session(ClockKind::Tsc)).unwrap();
    writer.events(&mut encoder).unwrap();
    assert!(encoder.is_empty());
    writer.finish(end()).unwrap();
    assert_eq!(events_of(&TraceReader::open(&path).unwrap())[&ThreadId(0)], events);
}

#[test]
fn three_thousand_threads_of_two_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = TraceWriter::create(&path, session(ClockKind::Tsc)).unwrap();
    let mut encoders: Vec<_> = (0..3000).map(|id| ThreadEncoder::new(ThreadId(id))).collect();
    let event = |id: u32, ticks, kind| Event { ticks, site: SiteId(id % 50), kind };
    for id in 0..3000 {
        writer.record(&thread(id)).unwrap();
        let start = 1_000_000_007 * u64::from(id);
        encoders[id as usize].push(event(id, start, EventKind::Entry));
        encoders[id as usize].push(event(id, start + 420, EventKind::Exit { pops: 1 }));
    }
    let before = writer.bytes_written();
    encoders.iter_mut().for_each(|encoder| writer.events(encoder).unwrap());
    let each = (writer.bytes_written() - before) as f64 / 3000.0;
    assert!(each < 80.0, "{each} bytes for a thread of two events");
    writer.finish(end()).unwrap();
    let reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.event_count(), 6000);
    assert_eq!(reader.batches().count(), 3000);
    for id in [0, 1, 1234, 2999] {
        let batches: Vec<_> = reader.thread_batches(ThreadId(id)).map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].thread, ThreadId(id));
        assert_eq!(
            batches[0].events[1],
            event(id, 1_000_000_007 * u64::from(id) + 420, EventKind::Exit { pops: 1 })
        );
        assert_eq!(reader.meta().threads[id as usize].tid, 100 + id);
    }
    assert_eq!(reader.thread_batches(ThreadId(3000)).count(), 0);
    assert_eq!(reader.thread_span(ThreadId(3000)), None);
}

/// Loops share the means of reading; each gets the events of its own thread, whichever loop reads
/// in between.
#[test]
fn many_loops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = TraceWriter::create(&path, session(ClockKind::Tsc)).unwrap();
    let event =
        |id: u32, n: u64| Event { ticks: n * u64::from(id + 1), site: SiteId(id), kind: EventKind::Entry };
    for id in 0..20 {
        writer.record(&thread(id)).unwrap();
        let mut encoder = ThreadEncoder::new(ThreadId(id));
        (0..70_000).for_each(|n| encoder.push(event(id, n)));
        writer.events(&mut encoder).unwrap();
    }
    writer.finish(end()).unwrap();
    let reader = TraceReader::open(&path).unwrap();
    let read_all = || {
        let mut loops: Vec<_> = (0..20).map(|id| reader.thread_batches(ThreadId(id))).collect();
        let [firsts, seconds] = [(); 2]
            .map(|()| loops.iter_mut().map(|batches| batches.next().unwrap().unwrap()).collect::<Vec<_>>());
        for (id, (first, second)) in (0..).zip(firsts.iter().zip(&seconds)) {
            assert!(first.events.iter().chain(&second.events).copied().eq((0..70_000).map(|n| event(id, n))));
        }
    };
    std::thread::scope(|scope| {
        [scope.spawn(read_all), scope.spawn(read_all)].map(|done| done.join().unwrap())
    });
}

/// An idle encoder is only its own struct, and frees everything with its chunk.
#[test]
fn idle_encoders_are_small() {
    assert!(size_of::<ThreadEncoder>() <= 384, "{}", size_of::<ThreadEncoder>());
}

#[test]
fn records_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = TraceWriter::create(&path, session(ClockKind::Tsc)).unwrap();
    let process = Process::new(0, 77, "prog");
    let mut module = Module {
        id: 0,
        process: 0,
        path: "/bin/prog".to_owned(),
        link: None,
        build_id: Some("abcd".to_owned()),
        bias: 1 << 46,
        range: (1 << 46, (1 << 46) + 4096),
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    };
    let sites: Vec<Site> = (0..20_000).map(site).collect();
    let loss =
        Loss { thread: ThreadId(0), entries: 9, exits: 8, lost_entries: 1, lost_exits: 2, ..Loss::default() };
    let pairs = [ClockPair { ticks: 0, monotonic_ns: 1000 }, ClockPair { ticks: 1000, monotonic_ns: 1500 }];
    writer.record(&Record::Process(process.clone())).unwrap();
    writer.record(&Record::Module(module.clone())).unwrap();
    writer.record(&thread(0)).unwrap();
    writer.record(&Record::Sites { sites: sites.clone() }).unwrap();
    for pair in pairs {
        writer.record(&Record::Clock(pair)).unwrap();
    }
    module.unloaded_ticks = Some(900);
    writer.record(&Record::Module(module.clone())).unwrap();
    writer.record(&Record::Loss(Loss::default())).unwrap();
    writer.record(&Record::Loss(loss)).unwrap();
    writer.record(&Record::Note { text: "a \n note".to_owned() }).unwrap();
    writer.record(&Record::Unknown).unwrap();
    writer.finish(end()).unwrap();
    let reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.complaints(), &[] as &[String]);
    let meta = reader.meta();
    assert_eq!(meta.session, Some(session(ClockKind::Tsc)));
    assert_eq!(meta.processes, [process]);
    assert_eq!(meta.modules, [module]);
    assert_eq!(meta.sites, sites);
    assert_eq!(meta.loss, [loss]);
    assert_eq!(meta.clock, pairs);
    assert_eq!(meta.notes, ["a \\n note"], "control characters are escaped when they are read");
    assert_eq!(meta.end, Some(end()));
    assert_eq!(reader.clock().to_ns(500), 1250);
}

#[test]
fn functions_of_the_kernel_that_were_never_added_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    for is_over in [false, true] {
        let mut writer = TraceWriter::create(&path, session(ClockKind::Tsc)).unwrap();
        writer.record(&Record::KernelFunctions { functions: "vfs_*".to_owned() }).unwrap();
        if is_over {
            writer.finish(end()).unwrap();
        } else {
            writer.flush().unwrap();
            drop(writer);
        }
        let reader = TraceReader::open(&path).unwrap();
        let missed = reader
            .complaints()
            .iter()
            .any(|complaint| complaint.starts_with("functions of the kernel (vfs_*)"));
        assert_eq!(missed, !is_over, "{:?}", reader.complaints());
    }
}

/// Measured 0.22 and 0.60 (see `docs/reference/trace-format.md`); the bounds leave room for another
/// zstd.
#[test]
fn bytes_per_event_stay_low() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    for (name, events, bound) in [
        ("fib", synthetic::fib(Tracer::Graph, Machine::Amd, 500_000), 0.30),
        ("fib", synthetic::fib(Tracer::Graph, Machine::Intel, 500_000), 0.50),
        ("fib", synthetic::fib(Tracer::Graph, Machine::Coarse, 500_000), 0.02),
        ("lua", synthetic::lua(Tracer::Graph, Machine::Amd, 500_000), 0.70),
        ("lua", synthetic::lua(Tracer::Graph, Machine::Intel, 500_000), 1.0),
        ("lua", synthetic::lua(Tracer::Both, Machine::Amd, 500_000), 1.0),
    ] {
        check(&path, &events, usize::MAX);
        let bytes = std::fs::metadata(&path).unwrap().len() as f64 / events.len() as f64;
        assert!(bytes < bound, "{name}: {bytes} bytes per event");
    }
}
