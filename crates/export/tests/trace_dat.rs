//! Tests of the export for trace-cmd, decoded by a small reader of version 6, and read by trace-cmd
//! where it is installed.

use crate::common::{recording, same, site};
use calltap_analysis::MemorySource;
use calltap_export::{Options, Version, trace_dat};
use calltap_trace::{
    Batch, Event, EventKind, KernelLog, Module, Process, RunState, Site, SiteId, Switch, Thread, ThreadId,
    Waking,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

fn exported(source: &MemorySource, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    trace_dat(source, &Options { version, ..Options::default() }, &mut out, None).unwrap();
    out
}

/// Reads a file from its start.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    fn literal(&mut self, expected: &[u8]) {
        assert_eq!(self.bytes(expected.len()), expected);
    }

    fn number<const SIZE: usize>(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..SIZE].copy_from_slice(self.bytes(SIZE));
        u64::from_le_bytes(bytes)
    }

    fn text(&mut self, size: u64) -> &'a str {
        std::str::from_utf8(self.bytes(size as usize)).unwrap()
    }
}

/// Decodes symbols, names of threads, clocks, and a line per event with the number of its stream.
fn decoded(file: &[u8]) -> String {
    let mut reader = Reader(file);
    reader.literal(b"\x17\x08\x44tracing6\0\0\x08");
    assert_eq!(reader.number::<4>(), 4096);
    for header in ["header_page\0", "header_event\0"] {
        reader.literal(header.as_bytes());
        let size = reader.number::<8>();
        reader.text(size);
    }
    for _ in 0..reader.number::<4>() {
        let size = reader.number::<8>();
        assert!(reader.text(size).starts_with("name: "));
    }
    assert_eq!(reader.number::<4>(), 1, "one system of other events");
    reader.literal(b"sched\0\x02\0\0\0");
    for event in ["sched_switch", "sched_waking"] {
        let size = reader.number::<8>();
        assert!(reader.text(size).starts_with(&format!("name: {event}\n")));
    }
    let size = reader.number::<4>();
    let symbols = reader.text(size);
    assert_eq!(reader.number::<4>(), 0, "no formats of printk");
    let size = reader.number::<8>();
    let mut lines = format!("{}{}", symbols.replace('\t', " "), reader.text(size));
    let streams = reader.number::<4>();
    reader.literal(b"options  \0");
    loop {
        let id = reader.number::<2>();
        if id == 0 {
            break;
        }
        let size = reader.number::<4>();
        let text = reader.text(size);
        if id == 4 {
            let clock = text.split(['[', ']']).nth(1).unwrap();
            writeln!(lines, "clock {clock}").unwrap();
        }
    }
    reader.literal(b"flyrecord\0");
    for stream in 0..streams {
        let (offset, size) = (reader.number::<8>() as usize, reader.number::<8>() as usize);
        assert!(offset.is_multiple_of(4096) && size.is_multiple_of(4096));
        let symbols: BTreeMap<u64, &str> = symbols.lines().map(symbol).collect();
        for page in file[offset..offset + size].chunks(4096) {
            decode_page(page, stream, &symbols, &mut lines);
        }
    }
    lines
}

fn symbol(line: &str) -> (u64, &str) {
    let (address, rest) = line.split_once(" t ").unwrap();
    (u64::from_str_radix(address, 16).unwrap(), rest.split('\t').next().unwrap())
}

