//! Exported traces in trace-cmd and in KernelShark: calls with thread, time, duration and caller.

mod waits;
use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// By thread id.
type ByThread<T> = BTreeMap<u64, Vec<T>>;

/// A call.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    name: String,
    caller: String,
    depth: usize,
    /// Nanoseconds; `None` if the clock has no time.
    start: Option<u64>,
    /// As `start`; also `None` if the call was open at the end.
    duration: Option<u64>,
}

/// Depth at which deeper calls are shown.
const MAX_DEPTH: usize = 500;

/// Stands for the duration of a resumed call, which does not count as another call.
const RESUMED: u64 = u64::MAX;

/// Sentences in an exported trace.
const SAID: [&str; 4] = [
    "the last events of this thread are missing",
    "it is not known whether this thread runs",
    "the next call has ended at an unknown time",
    "this thread runs",
];

/// An entry with time, function and caller, from the function tracer.
type Marked = (Option<u64>, String, String);

fn export(recording: &Recording, to: &str, version: &str) -> PathBuf {
    // KernelShark chooses its reader by the file's extension.
    let file = recording.trace.with_extension(format!("{to}.{version}.dat"));
    let (from, into) = (recording.trace.to_string_lossy(), file.to_string_lossy());
    let run = calltap_run(&["export", "--to", to, "--format-version", version, "-i", &from, "-o", &into]);
    assert!(run.status.success(), "{}: {}", recording.what, run.stderr);
    file
}

fn lines_of(program: &str, arguments: &[&str], file: &Path) -> Vec<String> {
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    let run = run(command, b"");
    assert!(
        run.status.success() && run.stderr.is_empty(),
        "{program} {file:?}: {:?} {}",
        run.status,
        run.stderr
    );
    run.stdout.lines().map(str::to_owned).collect()
}

/// Returns a name in the form without blanks.
fn word(name: &str) -> String {
    name.replace(", ", ",").replace(' ', "_")
}

/// Parses seconds with up to nine decimals into nanoseconds.
fn nanoseconds(seconds: &str) -> u64 {
    let (whole, rest) = seconds.split_once('.').unwrap_or((seconds, ""));
    whole.parse::<u64>().expect("seconds") * 1_000_000_000
        + format!("{rest:0<9}").parse::<u64>().expect("decimals")
}

/// The contents of `trace-cmd report`.
#[derive(Default)]
struct Report {
    calls: ByThread<Call>,
    marks: ByThread<Marked>,
    tasks: BTreeMap<u64, String>,
    dropped: u64,
    open: ByThread<Call>,
    /// The times in which threads slept, or were runnable.
    waits: ByThread<(u64, u64, bool)>,
    waiting: BTreeMap<u64, (u64, bool)>,
}

impl Report {
    fn lines(file: &Path) -> Vec<String> {
        let options = ["-t", "-O", "tailprint", "-O", "depth", "-O", "parent", "-O", "indent=0"];
        lines_of("trace-cmd", &[&["report"], &options[..], &["-i"]].concat(), file)
    }

    fn of(lines: &[String], has_time: bool) -> Report {
        let (mut report, mut before) = (Report::default(), 0);
        for line in lines {
            if line.starts_with("cpus=") {
                continue;
            }
            if let Some((_, dropped)) = line.strip_prefix("CPU:").and_then(|rest| rest.split_once('[')) {
                report.dropped += dropped
                    .strip_suffix(" EVENTS DROPPED]")
                    .expect("a count")
                    .parse::<u64>()
                    .expect("a count");
                continue;
            }
            let (task, rest) = line.split_once(" [").unwrap_or_else(|| panic!("{line}"));
            let (comm, tid) = task.trim().rsplit_once('-').expect("comm-tid");
            let (_, rest) = rest.split_once(']').expect("a processor");
            let (time, rest) = rest.trim().split_once(": ").expect("a time");
            let (event, info) = rest.split_once(':').expect("an event");
            let tid = tid.trim().parse().expect("a thread id");
            if tid != 0 {
                report.tasks.insert(tid, comm.to_owned());
            }
            let time = if has_time { nanoseconds(time) } else { time.parse().expect("a number") };
            assert!(time >= before, "time runs backwards: {line}");
            before = time;
            report.event(tid, has_time.then_some(time), event, info.trim());
        }
        report.open.keys().copied().collect::<Vec<u64>>().into_iter().for_each(|tid| report.leave(tid, 0));
        report
    }

