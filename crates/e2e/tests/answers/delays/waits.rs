//! The times for which a call's thread was blocked or runnable, compared with those that the
//! program knows.

use calltap_e2e::{
    BARE, Build, GCC, Program, Resident, calltap_run, compile, have_switches, have_tracepoints, kill, rows_of,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const MS: u64 = 1_000_000;

fn row<'r>(rows: &'r Value, function: &str) -> &'r Value {
    let found = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == function));
    found.unwrap_or_else(|| panic!("no {function} in {rows}"))
}

fn ns(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))
}

/// Returns the processor time that the host of this virtual machine has given to others so far. The
/// kernel does not count it as a thread's, and no switch of threads shows it.
fn stolen() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("the kernel's counts");
    let hundredths = stat.lines().next().and_then(|all| all.split_whitespace().nth(8)?.parse::<u64>().ok());
    hundredths.unwrap_or(0) * 10 * MS
}

fn record(program: &Program, flags: &[&str]) -> (String, Value) {
    let trace = program.directory().join("waits.data").display().to_string();
    let mut arguments = vec!["record", "-q", "-o", &trace];
    arguments.extend(flags);
    let path = program.path.display().to_string();
    let functions = ["burn", "nap", "want", "await_change", "await_byte", "compete", "main"];
    functions.iter().for_each(|function| arguments.extend(["-F", function]));
    arguments.extend(["--", &path]);
    let run = calltap_run(&arguments);
    assert!(run.status.success(), "{}", run.stderr);
    let report = calltap_run(&["report", "-i", &trace, "--format", "json"]);
    assert!(report.status.success(), "{}", report.stderr);
    (run.stdout, rows_of(&report.stdout).into())
}

fn check(build: &Build) {
    let program = compile(build, &["divided.c"], &["-pthread"]);
    let before = stolen();
    let (said, rows) = record(&program, &[]);
    let stolen = stolen() - before;
    for row in rows.as_array().expect("rows") {
        let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"].map(|key| ns(row, key));
        assert!(parts.iter().sum::<u64>().abs_diff(ns(row, "total_ns")) <= 3, "{row}");
        let own =
            ["self_cpu_ns", "self_runnable_ns", "self_blocked_ns", "self_tracing_ns"].map(|key| ns(row, key));
        assert!(own.iter().sum::<u64>().abs_diff(ns(row, "self_ns")) <= 3, "{row}");
    }
    // Ten sleeps of 20 ms, less the time of waking up, which is not blocked.
    let nap = row(&rows, "nap");
    assert!(ns(nap, "blocked_ns") >= 190 * MS && ns(nap, "cpu_ns") < 40 * MS, "{nap}");
    assert!(ns(row(&rows, "want"), "blocked_ns") >= 50 * MS, "{rows}");
    for function in ["await_change", "await_byte"] {
        assert!(ns(row(&rows, function), "blocked_ns") >= 20 * MS, "{rows}");
    }
    // Half a second of work by the thread's clock: the kernel has two ways to account it.
    let burn = row(&rows, "burn");
    assert!(ns(burn, "cpu_ns").abs_diff(500 * MS) <= 25 * MS + stolen, "{burn}\n{said}");
    // Two threads work for 200 ms each on one processor: each waits for at least half of that.
    let compete = row(&rows, "compete");
    assert!(ns(compete, "runnable_ns") >= 100 * MS, "{compete}");
}

#[test]
fn call_time_is_divided_as_the_program_measures() {
    if have_switches() {
        check(GCC);
        check(&BARE[0]);
    }
}

