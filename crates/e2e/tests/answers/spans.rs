//! Spans between calls that share a value, histograms of values, and counts by caller, thread and
//! value: live and from a file.

use calltap_e2e::{GCC, Program, Resident, calltap_run, compile, rows_of};
use serde_json::Value;
use std::path::Path;

const REQUESTS: u64 = 40;

fn program() -> Program {
    compile(GCC, &["spans.c"], &[])
}

/// Returns the answer of `calltap WORDS --json -o FILE BEHIND`.
fn ask(directory: &Path, words: &[&str], behind: &[&str]) -> Value {
    let answer = directory.join("answer");
    let path = answer.to_string_lossy();
    let run = calltap_run(&[words, &["--json", "-o", &path], behind].concat());
    assert!(run.status.success(), "{words:?}: {}", run.stderr);
    serde_json::from_str(&std::fs::read_to_string(&answer).expect("an answer")).expect("JSON")
}

fn check_spans(answer: &Value) {
    assert_eq!((&answer["spans"], &answer["unfinished"]), (&(REQUESTS - 1).into(), &1.into()), "{answer}");
    for none in ["unknown", "ended_without_start", "begun_again", "unread_values", "lost"] {
        assert_eq!(answer[none], 0, "{none}: {answer}");
    }
    let slowest = answer["slowest"].as_array().expect("slowest");
    assert_eq!(slowest.len(), 3);
    assert!(slowest.iter().all(|span| span["duration_ns"].as_u64() >= Some(20_000_000)), "{answer}");
    assert!(slowest.iter().all(|span| span["start_tid"] != span["end_tid"]), "{answer}");
    let ns = |key: &str| answer[key].as_u64().unwrap_or_else(|| panic!("{key}: {answer}"));
    assert!(ns("p50_ns") <= ns("p90_ns") && ns("p90_ns") <= ns("p99_ns") && ns("p999_ns") <= ns("max_ns"));
}

