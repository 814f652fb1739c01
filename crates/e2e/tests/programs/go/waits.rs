//! Waits of goroutines: the reasons for which the runtime parked them, and the durations.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;

/// Runs `calltap why` on the program's one request. Returns the answer, and the nanoseconds by
/// reason that the program has measured, and its output.
fn asked(program: &Program, flags: &[&str]) -> (Value, BTreeMap<String, u64>, String) {
    let (path, answer) = (program.path.display().to_string(), program.directory().join("why.json"));
    let answer = answer.display().to_string();
    let question = ["why", "main.handle>100ms", "--json", "-o", &answer];
    let run = calltap_run(&[&question, flags, &["--", &path]].concat());
    assert!(run.status.success(), "{}: {}", program.name, run.stderr);
    let noted = run.stdout.lines().filter_map(|line| line.strip_prefix("about ")?.split_once(' '));
    let noted = noted.map(|(ns, reason)| (reason.to_owned(), ns.parse().expect("a number"))).collect();
    let text = std::fs::read_to_string(answer).expect("an answer");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["slow_calls"], 1, "{}: {answer}", program.name);
    (answer["calls"][0]["did"].clone(), noted, run.stdout)
}

/// Returns the nanoseconds of waits, by reason.
fn waits(did: &Value) -> BTreeMap<String, u64> {
    let mut waits = BTreeMap::new();
    for wait in did["blocked"].as_array().expect("waits") {
        let within = wait["in"].as_str().expect("known").to_owned();
        *waits.entry(within).or_default() += wait["ns"].as_u64().expect("a number");
    }
    waits
}

/// Checks that each wait was ended by the goroutine that the program names, in the function that
/// ends waits.
fn check_wakers(program: &Program, did: &Value, said: &str) {
    let ended = said.lines().filter_map(|line| line.strip_prefix("ended ")?.split_once(' '));
    let ended: BTreeMap<&str, u64> =
        ended.map(|(number, reason)| (reason, number.parse().expect("a number"))).collect();
    assert_eq!(ended.len(), 7, "{}: {said}", program.name);
    for wait in did["blocked"].as_array().expect("waits") {
        let reason = match wait["in"].as_str().expect("known") {
            "semacquire" => "sync.WaitGroup.Wait",
            "sync.Mutex or sync.RWMutex" => "sync.RWMutex.RLock",
            reason => reason,
        };
        let (waker, name) = (&wait["woken_by"], &program.name);
        match ended.get(reason) {
            Some(number) => {
                assert_eq!(
                    (&waker["kind"], &waker["tid"]),
                    (&"thread".into(), &(*number).into()),
                    "{name}: {wait:#}"
                );
                let path = waker["path"].as_array().expect("a path");
                assert!(path.iter().any(|frame| frame == "main.later.func1"), "{name}: {wait:#}");
                // Only the longest waits are followed.
                if wait["meanwhile"].is_null() {
                    continue;
                }
                let own = &wait["meanwhile"]["blocked"][0];
                assert_eq!(
                    (&own["in"], &own["woken_by"]["kind"]),
                    (&"sleep".into(), &"go_runtime".into()),
                    "{name}: {wait:#}"
                );
            }
            None if ["sleep", "IO wait"].contains(&reason) => {
                assert_eq!(waker["kind"], "go_runtime", "{name}: {wait:#}");
            }
            None => {}
        }
    }
}

/// Checks that the waits are those that the program has measured, and no others.
fn check_waits(program: &Program, did: &Value, noted: BTreeMap<String, u64>) {
    assert_eq!(noted.len(), 9, "{}: {noted:?}", program.name);
    let mut waits = waits(did);
    // Up to Go 1.23 the runtime had no reason of its own for this wait.
    let semaphore = waits.remove("semacquire");
    let group = waits.entry("sync.WaitGroup.Wait".to_owned()).or_default();
    *group += semaphore.unwrap_or_default();
    // Before Go 1.20 one function waits for both kinds of mutexes, and RLock is inlined.
    let of_both = waits.remove("sync.Mutex or sync.RWMutex");
    *waits.entry("sync.RWMutex.RLock".to_owned()).or_default() += of_both.unwrap_or_default();
    for (reason, ns) in noted {
        let waited = waits.remove(&reason).unwrap_or_default();
        // The program's measurement includes the calls around the wait, and uses another clock.
        let is_right = waited <= ns + ns / 100 && waited > ns / 2;
        assert!(is_right, "{} {reason}: {waited} of {ns} ns noted; {did:#}", program.name);
    }
    // The garbage collector may cause further waits.
    let strange: Vec<_> = waits.keys().filter(|reason| !reason.starts_with("GC ")).collect();
    assert!(strange.is_empty(), "{}: {strange:?}", program.name);
}

#[test]
fn goroutine_waits_have_noted_reasons_and_durations() {
    for go in Go::all() {
        let program = go.compile("waits.go", &[]);
        // The functions that tell waits are traced even if filters name only others.
        for flags in [&[][..], &["-F", "main.*"]] {
            let (did, noted, said) = asked(&program, flags);
            check_waits(&program, &did, noted);
            check_wakers(&program, &did, &said);
            let of = |key: &str| did[key].as_array().expect("functions").iter();
            let spun = of("ran").chain(of("unknown")).filter(|one| one["function"] == "main.spin");
            let spun: u64 = spun.filter_map(|one| one["ns"].as_u64()).sum();
            // The kernel may have given the processor to another program.
            let runnable = did["runnable_ns"].as_u64().expect("a number");
            assert!(spun > 0 && spun + runnable > 10_000_000, "{}: {did:#}", program.name);
        }
    }
}

#[test]
fn goroutines_that_end_waits_are_known_in_stripped_programs() {
    let Some(go) = Go::newer().pop() else { return };
    let program = go.compile("waits.go", &["-ldflags=-s -w"]);
    let (did, _, said) = asked(&program, &["-F", "main.*"]);
    check_wakers(&program, &did, &said);
}

#[test]
fn wait_reason_is_unknown_if_gopark_alone_is_traced() {
    let Some(go) = Go::newer().pop() else { return };
    let program = go.compile("waits.go", &[]);
    let others =
        ["-N", "runtime.[cns]*", "-N", "time.*", "-N", "*sync.*", "-N", "*poll.*", "-N", "runtime.ready"];
    let (did, noted, _) = asked(&program, &[&["-F", "main.*"], &others[..]].concat());
    let waits = waits(&did);
    let reasons: Vec<&str> = waits.keys().map(String::as_str).collect();
    assert_eq!(reasons, ["a wait of the Go runtime for an unknown reason"], "{did:#}");
    let unknown = |wait: &Value| wait["woken_by"].is_null();
    assert!(did["blocked"].as_array().is_some_and(|waits| waits.iter().all(unknown)), "{did:#}");
    let (waited, all) = (waits.values().sum::<u64>(), noted.values().sum::<u64>());
    assert!(waited <= all + all / 100 && waited > all / 2, "{waited} of {all} ns noted");
    let (did, ..) = asked(&program, &["-F", "main.*", "-N", "runtime.*"]);
    assert_eq!(did["blocked"], Value::Array(Vec::new()), "{did:#}");
}
