//! Tail calls: a call lasts until its caller continues, whatever functions it has jumped to.

use calltap_e2e::{
    BARE, Build, CLANG, Expect, GCC, Resident, XRAY, calltap_run, changed_text, compile, have, installed,
    interrupt, record,
};
use std::collections::BTreeMap;

/// Nanoseconds for which the function pauses in which all calls end.
const PAUSE: u64 = 20_000_000;

/// Checks that no call is shorter than the function that it has jumped to, nor longer than its
/// caller has waited.
fn check(build: &Build, flags: &[&str]) {
    let program = compile(build, &["tail_calls.c"], &[]);
    let recording = record(&program, flags, &Expect::default());
    assert!(recording.run.status.success(), "{}: {}", recording.what, recording.run.stderr);
    let took: BTreeMap<String, u64> = recording
        .run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("about took ")?.split_once(' '))
        .map(|(name, ns)| (name.to_owned(), ns.parse().expect("a number")))
        .collect();
    assert_eq!(took.len(), 6, "{}: {took:?}", recording.what);
    let trace = recording.trace.to_string_lossy().into_owned();
    let run = calltap_run(&["export", "--to", "csv", "-i", &trace]);
    assert!(run.status.success(), "{}: {}", recording.what, run.stderr);
    let mut lines = run.stdout.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let column = |name: &str| header.iter().position(|column| *column == name).expect("the column");
    let [function, total] = ["function", "total_ns"].map(column);
    let mut longest: BTreeMap<&str, u64> = BTreeMap::new();
    let rows: Vec<Vec<&str>> = lines.collect();
    for row in &rows {
        let ns = row[total].parse().unwrap_or(0);
        let known = longest.entry(row[function]).or_default();
        *known = ns.max(*known);
    }
    for (name, most) in &took {
        let ns = longest.get(&name[..]).copied().unwrap_or(0);
        // The kernel may adjust the rate of its clock by half a thousandth.
        let most = most + most / 1000;
        assert!((PAUSE..=most).contains(&ns), "{}: {name} took {ns} ns of {most}", recording.what);
    }
    for name in ["second", "third", "direct", "odd"] {
        assert!(longest.get(name).is_some_and(|ns| *ns >= PAUSE), "{}: {name}: {longest:?}", recording.what);
    }
}

#[test]
fn a_call_lasts_until_control_is_back_at_its_caller() {
    let builds = [GCC, XRAY, &BARE[0], &BARE[1], &BARE[2], &BARE[4], &BARE[5]];
    for build in builds.into_iter().filter(|build| have(build.compilers[0])) {
        check(build, &[]);
        // The function that is jumped to is not traced.
        check(build, &["-N", "pauses"]);
    }
}

/// A build by clang, whose option -pg calls the profiling function.
const CLANG_MCOUNT: &Build =
    &Build { name: "clang mcount", compilers: ["clang-16", "clang++-16"], flags: &["-O2", "-pg"] };

#[test]
fn functions_return_to_their_callers_if_their_returns_take_arguments_from_the_stack() {
    let builds = [CLANG, CLANG_MCOUNT, XRAY, &BARE[2]];
    for build in builds.into_iter().filter(|build| have(build.compilers[0])) {
        for recognised in [&[][..], &["-DSWIFT"]] {
            let program = compile(build, &["argument_pops.c"], recognised);
            let both = ["--tracer", "function", "--tracer", "function_graph"];
            let values = ["-A", "adds@arg2/d64", "-R", "starts@retval/d64"];
            for flags in [&[][..], &["--tracer", "profile"], &both, &values] {
                let recording = record(&program, flags, &Expect::default());
                assert!(recording.run.status.success(), "{}: {}", recording.what, recording.run.stderr);
                let trace = recording.trace.to_string_lossy().into_owned();
                let replay = calltap_run(&["replay", "-i", &trace]).stdout;
                assert!(!replay.contains("<-0x"), "{}: {replay}", recording.what);
            }
        }
    }
}

