//! Python functions of CPython: every call is recorded, and the program's results are unchanged.

mod arguments;
mod embedded;
mod extension;
mod lines;
mod selected;
mod tasks;

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Minor versions whose functions are traced.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=13;

/// An interpreter.
struct Interpreter {
    /// Minor version: 8 for CPython 3.8.
    minor: u32,
    path: PathBuf,
}

/// Returns the installed interpreters and a directory for a test; reports a skipped test if there
/// are none.
fn interpreters() -> Option<(Vec<Interpreter>, tempfile::TempDir)> {
    let found = VERSIONS.filter_map(|minor| Some(Interpreter { minor, path: python(minor)? }));
    let found: Vec<Interpreter> = found.collect();
    if found.is_empty() {
        skipped("no CPython of a version here whose functions are traced");
        return None;
    }
    Some((found, tempfile::tempdir().expect("a directory")))
}

/// Runs a script by an interpreter of each version, applies `check` meanwhile, and compares the
/// script's output, which shows that it ran unchanged.
fn of_each(name: &str, printed: &str, check: impl Fn(u32, &mut Resident)) {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let mut command = Command::new(path);
        command.arg(script(name));
        let mut resident = Resident::spawn(command, directory.path().to_owned());
        resident.wait_for("ready");
        check(minor, &mut resident);
        let (status, output, errors) = resident.end();
        assert!(status.success(), "3.{minor} {status} {output}{errors}");
        assert_eq!(output, printed, "3.{minor}");
    }
}

fn script(name: &str) -> String {
    format!("{}/programs/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the output and the counts of Python itself. Before 3.11 its names are not qualified.
fn counted(python: &Path, directory: &Path) -> (String, BTreeMap<String, u64>) {
    let file = directory.join("counts");
    let mut command = Command::new(python);
    command.arg(script("calls.py")).arg("count").arg(&file);
    let run = run(command, b"");
    assert!(run.status.success(), "{}", run.stderr);
    let counts = std::fs::read_to_string(file).expect("it was written");
    (run.stdout, serde_json::from_str(&counts).expect("JSON"))
}

/// Returns the calls of a trace by function.
fn calls(trace: &str) -> BTreeMap<String, u64> {
    let run = calltap_run(&["report", "-i", trace, "--format", "json"]);
    assert!(run.status.success(), "{}", run.stderr);
    let rows = rows_of(&run.stdout);
    let mut calls = BTreeMap::new();
    for row in rows {
        let name = row["function"].as_str().unwrap_or_default().to_owned();
        *calls.entry(name).or_default() += row["calls"].as_u64().unwrap_or_default();
    }
    calls
}

/// Returns the names without their qualification.
fn unqualified(calls: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in calls {
        if let Some((_, last)) = name.rsplit_once('.').filter(|_| name.starts_with("__main__.")) {
            *sums.entry(format!("__main__.{last}")).or_default() += count;
        }
    }
    sums
}

#[test]
fn python_calls_are_those_that_the_program_counts_itself() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let (printed, mut own) = counted(&path, directory.path());
        // The module's own call began before the program counted.
        own.remove("__main__.<module>");
        assert!(own.len() > 40 && own.contains_key("__main__.größe"), "3.{minor}: {own:?}");
        let trace = directory.path().join("t.calltap").display().to_string();
        let (python, script) = (path.display().to_string(), script("calls.py"));
        let c = ["-F", "malloc", "-F", "PyObject_*", "-F", "PyEval_*"];
        for flags in [&[][..], &c, &["--clock", "counter"], &["--clock", "coarse"]] {
            let command = ["--python", "*", "--", &python, &script, "run"];
            let run = calltap_run(&[&["record", "-q", "-o", &trace], flags, &command].concat());
            let said = (run.stdout.as_str(), run.stderr.as_str());
            assert_eq!(said, (printed.as_str(), ""), "3.{minor} {flags:?}");
            let calls = calls(&trace);
            let short = unqualified(&calls);
            let named = if minor < 11 { &short } else { &calls };
            let differ: Vec<_> =
                own.iter().filter(|(name, count)| named.get(*name) != Some(*count)).collect();
            assert!(differ.is_empty(), "3.{minor} {flags:?}: {differ:?} of {calls:?}");
            let has_malloc = calls.contains_key("malloc") || calls.contains_key("__libc_malloc");
            assert_eq!(has_malloc, flags.contains(&"malloc"));
            // `functools.wraps` gives the wrapper another name, but not its code.
            let qualified = [
                "wrapped.<locals>.wrapper",
                "Base.twice",
                "Child.__init__",
                "fib",
                "gathers.<locals>.<genexpr>",
            ];
            let missing = qualified.iter().find(|name| !calls.contains_key(&format!("__main__.{name}")));
            assert_eq!(missing, None, "3.{minor} {flags:?}: {calls:?}");
        }
    }
}

