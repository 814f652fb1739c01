//! Runs programs with a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a step counts as hanging. Beside a hundred busy threads on two processors,
/// attaching takes half a minute.
pub const HANGS: Duration = Duration::from_secs(120);

/// The end and the output of a program.
pub struct Run {
    /// Wait status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Returns the path of the calltap under test.
pub fn calltap() -> PathBuf {
    if let Some(path) = std::env::var_os("CALLTAP_BIN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("the path of this test");
    for directory in own.ancestors().skip(1) {
        for profile in [".", "release", "debug"] {
            let path = directory.join(profile).join("calltap");
            if path.is_file() {
                return path;
            }
        }
        if directory.join("CACHEDIR.TAG").exists() {
            break;
        }
    }
    panic!("build calltap first: cargo build --release -p calltap-cli (or set CALLTAP_BIN)");
}

/// Runs `calltap` with arguments to its end.
pub fn calltap_run(arguments: &[&str]) -> Run {
    let mut command = Command::new(calltap());
    command.args(arguments);
    run(command, b"")
}

/// Runs a command to its end.
pub fn run(command: Command, stdin: &[u8]) -> Run {
    run_timeout(command, stdin, 3 * HANGS)
}

/// Runs a command to its end. After the time limit the command and its children are killed, and the
/// test fails.
pub fn run_timeout(command: Command, stdin: &[u8], limit: Duration) -> Run {
    let what = format!("{command:?}");
    let (run, is_late) = run_within(command, stdin, limit);
    let Run { stdout, stderr, .. } = &run;
    assert!(!is_late, "{what} did not end in {limit:?}\nstdout: {stdout}\nstderr: {stderr}");
    run
}

/// Runs a command to its end, or until the time limit, after which it is killed with its children.
/// Returns whether it was killed.
pub fn run_within(mut command: Command, stdin: &[u8], limit: Duration) -> (Run, bool) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let group = Pid::from_child(&child);
    let (mut input, given) = (child.stdin.take().expect("piped"), stdin.to_vec());
    thread::spawn(move || input.write_all(&given));
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let stdout = thread::spawn(move || read(&mut out));
    let stderr = thread::spawn(move || read(&mut err));
    let start = Instant::now();
    let (mut over, mut late, mut pause) = (false, false, 1);
    while !(late || over && stdout.is_finished() && stderr.is_finished()) {
        over = over || matches!(child.try_wait(), Ok(Some(_)));
        late = start.elapsed() > limit;
        thread::sleep(Duration::from_millis(pause));
        pause = (pause + 1).min(5);
    }
    if late {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().expect("a child of this process");
    // A process that the command has left behind may keep the pipes open.
    let text = |reader: thread::JoinHandle<String>| {
        if late && !reader.is_finished() { "?".to_owned() } else { reader.join().unwrap_or_default() }
    };
    (Run { status, stdout: text(stdout), stderr: text(stderr) }, late)
}

fn read(from: &mut impl Read) -> String {
    let mut all = Vec::new();
    let _ = from.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// A server that is killed on drop.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
