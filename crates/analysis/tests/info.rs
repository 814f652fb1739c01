//! Tests of `info`.

use crate::common::{output, recording, same};
use calltap_analysis::info::{Options, write};
use calltap_analysis::{Error, MemorySource};
use calltap_trace::*;

fn full() -> MemorySource {
    let mut source = recording("main: E main @0; E f @10; X f @30; X main @2ms\nworker: E f @15; X f @20");
    let meta = &mut source.meta;
    meta.session = Some(Session {
        calltap: "0.1.0".into(),
        command: vec!["app".into(), "--fast".into()],
        host: "box".into(),
        kernel: "Linux 6.12 x86_64".into(),
        cpu: "Some CPU".into(),
        start_realtime_ns: 1_795_193_584_000_000_000,
        start_monotonic_ns: 5,
        clock: ClockKind::Tsc,
        clock_note: Some("coarse was asked for".into()),
        tracers: vec![TracerInfo {
            id: 0,
            name: "main".into(),
            kind: TracerKind::FunctionGraph,
            filter: vec!["f*".into(), "main".into()],
            notrace: vec!["free*".into()],
        }],
    });
    meta.loss = vec![
        Loss {
            thread: ThreadId(0),
            entries: 2,
            exits: 2,
            lost_entries: 1_000,
            lost_exits: 999,
            ..Loss::default()
        },
        Loss { thread: ThreadId(1), entries: 1, exits: 1, lost_entries: 0, lost_exits: 0, ..Loss::default() },
    ];
    meta.notes = vec!["one function was too short".into()];
    meta.end =
        Some(End { status: "exit 0".into(), wall_ns: 2_500_000, cpu_ns: 2_000_000, recorder_cpu_ns: 10_000 });
    source.complaints = vec!["the index is missing".into()];
    source
}

fn info(source: &MemorySource, options: Options) -> String {
    output(|out| -> Result<(), Error> { write(source, &options, out) })
}

#[test]
fn text() {
    same(
        &info(&full(), Options { sites: true, ..Options::default() }),
        "
        command    app --fast
        recorded   2026-11-20 16:53:04 UTC by calltap 0.1.0
        host       box, Linux 6.12 x86_64, Some CPU
        tracer     main (function_graph): f* main; not free*
        clock      time stamp counter, every event
                   coarse was asked for
        events     6 events, 2 functions
        calls      1,003 entered = 3 recorded + 1,000 lost
        end        exit 0
        time       2.500 ms wall, 2.000 ms processor, 10.000 us recorder
        note       one function was too short
        complaint  the index is missing

        1 process:
             PID    PARENT  NAME
             100         -  app

        2 threads:
             PID       TID         ACTIVE  NAME              CALLS
             100       100       2.000 ms  main              1,002 entered = 2 recorded + 1,000 lost
             100       101           5 ns  worker            1 entered = 1 recorded + 0 lost

        1 module:
        FUNCTIONS  BUILD-ID                                  PATH
                2  c0ffee                                    /usr/bin/app

        2 functions:
                 ADDRESS     SIZE  KIND        MODULE            FUNCTION
                    1000       64  nop         app               main
                    1100       64  nop         app               f
    ",
    );
}

#[test]
fn a_cut_off_file() {
    same(
        &info(&recording("main: E main @0; X main @1"), Options::default()),
        "
        session    not recorded: the file is incomplete
        events     2 events, 1 function
        end        not recorded: the file is incomplete

        1 process:
             PID    PARENT  NAME
             100         -  app

        1 thread:
             PID       TID         ACTIVE  NAME              CALLS
             100       100           1 ns  main              totals not recorded

        1 module:
        FUNCTIONS  BUILD-ID                                  PATH
                1  c0ffee                                    /usr/bin/app
    ",
    );
}

#[test]
fn json() {
    let text = info(&full(), Options { json: true, sites: true, ..Options::default() });
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["threads"][0]["calls"]["entered"], 1_002);
    assert_eq!(json["threads"][0]["calls"]["lost"], 1_000);
    assert_eq!(json["threads"][0]["active_ns"], 2_000_000);
    assert_eq!(json["modules"][0]["build_id"], "c0ffee");
    assert_eq!(json["session"]["tracers"][0]["kind"], "function_graph");
    assert_eq!(json["sites"][1]["function"], "f");
    assert_eq!(json["end"]["status"], "exit 0");
    assert_eq!(json["complaints"][0], "the index is missing");
}
