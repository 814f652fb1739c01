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

/// Number of recordings. On a busy machine the kernel takes the processor away, and the runtime
/// then moves the goroutine: what the program measures of its thread is no longer of the goroutine
/// alone.
const TRIES: usize = 10;

/// Checks that times in these states, of which some are unknown, are those that the program noted,
/// in one of the recordings. `recorded`: makes a recording, and returns both, the whole time, and a
/// description.
#[track_caller]
fn check_states(what: &str, mut recorded: impl FnMut() -> ([u64; 4], [u64; 3], u64, Value)) {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let (times, noted, whole, about) = recorded();
        let [ran, runnable, blocked, unknown] = times;
        let [noted_ran, noted_ready, noted_blocked] = noted;
        let enough = |got: u64, noted: u64| got + noted / 10 + 1_000_000 > noted;
        let is_known = unknown < whole / 20 && ran < whole;
        if is_known
            && ran + 4_000_000 > noted_ran
            && enough(runnable, noted_ready)
            && enough(blocked, noted_blocked)
        {
            return;
        }
        found.push(format!("{times:?} of {whole}, noted {noted:?}: {about}"));
    }
    panic!("{what}: {found:#?}");
}

#[test]
fn goroutine_states_have_measured_durations() {
    for go in Go::newer() {
        let program = go.compile("states.go", &[]);
        let (path, answer) = (program.path.display().to_string(), program.directory().join("why.json"));
        for flags in [&[][..], &["-F", "main.*"]] {
            let question = ["why", "main.handle>50ms", "--json", "-o", answer.to_str().expect("a path")];
            check_states(&program.name, || {
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
                let times = [ns("cpu_ns"), ns("runnable_ns"), slept, ns("unknown_ns")];
                let whole = json["calls"][0]["duration_ns"].as_u64().expect("a duration");
                (times, noted(&run.stdout), whole, did.clone())
            });
        }
    }
}

#[test]
fn functions_of_goroutines_have_their_states() {
    for go in Go::all() {
        let program = go.compile("states.go", &[]);
        let expect = Expect { uncounted: true, ..Expect::default() };
        let row = |trace: &str, function: &str| {
            let run = calltap_run(&["report", "-F", function, "--format", "json", "-i", trace]);
            let rows = rows_of(&run.stdout);
            rows.into_iter().next().unwrap_or_else(|| panic!("{}: no {function}", program.name))
        };
        check_states(&program.name, || {
            let recording = record(&program, &[], &expect);
            let trace = recording.trace.display().to_string();
            let [all, wait, sleep] =
                ["main.handle", "main.yield", "main.sleep"].map(|name| row(&trace, name));
            let ns = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
            let times = [ns(&all, "cpu_ns"), ns(&wait, "runnable_ns"), ns(&sleep, "blocked_ns"), 0];
            let about = serde_json::json!([all, wait, sleep]);
            (times, noted(&recording.run.stdout), u64::MAX, about)
        });
        let others = ["-F", "main.*", "-F", "runtime.gopark"];
        let recording = record(&program, &others, &expect);
        let sleep = row(&recording.trace.display().to_string(), "main.sleep");
        assert!(sleep["cpu_ns"].is_null() && sleep["blocked_ns"].is_null(), "{}: {sleep}", program.name);
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
            let rows = rows_of(&run.stdout);
            (noted(&recording.run.stdout), rows.into_iter().find(|row| row["goroutine"] == 1).expect("main"))
        };
        check_states(&program.name, || {
            let (noted, main) = trace(&flags);
            let ns =
                |key: &str| main[key].as_u64().unwrap_or_else(|| panic!("{}: {key}: {main}", program.name));
            let times = [ns("cpu_ns"), ns("runnable_ns"), ns("blocked_ns"), ns("unknown_ns")];
            let (sum, whole) = (times.iter().sum::<u64>() + ns("waited_ns"), ns("seen_ns"));
            assert!(sum.abs_diff(whole) < 1_000, "{}: {sum}: {main}", program.name);
            (times, noted, whole, main)
        });
        // Without the scheduler nothing is known of them.
        let (_, main) = trace(&["-F", "main.*", "-F", "runtime.gopark", "-F", "runtime.execute"]);
        assert!(main["cpu_ns"].is_null() && main["unknown_ns"].is_null(), "{}: {main}", program.name);
    }
}
