//! Exported traces in Perfetto's trace processor: every call is a slice with its thread, time,
//! depth and caller.

use calltap_e2e::*;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// A call, or an instant where the duration is not known: thread, start, depth, name, caller,
/// duration.
type Slice = (i64, i64, i64, String, String, i64);

/// Returns Perfetto's user interface, which contains its trace processor; .ci/run unpacks it from a
/// package.
fn perfetto() -> Option<PathBuf> {
    let directory = std::env::var_os("CALLTAP_PERFETTO").map(PathBuf::from);
    if directory.is_none() {
        skipped("no Perfetto here: CALLTAP_PERFETTO is to name a directory with its engine_bundle.js");
    }
    directory.filter(|_| have("node"))
}

/// Returns the rows that answer each query.
fn ask(directory: &PathBuf, trace: &PathBuf, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
    let mut command = Command::new("node");
    command.arg(source("trace_processor.mjs"));
    command.arg(directory).arg(trace).args(queries);
    let run = run(command, b"");
    let errors = run.stderr.lines().rev().take(12).collect::<Vec<_>>();
    assert!(run.status.success(), "{}: {errors:#?}", trace.display());
    run.stdout.lines().map(|line| serde_json::from_str(line).expect("rows")).collect()
}

const SLICES: &str = "select tid, slice.ts, slice.depth, slice.name, parent.name, slice.dur from slice \
    join thread_track on slice.track_id = thread_track.id join thread using (utid) \
    left join slice parent on slice.parent_id = parent.id where slice.name != 'LOST' \
    and coalesce(thread_track.name, '') != 'thread state' \
    and coalesce(extract_arg(slice.arg_set_id, 'debug.end'), extract_arg(slice.arg_set_id, 'args.end'), '') != 'resumed' \
    and extract_arg(slice.arg_set_id, 'debug.resumed') is null";
/// A query for the times in which threads were blocked in calls of `main`: from the events of their
/// states, and from the calls' arguments.
const STATES: &str = "select sum(min(state.ts + state.dur, main.ts + main.dur) - max(state.ts, main.ts)), \
    extract_arg(main.arg_set_id, 'debug.blocked_ns') \
    from slice state join thread_track states on state.track_id = states.id, \
    slice main join thread_track calls on main.track_id = calls.id \
    where state.name = 'blocked' and main.name = 'main' and states.utid = calls.utid \
    and state.ts < main.ts + main.dur and state.ts + state.dur > main.ts";
const LOST: &str = "select sum(coalesce(extract_arg(arg_set_id, 'debug.entries'), extract_arg(arg_set_id, 'args.entries'))) \
    from slice where name = 'LOST'";
const DEEPER: &str = "select sum(extract_arg(arg_set_id, 'debug.deeper calls')) from slice";
const THREADS: &str = "select tid, thread.name, pid, process.name from thread join process using (upid) \
    where utid in (select utid from thread_track) order by tid";
const TROUBLE: &str = "select name, value from stats where value != 0 and severity != 'info'";

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn slices(rows: &[Vec<Value>]) -> Vec<Slice> {
    let slice = |row: &Vec<Value>| {
        let [tid, start, depth, name, parent, duration] = &row[..] else { panic!("{row:?}") };
        (number(tid), number(start), number(depth), text(name), text(parent), number(duration))
    };
    sorted(rows.iter().map(slice).collect())
}

fn sorted(mut slices: Vec<Slice>) -> Vec<Slice> {
    slices.sort();
    slices
}

/// The duration of a call whose end is not known; its slice ends where the call was last known to
/// be open.
const UNKNOWN: i64 = -1;

/// Returns the calls of the recording's csv export.
fn calls(recording: &Recording) -> Vec<Slice> {
    let csv = std::fs::read_to_string(recording.export("csv")).expect("just written");
    let call = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        let [_, tid, name, _, depth, start, duration, _, caller, ..] = words[..] else { panic!("{line}") };
        let number = |text: &str| text.parse().unwrap_or_default();
        let duration = duration.parse().unwrap_or(UNKNOWN);
        (number(tid), number(start), number(depth), name.to_owned(), caller.to_owned(), duration)
    };
    sorted(csv.lines().skip(1).map(call).collect())
}

/// Whether two slices are the same, up to rounding: two moments are converted with the clock pairs
/// around them, a duration with all pairs.
fn same(a: &Slice, b: &Slice) -> bool {
    let rounding = 1 + b.5.unsigned_abs() / 10_000;
    (a.0, a.1, a.2, &a.3, &a.4) == (b.0, b.1, b.2, &b.3, &b.4)
        && (a.5.abs_diff(b.5) <= rounding || b.5 == UNKNOWN)
}

/// Returns the threads that have calls, with their processes.
fn threads(info: &Value) -> Vec<Vec<Value>> {
    let list = |key: &str| info[key].as_array().cloned().unwrap_or_default();
    let process = |pid: &Value| list("processes").into_iter().find(|process| process["pid"] == *pid);
    let name = |pid: &Value| process(pid).map_or(Value::Null, |process| process["comm"].clone());
    let row = |thread: &Value| {
        vec![thread["tid"].clone(), thread["thread"].clone(), thread["pid"].clone(), name(&thread["pid"])]
    };
    let has_calls = |thread: &&Value| thread["calls"]["entered"] != 0;
    let mut rows: Vec<Vec<Value>> = list("threads").iter().filter(has_calls).map(row).collect();
    rows.sort_by_key(|row| number(&row[0]));
    rows
}

