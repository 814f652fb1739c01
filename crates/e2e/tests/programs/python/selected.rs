//! Python functions that are selected while the program runs.

use super::arguments::arguments;
use super::{Interpreter, calls, interpreters, of_each, script};
use calltap_e2e::*;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Number of calls that `turns.py` makes between two changes.
const CALLS: u64 = 50;

/// A process that runs `turns.py`.
struct Turns {
    resident: Resident,
    pid: String,
}

impl Turns {
    fn start(mut command: Command, directory: PathBuf) -> Turns {
        command.arg(script("turns.py"));
        let mut resident = Resident::spawn(command, directory);
        let pid = resident.wait_for("ready");
        Turns { resident, pid }
    }

    /// Changes the selection, and has the functions called. Returns calltap's messages.
    fn set(&mut self, flags: &[&str]) -> String {
        let run = calltap_run(&[&["set", "-p", &self.pid], flags].concat());
        assert!(run.status.success(), "{flags:?}: {}", run.stderr);
        self.turn();
        run.stderr
    }

    /// Lets the interpreter take notice of the selection, and has the functions called.
    fn turn(&mut self) {
        self.resident.tell();
        self.resident.wait_for("now");
        self.resident.tell();
        self.resident.wait_for("done");
    }

    /// Changes the selection in each way.
    fn turn_with_each_selection(&mut self) {
        self.turn();
        let said = self.set(&["--python", "__main__.second"]);
        assert!(said.contains("1 function enabled, 1 disabled"), "{said}");
        self.set(&["--python", ""]);
        self.set(&["--python", "__main__.*", "--python", "!__main__.second"]);
        self.set(&["--off"]);
        self.set(&["--on", "--python", "__main__.*"]);
    }

    fn end(self) {
        let (status, output, errors) = self.resident.end();
        assert!(status.success(), "{status} {output}{errors}");
    }
}

/// Returns the calls of `first`, `second` and `Handler.get` in a trace. Before 3.11, names are not
/// qualified if the class was made earlier.
fn counts(trace: &str) -> [u64; 3] {
    let calls = calls(trace);
    let of = |name: &str| calls.get(&format!("__main__.{name}")).copied().unwrap_or_default();
    [of("first"), of("second"), of("get") + of("Handler.get")]
}

#[test]
fn python_functions_are_selected_while_the_program_is_recorded() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let mut turns = Turns::start(Command::new(path), directory.path().to_owned());
        let mut calltap = turns.resident.attach_beside(&["--python", "__main__.first"]);
        turns.resident.await_recorder();
        turns.turn_with_each_selection();
        let status = calltap_run(&["status", "-p", &turns.pid]).stdout;
        assert!(status.contains("python     __main__.*\n"), "3.{minor}: {status}");
        assert!(status.contains("no function in C\n"), "3.{minor}: {status}");
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        let counts = counts(&turns.resident.trace().display().to_string());
        assert_eq!(counts, [3 * CALLS, 2 * CALLS, 2 * CALLS], "3.{minor}");
        turns.resident.sound();
        assert_eq!(changed_text(turns.resident.pid), [""; 0], "3.{minor}");
        turns.end();
    }
}

#[test]
fn python_functions_are_selected_while_a_program_that_was_started_is_recorded() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    for Interpreter { minor, path } in interpreters {
        let mut command = Command::new(calltap());
        command.args(["record", "-q", "-o", &trace, "--python", "__main__.first", "--"]).arg(path);
        let mut turns = Turns::start(command, directory.path().to_owned());
        turns.turn_with_each_selection();
        turns.end();
        assert_eq!(counts(&trace), [3 * CALLS, 2 * CALLS, 2 * CALLS], "3.{minor}");
    }
}

#[test]
fn python_functions_are_selected_where_none_were_at_first() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let mut turns = Turns::start(Command::new(path), directory.path().to_owned());
        let pid = turns.pid.clone();
        let run = calltap_run(&["attach", "-p", &pid, "-F", "PyObject_GetIter"]);
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        turns.turn();
        turns.set(&["--python", "__main__.first"]);
        turns.set(&["--python", "__main__.second"]);
        turns.set(&["--off"]);
        turns.set(&["--on"]);
        turns.set(&["--python", ""]);
        let trace = turns.resident.trace().display().to_string();
        let run = calltap_run(&["snapshot", "-p", &pid, "-o", &trace]);
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        assert_eq!(counts(&trace), [CALLS, 2 * CALLS, 0], "3.{minor}");
        assert!(calltap_run(&["detach", "-p", &pid]).status.success());
        assert_eq!(changed_text(turns.resident.pid), [""; 0], "3.{minor}");
        turns.end();
    }
}