    fn event(&mut self, tid: u64, time: Option<u64>, event: &str, info: &str) {
        match event {
            "function" => {
                let (name, parent) = info.split_once(" <-- ").unwrap_or_else(|| panic!("{info}"));
                self.marks.entry(tid).or_default().push((time, name.to_owned(), parent.to_owned()));
            }
            "funcgraph_entry" => self.enter(tid, time, info),
            "funcgraph_exit" => self.exit(tid, info),
            "sched_switch" => self.switch(time.unwrap_or(0), info),
            "print" => self.print(tid, info),
            "sched_waking" => {}
            other => panic!("an event {other}"),
        }
    }

    /// Takes a text for which the kernel has no event.
    fn print(&mut self, tid: u64, info: &str) {
        let text = info.strip_prefix("calltap: ").expect("calltap's own");
        let resumed = text.strip_suffix(": the thread is back on its stack");
        let Some((name, depth)) = resumed.and_then(|text| text.split_once(" is open again at depth ")) else {
            return assert!(SAID.contains(&text), "{info}");
        };
        self.leave(tid, depth.parse().expect("a depth"));
        let open = self.open.entry(tid).or_default();
        let caller = open.last().map_or_else(String::new, |call| call.name.clone());
        let (name, depth) = (name.to_owned(), open.len());
        open.push(Call { name, caller, depth, start: None, duration: Some(RESUMED) });
    }

    /// Ends the calls above a depth that have no exit. A resumed call is not counted.
    fn leave(&mut self, tid: u64, depth: usize) {
        let open = self.open.entry(tid).or_default();
        while open.len() > depth && depth < MAX_DEPTH {
            let call = open.pop().filter(|call| call.duration != Some(RESUMED));
            self.calls.entry(tid).or_default().extend(call);
        }
    }

    fn enter(&mut self, tid: u64, start: Option<u64>, info: &str) {
        let (duration, text) = info.split_once('|').expect("a column");
        let (text, depth) = depth(text);
        // Calls that another program had left open in this thread have ended.
        self.leave(tid, depth);
        let open = self.open.entry(tid).or_default();
        assert_eq!(depth, open.len().min(MAX_DEPTH), "{info}");
        assert_eq!(text.len() - text.trim_start().len(), 2 + 2 * depth, "its indentation: {info}");
        let caller = open.last().map_or_else(String::new, |call| call.name.clone());
        let text = text.trim();
        let name = text.strip_suffix("() {").or(text.strip_suffix("();")).expect("a call").to_owned();
        let call = Call { name, caller, depth: open.len(), start, duration: None };
        match text.ends_with(';') {
            true => {
                let duration = Some(microseconds(duration));
                self.calls.entry(tid).or_default().push(Call { duration, ..call });
            }
            false => open.push(call),
        }
    }

    fn exit(&mut self, tid: u64, info: &str) {
        let (duration, text) = info.split_once('|').expect("a column");
        let (text, depth) = depth(text);
        // Calls whose end is not known have no exit.
        self.leave(tid, depth + 1);
        let open = self.open.entry(tid).or_default();
        let call = open.pop().expect("an open call");
        assert_eq!(
            (depth, text.trim()),
            (open.len().min(MAX_DEPTH), &*format!("}} /* {} */", call.name)),
            "{info}"
        );
        self.calls.entry(tid).or_default().push(Call { duration: Some(microseconds(duration)), ..call });
    }
}

fn depth(text: &str) -> (&str, usize) {
    let (text, depth) = text.rsplit_once(" (").expect("a depth");
    (text, depth.trim_end_matches(')').parse().expect("a depth"))
}

/// Parses `+ 12.345 us` into nanoseconds.
fn microseconds(text: &str) -> u64 {
    let number =
        text.trim_start_matches(['+', '!', '#', '$', ' ']).trim().strip_suffix(" us").expect("a duration");
    nanoseconds(number) / 1_000_000
}

/// Splits a line of csv into fields.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("one").push(letter),
        }
    }
    fields
}

