//! Python functions of CPython 3.11: every call is recorded, and the program is what it was.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter and a directory for a test, or why there is none.
fn interpreter() -> Option<(PathBuf, tempfile::TempDir)> {
    let say = "import sys; print(sys.executable if sys.version_info[:2] == (3, 11) else '')";
    let found = ["python3.11", "python3"].into_iter().find_map(|name| output_of(name, &["-c", say]));
    let path = PathBuf::from(found.unwrap_or_default().trim());
    if path.as_os_str().is_empty() {
        skipped("no CPython 3.11 here");
        return None;
    }
    Some((path, tempfile::tempdir().expect("a directory")))
}

fn script(name: &str) -> String {
    format!("{}/programs/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What Python itself prints and counts.
fn counted(python: &Path, directory: &Path) -> (String, BTreeMap<String, u64>) {
    let file = directory.join("counts");
    let mut command = Command::new(python);
    command.arg(script("calls.py")).arg("count").arg(&file);
    let run = run(command, b"");
    assert!(run.status.success(), "{}", run.stderr);
    let counts = std::fs::read_to_string(file).expect("it was written");
    (run.stdout, serde_json::from_str(&counts).expect("JSON"))
}

/// Calls by function, of a trace.
fn calls(trace: &str) -> BTreeMap<String, u64> {
    let run = calltap_run(&["report", "-i", trace, "--format", "json"]);
    assert!(run.status.success(), "{}", run.stderr);
    let rows: Vec<Value> = serde_json::from_str(&run.stdout).expect("JSON");
    let mut calls = BTreeMap::new();
    for row in rows {
        let name = row["function"].as_str().unwrap_or_default().to_owned();
        *calls.entry(name).or_default() += row["calls"].as_u64().unwrap_or_default();
    }
    calls
}

#[test]
fn python_calls_are_those_that_the_program_counts_itself() {
    let Some((python, directory)) = interpreter() else { return };
    let (printed, mut own) = counted(&python, directory.path());
    // The program's own began before it counted.
    own.remove("__main__.<module>");
    assert!(own.len() > 40 && own.contains_key("__main__.größe"), "{own:?}");
    let trace = directory.path().join("t.calltap").display().to_string();
    let (python, script) = (python.display().to_string(), script("calls.py"));
    for flags in [&[][..], &["-F", "malloc"], &["--clock", "counter"], &["--clock", "coarse"]] {
        let command = ["--python", "*", "--", &python, &script, "run"];
        let run = calltap_run(&[&["record", "-q", "-o", &trace], flags, &command].concat());
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (printed.as_str(), ""), "{flags:?}");
        let calls = calls(&trace);
        let differ: Vec<_> = own.iter().filter(|(name, count)| calls.get(*name) != Some(*count)).collect();
        assert!(differ.is_empty(), "{flags:?}: {differ:?} of {calls:?}");
        assert_eq!(
            calls.contains_key("malloc") || calls.contains_key("__libc_malloc"),
            flags.contains(&"-F")
        );
        // `functools.wraps` gives the wrapper another name, but not its code.
        assert_eq!(
            calls.get("__main__.wrapped.<locals>.wrapper"),
            own.get("__main__.wrapped.<locals>.wrapper")
        );
    }
}

#[test]
fn python_functions_are_selected_by_their_names() {
    let Some((python, directory)) = interpreter() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let (python, script) = (python.display().to_string(), script("calls.py"));
    let selected = |globs: &[&str]| {
        let globs: Vec<&str> = globs.iter().flat_map(|glob| ["--python", glob]).collect();
        let command = ["--", &python, &script, "run"];
        let run = calltap_run(&[&["record", "-q", "-o", &trace], &globs[..], &command].concat());
        assert!(run.status.success(), "{}", run.stderr);
        calls(&trace).into_keys().collect::<Vec<String>>()
    };
    assert_eq!(selected(&["__main__.fib"]), ["__main__.fib"]);
    assert_eq!(
        selected(&["__main__.Ba*", "!*.__init__", "!*.one"]),
        ["__main__.Base", "__main__.Base.__lt__", "__main__.Base.make", "__main__.Base.twice"]
    );
    assert!(selected(&["!__main__.*"]).iter().all(|name| !name.starts_with("__main__.")));
}

#[test]
fn nested_python_calls_are_beneath_their_callers() {
    let Some((python, directory)) = interpreter() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let (python, script) = (python.display().to_string(), script("calls.py"));
    let command = ["--python", "__main__.*", "--", &python, &script, "run"];
    let run = calltap_run(&[&["record", "-q", "-o", &trace], &command[..]].concat());
    assert!(run.status.success(), "{}", run.stderr);
    let text = calltap_run(&["export", "-i", &trace, "--to", "folded"]).stdout;
    let deepest = text.lines().map(|line| line.matches("__main__.deep").count()).max();
    assert_eq!(deepest, Some(151));
    let fails = "__main__.fails;".repeat(3) + "__main__.fails;__main__.leaf";
    assert!(
        !text.contains(&fails) && text.contains("__main__.fails;__main__.fails;__main__.fails;__main__.leaf")
    );
}

#[test]
fn a_busy_python_program_is_attached_to_again_and_again() {
    let Some((python, directory)) = interpreter() else { return };
    let mut command = Command::new(python);
    command.arg(script("busy.py"));
    let mut resident = Resident::spawn(command, directory.path().to_owned());
    resident.wait_for("ready");
    for round in 0..10 {
        let flags = ["--python", "__main__.*"];
        let has_some = |resident: &Resident| {
            let rows = resident.view("report");
            rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "__main__.fib"))
        };
        let run = resident.attach_until(&flags, has_some);
        assert!(run.status.success() && resident.runs(), "{round}: {}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{round}");
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
    assert_eq!(output, "errors []\n");
}

#[test]
fn a_python_program_goes_on_when_its_recorder_was_killed() {
    let Some((python, directory)) = interpreter() else { return };
    let mut command = Command::new(python);
    command.arg(script("busy.py"));
    let mut resident = Resident::spawn(command, directory.path().to_owned());
    resident.wait_for("ready");
    for _ in 0..3 {
        let mut calltap = resident.attach_beside(&["--python", "*"]);
        resident.await_recorder();
        resident.await_work(std::time::Duration::from_millis(30));
        let _ = calltap.kill();
        let _ = calltap.wait();
        resident.await_work(std::time::Duration::from_millis(30));
        let run = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
        assert!(run.status.success(), "{}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0]);
        resident.await_work(std::time::Duration::from_millis(30));
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

#[test]
fn what_is_no_python_that_is_known_is_refused_in_one_line() {
    let run = calltap_run(&["record", "-o", "/dev/null", "--python", "*", "--", "/bin/true"]);
    one_line(&run, &["the program is no CPython interpreter"]);
    let flags = ["record", "-o", "/dev/null", "--python", "*"];
    let run = calltap_run(&[&flags[..], &["--clock", "sparse", "--", "/bin/true"]].concat());
    one_line(&run, &["--clock sparse"]);
    let run = calltap_run(&[&flags[..], &["--tracer", "profile", "--", "/bin/true"]].concat());
    one_line(&run, &["function_graph"]);
    let run = calltap_run(&["record", "-o", "/dev/null", "--python", "[a]*", "--", "/bin/true"]);
    one_line(&run, &["only * and ?"]);
}
