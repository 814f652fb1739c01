//! Tests of `info`.

use crate::common::{output, recording, same};
use calltap_analysis::info::{Options, write};
use calltap_analysis::{BatchStream, Error, MemorySource, Source};
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
        conditions: Vec::new(),
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

/// A recording of which a batch is unreadable.
struct Damaged(MemorySource);

struct Torn(bool);

impl BatchStream for Torn {
    fn next_into(&mut self, _: &mut Batch) -> Result<bool, Error> {
        match std::mem::replace(&mut self.0, true) {
            true => Ok(false),
            false => Err(Error::Trace(calltap_trace::Error::BadChunk {
                path: "x.data".into(),
                offset: 64,
                thread: ThreadId(0),
                events: 12,
                what: "its checksum is wrong",
            })),
        }
    }
}

impl Source for Damaged {
    fn batches(&self) -> Box<dyn BatchStream + '_> {
        Box::new(Torn(false))
    }
    fn meta(&self) -> &Meta {
        &self.0.meta
    }
    fn complaints(&self) -> &[String] {
        &[]
    }
    fn event_count(&self) -> u64 {
        self.0.event_count()
    }
    fn has_time(&self) -> bool {
        true
    }
    fn to_ns(&self, ticks: u64) -> u64 {
        ticks
    }
    fn duration_ns(&self, ticks: u64) -> u64 {
        ticks
    }
    fn thread_batches(&self, _: ThreadId) -> Box<dyn BatchStream + '_> {
        self.batches()
    }
    fn has_switches(&self) -> bool {
        false
    }
    fn switches(&self, _: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        Ok(None)
    }
    fn thread_span(&self, _: ThreadId) -> Option<(u64, u64)> {
        None
    }
}

#[test]
fn info_names_damage_and_calls_left_out() {
    let mut source = Damaged(full());
    source.0.meta.kept = vec![
        Kept { from: None, calls: Some("of all functions, 2 levels deep".into()) },
        Kept { from: Some(1_000_005), calls: None },
    ];
    source.0.meta.conditions = vec!["f@n > 5".into()];
    source.0.meta.slow = vec![SlowRule { function: "f".into(), ns: 5_000_000 }];
    let write = |json| {
        output(|out| -> Result<(), Error> { write(&source, &Options { json, ..Options::default() }, out) })
    };
    let text = write(false);
    for line in [
        "kept       the recording kept only calls of f longer than 5.000 ms, and what these called (--slow)\n",
        "kept       the recording kept only calls of all functions, 2 levels deep: other calls are missing, \
         and callers' times include them\n",
        "kept       the recording left out calls for which the condition of their function did not hold: f@n > 5 (--if)\n",
        "kept       from 1.000 ms on the recording kept all calls\n",
        "damage     12 events in 1 part of the file unreadable; the first: x.data: ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&write(true)).unwrap();
    assert_eq!((&json["unreadable"]["events"], &json["unreadable"]["chunks"]), (&12.into(), &1.into()));
    assert_eq!(json["kept"][1]["from"], 1_000_005);
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
