//! Exported profiles, read by the tools that they are for: the results are those of `calltap
//! report`.
//!
//! `CALLTAP_SPEEDSCOPE` names a directory with npm's package `speedscope`, `CALLTAP_FIREFOX` one
//! with `@firefox-devtools/profiler-cli`; .ci/run provides them.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// By function: number of calls, total and own time in nanoseconds, number of calls without a known
/// end, number of calls that continue in a forked child. The report has no times of the last two; a
/// profile has their known part, and opens the last where they continue.
type Sums = BTreeMap<String, [u64; 5]>;

fn reported(recording: &Recording) -> Sums {
    let run = calltap_run(&["report", "--format", "json", "-i", &recording.trace.to_string_lossy()]);
    let rows = rows_of(&run.stdout);
    let mut sums = Sums::new();
    for row in rows {
        let sum = sums.entry(row["function"].as_str().expect("a name").to_owned()).or_default();
        for (sum, key) in sum.iter_mut().zip(["calls", "total_ns", "self_ns"]) {
            *sum += row[key].as_u64().unwrap_or(0);
        }
    }
    for call in fs::read_to_string(recording.export("csv")).expect("a file").lines() {
        if let [_, _, function, _, _, _, "", ..] = call.split(',').collect::<Vec<_>>()[..] {
            sums.entry(function.to_owned()).or_default()[3] += 1;
        }
    }
    let replay = calltap_run(&["replay", "-i", &recording.trace.to_string_lossy()]);
    for line in replay.stdout.lines() {
        let rest =
            line.split_once("() { /* resumed */").and_then(|(before, _)| before.split(' ').next_back());
        if let Some(sum) = rest.and_then(|function| sums.get_mut(function)) {
            sum[4] += 1;
        }
    }
    sums
}

/// Returns the output of a tool.
fn said_by(mut command: Command, home: &Path) -> String {
    command.env("HOME", home);
    let what = format!("{command:?}");
    let run = run(command, b"");
    assert!(run.status.success(), "{what}: {}{}", run.stdout, run.stderr);
    run.stdout
}

/// Compares one of the three sums of every function; durations may be rounded once per call, or
/// once per path.
#[track_caller]
fn same(what: &str, expected: &Sums, found: &BTreeMap<String, u64>, which: usize) {
    for (name, sums) in expected {
        let found = found.get(name).copied().unwrap_or(0);
        // A moment is converted with the clock readings around it, a duration with those of the
        // whole recording.
        let slack = if which == 0 { 0 } else { sums[0] + 2 + sums[which] / 1000 };
        let is_more = match which {
            0 => found == sums[0] + sums[4],
            _ => found > sums[which] && sums[3] + sums[4] > 0,
        };
        assert!(
            is_more || found.abs_diff(sums[which]) <= slack,
            "{what}: {name}: {found}, not {}",
            sums[which]
        );
    }
    let unknown: Vec<&String> = found.keys().filter(|name| !expected.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "{what}: {unknown:?}");
}

/// Compares lines such as `1,234 (5.6%)  ???:name [object]`.
fn callgrind(recording: &Recording, expected: &Sums, timed: bool) {
    if !have("callgrind_annotate") {
        return;
    }
    let file = recording.export("callgrind");
    for (inclusive, which) in [("no", 2), ("yes", 1)] {
        let mut command = Command::new("callgrind_annotate");
        command.args(["--threshold=100", "--auto=no", &format!("--inclusive={inclusive}")]).arg(&file);
        let text = said_by(command, file.parent().expect("a directory"));
        assert_eq!(text.contains("\ncalls "), !timed, "the event: {text}");
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let Some((cost, name)) = line.split_once("???:") else { continue };
            let name = name.rsplit_once(" [").map_or(name, |(name, _)| name).trim();
            let digits: String =
                cost.split('(').next().unwrap_or("").chars().filter(char::is_ascii_digit).collect();
            if !name.starts_with('[') {
                *found.entry(name.to_owned()).or_default() += digits.parse().unwrap_or(0);
            }
        }
        if timed {
            same(&format!("callgrind, inclusive {inclusive}"), expected, &found, which);
        } else if inclusive == "no" {
            same("callgrind, calls", expected, &found, 0);
        }
    }
}