/// Returns the calls of the recording's csv export, in the order of their ends.
fn calls(recording: &Recording) -> ByThread<Call> {
    let csv = std::fs::read_to_string(export(recording, "csv", "6")).expect("just written");
    let mut calls = ByThread::new();
    for line in csv.lines().skip(1) {
        let [_, tid, name, _, depth, start, duration, _, caller, ..] = &fields(line)[..] else {
            panic!("{line}")
        };
        calls.entry(tid.parse().expect("a thread id")).or_default().push(Call {
            name: word(name),
            caller: word(caller),
            depth: depth.parse().expect("a depth"),
            start: start.parse().ok(),
            duration: duration.parse().ok(),
        });
    }
    calls
}

/// Returns the entries and callers of `calltap replay`, and the number of lost events.
fn replayed(recording: &Recording) -> (ByThread<Marked>, u64) {
    let trace = recording.trace.to_string_lossy();
    let run = calltap_run(&["replay", "-i", &trace]);
    assert!(run.status.success(), "{}", run.stderr);
    let (mut marks, mut lost) = (ByThread::new(), 0);
    for line in run.stdout.lines().filter(|line| !line.starts_with('#')) {
        if let Some((_, events)) = line.split_once(" [LOST ") {
            lost += events.trim_end_matches(" EVENTS]").parse::<u64>().expect("a count");
        } else if let Some((start, parent)) = line.split_once(" <-") {
            let Some((task, name)) = start.split_once(": ") else { continue };
            let (task, time) = task.trim().rsplit_once(' ').expect("a time");
            let (_, tid) = task.trim().rsplit_once('-').expect("comm-tid");
            let time = time.contains('.').then(|| nanoseconds(time));
            marks.entry(tid.parse().expect("a thread id")).or_insert_with(Vec::new).push((
                time,
                word(name),
                word(parent),
            ));
        }
    }
    (marks, lost)
}

/// Compares durations as printed: below a second with nanoseconds, longer ones with seven digits.
fn same_duration(shown: u64, real: u64) -> bool {
    shown.abs_diff(real) <= if real < 9_000_000 { 1 } else { real / 100_000 }
}

/// Compares a call of the report with one of the trace.
fn same(shown: &Call, real: &Call, has_time: bool, last: u64) -> bool {
    let duration = match (shown.duration, real.duration) {
        _ if !has_time => true,
        (Some(shown), Some(real)) => same_duration(shown, real),
        // A call that was open at the end: calltap's duration extends up to the end.
        (None, Some(real)) => shown.start.is_some_and(|start| start + real + 1 >= last),
        // A call that ended at an unknown time is shown up to its last known moment.
        (Some(_), None) => true,
        (shown, real) => shown == real,
    };
    duration
        && (&shown.name, &shown.caller, shown.depth, shown.start)
            == (&real.name, &real.caller, real.depth, real.start)
}

/// Returns the names of threads; for a reused id, the newest.
fn tasks(info: &Value) -> BTreeMap<u64, String> {
    let threads = info["threads"].as_array().cloned().unwrap_or_default();
    let row = |thread: &Value| {
        (thread["tid"].as_u64().expect("an id"), thread["thread"].as_str().unwrap_or("").to_owned())
    };
    threads.iter().map(row).collect()
}

