//! Tests of merging several recordings into one trace, in which each event keeps its place.

use crate::round_trip::{original, replayed, session};
use calltap_analysis::Source;
use calltap_import::{Joined, Others, Recording, Refused, join};
use calltap_trace::{
    ClockKind, ClockPair, Edge, End, Event, EventKind, KernelEvents, Module, Process, Record, RunState,
    SYSTEM_CALLS, Session, Site, SiteId, Switch, SystemCall, Thread, ThreadEncoder, ThreadId, TraceReader,
    TraceWriter, Waking,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const EXIT: EventKind = EventKind::Exit { pops: 1 };

/// Writes a trace of one process: its threads, functions, and events by thread.
fn write(
    path: &Path,
    session: Session,
    process: (u32, &str),
    tids: &[u32],
    names: &[&str],
    events: &[&[(u64, u32, EventKind)]],
) -> TraceWriter {
    let mut writer = TraceWriter::create(path, session).unwrap();
    let (pid, comm) = process;
    let process = Process::new(0, pid, comm);
    writer.record(&Record::Process(process)).unwrap();
    for (id, tid) in (0..).zip(tids) {
        let thread = Thread {
            id: ThreadId(id),
            process: 0,
            tid: *tid,
            comm: format!("t{tid}"),
            goroutine: None,
            started: None,
        };
        writer.record(&Record::Thread(thread)).unwrap();
    }
    let module = Module {
        id: 0,
        process: 0,
        // An imported recording of the kernel has its system calls among its events.
        path: if pid == 0 { SYSTEM_CALLS.to_owned() } else { format!("/{comm}") },
        link: None,
        build_id: None,
        bias: 0,
        range: (0x1000, 0x2000),
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    };
    writer.record(&Record::Module(module)).unwrap();
    let site = |(n, name): (u32, &&str)| Site {
        id: SiteId(n),
        module: 0,
        address: 0x1000 + u64::from(n) * 64,
        size: 64,
        name: (*name).into(),
        aliases: Vec::new(),
        kind: "patchable".into(),
        tracers: 1,
        captured: None,
    };
    writer.record(&Record::Sites { sites: (0..).zip(names).map(site).collect() }).unwrap();
    for (thread, events) in (0..).zip(events) {
        let mut encoder = ThreadEncoder::new(ThreadId(thread));
        for (ticks, site, kind) in events.iter().copied() {
            encoder.push(Event { ticks, site: SiteId(site), kind });
        }
        writer.events(&mut encoder).unwrap();
    }
    writer
}

fn finish(writer: TraceWriter) {
    let end = End { status: End::DETACHED.into(), wall_ns: 0, cpu_ns: 0, recorder_cpu_ns: 0 };
    writer.finish(end).unwrap();
}

fn of(kind: ClockKind) -> Session {
    Session { clock: kind, ..session() }
}

/// Makes a program's recording in ticks of the processor's counter, two per nanosecond; both
/// threads wait in `handle`, one of them for a signal too.
pub fn program(directory: &Path, kind: ClockKind) -> PathBuf {
    let path = directory.join("program.data");
    let first = [(2000, 0, EventKind::Entry), (3000, 1, EventKind::Entry), (7000, 1, EXIT), (8000, 0, EXIT)];
    let second = [(2500, 1, EventKind::Entry), (6000, 1, EXIT)];
    let mut writer = write(&path, of(kind), (7, "app"), &[7, 8], &["main", "handle"], &[&first, &second]);
    for (ticks, monotonic_ns) in [(0, 1000), (10_000, 6000)] {
        writer.record(&Record::Clock(ClockPair { ticks, monotonic_ns })).unwrap();
    }
    finish(writer);
    path
}

/// Makes a recording of the kernel: thread 7 reads until thread 8 wakes it; thread 9 belongs to
/// another program. A call of thread 8 has no return.
fn kernel(directory: &Path, session: Session, scale: impl Fn(u64) -> u64) -> PathBuf {
    let path = directory.join("kernel.data");
    let seven = [(3200, 0, EventKind::Entry), (5200, 0, EXIT), (9000, 1, EventKind::Entry)];
    let eight = [(2600, 1, EventKind::Entry), (6500, 1, EventKind::Entry), (6600, 1, EXIT)];
    let nine = [(100, 0, EventKind::Entry), (200, 0, EXIT)];
    let scaled = [&seven[..], &eight, &nine]
        .map(|events| events.iter().map(|(at, site, kind)| (scale(*at), *site, *kind)).collect::<Vec<_>>());
    let events: Vec<_> = scaled.iter().map(|events| &events[..]).collect();
    let mut writer =
        write(&path, session, (0, "[all tasks]"), &[7, 8, 9], &["sys_read", "sys_write"], &events);
    // Nanoseconds, or ticks if the clock is bare.
    let [enter, sleep, wake, run, end] = [3200, 3300, 5000, 5100, 5200].map(scale);
    let switches = [(enter, RunState::Running), (sleep, RunState::Blocked), (run, RunState::Running)];
    writer.switches(ThreadId(0), &switches.map(|(at, to)| Switch { at, to }), end).unwrap();
    let waking = Waking { at: wake, interrupt: false, pid: 0, tid: 8, comm: "t8".into() };
    writer.wakings(ThreadId(0), enter, &[waking], end).unwrap();
    let calls = [(enter, Edge::Enter([5; 6])), (end, Edge::Exit(1))];
    let calls = calls.map(|(at, edge)| SystemCall { at, number: 0, edge });
    writer.system_calls(ThreadId(0), enter, &calls, end).unwrap();
    let calls_in_events = (0..3).collect();
    let told = KernelEvents { wakings: true, system_calls: true, calls_in_events, ..KernelEvents::default() };
    writer.record(&Record::KernelEvents(told)).unwrap();
    finish(writer);
    path
}

fn joined(paths: &[&Path], output: &Path) -> Result<Joined, Refused> {
    let open = |path: &&Path| Recording {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        reader: TraceReader::open_stored(path).unwrap(),
    };
    join(&paths.iter().map(open).collect::<Vec<_>>(), Others::Kept, output)
}

/// Returns the events of a thread: time, function, kind.
pub fn events(reader: &TraceReader, thread: u32) -> Vec<(u64, String, EventKind)> {
    let mut all = Vec::new();
    for batch in reader.thread_batches(ThreadId(thread)) {
        let name = |site: SiteId| reader.meta().sites[site.0 as usize].name.clone();
        let batch = batch.unwrap().events.into_iter();
        all.extend(batch.map(|event| (event.ticks, name(event.site), event.kind)));
    }
    all
}

#[test]
fn recording_beside_another_is_unchanged() {
    let directory = TempDir::new().unwrap();
    let original = original(directory.path());
    let output = directory.path().join("merged.data");
    let other = program(directory.path(), ClockKind::Tsc);
    let summary = joined(&[&original, &other], &output).unwrap();
    // The other recording is of a process with the same id, which is the same one on one machine.
    assert_eq!((summary.threads, summary.nested, summary.cut, summary.damaged), (4, 0, 0, 0));
    let reader = TraceReader::open(&output).unwrap();
    assert_eq!(reader.complaints(), [""; 0]);
    assert_eq!(reader.meta().session.as_ref().unwrap().clock, ClockKind::Monotonic);
    let alone = TraceReader::open(&original).unwrap();
    for thread in 0..2 {
        assert_eq!(events(&reader, thread), events(&alone, thread));
    }
    assert_eq!(
        Source::switches(&reader, ThreadId(0)).unwrap(),
        Source::switches(&alone, ThreadId(0)).unwrap()
    );
    // Two ticks per nanosecond, from 1000 on.
    let times: Vec<u64> = events(&reader, 2).iter().map(|event| event.0).collect();
    assert_eq!(times, [2000, 2500, 4500, 5000]);
    let (text, totals) = replayed(&output);
    assert!(text.contains("blocked 600 ns") && totals.lost_entries + totals.lost_exits > 0, "{text}");
}

#[test]
fn calls_of_the_kernel_are_within_those_of_the_program() {
    let directory = TempDir::new().unwrap();
    let program = program(directory.path(), ClockKind::Tsc);
    let kernel = kernel(directory.path(), of(ClockKind::Tsc), |ticks| ticks);
    let output = directory.path().join("merged.data");
    let summary = joined(&[&kernel, &program], &output).unwrap();
    assert_eq!((summary.threads, summary.nested, summary.cut), (3, 2, 1));
    let reader = TraceReader::open(&output).unwrap();
    // The complaint that the kernel's ticks have no clock pairs applies to that recording alone.
    assert_eq!(TraceReader::open(&kernel).unwrap().complaints().len(), 1);
    assert!(reader.meta().notes.iter().all(|note| !note.contains("in ticks")), "{:?}", reader.meta().notes);
    let told = |events: &[(u64, &str, EventKind)]| {
        events.iter().map(|(at, name, kind)| (*at, (*name).to_owned(), *kind)).collect::<Vec<_>>()
    };
    let seven = [
        (2000, "main", EventKind::Entry),
        (3000, "handle", EventKind::Entry),
        (3200, "sys_read", EventKind::Entry),
        (5200, "sys_read", EXIT),
        (7000, "handle", EXIT),
        (8000, "main", EXIT),
        (9000, "sys_write", EventKind::Entry),
    ];
    assert_eq!(events(&reader, 0), told(&seven));
    // The thread left the kernel before its function returned.
    let eight = [
        (2500, "handle", EventKind::Entry),
        (2600, "sys_write", EventKind::Entry),
        (6000, "handle", EventKind::Exit { pops: 2 }),
        (6500, "sys_write", EventKind::Entry),
        (6600, "sys_write", EXIT),
    ];
    assert_eq!(events(&reader, 1), told(&eight));
    let threads: Vec<(u32, u32)> = reader
        .meta()
        .threads
        .iter()
        .map(|thread| (thread.tid, reader.meta().processes[thread.process as usize].pid))
        .collect();
    assert_eq!(threads, [(7, 7), (8, 7), (9, 0)]);
    // The kernel's records belong to the program's thread, and the waker has its process.
    let switches = Source::switches(&reader, ThreadId(0)).unwrap().unwrap();
    let near = |ticks: u64, expected: u64| ticks.abs_diff(expected) <= 2;
    let states: Vec<RunState> = switches.iter().map(|switch| switch.to).collect();
    assert_eq!(states[..3], [RunState::Running, RunState::Blocked, RunState::Runnable]);
    assert!(near(switches[1].at, 3300), "{switches:?}");
    let wakings = Source::wakings(&reader, ThreadId(0)).unwrap();
    assert_eq!((wakings.entries[0].pid, &*wakings.entries[0].comm), (7, "app"));
    assert!(near(wakings.entries[0].at, 5000) && wakings.knows(3300, 5000), "{wakings:?}");
    let calls = Source::system_calls(&reader, ThreadId(0)).unwrap();
    assert_eq!(calls.entries.len(), 2);
}

#[test]
fn recordings_of_other_clocks_are_aligned() {
    let directory = TempDir::new().unwrap();
    let program = program(directory.path(), ClockKind::Sparse);
    let kernel = kernel(directory.path(), of(ClockKind::Monotonic), |ticks| 1000 + ticks / 2);
    let output = directory.path().join("merged.data");
    let summary = joined(&[&program, &kernel], &output).unwrap();
    assert_eq!((summary.threads, summary.nested, summary.cut), (5, 0, 0));
    let reader = TraceReader::open(&output).unwrap();
    let times = |thread| events(&reader, thread).iter().map(|event| event.0).collect::<Vec<u64>>();
    assert_eq!((times(0), times(2)), (vec![2000, 2500, 4500, 5000], vec![2600, 3600, 5500]));
    let tids: Vec<u32> = reader.meta().threads.iter().map(|thread| thread.tid).collect();
    assert_eq!(tids, [7, 8, 7, 8, 9]);
    let switches = Source::switches(&reader, ThreadId(0)).unwrap().unwrap();
    assert_eq!(switches[1], Switch { at: 2650, to: RunState::Blocked });
}

#[test]
fn system_calls_of_a_program_stay_calls_beside_a_recording_of_the_kernel() {
    let directory = TempDir::new().unwrap();
    let (path, output) = (directory.path().join("called.data"), directory.path().join("merged.data"));
    let own = [(2000, 0, EventKind::Entry), (8000, 0, EXIT)];
    let mut writer = write(&path, of(ClockKind::Tsc), (7, "app"), &[7, 8], &["main"], &[&own, &own]);
    writer.record(&Record::Clock(ClockPair { ticks: 0, monotonic_ns: 0 })).unwrap();
    writer.record(&Record::Clock(ClockPair { ticks: 10_000, monotonic_ns: 10_000 })).unwrap();
    for thread in [0, 1].map(ThreadId) {
        let calls = [(4000, Edge::Enter([5; 6])), (5000, Edge::Exit(1))];
        let calls = calls.map(|(at, edge)| SystemCall { at, number: 0, edge });
        writer.system_calls(thread, 1000, &calls, 9000).unwrap();
    }
    let told = KernelEvents { system_calls: true, ..KernelEvents::default() };
    writer.record(&Record::KernelEvents(told)).unwrap();
    finish(writer);
    // Thread 7 has a function of the kernel in its system call, thread 8 has none.
    let kernel = directory.path().join("kernel.data");
    let seven = [(4200, 0, EventKind::Entry), (4300, 0, EXIT)];
    finish(write(&kernel, of(ClockKind::Tsc), (0, "[all tasks]"), &[7], &["vfs_read"], &[&seven]));
    joined(&[&path, &kernel], &output).unwrap();
    let reader = TraceReader::open(&output).unwrap();
    let names = |thread| events(&reader, thread).into_iter().map(|event| event.1).collect::<Vec<_>>();
    assert_eq!(names(0), ["main", "vfs_read", "vfs_read", "main"]);
    assert_eq!(names(1), ["main", "sys_read", "sys_read", "main"]);
    let notes = &reader.meta().notes;
    assert!(notes.iter().any(|note| note.starts_with("system calls are not shown as calls")), "{notes:?}");
}

#[test]
fn clocks_that_cannot_be_related_are_refused() {
    let directory = TempDir::new().unwrap();
    let tsc = program(directory.path(), ClockKind::Tsc);
    let output = directory.path().join("merged.data");
    let refused = |session: Session| {
        let other = kernel(directory.path(), session, |ticks| ticks);
        let error = joined(&[&tsc, &other], &output).unwrap_err().to_string();
        assert!(error.contains("kernel.data") && !error.contains('\n') && !output.exists(), "{error}");
        error
    };
    assert!(refused(of(ClockKind::Counter)).contains("--clock counter"));
    let local = Session { clock_note: Some("the kernel's clock 'local'".into()), ..of(ClockKind::Kernel) };
    assert!(refused(local).contains("the kernel's clock 'local' cannot be related"));
    let host = Session { host: "elsewhere".into(), ..of(ClockKind::Tsc) };
    assert!(refused(host).contains("on elsewhere"));
    let start = |start_realtime_ns| Session { start_realtime_ns, ..of(ClockKind::Tsc) };
    let (a, b) = (directory.path().join("a.data"), directory.path().join("b.data"));
    for (path, start) in [(&a, start(1 << 60)), (&b, start((1 << 60) + 11_000_000_000))] {
        finish(write(path, start, (7, "app"), &[7], &["main"], &[&[]]));
    }
    assert!(matches!(joined(&[&a, &b], &output), Err(Refused::Starts { .. })));
    // Ticks of the processor and nanoseconds cannot be related.
    let bare = kernel(directory.path(), of(ClockKind::Tsc), |ticks| ticks);
    let original = original(directory.path());
    assert!(
        matches!(joined(&[&original, &bare], &output), Err(Refused::Ticks(name)) if name == "kernel.data")
    );
}