/// Parts of a call's time are within 2 % of what the kernel has accounted meanwhile.
#[test]
fn parts_are_those_that_the_kernel_accounts() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["accounted.c"], &["-pthread"]);
    let (path, trace) = (program.path.display().to_string(), program.directory().join("accounted.data"));
    let trace = trace.display().to_string();
    let before = stolen();
    let run = calltap_run(&["record", "-q", "-o", &trace, "--", &path]);
    assert!(run.status.success(), "{}", run.stderr);
    let stolen = stolen() - before;
    let (rows, mut count) = (report(&trace), 0);
    for line in run.stdout.lines() {
        let (function, numbers) = line.split_once(' ').expect("numbers");
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [wall, scheduled, used] = numbers[..] else { panic!("{line}") };
        let row = row(&rows, function);
        let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"].map(|key| ns(row, key));
        assert!(parts.iter().sum::<u64>().abs_diff(ns(row, "total_ns")) <= 3, "{row}");
        // The program measures around the call, which includes its own measuring.
        let near = |one: u64, other: u64| one.abs_diff(other) <= wall / 50 + stolen;
        let [cpu, off] = [parts[0], parts[1..].iter().sum()];
        assert!(near(cpu, scheduled) && near(cpu, used), "{row}: {line}");
        assert!(near(off, wall - scheduled) && near(ns(row, "total_ns"), wall), "{row}: {line}");
        count += 1;
    }
    assert!(count >= 7, "{}", run.stdout);
}

#[test]
fn waits_are_unknown_without_context_switches() {
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    let (_, rows) = record(&program, &["--no-sched"]);
    let nap = row(&rows, "nap");
    assert!(nap["total_ns"].is_u64() && nap["blocked_ns"].is_null() && nap["cpu_ns"].is_null(), "{nap}");
    let trace = program.directory().join("waits.data").display().to_string();
    let text = calltap_run(&["report", "-i", &trace]).stdout;
    assert!(!text.contains("BLOCKED"), "{text}");
}

fn said(program: &Program, arguments: &[&str]) -> String {
    let trace = program.directory().join("waits.data").display().to_string();
    let run = calltap_run(&[arguments, &["-i", &trace]].concat());
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
    run.stdout
}

/// Returns numbers by stack.
fn folded(program: &Program, by: &str) -> BTreeMap<String, u64> {
    let text = said(program, &["export", "--to", "folded", "--by", by]);
    let line = |line: &str| {
        let (stack, number) = line.rsplit_once(' ').expect("a number");
        (stack.to_owned(), number.parse().expect("nanoseconds"))
    };
    text.lines().map(line).collect()
}

#[test]
fn every_view_divides_the_time_of_calls_alike() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    let (_, rows) = record(&program, &[]);
    // The sum over each call.
    let table = said(&program, &["export", "--to", "csv"]);
    let mut blocked = 0;
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells[at].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        let parts = [9, 10, 11, 12].map(number);
        assert!(parts.iter().sum::<u64>().abs_diff(number(6)) <= 3, "{line}");
        blocked += if cells[2] == "nap" { number(11) } else { 0 };
    }
    assert!(blocked.abs_diff(ns(row(&rows, "nap"), "blocked_ns")) <= 10, "{table}");
    // The sum over each path.
    let [wall, cpu, runnable, blocked, tracing] =
        ["wall", "cpu", "runnable", "blocked", "tracing"].map(|by| folded(&program, by));
    for (stack, all) in &wall {
        let parts = [&cpu, &runnable, &blocked, &tracing].map(|by| by.get(stack).copied().unwrap_or(0));
        assert!(parts.iter().sum::<u64>().abs_diff(*all) <= 3, "{stack}: {parts:?} of {all}");
    }
    let naps = blocked.iter().filter(|(stack, _)| stack.ends_with("nap")).map(|(_, ns)| ns).sum::<u64>();
    assert!(naps.abs_diff(ns(row(&rows, "nap"), "self_blocked_ns")) <= 10, "{blocked:?}");
    for node in &rows_of(&said(&program, &["graph", "--format", "json"])) {
        let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"].map(|key| ns(node, key));
        assert!(parts.iter().sum::<u64>().abs_diff(ns(node, "total_ns")) <= 3, "{node}");
    }
    assert!(said(&program, &["graph"]).contains(" BLOCKED "));
    let picture = said(&program, &["export", "--to", "flamegraph", "--by", "blocked"]);
    assert!(picture.contains("blocked time; ") && picture.contains(">nap<"), "{picture}");
    // Each wait is shown in the call that waits, which may have lost its processor before.
    let replay = said(&program, &["replay"]);
    let naps = replay.split(" nap() {").skip(1).filter_map(|rest| rest.split_once('}'));
    assert_eq!(naps.filter(|(nap, _)| nap.contains("/* blocked ")).count(), 10, "{replay}");
    let without = said(&program, &["replay", "--no-sched"]);
    assert!(!without.contains("blocked") && without.contains(" nap();"), "{without}");
}

