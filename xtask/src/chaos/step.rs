//! A step of a round: one command of calltap, which may be killed or stopped for a while.

use super::target::ChaosDirectory;
use anyhow::{Result, bail};
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The programs that the driver runs.
pub struct Tools {
    calltap: PathBuf,
    has_strace: bool,
}

impl Tools {
    /// Returns this calltap, and whether strace is installed.
    pub fn new(calltap: PathBuf) -> Result<Tools> {
        if !crate::shell::have("gcc") || !crate::shell::have("clang-16") {
            bail!("no gcc or no clang-16: the targets are compiled with both");
        }
        let has_strace = crate::shell::have("strace");
        if !has_strace {
            println!("SKIPPED: no strace here: calltap is killed at random times only");
        }
        Ok(Tools { calltap, has_strace })
    }
}

/// Commands without the process id. `DURATION` is replaced by a random time.
const COMMANDS: [&[&str]; 14] = [
    &["record", "-q", "--max-overhead", "none", "--duration", "DURATION", "-o", "OUTPUT"],
    &[
        "record",
        "-q",
        "--max-overhead",
        "none",
        "--duration",
        "DURATION",
        "-o",
        "OUTPUT",
        "--tracer",
        "function",
    ],
    &[
        "record",
        "-q",
        "--max-overhead",
        "none",
        "--duration",
        "DURATION",
        "-o",
        "OUTPUT",
        "--tracer",
        "profile",
    ],
    &["record", "-q", "--max-overhead", "none", "--duration", "DURATION", "-o", "OUTPUT"],
    &["attach"],
    &["attach"],
    &["attach", "--patch-mode", "stop_machine"],
    &["set", "--off"],
    &["set", "--on"],
    &["set", "--tracer", "function", "--tracer", "function_graph"],
    &["snapshot", "-o", "OUTPUT"],
    &["status"],
    &["detach"],
    &["detach"],
];

/// Number of commands that attach; they come first.
const ATTACHING: usize = 7;

/// System calls at which calltap is killed: those that change something, and all.
const CALLS: [&str; 8] = ["ptrace", "ptrace", "ptrace", "pwrite64", "wait4", "openat", "mmap", "all"];

/// A disturbance of a command while it runs.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    None,
    /// A kill after this time.
    Kill(Duration),
    /// A kill at a system call.
    KillAt {
        call: &'static str,
        when: u32,
    },
    /// A stop, as on a busy machine a command may wait as long for a processor.
    Pause {
        after: Duration,
        length: Duration,
    },
}

/// A command of calltap.
pub struct Step {
    words: Vec<String>,
    disturbance: Disturbance,
}

/// Result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// The command ended with status 0.
    Fully,
    /// The command ended with an error message.
    Refused,
    /// The command was killed.
    Killed,
}

/// Time after which a command counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);
/// Range of the milliseconds for which a command is stopped: around those after which calltap may
/// no longer write, and those after which the agent gives it up.
const PAUSE: std::ops::Range<u64> = 1400..2500;
/// Number of attempts of the last `detach`.
const DETACHES: usize = 3;

impl Step {
    /// Draws a step; the first of a round attaches.
    pub fn draw(random: &mut Rng, is_first: bool, tools: &Tools) -> Step {
        let among = if is_first { &COMMANDS[..ATTACHING] } else { &COMMANDS };
        let command = among[random.usize(..among.len())];
        let duration = format!("{}ms", random.u32(1..60));
        let word = |word: &&str| if *word == "DURATION" { duration.clone() } else { (*word).to_owned() };
        let mut moment = || {
            let latest = 1 << random.u32(10..19);
            Duration::from_micros(random.u64(..latest))
        };
        let after = moment();
        let disturbance = match random.u8(..20) {
            0..=9 => Disturbance::None,
            10..=14 => Disturbance::Kill(after),
            15 => Disturbance::Pause { after, length: Duration::from_millis(random.u64(PAUSE)) },
            // Drawn even without strace, so that the later choices of a round are the same.
            _ => {
                let call = CALLS[random.usize(..CALLS.len())];
                let latest = 1 << random.u32(1..9);
                let when = random.u32(1..=latest);
                if tools.has_strace { Disturbance::KillAt { call, when } } else { Disturbance::None }
            }
        };
        Step { words: command.iter().map(word).collect(), disturbance }
    }

    /// Whether the command attaches.
    pub fn attaches(&self) -> bool {
        matches!(self.words[0].as_str(), "record" | "attach")
    }

    /// Runs the command to its end, or kills it. An error if it hangs, panics, or has not restored
    /// what it could.
    pub fn take(&self, pid: u32, place: &ChaosDirectory, tools: &Tools) -> Result<Done, String> {
        let mut command = match self.disturbance {
            Disturbance::KillAt { call, when } => {
                let mut strace = Command::new("strace");
                strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
                strace.args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")]).arg(&tools.calltap);
                strace
            }
            _ => Command::new(&tools.calltap),
        };
        let output = place.file("trace").to_string_lossy().into_owned();
        command.args(self.words.iter().map(|word| if word == "OUTPUT" { &output } else { word }));
        command.args(["-p", &pid.to_string()]);
        let log = place.file("calltap.log");
        let file = || File::create(&log).map_err(|error| error.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file()?);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        match self.disturbance {
            Disturbance::None | Disturbance::KillAt { .. } => {}
            Disturbance::Kill(after) => {
                sleep(after);
                // The command may have ended by itself.
                let _ = child.kill();
            }
            Disturbance::Pause { after, length } => {
                sleep(after);
                pause(&child, length);
            }
        }
        let status = await_end(&mut child).ok_or(format!("calltap does not end in {LIMIT:?}"))?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains("panicked") {
            return Err(format!("calltap panicked: {}", said.trim()));
        }
        if said.contains("could not be restored") {
            return Err(format!("calltap has not restored code: {}", said.trim()));
        }
        Ok(match status.code() {
            Some(0) => Done::Fully,
            Some(137) | None => Done::Killed,
            Some(_) => Done::Refused,
        })
    }
}

/// Stops a process, and continues it later. It may end before, but its id stays its own until it is
/// waited for.
fn pause(child: &Child, length: Duration) {
    let pid = Pid::from_raw(child.id() as i32);
    let _ = kill(pid, Signal::SIGSTOP);
    sleep(length);
    let _ = kill(pid, Signal::SIGCONT);
}

fn await_end(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Detaches from the process at the end of a round. An error if that fails although there is a
/// session.
pub fn leave(pid: u32, place: &ChaosDirectory, tools: &Tools) -> Result<(), String> {
    let detach = Step { words: vec!["detach".into()], disturbance: Disturbance::None };
    for _ in 0..DETACHES {
        match detach.take(pid, place, tools)? {
            Done::Fully => return Ok(()),
            _ => sleep(Duration::from_millis(20)),
        }
    }
    let said = fs::read_to_string(place.file("calltap.log")).unwrap_or_default();
    // There may be no session to detach from.
    if said.contains("is not attached to") { Ok(()) } else { Err(format!("detach fails: {}", said.trim())) }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))?;
        match self.disturbance {
            Disturbance::None => Ok(()),
            Disturbance::Kill(after) => write!(f, " (killed after {after:?})"),
            Disturbance::KillAt { call, when } => write!(f, " (killed at {call} {when})"),
            Disturbance::Pause { after, length } => write!(f, " (stopped after {after:?} for {length:?})"),
        }
    }
}
