//! A running program: its state as seen from outside, and attaching to it.

use crate::compile::Program;
use crate::rows::rows_in;
use crate::run::{HANGS, Run, calltap_run};
use crate::wait::{kill, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program that prints "ready" and runs until its input ends.
pub struct Resident {
    /// Process id.
    pub pid: u32,
    /// Directory of the traces.
    pub directory: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    /// The printed lines that no test waited for.
    pub output: String,
}

/// The state of a process, which must be the same after detaching.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Signal masks, tracer, capabilities; by thread.
    pub status: BTreeMap<String, String>,
    /// Thread ids.
    pub threads: BTreeSet<String>,
    /// Open files.
    pub files: BTreeMap<String, String>,
    /// Working directory, limits, environment.
    pub others: Vec<String>,
}

const KEPT: [&str; 8] =
    ["SigBlk", "SigIgn", "SigCgt", "TracerPid", "CapEff", "NoNewPrivs", "Seccomp", "State"];

impl State {
    /// Returns the state of a process. `but`: names of entries to leave out, which the process
    /// itself changes.
    pub fn of(pid: u32, but: &[&str]) -> State {
        let mut proc = PathBuf::from(format!("/proc/{pid}"));
        let tasks: BTreeSet<String> = fs::read_dir(proc.join("task"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|tid| !is_none_of_its_own(pid, tid))
            .collect();
        // When the first thread has ended, the files of the process are seen through another
        // thread.
        let lives = |tid: &&String| fs::metadata(proc.join("task").join(tid).join("exe")).is_ok();
        if fs::metadata(proc.join("exe")).is_err()
            && let Some(tid) = tasks.iter().find(lives)
        {
            proc = proc.join("task").join(tid);
        }
        let names = |what: &str| {
            let all = fs::read_dir(proc.join(what)).into_iter().flatten().flatten();
            all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<BTreeSet<String>>()
        };
        let mut status = BTreeMap::new();
        for tid in &tasks {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
            for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
                if KEPT.contains(&key) && !but.contains(&key) && !but.contains(&"Threads") {
                    status.insert(format!("{tid} {key}"), value.trim().to_owned());
                }
            }
        }
        let link = |name: &String| {
            let to = fs::read_link(proc.join("fd").join(name));
            (name.clone(), to.unwrap_or_default().to_string_lossy().into_owned())
        };
        let files = names("fd").iter().map(link).collect();
        let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
        let threads = if but.contains(&"Threads") { BTreeSet::new() } else { tasks };
        State { status, threads, files, others: vec![text("limits"), text("environ"), text("personality")] }
    }
}

/// Whether the kernel is ending a thread, or has created it for io_uring. On a busy machine an
/// ending thread is listed for long after its last instruction.
fn is_none_of_its_own(pid: u32, tid: &str) -> bool {
    const PF_EXITING: u64 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let flags = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0) || stat.contains("(iou-")
}

const PAGE: usize = 4096;

/// The signal mask of a thread that is being created; on a busy machine that takes long.
const ALL_BLOCKED: u64 = 0xfffffffffffbfeff;
/// Time after which a thread with blocked signals counts as at rest, not as in a signal handler.
const HANDLING: Duration = Duration::from_secs(5);

impl State {
    /// Returns the state of a process once it is at rest. A thread that is being created blocks all
    /// signals for a moment, and one in a handler blocks the signal that it handles.
    pub fn at_rest(pid: u32, but: &[&str]) -> State {
        let mut before = State::of(pid, but);
        let start = Instant::now();
        while start.elapsed() < HANGS {
            thread::sleep(Duration::from_millis(20));
            let now = State::of(pid, but);
            let is_moved = now.has_new_thread() || now.has_blocked_handler() && start.elapsed() < HANDLING;
            if !is_moved && now.stable_entries() == before.stable_entries() && now.threads == before.threads {
                return now;
            }
            before = now;
        }
        before
    }

    /// Returns the entries that do not change from moment to moment.
    fn stable_entries(&self) -> Vec<(&String, &String)> {
        self.status.iter().filter(|(key, _)| !key.ends_with(" State")).collect()
    }

    fn signals(&self, thread: &str, set: &str) -> u64 {
        let text = self.status.get(&format!("{thread} {set}"));
        text.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
    }

    /// Whether a thread is being created.
    fn has_new_thread(&self) -> bool {
        self.threads.iter().any(|thread| self.signals(thread, "SigBlk") == ALL_BLOCKED)
    }

    /// Whether a thread blocks a signal that has a handler.
    fn has_blocked_handler(&self) -> bool {
        self.threads.iter().any(|thread| self.signals(thread, "SigBlk") & self.signals(thread, "SigCgt") != 0)
    }
}