#[test]
fn flame_graphs_of_waits_need_context_switches() {
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    record(&program, &["--no-sched"]);
    let trace = program.directory().join("waits.data").display().to_string();
    let run = calltap_run(&["export", "--to", "folded", "--by", "blocked", "-i", &trace]);
    assert!(!run.status.success() && run.stderr.contains("does not say when threads ran"), "{}", run.stderr);
    let run = calltap_run(&["export", "--to", "csv", "--by", "blocked", "-i", &trace]);
    assert!(!run.status.success() && run.stderr.contains("--to flamegraph"), "{}", run.stderr);
}

#[test]
fn slower_and_latency_tell_how_long_calls_were_blocked() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    let path = program.path.display().to_string();
    let run = calltap_run(&["slower", "10ms", "nap", "--json", "--", &path]);
    let lines: Vec<Value> =
        run.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect();
    let calls: Vec<&Value> = lines.iter().filter(|line| line["function"] == "nap").collect();
    assert_eq!(calls.len(), 10, "{}\n{}", run.stdout, run.stderr);
    for call in calls {
        let (all, blocked) = (ns(call, "duration_ns"), ns(call, "blocked_ns"));
        assert!(blocked >= 19 * MS && blocked + ns(call, "runnable_ns") <= all, "{call}");
    }
    let answer = program.directory().join("latency.json");
    let run = calltap_run(&["latency", "nap", "--json", "-o", &answer.display().to_string(), "--", &path]);
    assert!(run.status.success(), "{}", run.stderr);
    let answer = std::fs::read(&answer).expect("the answer");
    let answer: Value = serde_json::from_slice(&answer).expect("an object");
    let nap = &answer["functions"][0];
    let blocked =
        nap["blocked_buckets"].as_array().map_or(0, |all| all.iter().map(|one| ns(one, "calls")).sum());
    assert_eq!((blocked, ns(nap, "calls")), (10, 10), "{nap}");
}

/// Returns the rows of `calltap report` for a trace.
fn report(trace: &str) -> Value {
    let report = calltap_run(&["report", "-i", trace, "--format", "json"]);
    assert!(report.status.success(), "{}", report.stderr);
    rows_of(&report.stdout).into()
}

/// Checks that a function's time is completely known, and that the part in which its thread did not
/// work was spent on tracing.
fn is_held(rows: &Value, function: &str) {
    let row = row(rows, function);
    let (blocked, tracing) = (ns(row, "blocked_ns"), ns(row, "tracing_ns"));
    assert!(tracing > 0 && blocked <= tracing / 4, "{row}");
    let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"].map(|key| ns(row, key));
    assert!(parts.iter().sum::<u64>().abs_diff(ns(row, "total_ns")) <= 3, "{row}");
}

#[test]
fn a_thread_that_waits_for_the_recorder_is_not_blocked() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["held.c"], &["-pthread", "-ldl"]);
    let path = program.path.display().to_string();
    let trace = program.directory().join("held.data").display().to_string();
    // The buffers have room for half a millisecond of calls.
    let flags = ["record", "-q", "-o", &trace, "--buffer-size", "256K", "--max-overhead", "none", "--"];
    let run = calltap_run(&[&flags[..], &[&path, "steps"]].concat());
    assert!(run.status.success(), "{}", run.stderr);
    is_held(&report(&trace), "steps");
    let replay = calltap_run(&["replay", "-i", &trace]).stdout;
    assert!(replay.contains("/* held by calltap ") && !replay.contains("/* blocked "), "{trace}");
    let text = calltap_run(&["report", "-i", &trace]).stdout;
    assert!(text.contains(" TRACING "), "{text}");
}

