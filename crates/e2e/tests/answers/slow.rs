//! Recordings of slow calls only: their contents, and the accounting of all other calls.

use calltap_e2e::{
    Expect, GCC, Program, Recording, Resident, calltap_run, changed_text, compile, one_line, record,
};
use serde_json::Value;

fn program() -> Program {
    compile(GCC, &["requests.c"], &[])
}

fn calls(recording: &Recording, name: &str) -> u64 {
    let rows = recording.rows();
    let row = rows.iter().find(|row| row["function"] == name);
    row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
}

fn own(recording: &Recording, name: &str) -> u64 {
    let said = &recording.run.stdout;
    let line = said.lines().find_map(|line| line.strip_prefix("calls ")?.strip_prefix(name));
    line.and_then(|calls| calls.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {said}"))
}

/// Checks that every call of the program was kept, dropped or lost, in each thread; returns the
/// counts.
fn accounted(info: &Value) -> Value {
    let number =
        |calls: &Value, name: &str| calls[name].as_u64().unwrap_or_else(|| panic!("{name} of {calls}"));
    let all = info["threads"].as_array().into_iter().flatten().map(|thread| &thread["calls"]);
    for calls in all.chain([&info["calls"]]) {
        let parts = ["recorded", "lost", "dropped"].map(|name| number(calls, name));
        assert_eq!(number(calls, "entered"), parts.iter().sum::<u64>(), "{info}");
    }
    assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{info}");
    info["calls"].clone()
}

#[test]
fn slow_calls_are_kept_with_callees_only() {
    let program = program();
    let recording = record(&program, &["--slow", "handle>15ms"], &Expect::default());
    let disk = own(&recording, "disk");
    // A fast call may have been interrupted for long.
    let handles = calls(&recording, "handle");
    assert!(handles >= disk && handles < own(&recording, "handle"), "{handles} of which {disk} wait");
    assert_eq!(calls(&recording, "disk"), disk);
    assert_eq!(calls(&recording, "leaf"), 6 * handles);
    assert_eq!((calls(&recording, "front"), calls(&recording, "work"), calls(&recording, "main")), (0, 0, 0));
    let info = recording.info();
    let sum = accounted(&info);
    let all: u64 = ["leaf", "disk", "handle", "front", "back"].iter().map(|name| own(&recording, name)).sum();
    assert_eq!(sum["entered"], all + 3, "main, and work twice: {info}");
    assert_eq!(
        (&sum["lost"], &sum["recorded"]),
        (&0.into(), &(8 * disk + 7 * (handles - disk)).into()),
        "{info}"
    );
    assert_eq!(info["slow"], serde_json::json!([{ "function": "handle", "ns": 15_000_000 }]));
    let trace = recording.trace.to_string_lossy();
    let replay = calltap_run(&["replay", "-i", &trace]).stdout;
    assert!(replay.contains("% disk"), "{replay}");
    assert!(calltap_run(&["info", "-i", &trace]).stdout.contains("dropped on purpose"));
}

#[test]
fn rules_add_up_and_slow_calls_lie_in_fast_ones() {
    let program = program();
    let flags = ["--slow", "work>1000s", "--slow", "dis? > 5ms", "--slow", "nothing_like>1ms", "--later"];
    let recording = record(&program, &flags, &Expect::default());
    let kept = accounted(&recording.info());
    assert_eq!((calls(&recording, "disk"), calls(&recording, "handle")), (own(&recording, "disk"), 0));
    assert_eq!(kept["recorded"], own(&recording, "disk"));
}

#[test]
fn overflow_of_slow_memory_is_counted_as_lost() {
    let program = program();
    let recording = record(&program, &["--slow", "work>30ms", "--slow-memory", "1K"], &Expect::default());
    let info = recording.info();
    let sum = accounted(&info);
    assert!(sum["lost"].as_u64() > Some(0), "{info}");
    assert!(info["notes"].to_string().contains("--slow-memory"), "{info}");
}

#[test]
fn slow_calls_of_running_process_are_recorded() {
    let program = program();
    let mut resident = Resident::start(&program, &["forever"]);
    let run = resident.attach(&["--duration", "1s", "--slow", "disk>1ms"]);
    assert!(run.status.success() && run.stderr.contains("of slow calls"), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.runs() && resident.end().0.success());
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let program = program();
    let path = program.path.to_string_lossy().into_owned();
    let refuse = |flags: &[&str], says: &[&str]| {
        let run = calltap_run(&[&["record", "-o", "/dev/null"], flags, &["--", &path]].concat());
        one_line(&run, says);
    };
    refuse(&["--slow", "handle"], &["handle_request>10ms"]);
    refuse(&["--slow", ">10ms"], &["handle_request>10ms"]);
    refuse(&["--slow", "handle>soon"], &["'soon' is not a time"]);
    refuse(&["--slow", "handle>1ms", "--overwrite"], &["--overwrite"]);
    refuse(&["--slow", "handle>1ms", "--clock", "counter"], &["counter"]);
    refuse(&["--slow", "handle>1ms", "--tracer", "function"], &["function_graph"]);
    refuse(&["--slow", "hendle>1ms"], &["hendle", "nearest: handle"]);
    refuse(&["--slow", "handle>1ms", "-N", "hand*"], &["handle", "-N takes it away"]);
}
