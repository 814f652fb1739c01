//! Calls of threads that end in the middle of them.

use calltap_e2e::{BARE, Build, GCC, Resident, calltap_run, compile, interrupt};
use serde_json::Value;
use std::collections::BTreeMap;

/// Records threads that end in the middle of calls, and checks how each call ends, by `watch`.
fn check_threads_end(build: &Build) {
    let program = compile(build, &["thread_ends.c"], &["-pthread"]);
    let mut resident = Resident::start(&program, &[]);
    let recorder = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("ended");
    assert!(interrupt(recorder).success(), "{}", build.name);
    let trace = resident.trace().to_string_lossy().into_owned();
    let watch = calltap_run(&["watch", "*", "-i", &trace, "--json"]);
    assert!(watch.status.success(), "{}: {}", build.name, watch.stderr);
    let calls = watch.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let ends: BTreeMap<String, (String, bool)> = calls
        .filter(|call| call["function"] != "inner")
        .filter_map(|call| {
            let text = |key: &str| Some(call[key].as_str()?.to_owned());
            Some((text("function")?, (text("end")?, call["duration_ns"].is_u64())))
        })
        .collect();
    let of = |name: &str| ends.get(name).map(|(end, has_time)| (end.as_str(), *has_time));
    for name in ["canceled", "exits", "exits_from", "ends_by_call"] {
        assert_eq!(of(name), Some(("thread_ended", false)), "{}: {name}: {ends:?}", build.name);
    }
    assert_eq!(of("returns"), Some(("returned", true)), "{}: {ends:?}", build.name);
    let replay = calltap_run(&["replay", "-i", &trace]).stdout;
    let cut = watch.stdout.lines().filter(|line| line.contains(r#""end":"thread_ended""#)).count();
    assert_eq!(replay.matches("/* thread_ended */").count(), cut, "{}: {replay}", build.name);
    let rows = resident.view("report");
    let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "exits_from"));
    let row = row.unwrap_or_else(|| panic!("{}: {rows}", build.name));
    assert_eq!((&row["calls"], row["total_ns"].is_null()), (&Value::from(1), true), "{}: {row}", build.name);
}

#[test]
fn a_call_in_which_its_thread_ends_ends_with_the_thread() {
    check_threads_end(GCC);
    check_threads_end(&BARE[0]);
}

/// The unwinding of a cancelled thread leaves its calls for the function that began it, which runs
/// the destructors.
#[test]
fn destructors_of_ended_threads_are_not_beneath_the_calls_that_were_left() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["destructors.c"], &["-pthread"]);
        for arguments in [&[][..], &["exit"]] {
            let trace = program.directory().join("trace").to_string_lossy().into_owned();
            let path = program.path.to_string_lossy().into_owned();
            let run = calltap_run(&[&["record", "-q", "-o", &trace, "--", &path], arguments].concat());
            assert!(run.status.success(), "{}: {}", build.name, run.stderr);
            let replay = calltap_run(&["replay", "--format", "json", &trace]).stdout;
            let events = replay.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let entries: Vec<Value> = events.filter(|event| event["event"] == "entry").collect();
            let depths = |name: &str| -> Vec<u64> {
                let of = entries.iter().filter(|event| event["function"] == name);
                of.map(|event| event["depth"].as_u64().expect("a depth")).collect()
            };
            let what = format!("{} {arguments:?}: {replay}", build.name);
            assert_eq!((depths("outer"), depths("handler")), (vec![1; 2], vec![3; 2]), "{what}");
            assert_eq!((depths("destructor"), depths("cleans")), (vec![0; 2], vec![4, 1, 4, 1]), "{what}");
        }
    }
}