/// Compares lines such as `123ns  4.5% 6.7%  123ns  4.5%  name`.
fn pprof(recording: &Recording, expected: &Sums, timed: bool) {
    if !have("go") {
        return;
    }
    let file = recording.export("pprof");
    let top = |index: &str| {
        let mut command = Command::new("go");
        let flags = ["tool", "pprof", "-top", "-nodefraction=0", "-edgefraction=0", "-nodecount=1000000"];
        command.args(flags).args(["-unit=ns", &format!("-sample_index={index}")]).arg(&file);
        said_by(command, file.parent().expect("a directory"))
    };
    let column = |text: &str, column: usize| {
        let rows = text.lines().skip_while(|line| !line.contains("flat%")).skip(1);
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows {
            let words: Vec<&str> = row.split_whitespace().collect();
            let name = words[5..].join(" ");
            let number = words[column].trim_end_matches("ns").parse().unwrap_or(0);
            *found.entry(name).or_default() += number;
        }
        found
    };
    same("pprof, calls", expected, &column(&top("calls"), 0), 0);
    if timed {
        let text = top("time");
        same("pprof, flat", expected, &column(&text, 0), 2);
        same("pprof, cum", expected, &column(&text, 3), 1);
        let rows = recording.rows();
        let switched = |row: &Value| row["self_blocked_ns"].is_u64();
        if rows.iter().all(switched) {
            for (index, key) in
                [("cpu", "self_cpu_ns"), ("runnable", "self_runnable_ns"), ("blocked", "self_blocked_ns")]
            {
                let found = column(&top(index), 0);
                for row in &rows {
                    let (ours, calls) = (row[key].as_u64().unwrap_or(0), row["calls"].as_u64().unwrap_or(0));
                    let theirs =
                        row["function"].as_str().and_then(|name| found.get(name)).copied().unwrap_or(0);
                    assert!(ours.abs_diff(theirs) <= calls + 2, "pprof, {index}: {theirs}, not {row}");
                }
            }
        }
    }
}

/// Checks the file against its schema, if installed; that calls close in the order in which they
/// opened; and for how long they were open.
fn speedscope(recording: &Recording, expected: &Sums, timed: bool) {
    let file = recording.export("speedscope");
    let schema = std::env::var_os("CALLTAP_SPEEDSCOPE").map(PathBuf::from);
    // Python takes minutes for a million events.
    let small = std::fs::metadata(&file).expect("just written").len() < 4 << 20;
    match schema.map(|package| package.join("dist/release/file-format-schema.json")) {
        Some(_) if !small => {}
        Some(schema) => {
            let check = "import json, sys, jsonschema; \
                jsonschema.Draft7Validator(json.load(open(sys.argv[1]))).validate(json.load(open(sys.argv[2])))";
            let mut command = Command::new("python3");
            command.args(["-c", check]).arg(schema).arg(&file);
            let run = run(command, b"");
            match run.stderr.contains("No module named") {
                true => skipped("no jsonschema for Python here, for Speedscope's schema"),
                false => assert!(run.status.success(), "{}", run.stderr),
            }
        }
        None => skipped("no Speedscope here: CALLTAP_SPEEDSCOPE is to name a directory with its package"),
    }
    let profile: Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("just written")).expect("JSON");
    let frames = profile["shared"]["frames"].as_array().expect("frames");
    let mut found: [BTreeMap<String, u64>; 2] = Default::default();
    for thread in profile["profiles"].as_array().expect("profiles") {
        let (mut open, mut last): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        let mut active = vec![0; frames.len()];
        for event in thread["events"].as_array().expect("events") {
            let number = |key: &str| event[key].as_u64().expect("a number");
            let (frame, at) = (number("frame"), number("at"));
            assert!(at >= last, "time runs backwards: {event}");
            last = at;
            if event["type"] == "O" {
                open.push((frame, at));
                active[frame as usize] += 1;
                continue;
            }
            let (closed, since) = open.pop().expect("an open frame");
            assert_eq!(closed, frame, "another frame is open: {event}");
            active[frame as usize] -= 1;
            let name = frames[frame as usize]["name"].as_str().expect("a name").to_owned();
            if name == "[LOST]" {
                continue;
            }
            *found[0].entry(name.clone()).or_default() += 1;
            let outermost = active[frame as usize] == 0;
            *found[1].entry(name).or_default() += if outermost { at - since } else { 0 };
        }
        assert!(open.is_empty() && thread["endValue"] == last);
    }
    same("speedscope, calls", expected, &found[0], 0);
    if timed {
        same("speedscope, total", expected, &found[1], 1);
    }
}

