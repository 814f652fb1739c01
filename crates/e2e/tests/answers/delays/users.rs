//! Programs and calltap, each as root or as a user without privileges.

use calltap_e2e::{HANGS, Run, calltap, have_tracepoints, kill, rows_of, run, skipped, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// User and group id of the account that owns no files.
const OTHER: u32 = 65534;

/// The users of a program and of calltap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// Both are the user of this test.
    Own,
    /// Both are another user without privileges; only if this test's user is root.
    Other,
    /// The program is the other user's, calltap is root's.
    RootOfOther,
}

impl User {
    /// Returns all variants that are possible here.
    pub fn all() -> Vec<User> {
        if rustix::process::geteuid().is_root() && calltap_e2e::have("setpriv") {
            vec![User::Own, User::Other, User::RootOfOther]
        } else {
            skipped("no other users: this is not root's");
            vec![User::Own]
        }
    }

    /// Whether the program is root's.
    pub fn is_root(self) -> bool {
        self == User::Own && rustix::process::geteuid().is_root()
    }

    /// Whether the kernel reports wakings to calltap's user.
    pub fn is_privileged(self) -> bool {
        self != User::Other && have_tracepoints()
    }

    /// Returns a directory that the program may write to.
    pub fn directory(self) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        self.owns(directory.path());
        directory
    }

    /// Gives a file to the program's user.
    pub fn owns(self, path: &Path) {
        if self != User::Own {
            chown(path, Some(OTHER), Some(OTHER)).expect("another's");
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("permissions");
        }
    }

    /// Returns a command of the program's user.
    pub fn command(self, program: &str) -> Command {
        let mut command = Command::new(if self == User::Own { program } else { "setpriv" });
        if self != User::Own {
            let id = [format!("--reuid={OTHER}"), format!("--regid={OTHER}")];
            command.args(id).args(["--clear-groups", program]);
        }
        command
    }

    /// Returns a command of calltap's user.
    fn calltap(self) -> Command {
        let user = if self == User::RootOfOther { User::Own } else { self };
        user.command(&calltap().display().to_string())
    }

    /// Runs calltap, and returns its output.
    pub fn ask(self, arguments: &[&str]) -> Run {
        let mut command = self.calltap();
        command.args(arguments).current_dir("/");
        let run = run(command, b"");
        assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
        run
    }

    /// Returns the rows of a report.
    pub fn rows(self, trace: &Path) -> Value {
        let run = self.ask(&["report", "--format", "json", &trace.display().to_string()]);
        rows_of(&run.stdout).into()
    }

    /// Returns the answer of `calltap why`. Where the kernel reports wakings, nothing in it is
    /// unknown.
    pub fn why(self, trace: &Path, rule: &str) -> Value {
        let run = self.ask(&["why", rule, "--json", &trace.display().to_string()]);
        let told: Value = serde_json::from_str(&run.stdout).expect("an object");
        let unknown = told["unknown"].as_array().expect("a list");
        assert_eq!(unknown.is_empty(), self.is_privileged(), "{unknown:?}");
        told
    }

    /// Returns the only child of a process.
    pub fn child(self, pid: u32) -> u32 {
        let list = || {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        };
        wait_until("a child", || !list().is_empty());
        list()[0]
    }
}

/// A calltap that records a process.
pub struct Recorder {
    child: Child,
    trace: PathBuf,
}

impl Recorder {
    /// Starts to record these functions of a process, and all kernel events that the user may read.
    /// Returns when the functions are on.
    pub fn attach(user: User, pid: u32, directory: &Path, functions: &[&str]) -> Recorder {
        let recorder = Recorder::try_to_attach(user, pid, directory, functions);
        recorder.unwrap_or_else(|errors| panic!("{functions:?}: {errors}"))
    }

    /// Starts to record as [`Recorder::attach`] does; an error is the message with which calltap
    /// ended.
    pub fn try_to_attach(
        user: User,
        pid: u32,
        directory: &Path,
        functions: &[&str],
    ) -> Result<Recorder, String> {
        let trace = directory.join("recorded.data");
        let mut command = user.calltap();
        command.args(["record", "-p", &pid.to_string(), "-o"]).arg(&trace).current_dir("/");
        command.args(functions.iter().flat_map(|function| ["-F", function]));
        if user.is_privileged() {
            command.args(["--events", "sched,syscalls"]);
        }
        let errors = directory.join("recorder");
        let file = fs::File::create(&errors).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut recorder = Recorder { child: command.spawn().expect("calltap"), trace };
        let start = Instant::now();
        loop {
            let ended = recorder.child.try_wait().expect("a child of this process").is_some();
            let said = fs::read_to_string(&errors).unwrap_or_default();
            if said.contains(" on, in ") {
                return Ok(recorder);
            }
            if ended {
                return Err(said);
            }
            assert!(start.elapsed() < HANGS, "{said}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the recording, and returns its path.
    pub fn end(self) -> PathBuf {
        let Recorder { mut child, trace } = self;
        kill(child.id(), 2);
        assert!(child.wait().expect("its end").success());
        trace
    }
}

/// Returns the row of a function.
pub fn one<'r>(rows: &'r Value, function: &str) -> &'r Value {
    let found = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == function));
    found.unwrap_or_else(|| panic!("no {function} in {rows}"))
}

/// Returns the time for which a function's calls were blocked, in nanoseconds.
pub fn blocked(row: &Value) -> u64 {
    row["blocked_ns"].as_u64().unwrap_or_else(|| panic!("it is not known whether it ran: {row}"))
}

/// Whether the states of a function's calls are all known, and add up to their total time.
pub fn all_known(row: &Value) -> bool {
    let parts = ["cpu_ns", "runnable_ns", "blocked_ns", "tracing_ns"].map(|key| row[key].as_u64());
    let sum = parts.into_iter().sum::<Option<u64>>();
    sum.zip(row["total_ns"].as_u64()).is_some_and(|(sum, total)| sum.abs_diff(total) <= 3)
}

/// Returns the waits of the first slow call of a function, the longest first.
pub fn waits_of<'t>(told: &'t Value, function: &str) -> &'t [Value] {
    let calls = told["calls"].as_array().expect("calls");
    let call = calls.iter().find(|call| call["function"] == function);
    let waits = call.and_then(|call| call["did"]["blocked"].as_array()).filter(|waits| !waits.is_empty());
    waits.unwrap_or_else(|| panic!("no wait of {function} in {told:#}"))
}

/// Checks that a thread of this name has ended a wait, in this function.
pub fn is_woken_by(wait: &Value, name: &str, function: &str) {
    let waker = &wait["woken_by"];
    assert_eq!((&waker["kind"], &waker["thread"]), (&"thread".into(), &name.into()), "{wait:#}");
    let frames = waker["path"].as_array().expect("a path");
    assert!(frames.iter().any(|frame| frame == function), "{wait:#}");
}