/// Compares the whole trace with that of trace-cmd, in both versions of the file.
fn displayed(recording: &Recording) {
    if !have("trace-cmd") {
        return;
    }
    let (what, info) = (&recording.what, recording.info());
    let has_time = info["session"]["clock"] != "counter";
    let all = calls(recording);
    let (mut marks, lost) = replayed(recording);
    let kinds = info["session"]["tracers"].as_array().cloned().unwrap_or_default();
    let traced = |kind: &str| kinds.iter().any(|tracer| tracer["kind"] == kind);
    let (function, graph) = (traced("function"), traced("function_graph"));
    let files = ["6", "7"].map(|version| export(recording, "trace-cmd", version));
    let [lines, others] = files.each_ref().map(|file| Report::lines(file));
    assert!(lines == others, "{what}: versions 6 and 7 differ");
    let mut report = Report::of(&lines, has_time);
    assert_eq!(report.dropped, lost, "{what}: lost");
    let names = tasks(&info);
    for (tid, task) in &report.tasks {
        assert_eq!(names.get(tid), Some(task), "{what}: {tid}");
    }
    for (&tid, real) in &all {
        let shown = if graph { report.calls.remove(&tid) } else { Some(Vec::new()) }.unwrap_or_default();
        let last =
            real.iter().map(|call| call.start.unwrap_or(0) + call.duration.unwrap_or(0)).max().unwrap_or(0);
        if graph {
            let other = shown.iter().zip(real).find(|(shown, real)| !same(shown, real, has_time, last));
            assert_eq!((other, shown.len()), (None, real.len()), "{what}: {tid}");
        }
        if function {
            let shown = report.marks.remove(&tid).unwrap_or_default();
            assert_eq!(shown.len(), real.len(), "{what}: {tid}");
            let mut entered: Vec<_> = real.iter().map(|call| (call.start, &call.name)).collect();
            let mut marked: Vec<_> = shown.iter().map(|mark| (mark.0, &mark.1)).collect();
            entered.sort();
            marked.sort();
            assert!(entered == marked, "{what}: {tid}: entries");
            if !graph {
                let cut =
                    |mark: &Marked| (mark.0.map(|time| time / 1000 * 1000), mark.1.clone(), mark.2.clone());
                let shown: Vec<Marked> = shown.iter().map(cut).collect();
                let real = marks.remove(&tid).unwrap_or_default();
                let other = shown.iter().zip(&real).find(|(shown, real)| shown != real);
                assert_eq!((other, shown.len()), (None, real.len()), "{what}: {tid}: callers");
            }
        }
    }
    assert!(report.calls.is_empty() && report.marks.is_empty(), "{what}: calls of threads that have none");
    // KernelShark is slow, and trace-cmd has shown that both versions are the same.
    let many = all.values().map(Vec::len).sum::<usize>() > 10_000;
    let shown = files.iter().skip(usize::from(many));
    shown.for_each(|file| in_kernelshark(what, file, &all, graph, function, lost));
}

/// Checks that KernelShark's library has every call, and marks missing ones.
fn in_kernelshark(what: &str, file: &Path, all: &ByThread<Call>, graph: bool, function: bool, lost: u64) {
    let Some(program) = kernelshark() else { return };
    let (mut entered, mut exits, mut marked, mut missed) = (Vec::new(), 0, Vec::new(), 0);
    for line in lines_of(&program.to_string_lossy(), &[], file) {
        let [time, tid, _, event, info] = line.splitn(5, '\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let of = |name: &str| {
            (tid.parse::<u64>().expect("an id"), time.parse::<u64>().expect("a time"), name.to_owned())
        };
        match event {
            "ftrace/funcgraph_entry" => {
                let name = info.split_once('|').expect("a column").1.trim();
                entered.push(of(name.strip_suffix("() {").or(name.strip_suffix("();")).expect("a call")));
            }
            "ftrace/funcgraph_exit" => exits += 1,
            "ftrace/function" => marked.push(of(info.split_once(" <-- ").expect("a caller").0)),
            "missed_events" => {
                missed += info.trim_start_matches("missed_events=").parse::<u64>().expect("a count")
            }
            "ftrace/print" | "sched/sched_switch" | "sched/sched_waking" => {}
            other => panic!("{what}: an event {other}"),
        }
    }
    assert_eq!(missed, lost, "{what}: KernelShark: lost");
    let has_time = all.values().flatten().all(|call| call.start.is_some());
    let calls = all.iter().flat_map(|(&tid, calls)| calls.iter().map(move |call| (tid, call)));
    let mut real: Vec<_> =
        calls.map(|(tid, call)| (tid, call.start.unwrap_or(0), call.name.clone())).collect();
    real.sort();
    for (wanted, mut shown) in [(graph, entered), (function, marked)] {
        if !has_time {
            shown.iter_mut().for_each(|call| call.1 = 0);
        }
        shown.sort();
        assert!(shown == if wanted { real.clone() } else { Vec::new() }, "{what}: KernelShark: calls");
    }
    assert!(exits <= real.len() || lost > 0, "{what}: KernelShark: {exits} exits");
}