#[test]
fn python_functions_are_selected_by_their_names() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    for Interpreter { minor, path } in interpreters {
        let (python, script) = (path.display().to_string(), script("calls.py"));
        let selected = |globs: &[&str]| {
            let globs: Vec<&str> = globs.iter().flat_map(|glob| ["--python", glob]).collect();
            let command = ["--", &python, &script, "run"];
            let run = calltap_run(&[&["record", "-q", "-o", &trace], &globs[..], &command].concat());
            assert!(run.status.success(), "{}", run.stderr);
            calls(&trace).into_keys().collect::<Vec<String>>()
        };
        assert_eq!(selected(&["__main__.fib"]), ["__main__.fib"], "3.{minor}");
        assert_eq!(
            selected(&["__main__.Ba*", "!*.__init__", "!*.one"]),
            ["__main__.Base", "__main__.Base.__lt__", "__main__.Base.make", "__main__.Base.twice"],
            "3.{minor}"
        );
        assert!(selected(&["!__main__.*"]).iter().all(|name| !name.starts_with("__main__.")));
    }
}

#[test]
fn nested_python_calls_are_beneath_their_callers() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    for Interpreter { minor, path } in interpreters {
        let (python, script) = (path.display().to_string(), script("calls.py"));
        let command = ["--python", "__main__.*", "--", &python, &script, "run"];
        let run = calltap_run(&[&["record", "-q", "-o", &trace], &command[..]].concat());
        assert!(run.status.success(), "{}", run.stderr);
        let text = calltap_run(&["export", "-i", &trace, "--to", "folded"]).stdout;
        let deepest = text.lines().map(|line| line.matches("__main__.deep").count()).max();
        assert_eq!(deepest, Some(151), "3.{minor}");
        let three = "__main__.fails;".repeat(3) + "__main__.leaf";
        let four = format!("__main__.fails;{three}");
        assert!(!text.contains(&four) && text.contains(&three), "3.{minor}: {text}");
    }
}

#[test]
fn a_busy_python_program_is_attached_to_again_and_again() {
    of_each("busy.py", "errors []\n", |minor, resident| {
        for round in 0..4 {
            let flags = ["--python", "__main__.*"];
            let has_some = |resident: &Resident| {
                let rows = resident.view("report");
                rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "__main__.fib"))
            };
            let run = resident.attach_until(&flags, has_some);
            assert!(run.status.success() && resident.runs(), "3.{minor} {round}: {}", run.stderr);
            assert_eq!(changed_text(resident.pid), [""; 0], "{round}");
        }
    });
}

#[test]
fn a_python_program_goes_on_when_its_recorder_was_killed() {
    of_each("busy.py", "errors []\n", |_, resident| {
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
    });
}

#[test]
fn a_loop_that_only_waits_is_traced_from_its_next_wait_on() {
    of_each("waits.py", "", |minor, resident| {
        let has_some = |resident: &Resident| {
            let rows = resident.view("report");
            rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "__main__.step"))
        };
        let run = resident.attach_until(&["--python", "__main__.*"], has_some);
        assert!(run.status.success() && resident.runs(), "3.{minor}: {}", run.stderr);
    });
}

#[test]
fn snapshots_of_attached_process_have_python_functions() {
    of_each("busy.py", "errors []\n", |minor, resident| {
        let (pid, trace) = (resident.pid.to_string(), resident.trace().display().to_string());
        // The program's threads may map memory where calltap was about to; then calltap reports
        // that.
        let is_attached = (0..20).any(|_| {
            let run = calltap_run(&["attach", "--python", "__main__.*", "-p", &pid]);
            assert!(run.status.success(), "3.{minor}: {}", run.stderr);
            let is_whole = !run.stderr.contains("could not be mapped");
            is_whole || !calltap_run(&["detach", "-p", &pid]).status.success()
        });
        assert!(is_attached, "3.{minor}: something was in the way each time");
        resident.await_work(std::time::Duration::from_millis(100));
        let run = calltap_run(&["snapshot", "-p", &pid, "-o", &trace]);
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        let run = calltap_run(&["report", "-i", &trace, "--format", "json"]);
        assert!(!run.stderr.contains("not described"), "3.{minor}: {}", run.stderr);
        assert!(calls(&trace).contains_key("__main__.fib"), "3.{minor}: {}", run.stdout);
        assert!(calltap_run(&["detach", "-p", &pid]).status.success());
    });
}

