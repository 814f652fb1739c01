//! Tests that calltap imports its own exports unchanged.

use calltap_analysis::{Source, Totals, replay};
use calltap_export::{Options, Version, trace_dat};
use calltap_import::{Error, Named, Summary, import};
use calltap_trace::{
    ClockKind, End, Event, EventKind, Module, Process, Record, RunState, Session, Site, SiteId, Switch,
    Thread, ThreadEncoder, ThreadId, TraceReader, TraceWriter,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) fn session() -> Session {
    Session {
        calltap: "0.1.0".into(),
        command: vec!["app".into()],
        host: "host".into(),
        kernel: "6.1 x86_64".into(),
        start_monotonic_ns: 1000,
        ..Session::of(ClockKind::Monotonic)
    }
}

/// Makes two threads of a program: nested calls, callers, a call that does not return, losses, and
/// a wait.
pub(crate) fn original(directory: &Path) -> PathBuf {
    let path = directory.join("original.data");
    let mut writer = TraceWriter::create(&path, session()).unwrap();
    let comm = || "app".to_owned();
    let process = Process::new(0, 7, comm());
    writer.record(&Record::Process(process)).unwrap();
    for id in 0..2 {
        let thread = Thread::new(ThreadId(id), 0, 7 + id, comm());
        writer.record(&Record::Thread(thread)).unwrap();
    }
    let module = Module {
        id: 0,
        process: 0,
        path: "/bin/app".into(),
        link: None,
        build_id: None,
        bias: 0,
        range: (0x1000, 0x2000),
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    };
    writer.record(&Record::Module(module)).unwrap();
    let site = |n: u32| Site {
        id: SiteId(n),
        module: 0,
        address: 0x1000 + u64::from(n) * 64,
        size: 64,
        name: ["main", "work", "wait"][n as usize].into(),
        aliases: Vec::new(),
        kind: "patchable".into(),
        tracers: 1,
        captured: None,
    };
    writer.record(&Record::Sites { sites: (0..3).map(site).collect() }).unwrap();
    let exit = EventKind::Exit { pops: 1 };
    let events = [
        (2000, 0, EventKind::Entry),
        (2100, 1, EventKind::EntryFrom { parent: 0x1008 }),
        (2200, 2, EventKind::Entry),
        (3000, 2, exit),
        (3100, 1, exit),
        (3200, 0, EventKind::Lost { entries: 3, exits: 2 }),
        (3300, 1, EventKind::Entry),
        (3400, 1, exit),
        (3500, 0, exit),
    ];
    let others = [(2050, 2, EventKind::Call { parent: 0x1044 }), (2060, 1, EventKind::Entry)];
    for (thread, events) in [(0, &events[..]), (1, &others)] {
        let mut encoder = ThreadEncoder::new(ThreadId(thread));
        for (ticks, site, kind) in events.iter().copied() {
            encoder.push(Event { ticks, site: SiteId(site), kind });
        }
        writer.events(&mut encoder).unwrap();
    }
    let states = [
        (2000, RunState::Running),
        (2300, RunState::Blocked),
        (2900, RunState::Running),
        (3110, RunState::Unknown),
        (3150, RunState::Running),
    ];
    writer.switches(ThreadId(0), &states.map(|(at, to)| Switch { at, to }), 3500).unwrap();
    let (wall_ns, cpu_ns, recorder_cpu_ns) = (2500, 0, 0);
    writer.finish(End { status: End::DETACHED.into(), wall_ns, cpu_ns, recorder_cpu_ns }).unwrap();
    path
}

fn exported(path: &Path, version: Version) -> Vec<u8> {
    let mut file = Vec::new();
    let options = Options { version, ..Options::default() };
    trace_dat(&TraceReader::open(path).unwrap(), &options, &mut file, None).unwrap();
    file
}

fn imported(file: Vec<u8>, output: &Path) -> Result<Summary, Error> {
    import(&file, Named { file: "trace.dat", calltap: "0.1.0" }, output)
}

/// Returns the replay of a trace, and its totals.
pub(crate) fn replayed(path: &Path) -> (String, Totals) {
    let (reader, mut out) = (TraceReader::open(path).unwrap(), Vec::new());
    assert_eq!(reader.complaints(), [""; 0]);
    let options = replay::Options {
        threads: calltap_analysis::threads_with_events(&reader),
        ..replay::Options::default()
    };
    let totals = replay::write(&reader, &options, &mut out, None).unwrap();
    let text = String::from_utf8(out).unwrap();
    (text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect(), totals)
}

#[test]
fn exported_trace_is_imported_unchanged() {
    let directory = TempDir::new().unwrap();
    let original = original(directory.path());
    for version in [Version::V6, Version::V7] {
        let output = directory.path().join("imported.data");
        let summary = imported(exported(&original, version), &output).unwrap();
        assert_eq!((summary.events, summary.functions, summary.threads, summary.lost), (10, 3, 2, 5));
        assert_eq!(summary.not_shown, []);
        assert_eq!(replayed(&output).0, replayed(&original).0);
        let reader = TraceReader::open(&output).unwrap();
        let meta = reader.meta();
        assert_eq!(meta.modules[1].path, "app");
        assert_eq!(meta.session.as_ref().map(|session| &*session.host), Some("host"));
        let mut switches = Source::switches(&reader, ThreadId(0)).unwrap().unwrap();
        switches.truncate(5);
        let states = [
            (2000, RunState::Running),
            (2300, RunState::Blocked),
            (2900, RunState::Running),
            (3110, RunState::Unknown),
            (3150, RunState::Running),
        ];
        assert_eq!(switches, states.map(|(at, to)| Switch { at, to }));
    }
}

#[test]
fn files_that_are_cut_off_or_foreign_are_refused() {
    let directory = TempDir::new().unwrap();
    let (original, output) = (original(directory.path()), directory.path().join("imported.data"));
    for version in [Version::V6, Version::V7] {
        let whole = exported(&original, version);
        for length in (0..whole.len()).step_by(7) {
            let error = imported(whole[..length].to_vec(), &output).unwrap_err();
            let is_told =
                matches!(error, Error::Foreign | Error::Truncated(_)) && !error.to_string().contains('\n');
            assert!(is_told, "{length} of {} bytes: {error}", whole.len());
        }
        let mut other = whole.clone();
        other[10] = b'5';
        assert!(matches!(imported(other, &output), Err(Error::Version(version)) if version == "5"));
        let mut big = whole;
        big[12] = 1;
        assert!(matches!(imported(big, &output), Err(Error::BigEndian)));
    }
    assert!(matches!(imported(std::fs::read(&original).unwrap(), &output), Err(Error::Foreign)));
    assert!(!output.exists(), "a file that cannot be imported leaves none");
}
