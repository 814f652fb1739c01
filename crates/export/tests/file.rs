//! Tests that views of a recording read from a trace file equal those of the recording in memory.

use crate::common::{output, recording};
use calltap_analysis::{MemorySource, Source, diff, graph, replay, report};
use calltap_export as export;
use calltap_trace::*;
use std::path::Path;

fn through_file(path: &Path, memory: &MemorySource) -> TraceReader {
    let session =
        Session { calltap: "0.1.0".into(), command: vec!["app".into()], ..Session::of(ClockKind::Monotonic) };
    let mut writer = TraceWriter::create(path, session).unwrap();
    let meta = &memory.meta;
    let processes = meta.processes.iter().cloned().map(Record::Process);
    let threads = meta.threads.iter().cloned().map(Record::Thread);
    let modules = meta.modules.iter().cloned().map(Record::Module);
    let sites = std::iter::once(Record::Sites { sites: meta.sites.clone() });
    for record in processes.chain(threads).chain(modules).chain(sites) {
        writer.record(&record).unwrap();
    }
    for batch in &memory.batches {
        let mut encoder = ThreadEncoder::new(batch.thread);
        batch.events.iter().for_each(|&event| encoder.push(event));
        writer.events(&mut encoder).unwrap();
    }
    let end = End { status: "exit 0".into(), wall_ns: 1, cpu_ns: 1, recorder_cpu_ns: 1 };
    writer.finish(end).unwrap();
    TraceReader::open(path).unwrap()
}

fn percentiles() -> report::Options {
    let names = report::Column::NAMES.iter().map(|name| name.parse().unwrap());
    report::Options { columns: names.collect(), ..Default::default() }
}

/// Only runs exports whose output contains the time and command of the recording, without comparing
/// it.
fn made(source: &dyn Source) -> String {
    for export in [export::firefox, export::pprof, export::speedscope, export::callgrind] {
        export(source, &Default::default(), &mut std::io::sink(), None).unwrap();
    }
    String::new()
}

/// Compares a recording with itself: no function differs.
fn compared(source: &dyn Source, options: &diff::Options) -> String {
    let diff = diff::collect([&[("a", source)], &[("b", source)]], options, None).unwrap();
    assert!(!diff.differs());
    output(|out| Ok(diff.write_text(out)?))
}

fn views(source: &dyn Source) -> Vec<String> {
    vec![
        output(|out| report::write(source, &Default::default(), report::Format::Text, out, None)),
        output(|out| replay::write(source, &Default::default(), out, None).map(drop)),
        output(|out| graph::write(source, &Default::default(), out, None)),
        output(|out| export::csv(source, &Default::default(), out, None).map(drop)),
        output(|out| export::folded(source, &Default::default(), out, None).map(drop)),
        made(source),
        output(|out| report::write(source, &percentiles(), report::Format::Csv, out, None)),
        compared(source, &diff::Options { all: true, ..Default::default() }),
        compared(source, &diff::Options { all: true, by_path: true, ..Default::default() }),
    ]
}

const PROGRAM: &str = "
    main: E main @1000; E f @1010; X f @1030; E g <-0x401010 @1035; X g @1036; L 2/2 @1037
    worker: E work @1015; E f @1020; X f @1070; X work @1090
    main: E g @1040; X g @1045; C tick <-0x401000 @1046; X main @1100";

#[test]
fn report_of_file_equals_report_of_recording() {
    let memory = recording(PROGRAM);
    let path = std::env::temp_dir().join(format!("calltap-analysis-{}.data", std::process::id()));
    let file = through_file(&path, &memory);
    assert_eq!(file.complaints(), [] as [String; 0]);
    assert_eq!(views(&file), views(&memory));

    // If a file that is truncated or has a wrong byte opens at all, no view fails.
    let bytes = std::fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(7) {
        std::fs::write(&path, &bytes[..length]).unwrap();
        if let Ok(file) = TraceReader::open(&path) {
            views(&file);
        }
    }
    let mut damaged = bytes.clone();
    for at in (0..bytes.len()).step_by(5) {
        damaged[at] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(file) = TraceReader::open(&path) {
            views(&file);
        }
        damaged[at] = bytes[at];
    }
    std::fs::remove_file(&path).unwrap();
}

/// Makes threads of different lengths, with losses and calls open at the end: enough events for
/// several readers.
fn many() -> MemorySource {
    let line = |thread: u64| {
        let start = 1000 + 7 * thread;
        format!(
            "t{thread}: E main @{start}; E f{} @{}; X f{0} @{}; E g @{}; L 1/1 @{}; E g @{}; C tick <-0x401000 @{}\n",
            thread % 5,
            start + 10,
            start + 10 + thread,
            start + 40,
            start + 50,
            start + 60,
            start + 61
        )
    };
    let mut source = recording(&(0..12).map(line).collect::<String>());
    let first = std::mem::take(&mut source.batches);
    for Batch { thread, events, .. } in first {
        let rounds: Vec<u64> = (0..12_000 + 500 * u64::from(thread.0)).collect();
        for rounds in rounds.chunks(5000) {
            let later = |round: u64| {
                events.iter().map(move |event| Event { ticks: event.ticks + 100 * round, ..*event })
            };
            let events = rounds.iter().flat_map(|round| later(*round)).collect();
            source.batches.push(Batch { thread, events, ..Batch::default() });
        }
    }
    source
}

#[test]
fn parallel_readers_report_the_same() {
    let memory = many();
    let path = std::env::temp_dir().join(format!("calltap-readers-{}.data", std::process::id()));
    let file = through_file(&path, &memory);
    assert!(file.event_count() > 1 << 20, "it is shared");
    for by_thread in [false, true] {
        let options = report::Options { by_thread, ..percentiles() };
        let reported = |source: &dyn Source| {
            output(|out| report::write(source, &options, report::Format::Csv, out, None))
        };
        let expected = reported(&memory);
        assert!(expected.lines().count() > 7, "{expected}");
        (0..3).for_each(|_| assert_eq!(reported(&file), expected));
        let options = graph::Options { by_thread, ..Default::default() };
        let drawn = |source: &dyn Source| output(|out| graph::write(source, &options, out, None));
        assert_eq!(drawn(&file), drawn(&memory));
    }
    std::fs::remove_file(&path).unwrap();
}