#[test]
fn python_calls_of_all_processes_of_a_pool_are_recorded() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    for Interpreter { minor, path } in interpreters {
        let (python, script) = (path.display().to_string(), script("processes.py"));
        for (method, module) in [("fork", "__main__"), ("spawn", "__mp_main__")] {
            let command = ["--python", "__*main__.*", "--", &python, &script, method];
            let run = calltap_run(&[&["record", "-q", "--follow", "-o", &trace][..], &command].concat());
            assert_eq!(run.stdout, "40425\n[5]\n", "3.{minor} {method}: {}", run.stderr);
            let calls = calls(&trace);
            let of = |name: &str| calls.get(name).copied().unwrap_or(0);
            assert_eq!(of(&format!("{module}.child")), 50, "3.{minor} {method}: {calls:?}");
            assert_eq!(of("__main__.Late.go"), 7, "3.{minor} {method}: {calls:?}");
            // In 3.11 the program's own profiler replaces calltap's profile function.
            let work = of("__main__.work") + of("__mp_main__.work");
            assert_eq!(work, if minor == 11 { 57 } else { 62 }, "3.{minor} {method}: {calls:?}");
        }
    }
}

#[test]
fn questions_are_answered_about_python_functions() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let (python, script) = (path.display().to_string(), script("sleeps.py"));
        let trace = directory.path().join("t.calltap").display().to_string();
        let command = ["--", &python, &script, "5"];
        let calls = |words: &[&str]| {
            let asked = ["--python", "__main__.*", "--json"];
            let run = calltap_run(&[words, &asked, &command].concat());
            assert!(run.status.success(), "3.{minor} {words:?}: {}", run.stderr);
            run.stdout.matches("__main__.Handler.get").count()
        };
        // There are five calls, three of which sleep for 20 ms.
        assert!(calls(&["slower", "15ms", "__main__.Handler.get"]) >= 3, "3.{minor}");
        assert!(calls(&["watch", "__main__.Handler.get"]) >= 5, "3.{minor}");
        assert!(calls(&["latency"]) >= 1 && calls(&["count"]) >= 1, "3.{minor}");
        let run = calltap_run(&[&["why", "*.get>15ms", "--python", "__main__.*"][..], &command].concat());
        let slow = run.stdout.lines().filter(|line| line.contains(" ms  __main__.Handler.get  ")).count();
        assert_eq!(slow, 3, "3.{minor}: {}{}", run.stdout, run.stderr);
        let record = ["record", "-q", "-o", &trace, "--python", "__main__.*"];
        assert!(calltap_run(&[&record[..], &command].concat()).status.success());
        let run = calltap_run(&["count", "--python", "__main__.Handler.*", "-i", &trace, "--json"]);
        let counted: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(counted["functions"][0]["calls"], 5, "3.{minor}: {counted}");
    }
    let run = calltap_run(&["histogram", "f@arg1", "--python", "*", "--", "/bin/true"]);
    one_line(&run, &["--python excludes values in a question"]);
}

#[test]
fn unknown_interpreter_is_refused_in_one_line() {
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

#[test]
fn a_version_that_is_not_known_is_refused_with_its_number() {
    for version in ["2.7", "3.6", "3.7"] {
        let Some(python) = python_of_pyenv(version) else {
            skipped(&format!("CPython {version}: none is here"));
            continue;
        };
        let python = python.display().to_string();
        let print = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])";
        let number = output_of(&python, &["-c", print]).expect("it prints");
        let run = calltap_run(&["record", "-o", "/dev/null", "--python", "*", "--", &python, "-c", ""]);
        one_line(&run, &["--python: ", &format!("it is CPython {number}; functions are traced of")]);
    }
}

#[test]
fn record_tells_of_functions_in_python() {
    let Some((all, directory)) = interpreters() else { return };
    let script = directory.path().join("told.py");
    std::fs::write(&script, "def one(): return bytearray(1 << 20)\ndef two(): return one()\ntwo()\n")
        .unwrap();
    let (script, trace) =
        (script.display().to_string(), directory.path().join("trace").display().to_string());
    for Interpreter { path, .. } in &all {
        let python = path.display().to_string();
        let run = |words: &[&str]| calltap_run(&[words, &["--", &python, &script]].concat());
        let plain = run(&["record", "-o", &trace]).stderr;
        assert!(plain.contains("runs Python, whose functions are not among these: --python '*'"), "{plain}");
        // A list, of which one word matches; and none, beside functions in C.
        let listed = run(&["record", "-o", &trace, "--python", "no.such,__main__.t*", "-F", "malloc"]);
        assert!(!listed.stderr.contains("no Python function"), "{python}: {}", listed.stderr);
        let report = calltap_run(&["report", &trace]).stdout;
        assert!(report.contains("__main__.two") && !report.contains("__main__.one"), "{python}: {report}");
        let none = run(&["record", "-o", &trace, "--python", "no.such", "-F", "malloc"]).stderr;
        assert!(none.contains("no Python function that was called matches 'no.such'"), "{python}: {none}");
        let named = run(&["latency", "two"]);
        one_line(&named, &["no traceable function matches 'two'", "--python '*.two'"]);
    }
}