/// Compares the output of the Firefox Profiler's own reader, thread by thread.
fn firefox(recording: &Recording, expected: &Sums, timed: bool) {
    let file = recording.export("firefox");
    let Some(package) = std::env::var_os("CALLTAP_FIREFOX").map(PathBuf::from) else {
        return skipped(
            "no Firefox Profiler here: CALLTAP_FIREFOX is to name a directory with its profiler-cli.js",
        );
    };
    if !have("node") {
        return;
    }
    let home = file.parent().expect("a directory");
    let cli = |arguments: &[&str]| {
        let mut command = Command::new("node");
        command
            .arg(package.join("profiler-cli.js"))
            .args(arguments)
            .args(["--session", "own"])
            .env("HOME", home);
        command
    };
    // The server is started here, as its own command waits only half a second for it, too short on
    // a busy machine. A client that finds no session removes the socket that the server is about to
    // name, so no client starts before the server has named it.
    let session = home.join(".profiler-cli/own.json");
    let mut server = cli(&["--daemon", &file.to_string_lossy()]);
    let mut server = Server(server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("node"));
    let is_named = || fs::read(&session).is_ok_and(|text| serde_json::from_slice::<Value>(&text).is_ok());
    await_that("the Firefox Profiler's server listens", is_named);
    let answers = || run(cli(&["thread", "list", "--json"]), b"").status.success();
    await_that("the Firefox Profiler loads the file", answers);
    let json =
        |arguments: &[&str]| -> Value { serde_json::from_str(&said_by(cli(arguments), home)).expect("JSON") };
    let mut found: [BTreeMap<String, f64>; 2] = Default::default();
    let threads = json(&["thread", "list", "--json"]);
    for thread in threads["threads"].as_array().expect("threads") {
        let handle = thread["threadHandle"].as_str().or(thread["handle"].as_str()).expect("a handle");
        let list =
            json(&["thread", "functions", "--json", "--limit", "0", "--include-idle", "--thread", handle]);
        assert_eq!(list["weightType"], if timed { "tracing-ms" } else { "samples" });
        for function in list["functions"].as_array().expect("functions") {
            let name = function["name"].as_str().expect("a name");
            for (found, key) in found.iter_mut().zip(["totalSamples", "selfSamples"]) {
                *found.entry(name.to_owned()).or_default() += function[key].as_f64().unwrap_or(0.0);
            }
        }
    }
    // Waits are markers; the list has the number of each name.
    let markers = said_by(cli(&["thread", "markers"]), home);
    let waits = |name: &str| markers.lines().any(|line| line.trim().starts_with(name));
    let rows = recording.rows();
    let is_blocked = rows.iter().any(|row| row["function"] == "nap" && row["blocked_ns"].as_u64() > Some(0));
    assert!(!is_blocked || waits("blocked"), "{markers}");
    said_by(cli(&["stop"]), home);
    assert!(ends_within(&mut server.0, HANGS).is_some(), "the Firefox Profiler's server does not end");
    assert!(!session.exists(), "the Firefox Profiler's server has ended, and its session is still there");
    let scale = if timed { 1e6 } else { 1.0 };
    let [total, own] = found.map(|sums| {
        sums.into_iter().map(|(name, sum)| (name, (sum * scale).round() as u64)).collect::<BTreeMap<_, _>>()
    });
    if timed {
        same("firefox, total", expected, &total, 1);
        same("firefox, self", expected, &own, 2);
    } else {
        same("firefox, calls", expected, &own, 0);
    }
}

type Tool = fn(&Recording, &Sums, bool);
const TOOLS: [Tool; 4] = [callgrind, pprof, speedscope, firefox];
/// The tools for all flags: the Firefox Profiler's command line takes a second for each thread.
const FAST: [Tool; 3] = [callgrind, pprof, speedscope];

fn check(source: &str, arguments: &[&str], all_flags: &[Flags], tools: &[Tool]) {
    let program = compile(GCC, &[source], &[]);
    for flags in all_flags {
        let recording = record(&program, flags, &Expect { arguments, ..Expect::default() });
        let expected = reported(&recording);
        assert!(!expected.is_empty(), "{}", recording.what);
        let timed = expected.values().any(|sums| sums[1] > 0);
        for tool in tools {
            tool(&recording, &expected, timed);
        }
    }
}

#[test]
fn threads_and_recursion_with_every_tracer_and_without_times() {
    let function = vec!["--tracer", "function"];
    let both = vec!["--tracer", "function", "--tracer", "function_graph"];
    check("timeline.c", &[], &[vec![], function, both, vec!["--clock", "counter"]], &TOOLS);
}

#[test]
fn longjmp_and_recursion_deeper_than_call_paths_are_kept() {
    check("jumps.c", &[], &plain(), &[callgrind, speedscope]);
}

#[test]
fn waits_are_sample_types_and_markers() {
    check("divided.c", &[], &[vec![]], &TOOLS);
}

#[test]
fn processes_and_threads_that_come_and_go() {
    check("processes.c", &["fork"], &plain(), &FAST);
    check("threads.c", &["exit"], &plain(), &FAST);
}
