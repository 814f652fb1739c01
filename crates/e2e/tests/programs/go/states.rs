//! States of goroutines other than waits: running, ready to run, blocked in a system call.

use calltap_e2e::*;
use serde_json::Value;

/// Nanoseconds in which the program ran, was ready to run, and slept in a system call, as it has
/// measured them.
fn noted(output: &str) -> [u64; 3] {
    let line = output.lines().find_map(|line| line.strip_prefix("about ")).expect("measurements");
    let words: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    words.try_into().expect("three")
}

/// Checks times in these states, of which some are unknown, with those that the program noted.
#[track_caller]
fn check_states(what: &str, times: [u64; 4], noted: [u64; 3], whole: u64, about: &Value) {
    let [ran, runnable, blocked, unknown] = times;
    let [noted_ran, noted_ready, noted_blocked] = noted;
    assert!(unknown < whole / 20, "{what}: unknown {unknown} of {whole}; {about:#}");
    // The thread also runs the scheduler, and the kernel may take the processor away.
    assert!(ran + 4_000_000 > noted_ran && ran < whole, "{what}: ran {ran} of {noted_ran}; {about:#}");
    let enough = |got: u64, noted: u64| got + noted / 10 + 1_000_000 > noted;
    assert!(enough(runnable, noted_ready), "{what}: ready {runnable} of {noted_ready}; {about:#}");
    assert!(enough(blocked, noted_blocked), "{what}: blocked {blocked} of {noted_blocked}; {about:#}");
}

#[test]
fn a_goroutine_runs_is_ready_to_run_and_is_blocked_as_long_as_it_has_measured() {
    for go in Go::newer() {
        let program = go.compile("states.go", &[]);
        let (path, answer) = (program.path.display().to_string(), program.directory().join("why.json"));
        for flags in [&[][..], &["-F", "main.*"]] {
            let question = ["why", "main.handle>50ms", "--json", "-o", answer.to_str().expect("a path")];
            let run = calltap_run(&[&question, flags, &["--", &path]].concat());
            assert!(run.status.success(), "{}: {}", program.name, run.stderr);
            let text = std::fs::read_to_string(&answer).expect("an answer");
            let json: Value = serde_json::from_str(&text).expect("JSON");
            let did = &json["calls"][0]["did"];
            let blocked = did["blocked"].as_array().expect("waits").iter();
            let slept =
                blocked.filter(|wait| wait["in"].as_str().is_some_and(|call| call.contains("nanosleep")));
            let slept = slept.filter_map(|wait| wait["ns"].as_u64()).sum();
            let ns = |key: &str| did[key].as_u64().expect("a number");
            let times = [ns("ran_ns"), ns("runnable_ns"), slept, ns("unknown_ns")];
            let whole = json["calls"][0]["duration_ns"].as_u64().expect("a duration");
            check_states(&program.name, times, noted(&run.stdout), whole, did);
        }
    }
}

#[test]
fn the_list_of_goroutines_has_their_states() {
    for go in Go::newer() {
        let program = go.compile("states.go", &[]);
        let scheduler = ["-F", "runtime.execute", "-F", "runtime.schedule", "-F", "runtime.coroswitch_m"];
        let flags = [&["-F", "main.*", "-F", "runtime.gopark"], &scheduler[..]].concat();
        let expect = Expect { uncounted: true, ..Expect::default() };
        let trace = |flags: &[&str]| {
            let recording = record(&program, flags, &expect);
            let path = recording.trace.display().to_string();
            let run = calltap_run(&["report", "--by", "goroutine", "--format", "json", "-i", &path]);
            let rows: Vec<Value> = serde_json::from_str(&run.stdout).expect("a list");
            (noted(&recording.run.stdout), rows.into_iter().find(|row| row["goroutine"] == 1).expect("main"))
        };
        let (noted, main) = trace(&flags);
        let ns = |key: &str| main[key].as_u64().unwrap_or_else(|| panic!("{}: {key}: {main}", program.name));
        let times = [ns("ran_ns"), ns("runnable_ns"), ns("blocked_ns"), ns("unknown_ns")];
        check_states(&program.name, times, noted, ns("seen_ns"), &main);
        let sum = times.iter().sum::<u64>() + ns("waited_ns");
        assert!(sum.abs_diff(ns("seen_ns")) < 1_000, "{}: {sum}: {main}", program.name);
        // Without the scheduler nothing is known of them.
        let (_, main) = trace(&["-F", "main.*", "-F", "runtime.gopark", "-F", "runtime.execute"]);
        assert!(main["ran_ns"].is_null() && main["unknown_ns"].is_null(), "{}: {main}", program.name);
    }
}