#[test]
fn a_library_that_waits_to_be_planned_is_not_blocked() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["held.c"], &["-pthread", "-ldl"]);
    let library = program.add(GCC, &["library.c"], "opened.so", &["-shared", "-fPIC"]);
    let (path, library) = (program.path.display().to_string(), library.display().to_string());
    let trace = program.directory().join("held.data").display().to_string();
    let run = calltap_run(&["record", "-q", "-o", &trace, "--", &path, "open", &library]);
    assert!(run.status.success(), "{}", run.stderr);
    is_held(&report(&trace), "open_library");
}

#[test]
fn a_thread_that_calltap_stops_is_not_blocked() {
    if !have_switches() {
        return;
    }
    let program = compile(&BARE[0], &["held.c"], &["-pthread", "-ldl"]);
    let mut resident = Resident::start(&program, &["spin"]);
    let recorder = resident.attach_beside(&["-F", "spin", "-F", "spinner"]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("inside");
    let pid = resident.pid.to_string();
    for function in ["open_library", "steps", "main"] {
        let set = calltap_run(&["set", "-p", &pid, "-F", function, "-F", "spin", "-F", "spinner"]);
        assert!(set.status.success(), "{}", set.stderr);
    }
    let trace = resident.trace().display().to_string();
    let (status, ..) = resident.end();
    assert!(status.success());
    let recorder = recorder.wait_with_output().expect("a recorder");
    assert!(recorder.status.success(), "{recorder:?}");
    is_held(&report(&trace), "spinner");
}

/// A recorder writes the kernel's events at least a second before it is killed: only for the last
/// seconds the states of threads are unknown.
#[test]
fn killed_recorder_has_written_kernel_events() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let recorder = resident.attach_beside(&["--events", "sched,syscalls", "-F", "nap"]);
    resident.await_recorder();
    thread::sleep(Duration::from_secs(4));
    kill(recorder.id(), 9);
    let _ = recorder.wait_with_output();
    let trace = resident.trace().display().to_string();
    let table = calltap_run(&["export", "--to", "csv", "-i", &trace]).stdout;
    let known = table.lines().skip(1).filter(|line| line.split(',').nth(11).is_some_and(|ns| !ns.is_empty()));
    assert!(known.count() > 0, "{table}");
    let answer = program.directory().join("killed.json").display().to_string();
    let why = calltap_run(&["why", "nap>500us", "--json", "-o", &answer, "-i", &trace]);
    assert!(why.status.success(), "{}", why.stderr);
    let told: Value =
        serde_json::from_slice(&std::fs::read(&answer).expect("the answer")).expect("an object");
    let woken = |call: &Value| call["did"]["blocked"][0]["woken_by"]["kind"] == "interrupt";
    assert!(told["calls"].as_array().is_some_and(|calls| calls.iter().any(woken)), "{told:#}");
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["detach", "-p", &pid]).status.success());
    let (status, ..) = resident.end();
    assert!(status.success());
}

#[test]
fn short_threads_are_shown_by_their_own_names() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["renamed.c"], &["-pthread"]);
    let trace = program.directory().join("renamed.data").display().to_string();
    let (path, filter) = (program.path.display().to_string(), "rename_self");
    let run = calltap_run(&["record", "-q", "-o", &trace, "-F", filter, "--", &path]);
    assert!(run.status.success(), "{}", run.stderr);
    let shown = calltap_run(&["replay", "-i", &trace]).stdout;
    for number in 0..40 {
        assert!(shown.contains(&format!(" task-{number}-")), "{number}: {shown}");
    }
}