#[test]
fn a_span_is_the_time_between_two_calls_with_the_same_value() {
    let program = program();
    let path = program.path.to_string_lossy();
    let trace = program.directory().join("trace").to_string_lossy().into_owned();
    let recorded = calltap_run(&[
        "record",
        "-o",
        &trace,
        "-A",
        "begin@arg1",
        "-A",
        "finish@arg1",
        "-R",
        "opened@retval",
        "--",
        &path,
    ]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    for words in ["begin@arg1 .. finish@arg1", "opened@retval .. finish@arg1"] {
        let words = ["span", words, "-n", "3"];
        check_spans(&ask(program.directory(), &words, &["--", &path]));
        check_spans(&ask(program.directory(), &words, &["-i", &trace]));
    }
    let other = calltap_run(&["span", "begin@arg2 .. finish@arg1", "-i", &trace]);
    assert!(other.stderr.contains("calltap record -A begin@arg2"), "{}", other.stderr);
}

#[test]
fn histograms_hold_every_value() {
    let program = program();
    let path = program.path.to_string_lossy();
    let answer =
        ask(program.directory(), &["histogram", "opened@retval,arg1", "--linear", "128"], &["--", &path]);
    let rows = answer["histograms"].as_array().expect("histograms");
    for (item, max) in [("retval", 4096 + 16 * (REQUESTS - 1)), ("arg1", REQUESTS - 1)] {
        let row = rows.iter().find(|row| row["item"] == item).unwrap_or_else(|| panic!("{item}: {answer}"));
        assert_eq!((&row["values"], &row["max"]), (&REQUESTS.into(), &max.into()), "{answer}");
        let buckets = row["buckets"].as_array().expect("buckets");
        assert_eq!(buckets.iter().filter_map(|bucket| bucket["values"].as_u64()).sum::<u64>(), REQUESTS);
        assert_eq!(buckets[0]["values"], if item == "arg1" { REQUESTS } else { 8 }, "{answer}");
    }
}

#[test]
fn calls_are_counted_by_caller_thread_and_value() {
    let program = program();
    let path = program.path.to_string_lossy();
    let rows = |by: &str, function: &str| -> Vec<(String, u64)> {
        let answer = ask(program.directory(), &["count", function, "--by", by], &["--", &path]);
        let rows = answer["functions"].as_array().unwrap_or_else(|| panic!("{answer}"));
        rows.iter()
            .map(|row| (row[by].as_str().unwrap_or("").to_owned(), row["calls"].as_u64().unwrap_or(0)))
            .collect()
    };
    assert_eq!(rows("caller", "begin"), [("main".to_owned(), REQUESTS)]);
    assert_eq!(rows("thread", "finish").iter().map(|row| row.1).collect::<Vec<_>>(), [REQUESTS - 1]);
    let values = rows("value", "begin@arg1");
    assert!(values.len() as u64 == REQUESTS && values.iter().all(|row| row.1 == 1), "{values:?}");
}

#[test]
fn a_part_of_a_file_has_its_calls() {
    let program = program();
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("trace"));
    let trace = trace.to_string_lossy();
    let recorded = calltap_run(&["record", "-o", &trace, "--", &path]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let show = |words: &[&str]| {
        let run = calltap_run(&[words, &["-i", &trace]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run
    };
    let long = show(&["replay", "--no-sched", "--longer", "15ms", "--time", "wall"]).stdout;
    assert_eq!(long.matches("lie();").count(), 5, "{long}");
    assert!(
        !long.contains("finish") && long.starts_with("# part of the trace: calls longer than 15.000 ms"),
        "{long}"
    );
    let line = long.lines().find(|line| line.contains("lie();")).expect("a line");
    let time = line.split_whitespace().next().expect("a time");
    let from = &time[..8];
    let later = show(&["replay", "--no-sched", "--from", from, "--graph", "lie"]).stdout;
    assert!(later.contains("lie();") && !later.contains("begin"), "{later}");
    let csv = show(&["export", "--to", "csv", "--graph", "lie", "--from", "0"]);
    assert_eq!(csv.stdout.lines().count(), 6, "{}", csv.stdout);
    assert!(
        csv.stderr.contains("a part of the trace: from 0.000000 s; lie and what it calls"),
        "{}",
        csv.stderr
    );
    let main = show(&["report", "--thread", "spans", "--depth", "1", "--format", "csv"]).stdout;
    assert!(main.contains("main") && !main.contains("begin"), "{main}");
    for (words, expected) in [
        (&["replay", "--from", "99d"][..], "'99d' is not a time"),
        (&["replay", "--from", "9999999"], "after the last event of the trace"),
        (&["report", "--until", "0"], "is not after"),
        (&["graph", "--thread", "nosuch"], "no thread nosuch"),
        (&["graph", "--graph", "nosuch"], "no function of the trace matches"),
    ] {
        let run = calltap_run(&[words, &["-i", &trace]].concat());
        assert!(!run.status.success() && run.stderr.contains(expected), "{words:?}: {}", run.stderr);
    }
}

/// Records a program with these flags. Returns its calls by function, and calltap's messages.
fn calls_of(program: &Program, words: &[&str]) -> (Vec<(String, u64)>, String) {
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("trace"));
    let trace = trace.to_string_lossy();
    let run = calltap_run(&[&["record", "-o", &trace], words, &["--", &path]].concat());
    assert!(run.status.success(), "{words:?}: {}", run.stderr);
    let report = calltap_run(&["report", "-i", &trace, "--format", "json"]).stdout;
    let rows = rows_of(&report);
    let row = |row: &Value| {
        (row["function"].as_str().expect("a name").to_owned(), row["calls"].as_u64().expect("calls"))
    };
    let mut rows: Vec<(String, u64)> = rows.iter().map(row).collect();
    rows.sort();
    (rows, run.stderr)
}

fn of(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
}

#[test]
fn calls_of_functions_switch_a_recording_and_limit_its_depth() {
    let program = compile(GCC, &["triggers.c"], &[]);
    let check = |words: &[&str], expected: &[(&str, u64)]| {
        let (mut rows, told) = calls_of(&program, words);
        // The outermost call appears as often as the recording is resumed.
        rows.retain(|(name, _)| name != "main");
        assert_eq!(rows, of(expected), "{words:?}: {told}");
        let info = calltap_run(&["info", "-i", &program.directory().join("trace").to_string_lossy()]).stdout;
        assert!(info.contains(" 0 lost") && info.contains("as selected by triggers"), "{info}");
    };
    for _ in 0..5 {
        check(
            &["--on", "begin:trace_on", "--on", "finish:trace_off"],
            &[("begin", 2), ("finish", 2), ("help", 1), ("inside", 11)],
        );
    }
    check(
        &["--on", "begin:trace_on:1,finish:traceoff"],
        &[("begin", 1), ("finish", 1), ("help", 1), ("inside", 9)],
    );
    check(&["--on", "begin:trace_off:1"], &[("before", 3), ("begin", 1)]);
    check(
        &["--on", "begin:trace_on", "--on", "f*:trace_off", "--graph", "help"],
        &[("help", 1), ("inside", 4)],
    );
    let all = [
        ("after", 7),
        ("before", 3),
        ("begin", 2),
        ("branch", 3),
        ("finish", 2),
        ("help", 1),
        ("inside", 11),
    ];
    check(&["--on", "tree:depth=2"], &[&all[..], &[("leaf", 2), ("tree", 1)]].concat());
    check(&["--on", "branch:depth=1"], &[&all[..], &[("tree", 1)]].concat());
    // The end of a call during which the recording pauses is not known, and it began before the
    // recording resumed.
    let trace = program.directory().join("trace").to_string_lossy().into_owned();
    let (_, _) = calls_of(&program, &["--on", "begin:trace_on", "--on", "finish:trace_off"]);
    let report = calltap_run(&["report", "-F", "main", "--json", &trace]).stdout;
    let rows = rows_of(&report);
    assert_eq!(rows[0]["calls"], 2, "{report}");
    assert!(rows[0]["avg_ns"].is_null() || rows[0]["avg_ns"] == 0, "{report}");
    let replay = calltap_run(&["replay", &trace]).stdout;
    assert!(replay.contains("/* outside */") && !replay.contains("/* left */"), "{replay}");
}

#[test]
fn a_call_of_a_function_takes_a_snapshot() {
    let program = compile(GCC, &["triggers.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("shot"));
    let trace = trace.to_string_lossy();
    let run = calltap_run(&["record", "--on", "finish:snapshot:1", "-o", &trace, "--", &path]);
    assert!(run.status.success() && run.stderr.contains("shot.1"), "{}", run.stderr);
    let first = format!("{trace}.1");
    assert!(calltap_run(&["info", &first]).stdout.contains("snapshot: finish was called"));
    assert!(calltap_run(&["report", &first]).stdout.contains("inside"));
    let refused = |words: &[&str], why: &str| {
        let run = calltap_run(&[&["record", "-o", "/dev/null"], words, &["--", &path]].concat());
        assert!(!run.status.success() && run.stderr.contains(why), "{words:?}: {}", run.stderr);
    };
    refused(&["--on", "finish:stop"], "actions are trace_on, trace_off, snapshot and depth=N");
    refused(&["--on", "nosuch:trace_on"], "no traceable function matches 'nosuch'");
    refused(
        &["--on", "begin:trace_on", "--clock", "coarse"],
        "does not order the calls of different threads",
    );
    refused(&["--on", "begin:trace_on", "--slow", "main>1ms"], "and --on exclude --slow");
    refused(&["--on", "begin:trace_on", "--on", "finish:snapshot"], "excludes other actions");
}

#[test]
fn a_recording_of_a_subtree_has_its_calls_and_counts_the_others() {
    let program = compile(GCC, &["requests.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("trace"));
    let trace = trace.to_string_lossy();
    let calls = |words: &[&str]| calls_of(&program, words);
    let (rows, told) = calls(&["--graph", "front"]);
    assert_eq!(rows, of(&[("disk", 6), ("front", 60), ("handle", 60), ("leaf", 360)]));
    assert!(told.contains("of front and what it calls (of "), "{told}");
    assert_eq!(calls(&["--graph", "front", "--depth", "2"]).0, of(&[("front", 60), ("handle", 60)]));
    let (rows, _) = calls(&["--depth", "2"]);
    assert!(rows.contains(&("front".to_owned(), 60)), "{rows:?}");
    assert!(!rows.iter().any(|(name, _)| name == "handle" || name == "back"), "{rows:?}");
    let info = calltap_run(&["info", "-i", &trace]).stdout;
    assert!(info.contains("the recording kept only calls of all functions, 2 levels deep:"), "{info}");
    assert!(info.contains(" 0 lost") && info.contains("dropped on purpose"), "{info}");
    // Every view says it: in its head, for scripts in JSON or on standard error.
    let says = "the recording kept only calls of all functions, 2 levels deep: other calls are missing";
    for view in [
        &["report"][..],
        &["graph"],
        &["replay"],
        &["replay", "--json"],
        &["report", "--json"],
        &["export", "--to", "folded"],
        &["export", "--to", "flamegraph"],
        &["export", "--to", "chrome"],
        &["latency", "front"],
        &["latency", "front", "--json"],
        &["count", "front"],
        &["slower", "1ns", "front"],
        &["watch", "front"],
        &["stacks", "front"],
        &["why", "front>1ns"],
        &["why", "front>1ns", "--json"],
        &["locks"],
    ] {
        let run = calltap_run(&[view, &["-i", &trace]].concat());
        assert!(
            run.status.success() && (run.stdout + &run.stderr).contains(says),
            "{view:?}: {}",
            run.stderr
        );
    }
    let both = calltap_run(&["record", "--graph", "front", "--slow", "front>1ms", "--", &path]);
    assert!(both.stderr.contains("and --on exclude --slow"), "{}", both.stderr);
}

/// Returns the calls of a trace by function.
fn calls_in(trace: &str) -> std::collections::BTreeMap<String, u64> {
    let report = calltap_run(&["report", "-i", trace, "--format", "json"]).stdout;
    let rows = rows_of(&report);
    let calls = |row: &Value| {
        (row["function"].as_str().expect("a name").to_owned(), row["calls"].as_u64().expect("calls"))
    };
    rows.iter().map(calls).collect()
}

#[test]
fn set_changes_kept_calls_during_recording() {
    let program = compile(GCC, &["keeping.c"], &[]);
    let trace = program.directory().join("trace").to_string_lossy().into_owned();
    let mut command = std::process::Command::new(calltap_e2e::calltap());
    command.args(["record", "-o", &trace, "--"]).arg(&program.path);
    let mut recorder = Resident::spawn(command, program.directory().to_owned());
    let pid = recorder.wait_for("ready");
    let set = |words: &[&str], says: &str| {
        let run = calltap_run(&[&["set", "-p", &pid], words].concat());
        assert!(run.status.success() && run.stderr.contains(says), "{words:?}: {}", run.stderr);
    };
    let status = || calltap_run(&["status", "-p", &pid]).stdout;
    // For each line of input, the program makes three calls of outer, each of which calls inner
    // once and leaf twice.
    let mut step = |count: u32| {
        recorder.tell();
        assert_eq!(recorder.wait_for("step"), count.to_string());
    };
    step(1);
    assert!(!status().contains("kept"), "{}", status());
    set(&["--graph", "inner"], "inner and what it calls");
    assert!(status().contains("only calls of inner and what it calls"), "{}", status());
    step(2);
    set(&["--graph", "", "--depth", "1"], "1 level deep");
    step(3);
    set(&["--depth", "", "--callers", "inner"], "inner and what leads to it");
    step(4);
    set(&["--callers", ""], "the recording keeps all calls");
    step(5);
    let refused = calltap_run(&["set", "-p", &pid, "--graph", "nosuch"]);
    assert!(refused.stderr.contains("no traceable function matches 'nosuch'"), "{}", refused.stderr);
    let (ended, _, said) = recorder.end();
    assert!(ended.success(), "{said}");
    let calls = calls_in(&trace);
    // Of the steps, outer is kept in 1, 3, 4 and 5; inner in all but 3; leaf in 1, 2 and 5.
    assert_eq!((calls["outer"], calls["inner"], calls["leaf"]), (12, 12, 18), "{calls:?}");
    let info = calltap_run(&["info", "-i", &trace]).stdout;
    let is_change = |line: &&str| line.contains(" s on the recording kept") || line.contains("ms on the");
    let changed: Vec<&str> = info.lines().filter(is_change).collect();
    assert!(info.contains("on the recording kept only calls of inner and what it calls:"), "{info}");
    let last = changed.last().is_some_and(|line| line.ends_with("on the recording kept all calls"));
    assert!(changed.len() == 4 && last, "{info}");
    assert!(info.contains(" 0 lost") && info.contains("dropped on purpose"), "{info}");
}

#[test]
fn callers_filter_keeps_only_calling_paths() {
    let program = compile(GCC, &["requests.c"], &[]);
    let (rows, told) = calls_of(&program, &["--callers", "disk"]);
    assert_eq!(
        rows,
        of(&[("back", 6), ("disk", 12), ("front", 6), ("handle", 12), ("main", 1), ("work", 2)])
    );
    assert!(told.contains("of disk and what leads to it"), "{told}");
}

#[test]
fn set_graph_is_refused_for_attached_process() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    let refused = calltap_run(&["set", "-p", &pid, "--graph", "lap"]);
    assert!(!refused.status.success(), "{}", refused.stderr);
    assert!(refused.stderr.contains("calltap report --graph"), "{}", refused.stderr);
    assert!(calltap_run(&["detach", "-p", &pid]).status.success());
    assert!(resident.end().0.success());
}