/// Waits until the first thread of a process has gone to sleep `times` more times: it has run in
/// between, however busy the machine is.
pub fn await_sleeps(pid: u32, times: u64) {
    let slept = || {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a process that runs")
    };
    let (start, before) = (Instant::now(), slept());
    while slept() < before + times {
        assert!(start.elapsed() < HANGS, "{pid} does not run");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the bytes of executable mappings that differ from their files.
///
/// Between reading the mappings and reading the memory, a library may be unloaded and another one
/// mapped there. Differences therefore count only if they are found several times in a row.
pub fn changed_text(pid: u32) -> Vec<String> {
    let mut changed = changed_text_now(pid);
    for _ in 0..3 {
        if changed.is_empty() {
            break;
        }
        let again: BTreeSet<String> = changed_text_now(pid).into_iter().collect();
        changed.retain(|change| again.contains(change));
    }
    changed
}

fn changed_text_now(pid: u32) -> Vec<String> {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return Vec::new() };
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut changed = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, flags, offset, _, _, path, ..] = words[..] else { continue };
        if !flags.contains('x') || !path.starts_with('/') || path.contains("calltap-") {
            continue;
        }
        let Some((start, end)) = range.split_once('-') else { continue };
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (start, end, offset) = (hex(start), hex(end), hex(offset));
        let Ok(file) = File::open(path) else { continue };
        let (mut now, mut then) = (vec![0; (end - start) as usize], vec![0; (end - start) as usize]);
        if memory.read_exact_at(&mut now, start).is_err() {
            continue;
        }
        let mut at = 0;
        while let Ok(n @ 1..) = file.read_at(&mut then[at..], offset + at as u64) {
            at += n;
        }
        // Pages first: most are equal, and a test compares megabytes many times.
        let pages = now.chunks(PAGE).zip(then.chunks(PAGE)).enumerate();
        let differ = pages.filter(|(_, (now, then))| now != then).map(|(page, (now, _))| (page, now.len()));
        let bytes = differ.flat_map(|(page, length)| page * PAGE..page * PAGE + length);
        let all = bytes.filter(|&n| now[n] != then[n]);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for n in all {
            match runs.last_mut() {
                Some((_, end)) if n - *end < 8 => *end = n,
                _ => runs.push((n, n)),
            }
        }
        for (from, to) in runs {
            let (then, now) = (&then[from..=to], &now[from..=to]);
            let short = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(16)]);
            let place = offset + from as u64;
            changed.push(format!("{path} {place:#x}: {} instead of {}", short(now), short(then)));
        }
    }
    changed
}

/// Returns the size of a process's private copies of text, in KiB.
pub fn private_text(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut counts, mut sum) = (false, 0);
    for words in text.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>()) {
        match words[..] {
            [range, flags, _, _, _, path, ..] if range.contains('-') => {
                counts = flags.contains('x') && path.starts_with('/') && !path.contains("calltap.");
            }
            ["Anonymous:", size, _] if counts => sum += size.parse().unwrap_or(0),
            _ => {}
        }
    }
    sum
}

/// Returns the number of a process's mappings, and its memory in KiB without file-backed pages,
/// which the kernel may drop and read again.
pub fn memory(pid: u32) -> (usize, u64) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    (maps, ["RssAnon:", "RssShmem:", "VmSwap:"].map(size).iter().sum())
}