#[test]
fn tail_callers_return_correct_results() {
    for build in installed(BARE).filter(|build| !build.flags.contains(&"-s")).chain([GCC]) {
        let program = compile(build, &["tail_calls.c"], &[]);
        let flags = ["-F", "direct", "-A", "direct@arg1/d64", "-R", "direct@retval/d64"];
        let recording = record(&program, &flags, &Expect::default());
        assert!(recording.run.status.success(), "{}: {}", recording.what, recording.run.stderr);
        let trace = recording.trace.to_string_lossy().into_owned();
        let replay = calltap_run(&["replay", "-i", &trace]).stdout;
        assert!(replay.contains("arg1=5") && replay.contains("ret=18"), "{}: {replay}", recording.what);
    }
}

#[test]
fn results_of_functions_that_a_tail_call_enters_are_unknown() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["tail_calls.c"], &[]);
        let flags =
            ["-F", "direct,pauses", "-R", "direct@retval/d64", "-R", "pauses@retval/d64", "--no-sched"];
        let recording = record(&program, &flags, &Expect::default());
        let trace = recording.trace.to_string_lossy().into_owned();
        let replay = calltap_run(&["replay", "-i", &trace]).stdout;
        let line = |start: &str| replay.lines().find(|line| line.contains(start)).map(str::to_owned);
        let inner = line(" pauses()").unwrap_or_default();
        assert!(inner.ends_with("pauses(); /* ret=? */"), "{}: {replay}", recording.what);
        assert!(replay.contains("} /* ret=18 */"), "{}: {replay}", recording.what);
        let lines = calltap_run(&["replay", "-i", &trace, "--format", "json"]).stdout;
        let results: Vec<String> = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|line| line["results"].is_object() && line["function"] == "pauses")
            .map(|line| line["results"]["retval"].to_string())
            .collect();
        // The second call is an ordinary one in the frame of another function.
        assert!(
            matches!(&results[..], [first, second, ..] if first == "null" && second == "27"),
            "{results:?}"
        );
        let histogram = calltap_run(&["histogram", "pauses@retval", "-i", &trace]).stdout;
        assert!(histogram.contains("unreadable"), "{}: {histogram}", recording.what);
    }
}

/// Detaches, or switches a function off, while a call is open that has jumped to another function,
/// and compares the recording behind the two entries.
fn check_left(build: &Build, off: Option<&str>, expected: &[&str]) {
    let program = compile(build, &["tail_waits.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let recorder = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("inside");
    if let Some(function) = off {
        let set = calltap_run(&["set", "-p", &pid, "--notrace", function]);
        assert!(set.status.success(), "{}: {}", build.name, set.stderr);
        resident.tell();
        assert_eq!(resident.wait_for("left"), "6", "{}", build.name);
    }
    assert!(interrupt(recorder).success(), "{}", build.name);
    assert_eq!(changed_text(resident.pid), [""; 0], "{}", build.name);
    if off.is_none() {
        resident.tell();
        assert_eq!(resident.wait_for("left"), "6", "{}", build.name);
    }
    let run = calltap_run(&["replay", "--no-sched", "-i", &resident.trace().to_string_lossy()]);
    let lines: Vec<&str> = run.stdout.lines().filter_map(|line| Some(line.rsplit_once("|  ")?.1)).collect();
    let first = lines.iter().position(|line| *line == "outer() {").expect("the call");
    let behind = &lines[lines.len().min(first + 2)..];
    assert_eq!(behind, expected, "{}: {}", build.name, run.stdout);
    assert_eq!(run.stdout.contains("# 2 calls unfinished"), off.is_none(), "{}: {}", build.name, run.stdout);
    assert!(resident.end().0.success(), "{}", build.name);
}

#[test]
fn open_tail_call_is_unwound_and_disabled() {
    for build in [GCC, &BARE[0]] {
        check_left(build, None, &[]);
        check_left(build, Some("outer"), &["  }", "}", "after();"]);
    }
}