/// Depth from which Perfetto shows no calls; it reports their number.
const MAX_DEPTH: i64 = 511;

/// Compares the calls that Perfetto shows for these export formats.
fn displayed(recording: &Recording, forms: &[&str]) {
    let Some(directory) = perfetto() else { return };
    let (what, info, calls) = (&recording.what, recording.info(), calls(recording));
    let (mut calls, deeper): (Vec<Slice>, Vec<Slice>) =
        calls.into_iter().partition(|call| call.2 < MAX_DEPTH);
    if calls.iter().all(|call| call.5 == UNKNOWN) {
        // Without returns, or without times, calls are instants.
        calls.iter_mut().for_each(|call| call.5 = 0);
    }
    assert!(!calls.is_empty(), "{what}");
    for &to in forms {
        let answers = ask(&directory, &recording.export(to), &[SLICES, LOST, DEEPER, THREADS, TROUBLE]);
        let [rows, lost, below, names, trouble] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(trouble.len(), 0, "{what}: {to}: {trouble:?}");
        let mut slices = slices(rows);
        if calls.iter().all(|call| call.5 == 0) {
            // Perfetto nests instants of the same moment.
            slices.iter_mut().for_each(|slice| (slice.2, slice.4) = (0, String::new()));
            slices.sort();
        }
        let other = slices.iter().zip(&calls).find(|(slice, call)| !same(slice, call));
        assert_eq!((other, slices.len()), (None, calls.len()), "{what}: {to}");
        assert_eq!(number(&lost[0][0]), number(&info["calls"]["lost"]), "{what}: {to}: lost");
        assert_eq!(number(&below[0][0]), deeper.len() as i64, "{what}: {to}: deeper");
        assert_eq!(*names, threads(&info), "{what}: {to}");
    }
}

const BOTH: &[&str] = &["perfetto", "chrome"];

fn check(program: &Program, flags: &[Flags], arguments: &[&str]) {
    for flags in flags {
        displayed(&record(program, flags, &Expect { arguments, ..Expect::default() }), BOTH);
    }
}

#[test]
fn named_threads_with_every_tracer_and_all_clocks_that_tell_times() {
    let both = vec!["--tracer", "function", "--tracer", "function_graph", "--clock", "coarse"];
    let flags = [plain(), vec![vec!["--tracer", "function", "--clock", "sparse"], both]].concat();
    check(&compile(GCC, &["timeline.c"], &[]), &flags, &[]);
}

#[test]
fn longjmp_and_recursion_beyond_display_depth() {
    displayed(&record(&compile(GCC, &["jumps.c"], &[]), &[], &Expect::default()), &["perfetto"]);
}

#[test]
fn threads_of_all_kinds() {
    let program = compile(GCC, &["threads.c"], &[]);
    for how in ["cancel", "exit", "main"] {
        check(&program, &plain(), &[how]);
    }
}

#[test]
fn coroutines_and_signal_handlers() {
    check(&compile(GCC, &["coroutines.c"], &[]), &plain(), &[]);
}

#[test]
fn children_of_all_kinds() {
    let program = compile(GCC, &["processes.c"], &[]);
    for how in ["fork", "double", "others", "exec"] {
        check(&program, &plain(), &[how]);
    }
}

#[test]
fn losses_are_seen() {
    let flags = vec!["--overwrite", "--buffer-size", "1M"];
    let program = compile(GCC, &["threads.c"], &[]);
    let recording = record(&program, &flags, &Expect { arguments: &["busy"], ..Expect::default() });
    assert_ne!(recording.info()["calls"]["lost"], 0);
    displayed(&recording, BOTH);
}

#[test]
fn threads_have_their_states_below_their_calls() {
    let Some(directory) = perfetto().filter(|_| have_switches()) else { return };
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    let recording = record(&program, &[], &Expect::default());
    displayed(&recording, BOTH);
    let answers = ask(&directory, &recording.export("perfetto"), &[STATES, TROUBLE]);
    let [states, own] = &answers[0][0][..] else { panic!("{answers:?}") };
    let rows = recording.rows();
    let main = rows.iter().find(|row| row["function"] == "main").expect("main");
    let blocked = number(&main["blocked_ns"]);
    assert!(
        number(states).abs_diff(blocked) < 1000 && number(own).abs_diff(blocked) < 10,
        "{answers:?}, not {main}"
    );
    assert_eq!(answers[1], Vec::<Vec<Value>>::new());
}

#[test]
fn futures_have_own_tracks_with_polls() {
    let Some(directory) = perfetto() else { return };
    let Some(program) = compile_cargo("futures", &["--release"], "") else { return };
    let recording = record(&program, &["--async"], &Expect::default());
    let trace = recording.trace.to_string_lossy().into_owned();
    let lines = calltap_run(&["futures", "--each", "--json", "-i", &trace]).stdout;
    let spans = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut expected: Vec<(String, i64)> = spans
        .filter(|span| span["calltap_future"] == 1)
        .map(|span| (text(&span["future"]), number(&span["polls"])))
        .collect();
    let query = "select future.name, count(poll.id) from slice future join track on future.track_id = track.id \
        left join slice poll on poll.parent_id = future.id where track.id not in (select id from thread_track) \
        and future.depth = 0 group by future.id";
    let rows = ask(&directory, &recording.export("perfetto"), &[query, TROUBLE]);
    let mut found: Vec<(String, i64)> = rows[0].iter().map(|row| (text(&row[0]), number(&row[1]))).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(rows[1], Vec::<Vec<Value>>::new());
}