fn decode_page(page: &[u8], stream: u64, symbols: &BTreeMap<u64, &str>, lines: &mut String) {
    let mut reader = Reader(page);
    let (mut time, commit) = (reader.number::<8>(), reader.number::<8>());
    let mut events = Reader(reader.bytes(commit as usize & 0xfffff));
    if commit >> 31 & 1 == 1 {
        writeln!(lines, "{stream}: {} missing", reader.number::<8>()).unwrap();
    }
    let name = |address: u64| symbols.range(..=address).next_back().map_or("?", |(_, name)| name);
    while !events.0.is_empty() {
        let word = events.number::<4>();
        time += word >> 5;
        if word & 31 == 30 {
            time += events.number::<4>() << 27;
            continue;
        }
        let words = match word & 31 {
            0 => events.number::<4>() as usize / 4 - 1,
            words => words as usize,
        };
        let mut event = Reader(events.bytes(words * 4));
        let (kind, _, tid) = (event.number::<2>(), event.number::<2>(), event.number::<4>());
        write!(lines, "{stream}: {tid} @{time} ").unwrap();
        let at = event.number::<8>();
        match kind {
            1 => writeln!(lines, "function {} <- {}", name(at), name(event.number::<8>())),
            5 => writeln!(
                lines,
                "print {}",
                std::str::from_utf8(event.0).unwrap().trim_end_matches(['\0', '\n'])
            ),
            10 => {
                let (depth, _) = (event.number::<4>(), event.number::<4>());
                let (start, end) = (event.number::<8>(), event.number::<8>());
                writeln!(lines, "exit {} {depth} {start}-{end}", name(at))
            }
            11 => writeln!(lines, "entry {} {}", name(at), event.number::<4>()),
            314 => {
                event.bytes(16);
                let state = if event.number::<8>() == 0 { "R" } else { "S" };
                event.bytes(16);
                writeln!(lines, "switch {state} to {}", event.number::<4>())
            }
            318 => {
                event.bytes(8);
                writeln!(lines, "waking {}", event.number::<4>())
            }
            other => panic!("an event {other}"),
        }
        .unwrap();
    }
}

/// Compares the report of trace-cmd on both versions with the expected one.
#[track_caller]
fn reported(source: &MemorySource, expected: &str) {
    if Command::new("trace-cmd").arg("--version").output().is_err() {
        // The output is not captured by the test harness.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: no trace-cmd here\n");
        return;
    }
    for (version, name) in [(Version::V6, "6"), (Version::V7, "7")] {
        let at = std::panic::Location::caller().line();
        let file = std::env::temp_dir().join(format!("calltap-{}-{at}-{name}.dat", std::process::id()));
        std::fs::write(&file, exported(source, version)).unwrap();
        let options = ["report", "-t", "-O", "parent", "-O", "indent=0", "-i"];
        let run = Command::new("trace-cmd").args(options).arg(&file).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stderr), "");
        let text = String::from_utf8(run.stdout).unwrap();
        let squeezed: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        same(&squeezed.join("\n"), expected);
    }
}

/// Two threads, `std::swap<int>(int&, int&)`, losses, a longjmp and a call that does not end.
const PROGRAM: &str = "
    main: E main @0; E _ZSt4swapIiEvRT_S1_ @1000; X _ZSt4swapIiEvRT_S1_ @1500; L 4/3 @1600
    worker: E run @100; E leave @200; X run/2 @2000; C tick <-0x401230 @2100; L 1/0 @2200
    main: E hang @3000; E f <-0x401410 @3001; X f @4001";

#[test]
fn calls_are_entries_and_exits_and_losses_are_marked() {
    same(
        &decoded(&exported(&recording(PROGRAM), Version::V6)),
        "
        0000000000000002 t calltap
        0000000000401000 t main [app]
        0000000000401100 t std::swap<int>(int&,int&) [app]
        0000000000401200 t run [app]
        0000000000401300 t leave [app]
        0000000000401400 t tick [app]
        0000000000401500 t hang [app]
        0000000000401600 t f [app]
        ffffffffffffffff t [end]
        100 main
        101 worker
        clock mono
        0: 100 @0 entry main 0
        0: 100 @1000 entry std::swap<int>(int&,int&) 1
        0: 100 @1500 exit std::swap<int>(int&,int&) 1 1000-1500
        0: 7 missing
        0: 100 @3000 entry hang 1
        0: 100 @3001 function f <- tick
        0: 100 @3001 entry f 2
        0: 100 @4001 exit f 2 3001-4001
        1: 101 @100 entry run 0
        1: 101 @200 entry leave 1
        1: 101 @200 print the next call has ended at an unknown time
        1: 101 @200 exit leave 1 200-200
        1: 101 @2000 exit run 0 100-2000
        1: 101 @2100 function tick <- run
        1: 1 missing
        1: 101 @2200 print the last events of this thread are missing
    ",
    );
}