fn check(program: &Program, flags: &[Flags], arguments: &[&str]) {
    for flags in flags {
        displayed(&record(program, flags, &Expect { arguments, ..Expect::default() }));
    }
}

#[test]
fn named_threads_with_every_tracer_and_every_clock() {
    let both = vec!["--tracer", "function", "--tracer", "function_graph", "--clock", "tsc"];
    let flags = [
        clocks(),
        vec![vec!["--tracer", "function"], vec!["--tracer", "function", "--clock", "sparse"], both],
    ];
    check(&compile(GCC, &["timeline.c"], &[]), &flags.concat(), &[]);
}

#[test]
fn names_of_rust_have_their_blanks_replaced() {
    // The test is about names: functions with most calls are left out.
    let most = ["*fetch_add*", "__rustc::*", "*drop_in_place*", "*black_box*", "panics::deep"];
    let flags = most.iter().flat_map(|name| ["-N", name]).collect();
    check(&compile_rust("panics.rs", &[]), &[flags], &[]);
}

#[test]
fn longjmp_and_deep_recursion() {
    // The other recursion is deep enough: the output grows with the square of the depth.
    check(&compile(GCC, &["jumps.c"], &[]), &[vec!["-N", "recurse"]], &[]);
}

#[test]
fn threads_of_all_kinds() {
    let program = compile(GCC, &["threads.c"], &[]);
    for how in ["cancel", "exit", "short", "main"] {
        check(&program, &plain(), &[how]);
    }
}

#[test]
fn a_thousand_threads_at_a_time() {
    check(&compile(GCC, &["crowd.c"], &[]), &[vec![], vec!["--tracer", "function"]], &["1000"]);
}

#[test]
fn coroutines_and_signal_handlers() {
    check(&compile(GCC, &["coroutines.c"], &[]), &plain(), &[]);
}

#[test]
fn children_of_all_kinds_have_their_own_ids() {
    let program = compile(GCC, &["processes.c"], &[]);
    for how in ["fork", "double", "others", "exec"] {
        check(&program, &[vec![], vec!["--tracer", "function"]], &[how]);
    }
}

#[test]
fn no_events_are_a_file_without_any() {
    check(&compile(GCC, &["uncalled.c"], &[]), &[vec!["-F", "uncalled"]], &[]);
}

#[test]
fn truncated_traces_are_exported() {
    let program = compile(GCC, &["timeline.c"], &[]);
    let recording = record(&program, &[], &Expect::default());
    let whole = std::fs::read(&recording.trace).expect("a trace");
    for part in [3, 2] {
        std::fs::write(&recording.trace, &whole[..whole.len() * (part - 1) / part]).expect("writable");
        displayed(&recording);
    }
}

#[test]
fn losses_are_seen() {
    let flags = vec!["--overwrite", "--buffer-size", "1M"];
    let program = compile(GCC, &["threads.c"], &[]);
    let recording = record(&program, &flags, &Expect { arguments: &["busy"], ..Expect::default() });
    assert_ne!(recording.info()["calls"]["lost"], 0);
    displayed(&recording);
}

#[test]
fn cpp_names_have_blanks_replaced_and_unreadable_parts_are_missing() {
    let program = compile(GCC, &["throws.cpp"], &[]);
    displayed(&record(&program, &["--tracer", "function"], &Expect::default()));
    let recording = record(&program, &[], &Expect::default());
    displayed(&recording);
    if !have("trace-cmd") {
        return;
    }
    let report = || Report::of(&Report::lines(&export(&recording, "trace-cmd", "6")), true);
    let whole = report();
    let bytes = std::fs::read(&recording.trace).expect("a trace");
    // The flipped byte may be in a name, which changes nothing else.
    let broken = (2..7).map(|eighth| {
        let mut bytes = bytes.clone();
        let at = bytes.len() * eighth / 8;
        bytes[at] ^= 0xff;
        std::fs::write(&recording.trace, &bytes).expect("writable");
        report()
    });
    let rest = broken.into_iter().find(|report| report.dropped > 0).expect("something is missing");
    let calls = |report: &Report| report.calls.values().map(Vec::len).sum::<usize>();
    assert_eq!(whole.dropped, 0);
    assert!((1..calls(&whole)).contains(&calls(&rest)), "{} calls of {}", calls(&rest), calls(&whole));
}