#[test]
fn arguments_of_python_functions_are_switched_while_the_program_is_recorded() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let mut turns = Turns::start(Command::new(path), directory.path().to_owned());
        let mut calltap = turns.resident.attach_beside(&["--python", "__main__.*"]);
        turns.resident.await_recorder();
        turns.turn();
        turns.set(&["-A", "__main__.third@b"]);
        turns.set(&["-A", "__main__.third", "-A", "__main__.*get@self"]);
        turns.set(&["-A", ""]);
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        let trace = turns.resident.trace().display().to_string();
        let third = arguments(&trace, ".third");
        let expected = |n: u64| match n / CALLS {
            1 => serde_json::json!({ "b": 2 }),
            2 => serde_json::json!({ "a": 1, "b": 2 }),
            _ => Value::Null,
        };
        assert_eq!(third, (0..4 * CALLS).map(expected).collect::<Vec<_>>(), "3.{minor}");
        let get = arguments(&trace, "get");
        let with = |n: usize| get[n * CALLS as usize]["self"].clone();
        assert_eq!([0, 1, 2, 3].map(with), [Value::Null, Value::Null, "<Handler>".into(), Value::Null]);
        let [.., second, _] = counts(&trace);
        assert_eq!((second, get.len() as u64), (4 * CALLS, 4 * CALLS), "3.{minor}");
        turns.resident.sound();
        turns.end();
    }
}

#[test]
fn a_busy_python_program_has_other_functions_selected_again_and_again() {
    let selections = [
        &["--python", "__main__.fib"][..],
        &["--python", "json.*", "--python", "asyncio.*"],
        &["--python", ""],
        &["--python", "*", "-F", "PyObject_GetIter"],
        &["--off"],
        &["--on", "--python", "!__main__.*"],
    ];
    of_each("busy.py", "errors []\n", |minor, resident| {
        let mut calltap = resident.attach_beside(&["--python", "__main__.tree"]);
        resident.await_recorder();
        let pid = resident.pid.to_string();
        for selection in selections.iter().cycle().take(12) {
            let run = calltap_run(&[&["set", "-p", &pid], *selection].concat());
            assert!(run.status.success() && resident.runs(), "3.{minor} {selection:?}: {}", run.stderr);
            resident.await_work(Duration::from_millis(10));
        }
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        let calls = calls(&resident.trace().display().to_string());
        let described = calls.keys().filter(|name| name.starts_with("site ")).count();
        assert_eq!(described, 0, "3.{minor}: {calls:?}");
        assert!(calls.contains_key("__main__.fib"), "3.{minor}: {calls:?}");
        assert_eq!(changed_text(resident.pid), [""; 0], "3.{minor}");
    });
}

#[test]
fn session_without_python_refuses_python_in_one_line_unchanged() {
    let Some((mut interpreters, directory)) = interpreters() else { return };
    let Some(Interpreter { path, .. }) = interpreters.pop() else { return };
    for (flags, says) in [
        (&["--tracer", "function"][..], "add '--tracer function_graph'"),
        (&["--clock", "sparse"], "no room for the values that identify Python functions"),
    ] {
        let mut turns = Turns::start(Command::new(&path), directory.path().to_owned());
        let mut calltap = turns.resident.attach_beside(&[&["-F", "PyObject_GetIter"], flags].concat());
        turns.resident.await_recorder();
        one_line(&calltap_run(&["set", "-p", &turns.pid, "--python", "*"]), &[says]);
        turns.turn();
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        turns.end();
    }
}

#[test]
fn questions_name_functions_of_python_and_of_c() {
    let Some((interpreters, _)) = interpreters() else { return };
    let script = script("calls.py");
    for Interpreter { minor, path } in interpreters {
        let program = ["--", path.to_str().expect("a path"), &script, "run"];
        let ask = |words: &[&str]| calltap_run(&[words, &["--python", "__main__.*"], &program].concat());
        let both = ask(&["count", "fib", "PyObject_Repr"]).stdout;
        assert!(both.contains("__main__.fib") && both.contains("PyObject_Repr"), "3.{minor}: {both}");
        assert!(!both.contains("matches"), "3.{minor}: {both}");
        let mistyped = ask(&["latency", "fbi", "fib"]);
        let says = "# no function that was traced or called matches fbi\n";
        assert!(mistyped.stdout.contains(says), "3.{minor}: {} {}", mistyped.stdout, mistyped.stderr);
        let refused = ask(&["watch", "fib", "-A", "n"]).stderr;
        assert!(refused.contains("--python excludes values in a question"), "3.{minor}: {refused}");
    }
}