#[test]
fn trace_cmd_shows_every_event() {
    reported(
        &recording(PROGRAM),
        "
        cpus=2
        main-100 [000] 0.000000000: funcgraph_entry: | main() {
        worker-101 [001] 0.000000100: funcgraph_entry: | run() {
        worker-101 [001] 0.000000200: funcgraph_entry: | leave() {
        worker-101 [001] 0.000000200: print: calltap: the next call has ended at an unknown time
        worker-101 [001] 0.000000200: funcgraph_exit: 0.000 us | }
        main-100 [000] 0.000001000: funcgraph_entry: 0.500 us | std::swap<int>(int&,int&)();
        worker-101 [001] 0.000002000: funcgraph_exit: 1.900 us | }
        worker-101 [001] 0.000002100: function: tick <-- run
        CPU:1 [1 EVENTS DROPPED]
        worker-101 [001] 0.000002200: print: calltap: the last events of this thread are missing
        CPU:0 [7 EVENTS DROPPED]
        main-100 [000] 0.000003000: funcgraph_entry: | hang() {
        main-100 [000] 0.000003001: function: f <-- tick
        main-100 [000] 0.000003001: funcgraph_entry: 1.000 us | f();
    ",
    );
}

#[test]
fn minutes_between_events_and_within_calls() {
    let source = recording(
        "main: E main @7s; E nap @600s; X nap @1500s; E nap @90000s; X nap @90000s; X main @99999s",
    );
    reported(
        &source,
        "
        cpus=1
        main-100 [000] 7.000000000: funcgraph_entry: | main() {
        main-100 [000] 600.000000000: funcgraph_entry: $ 900000000 us | nap();
        main-100 [000] 90000.000000000: funcgraph_entry: 0.000 us | nap();
        main-100 [000] 99999.000000000: funcgraph_exit: $ 99992000000 us | }
    ",
    );
    let text = decoded(&exported(&source, Version::V6));
    assert!(text.ends_with("@99999000000000 exit main 0 7000000000-99999000000000\n"), "{text}");
}

#[test]
fn waits_are_switches_and_wakeups() {
    let mut source = recording("main: E main @100; E nap @200; X nap @700; X main @900");
    let states = [(50, RunState::Running), (300, RunState::Blocked), (600, RunState::Running)];
    let states = states.into_iter().chain([(800, RunState::Runnable), (850, RunState::Running)]);
    source.switches.insert(ThreadId(0), states.map(|(at, to)| Switch { at, to }).collect());
    let waking = Waking { at: 500, interrupt: false, pid: 7, tid: 8, comm: "waker".into() };
    let log = KernelLog { entries: vec![waking], known: vec![(0, 1000)] };
    source.wakings.insert(ThreadId(0), log);
    let text = decoded(&exported(&source, Version::V6));
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("0: ")).collect();
    let expected = [
        "0: 0 @100 switch R to 100",
        "0: 100 @100 entry main 0",
        "0: 100 @200 entry nap 1",
        "0: 100 @300 switch S to 0",
        "0: 8 @500 waking 100",
        "0: 0 @600 switch R to 100",
        "0: 100 @700 exit nap 1 200-700",
        "0: 100 @800 switch R to 0",
        "0: 0 @850 switch R to 100",
        "0: 100 @900 exit main 0 100-900",
    ];
    assert_eq!(events, expected);
}

#[test]
fn thread_that_waits_before_its_first_call_runs_afterwards() {
    let mut source = recording("main: E main @500; X main @900");
    let states = [(50, RunState::Running), (100, RunState::Blocked), (300, RunState::Running)];
    source.switches.insert(ThreadId(0), states.map(|(at, to)| Switch { at, to }).to_vec());
    let text = decoded(&exported(&source, Version::V6));
    let switches: Vec<&str> = text.lines().filter(|line| line.contains(" switch ")).collect();
    assert_eq!(switches, ["0: 100 @100 switch S to 0", "0: 0 @300 switch R to 100"]);
}

#[test]
fn no_events() {
    for text in ["", "idle: L 0/0 @0"] {
        let mut source = recording(text);
        source.batches.clear();
        let names = if text.is_empty() { "" } else { "100 idle\n" };
        let expected = format!("ffffffffffffffff t [end]\n{names}clock mono\n");
        assert_eq!(decoded(&exported(&source, Version::V6)), expected);
        reported(&source, "cpus=1");
    }
}

#[test]
fn ticks_that_are_no_time_are_those_of_a_counter() {
    let mut source = recording("main: E main @1; C f <-0x401010 @2; X main @3");
    source.ns_per_tick = 0;
    reported(
        &source,
        "
        cpus=1
        main-100 [000] 1: funcgraph_entry: | main() {
        main-100 [000] 2: function: f <-- main
        main-100 [000] 3: funcgraph_exit: 0.002 us | }
    ",
    );
}

#[test]
fn callers_are_named_as_in_replay() {
    // Callers in a function, after the last call of a function where the next begins, between
    // functions, outside of all modules, and unknown.
    let source = recording(
        "main: C f <-0x401010 @1; C main <-0x401100 @2; C f <-0x4010c0 @3; C f <-0x7f0000001234 @4; C f @5",
    );
    let mut source = MemorySource { ns_per_tick: 1, ..source };
    source.meta.sites[0].size = 0x100;
    reported(
        &source,
        "
        cpus=1
        main-100 [000] 0.000000001: function: f <-- f
        main-100 [000] 0.000000002: function: main <-- f
        main-100 [000] 0.000000003: function: f <-- f
        main-100 [000] 0.000000004: function: f <-- 0x7f0000001234
        main-100 [000] 0.000000005: function: f <-- 0x0
    ",
    );
    source.meta.sites[0].size = 0x40;
    reported(
        &source,
        "
        cpus=1
        main-100 [000] 0.000000001: function: f <-- f
        main-100 [000] 0.000000002: function: main <-- app+0x1100
        main-100 [000] 0.000000003: function: f <-- app+0x10c0
        main-100 [000] 0.000000004: function: f <-- 0x7f0000001234
        main-100 [000] 0.000000005: function: f <-- 0x0
    ",
    );
}

#[test]
fn two_programs_at_the_same_addresses_keep_their_names() {
    let mut source = recording("first: C old <-0x401010 @1");
    source.meta.processes.push(Process { parent: Some(0), ..Process::new(1, 200, "next") });
    let range = (0x400000, 0x500000);
    let module = Module {
        id: 1,
        process: 1,
        path: "/bin/next one".into(),
        link: None,
        build_id: None,
        bias: 0x400000,
        range,
        unloaded_ticks: None,
        untraceable: calltap_trace::Untraceable::default(),
    };
    source.meta.modules.push(module);
    site(&mut source, "new");
    let new = Site { module: 1, address: 0x1000, ..source.meta.sites[1].clone() };
    source.meta.sites[1] = new;
    // A reused thread id, now of another program and with another name.
    source.meta.threads.push(Thread {
        id: ThreadId(1),
        process: 1,
        tid: 100,
        comm: "two words".into(),
        goroutine: None,
        started: None,
    });
    let event = Event { ticks: 5, site: SiteId(1), kind: EventKind::Call { parent: 0x401010 } };
    source.batches.push(Batch { thread: ThreadId(1), events: vec![event], ..Batch::default() });
    reported(
        &source,
        "
        cpus=1
        two words-100 [000] 0.000000001: function: old <-- old
        two words-100 [000] 0.000000005: function: new <-- new
    ",
    );
    let text = decoded(&exported(&source, Version::V6));
    assert!(text.contains("0000000000401000 t old [app]\n4000000000001000 t new [next_one]\n"), "{text}");
}

#[test]
fn both_versions_have_the_same_pages() {
    let lines: Vec<String> =
        (0..100).map(|n| format!("t{n}: E f @{n}; X f @{}; C g @{}", n + 200, n + 300)).collect();
    let source = recording(&lines.join("\n"));
    let [six, seven] = [Version::V6, Version::V7].map(|version| exported(&source, version));
    let pages = 100 * 4096;
    assert!(six.ends_with(&seven[seven.len() - pages..]));
    assert!(seven.starts_with(b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0none\0\0"));
}
