//! Waits of tools: Python's threads for the interpreter lock, and make for jobs that run at the
//! same time.

use crate::delays::users::{Recorder, User, all_known, blocked, is_woken_by, one, waits_of};
use calltap_e2e::{GCC, Server, compile, have, have_switches, wait_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const MS: u64 = 1_000_000;

/// A thread repeatedly computes for 400 ms without releasing the interpreter lock; the first
/// thread, which sleeps meanwhile, prints how long the lock kept it from running.
const THREADS: &str = "
import sys, threading, time
sys.setswitchinterval(100)
def compute():
    while True:
        over = time.perf_counter() + 0.4
        while time.perf_counter() < over:
            pass
        time.sleep(0.2)
threading.Thread(target=compute, name='computes', daemon=True).start()
while True:
    begun = time.perf_counter()
    time.sleep(0.01)
    late = time.perf_counter() - begun
    open('late', 'a').write(f'{late}\\n')
";

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Returns the interpreter itself, as python3 may be a script.
fn interpreter() -> String {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8_lossy(&output.expect("python3").stdout).trim().to_owned()
}

/// Returns the name of a process's first thread.
fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).expect("a process that runs").trim().to_owned()
}

fn python(user: User) {
    let directory = user.directory();
    let script = directory.path().join("threads.py");
    fs::write(&script, THREADS).expect("a script");
    let mut command = user.command(&interpreter());
    command.arg(&script).current_dir(directory.path()).stdin(Stdio::null());
    let python = Server(command.spawn().expect("python3"));
    let late = directory.path().join("late");
    wait_until("a nap", || lines(&late) >= 1);
    let (pid, at) = (python.0.id(), directory.path());
    let open = ["PyEval_RestoreThread", "PyEval_SaveThread"];
    // A stripped python has no symbol for the function that takes the lock.
    let inner = Recorder::try_to_attach(user, pid, at, &[&open[..], &["take_gil", "drop_gil"]].concat());
    let (takes, lets) = if inner.is_ok() { ("take_gil", "drop_gil") } else { (open[0], open[1]) };
    let recorder = inner.unwrap_or_else(|_| Recorder::attach(user, pid, at, &open));
    let before = lines(&late);
    wait_until("a nap that lasted too long", || {
        let text = fs::read_to_string(&late).unwrap_or_default();
        text.lines().skip(before + 1).any(|line| line.parse::<f64>().is_ok_and(|seconds| seconds > 0.3))
    });
    let trace = recorder.end();
    let rows = user.rows(&trace);
    let row = one(&rows, takes);
    assert!(all_known(row) && blocked(row) >= 200 * MS, "{row}");
    let told = user.why(&trace, &format!("{takes}>200ms"));
    let wait = &waits_of(&told, takes)[0];
    assert!(wait["ns"].as_u64().is_some_and(|ns| ns >= 200 * MS), "{wait:#}");
    if user.is_privileged() {
        assert!(wait["in"].as_str().is_some_and(|call| call.starts_with("futex(")), "{wait:#}");
        is_woken_by(wait, &comm(pid), lets);
    }
}

#[test]
fn a_thread_of_python_waits_for_the_one_that_has_the_interpreter() {
    if have("python3") && have_switches() {
        User::all().into_iter().for_each(python);
    }
}

/// A makefile with eight jobs at the same time.
const MAKEFILE: &str = "all: 1 2 3 4 5 6 7 8\n1 2 3 4 5 6 7 8:\n\t@./job\n";

fn make(user: User) {
    let program = compile(GCC, &["job.c"], &[]);
    let directory = program.directory();
    user.owns(directory);
    fs::write(directory.join("Makefile"), MAKEFILE).expect("a Makefile");
    let trace = directory.join("made.data");
    let place = directory.display().to_string();
    let (file, functions) = (trace.display().to_string(), ["-F", "nap", "-F", "work", "-F", "reap_children"]);
    let mut words = vec!["record", "-q", "--follow", "-o", &file];
    words.extend(functions);
    if user.is_privileged() {
        words.extend(["--events", "sched,syscalls"]);
    }
    words.extend(["--", "make", "-j8", "-C", &place]);
    user.ask(&words);
    let rows = user.rows(&trace);
    let (nap, work, waits) = (one(&rows, "nap"), one(&rows, "work"), one(&rows, "reap_children"));
    for row in [nap, work, waits] {
        assert!(all_known(row), "{row}");
    }
    assert_eq!((&nap["calls"], &work["calls"]), (&8.into(), &8.into()), "{rows}");
    assert!(blocked(nap) >= 800 * MS, "eight naps of 100 ms: {nap}");
    let worked = work["cpu_ns"].as_u64().unwrap_or(0);
    assert!(worked >= 8 * 20 * MS * 98 / 100, "eight times 20 ms of work: {work}");
    // Jobs run at the same time: make waits for the longest.
    assert!(blocked(waits) >= 50 * MS, "{waits}");
    if user.is_privileged() {
        let told = user.why(&trace, "nap>90ms");
        assert_eq!(told["slow_calls"], 8, "{told:#}");
        let wait = &waits_of(&told, "nap")[0];
        assert_eq!(
            (&wait["in"], &wait["woken_by"]["kind"]),
            (&"clock_nanosleep()".into(), &"interrupt".into())
        );
    }
}

#[test]
fn parallel_make_is_divided_into_work_and_waits() {
    if have("make") && have_switches() {
        // calltap and make run as the same user.
        let users = User::all().into_iter().filter(|user| *user != User::RootOfOther);
        users.for_each(make);
    }
}
