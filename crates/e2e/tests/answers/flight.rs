//! The flight recorder: nothing is written before a trigger, then the newest events are.

use calltap_e2e::{
    BARE, GCC, HANGS, Program, Resident, Run, calltap, calltap_run, changed_text, compile, kill, one_line,
    succeeds,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn program() -> Program {
    compile(GCC, &["requests.c"], &[])
}

fn record(
    program: &Program,
    name: &str,
    flags: &[&str],
    arguments: &[&str],
) -> (Run, impl Fn(u32) -> PathBuf + use<>) {
    let output = program.directory().join(name);
    let (path, text) = (program.path.to_string_lossy().into_owned(), output.to_string_lossy().into_owned());
    let run = calltap_run(&[&["record", "-o", &text], flags, &["--", &path], arguments].concat());
    assert!(!output.exists(), "only snapshots are written");
    (run, move |number| PathBuf::from(format!("{text}.{number}")))
}

fn view(path: &Path, view: &str) -> Value {
    let run = calltap_run(&[view, "--format", "json", "-i", &path.to_string_lossy()]);
    assert!(run.status.success(), "{view}: {}", run.stderr);
    serde_json::from_str(&run.stdout).expect("json")
}

fn calls(path: &Path, name: &str) -> u64 {
    let report = view(path, "report");
    let row = report["functions"].as_array().expect("rows").iter().find(|row| row["function"] == name);
    row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
}

/// Checks that a file is complete and every call is accounted for, and returns its info.
fn sound(path: &Path) -> Value {
    let info = view(path, "info");
    assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{info}");
    let number = |name: &str| info["calls"][name].as_u64().expect("a number");
    assert_eq!(number("entered"), number("recorded") + number("lost") + number("dropped"), "{info}");
    info
}

#[test]
fn a_program_that_crashes_leaves_its_last_calls() {
    let program = program();
    let (run, file) = record(&program, "crash", &["--snapshot-on", "crash"], &["20", "11"]);
    assert!(run.status.code().is_none() && run.stderr.contains("crash.1"), "{}: {}", run.status, run.stderr);
    let info = sound(&file(1));
    assert!(info["end"]["status"].to_string().contains("SIGSEGV"), "{info}");
    assert_eq!(calls(&file(1), "handle"), 40);
    let (run, file) = record(&program, "none", &["--snapshot-on", "crash"], &["20"]);
    assert!(run.status.success() && run.stderr.contains("no snapshot"), "{}", run.stderr);
    assert!(!file(1).exists());
}

#[test]
fn old_events_are_dropped_and_counted() {
    let program = program();
    let flags = ["--snapshot-on", "exit", "--history", "100"];
    let (run, file) = record(&program, "exit", &flags, &["200"]);
    assert!(run.status.success(), "{}", run.stderr);
    let info = sound(&file(1));
    let forgotten = info["calls"]["dropped"].as_u64() > Some(0)
        || info["notes"].to_string().contains("ended before the kept period");
    assert!(forgotten && info["calls"]["recorded"].as_u64() > Some(0), "{info}");
}

#[test]
fn slow_calls_are_written_as_often_as_files_are_allowed() {
    let program = program();
    let resident = Resident::start(&program, &["forever"]);
    let output = program.directory().join("slow");
    let text = output.to_string_lossy().into_owned();
    let file = |number: u32| PathBuf::from(format!("{text}.{number}"));
    let mut command = Command::new(calltap());
    command.args(["record", "-o", &text, "--max-overhead", "none", "--snapshots", "2"]);
    command.args(["--snapshot-on", "disk>5ms", "--snapshot-on", "signal", "-p", &resident.pid.to_string()]);
    let mut calltap = command.stderr(Stdio::piped()).spawn().expect("calltap");
    wait_until("two snapshots", || file(2).exists());
    thread::sleep(Duration::from_millis(200));
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    assert!(!file(3).exists());
    for number in [1, 2] {
        let info = sound(&file(number));
        assert!(info["end"]["status"].to_string().contains("disk took"), "{info}");
        assert!(calls(&file(number), "disk") > 0);
    }
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn signal_triggers_snapshot() {
    let program = program();
    let output = program.directory().join("signal");
    let text = output.to_string_lossy().into_owned();
    let file = PathBuf::from(format!("{text}.1"));
    let mut resident = Resident::start(&program, &["forever"]);
    let mut command = Command::new(calltap());
    command.args(["record", "-o", &text, "--snapshot-on", "signal", "-p", &resident.pid.to_string()]);
    let mut calltap = command.stderr(Stdio::null()).spawn().expect("calltap");
    resident.await_recorder();
    let process = calltap.id();
    kill(process, libc::SIGUSR1);
    wait_until("the snapshot", || file.exists());
    kill(process, libc::SIGTERM);
    succeeds(&mut calltap);
    assert!(sound(&file)["end"]["status"].to_string().contains("SIGUSR1"));
    assert!(resident.runs() && resident.end().0.success());
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < HANGS, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A call whose function is disabled while it is open is cut there, also if nothing records: later
/// calls are not beneath it.
#[test]
fn calls_of_functions_that_were_disabled_are_cut_in_snapshots() {
    // Disabled functions of unmodified programs return without a record.
    let program = compile(&BARE[0], &["waits_inside.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let calltap = |words: &[&str]| {
        let run = calltap_run(&[&[words[0], "-p", &pid], &words[1..]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
    };
    let says = |resident: &mut Resident, line: &str| {
        resident.tell();
        resident.wait_for(line);
    };
    calltap(&["attach", "-F", "outer", "-F", "inner"]);
    says(&mut resident, "inside");
    calltap(&["set", "-F", "inner"]);
    says(&mut resident, "behind");
    calltap(&["set", "-F", "outer", "-F", "inner"]);
    let file = program.directory().join("cut.data");
    calltap(&["snapshot", "-o", &file.to_string_lossy()]);
    let replay = calltap_run(&["replay", "--format", "json", &file.to_string_lossy()]).stdout;
    let events: Vec<Value> = replay.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let inner: Vec<&Value> =
        events.iter().filter(|event| event["function"] == "inner" && event["event"] != "exit").collect();
    assert!(inner.len() == 10 && inner.iter().all(|call| call["depth"] == 0), "{replay}");
    let outer = events.iter().find(|event| event["function"] == "outer" && !event["end"].is_null());
    assert_eq!(outer.map(|end| &end["end"]), Some(&"switched_off".into()), "{replay}");
    calltap(&["detach"]);
    assert!(resident.end().0.success());
}

#[test]
fn invalid_snapshot_options_are_refused() {
    let program = program();
    let refuse = |flags: &[&str], says: &[&str]| one_line(&record(&program, "no", flags, &[]).0, says);
    refuse(&["--snapshot-on", "sometimes"], &["'sometimes' is none of"]);
    refuse(&["--snapshot-on", "handle>soon"], &["'soon' is not a time"]);
    refuse(&["--snapshot-on", "hendle>1ms"], &["hendle", "nearest: handle"]);
    refuse(&["--snapshot-on", "exit", "--snapshots", "0"], &["at least 1"]);
    refuse(&["--snapshot-on", "exit", "--slow", "handle>1ms"], &["exclude each other"]);
    refuse(&["--snapshot-on", "exit", "--overwrite"], &["exclude each other"]);
    one_line(&calltap_run(&["record", "--snapshot-on", "crash", "-p", "1"]), &["'exit' works with -p"]);
}