/// Returns the state of a process's first thread from `/proc/PID/stat`; `None` if it does not exist
/// any more.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns the user and system time of a process, to 10 ms.
pub fn used(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let words: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    let ticks: u64 = words[11..13].iter().map(|word| word.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

impl Resident {
    /// Starts a program and waits until it prints "ready".
    pub fn start(program: &Program, arguments: &[&str]) -> Resident {
        let mut command = Command::new(&program.path);
        command.args(arguments).current_dir(program.directory());
        let mut resident = Resident::spawn(command, program.directory().to_owned());
        resident.wait_for("ready");
        resident
    }

    /// Starts a command.
    pub fn spawn(mut command: Command, directory: PathBuf) -> Resident {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut stderr = child.stderr.take().expect("piped");
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let (input, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (pid, lines) = (child.id(), lines_of(stdout));
        Resident { pid, directory, child, input, lines, errors: Some(errors), output: String::new() }
    }

    /// Waits for a line with this beginning, and returns the rest of the line.
    pub fn wait_for(&mut self, start: &str) -> String {
        let line = self.line(start);
        line.unwrap_or_else(|| panic!("{}: never said {start:?}, but {}", self.pid, self.output))
    }

    /// Waits for a line with this beginning. False if the output ends before.
    pub fn says(&mut self, start: &str) -> bool {
        self.line(start).is_some()
    }

    /// Returns the rest of the next line with this beginning; `None` if the output has ended.
    fn line(&mut self, start: &str) -> Option<String> {
        let limit = Instant::now() + HANGS;
        loop {
            match self.lines.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(start) {
                    Some(rest) => return Some(rest.trim().to_owned()),
                    None => self.output += &(line + "\n"),
                },
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: did not say {start:?} in {HANGS:?}, but {}", self.pid, self.output)
                }
            }
        }
    }

    /// Writes a line to the program's input.
    pub fn tell(&mut self) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(b"\n");
        }
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Whether the program is running.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Attaches once. The trace is [`Resident::trace`].
    pub fn attach(&self, flags: &[&str]) -> Run {
        let (pid, trace) = (self.pid.to_string(), self.trace());
        let trace = trace.to_string_lossy();
        let mut all = vec!["record", "-p", &pid, "--max-overhead", "none", "-o", &trace];
        all.extend(flags);
        calltap_run(&all)
    }

    /// Attaches until the threads of the process have run for a while, so that functions which they
    /// call all the time have been called. The trace is [`Resident::trace`].
    pub fn attach_while_it_works(&self, flags: &[&str]) {
        let mut calltap = self.attach_beside(flags);
        self.await_recorder();
        self.await_work(Duration::from_millis(30));
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
    }

    /// Waits until the process has used this much processor time.
    pub fn await_work(&self, time: Duration) {
        let before = used(self.pid);
        wait_until("processor time", || used(self.pid) >= before + time);
    }

    /// Attaches for longer and longer until the trace passes a check, as on a busy machine a
    /// program may not run for some time. Returns the last attach.
    pub fn attach_until(&self, flags: &[&str], shows: impl Fn(&Resident) -> bool) -> Run {
        for duration in ["10ms", "100ms", "1s", "10s", "60s"] {
            let run = self.attach(&[flags, &["--duration", duration]].concat());
            if !run.status.success() || shows(self) {
                return run;
            }
        }
        panic!("{} does nothing that was waited for: {flags:?}", self.pid);
    }

    /// Waits until the recorder that runs beside the test has switched all functions on, and
    /// answers requests.
    pub fn await_recorder(&self) {
        let start = Instant::now();
        while !calltap_run(&["status", "-p", &self.pid.to_string()]).status.success() {
            assert!(start.elapsed() < HANGS, "no recorder of {} answers", self.pid);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the path of the trace that [`Resident::attach`] writes.
    pub fn trace(&self) -> PathBuf {
        self.directory.join(format!("{}.calltap", self.pid))
    }

    /// Returns a view of the last trace.
    pub fn view(&self, what: &str) -> Value {
        let run = calltap_run(&[what, "-i", &self.trace().to_string_lossy(), "--format", "json"]);
        assert!(run.status.success(), "{what}: {}", run.stderr);
        let view: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{what}: {error}"));
        if what == "info" { view } else { rows_in(view).into() }
    }

    /// Checks that the last trace is complete, and that all losses are counted. Returns the entered
    /// and the lost calls.
    pub fn sound(&self) -> (u64, u64) {
        let info = self.view("info");
        let calls = |key: &str| info["calls"][key].as_u64().unwrap_or_default();
        assert_eq!(calls("entered"), calls("recorded") + calls("lost"), "entered = recorded + lost");
        assert_eq!(info["complaints"].as_array().map(Vec::len), Some(0), "{}", info["complaints"]);
        (calls("entered"), calls("lost"))
    }

    /// Starts attaching, without waiting for it. The trace is [`Resident::trace`], unless the flags
    /// name another.
    pub fn attach_beside(&self, flags: &[&str]) -> Child {
        self.attach_beside_within("none", flags)
    }

    /// Starts attaching with an overhead limit, without waiting for it.
    pub fn attach_beside_within(&self, limit: &str, flags: &[&str]) -> Child {
        let mut command = Command::new(crate::run::calltap());
        command.args(["record", "-q", "--max-overhead", limit, "-p", &self.pid.to_string()]).args(flags);
        if !flags.contains(&"-o") {
            command.arg("-o").arg(self.trace());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().expect("calltap")
    }

    /// Closes the program's input, and checks that it ends with status 0.
    #[track_caller]
    pub fn ends_well(self, what: &str) {
        let (status, output, errors) = self.end();
        assert!(status.success(), "{what}: {status} {output}{errors}");
    }

    /// Closes the program's input, and waits for its end. Returns its status, the output that no
    /// test waited for, and its errors.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        self.input = None;
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                // A program that is seldom attached to gets a hundred times as much work.
                _ if start.elapsed() > 5 * HANGS => break None,
                _ => thread::sleep(Duration::from_millis(2)),
            }
        };
        let _ = self.child.kill();
        let late = self.child.wait().expect("a child of this process");
        self.output.extend(self.lines.iter().map(|line| line + "\n"));
        let errors = self.errors.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        assert!(status.is_some(), "{} did not end: {late}\n{}\n{errors}", self.pid, self.output);
        (status.unwrap_or(late), std::mem::take(&mut self.output), errors)
    }
}

/// Waits for the end of a calltap, which must succeed.
#[track_caller]
pub fn succeeds(calltap: &mut Child) {
    let status = calltap.wait().expect("a child of this process");
    assert!(status.success(), "calltap ended with {status}");
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}
