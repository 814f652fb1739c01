//! Programs that check their own work, and the observation of their processes from outside.

use crate::shell;
use anyhow::{Context, Result};
use calltap_e2e::changed_text;
use fastrand::Rng;
use nix::libc::{SIGALRM, SIGPROF, SIGUSR1, SIGVTALRM};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A way to compile a program.
struct Build {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    is_static: bool,
}

impl Build {
    /// Returns the sanitizer whose runtime is in the program.
    fn sanitizer(&self) -> Option<&str> {
        self.flags.iter().find_map(|flag| flag.strip_prefix("-fsanitize="))
    }
}

const PLAIN: Build = Build { name: "gcc", compiler: "gcc", flags: &["-O2"], is_static: false };

const BUILDS: [Build; 9] = [
    Build { name: "gcc", compiler: "gcc", flags: &["-O2"], ..PLAIN },
    Build { name: "clang", compiler: "clang-16", flags: &["-O2"], ..PLAIN },
    Build { name: "entries", flags: &["-O2", "-fpatchable-function-entry=5"], ..PLAIN },
    Build { name: "fentry", flags: &["-O2", "-pg", "-mfentry"], ..PLAIN },
    Build { name: "static", flags: &["-O2", "-static"], is_static: true, ..PLAIN },
    Build { name: "static-pie", flags: &["-O2", "-static-pie"], is_static: true, ..PLAIN },
    Build {
        name: "static-entries",
        flags: &["-O2", "-static", "-fpatchable-function-entry=5"],
        is_static: true,
        ..PLAIN
    },
    Build { name: "asan", flags: &["-O2", "-fsanitize=address"], ..PLAIN },
    Build { name: "tsan", compiler: "clang-16", flags: &["-O2", "-fsanitize=thread"], ..PLAIN },
];

/// The sources of a program besides the common ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    /// An allocator of its own.
    Allocator,
    /// C++ with its unwinder.
    Throws,
}

const SOURCES: [&str; 4] = ["main.c", "signals.c", "stacks.c", "threads.c"];

/// Modes of the programs without arguments.
const MODES: [&str; 10] =
    ["deep", "coroutines", "rseq", "heap", "threads", "cancel", "setid", "waits", "forks", "exec"];
const ORDINARY: [i32; 4] = [SIGUSR1, SIGALRM, SIGVTALRM, SIGPROF];
/// Real-time signals that the programs do not block.
const REAL_TIME: [i32; 10] = [34, 35, 36, 40, 44, 48, 49, 62, 63, 64];
const HERTZ: [u32; 6] = [100, 1000, 5000, 10_000, 20_000, 50_000];

/// A program and its modes.
pub struct Target {
    build: &'static Build,
    kind: Kind,
    modes: Vec<String>,
    /// Whether the first step begins before the program is ready.
    pub starts: bool,
}

impl Target {
    /// Draws a program.
    pub fn draw(random: &mut Rng) -> Target {
        let build = &BUILDS[random.usize(..BUILDS.len())];
        let mut kind = [Kind::Plain, Kind::Plain, Kind::Allocator, Kind::Throws][random.usize(..4)];
        if build.sanitizer().is_some() && kind == Kind::Allocator {
            kind = Kind::Plain;
        }
        let mut modes = Vec::new();
        let mut signals: Vec<i32> = ORDINARY.into_iter().chain(REAL_TIME).collect();
        random.shuffle(&mut signals);
        // Only one ordinary signal of a number can be pending, so numbers are queued with a
        // real-time signal.
        let queued =
            signals.iter().position(|signal| REAL_TIME.contains(signal)).map(|at| signals.remove(at));
        let mut with_signal = |mode: &str, fastest: u32, random: &mut Rng| {
            let signal = signals.pop().unwrap_or(SIGALRM);
            let hertz = HERTZ[random.usize(..HERTZ.len())].min(fastest);
            format!("{mode}:{signal}:{hertz}")
        };
        for _ in 0..random.usize(1..=3) {
            modes.push(match random.usize(..16) {
                0..=2 => with_signal("timer", 50_000, random),
                3 => with_signal("nested", 10_000, random),
                4 => with_signal("jumps", 5000, random),
                5 => format!("queue:{}", queued.unwrap_or(REAL_TIME[0])),
                n => MODES[n - 6].to_owned(),
            });
        }
        if !build.is_static && random.u8(..4) == 0 {
            modes.push("libraries".into());
        }
        match kind {
            Kind::Plain => {}
            Kind::Allocator => modes.push("heap".into()),
            Kind::Throws => modes.push("throws".into()),
        }
        // Handlers belong to the process: a second thread with another handler would replace the
        // first one's.
        modes.sort();
        modes.dedup_by_key(|mode| mode.split(':').next().unwrap_or_default().to_owned());
        // The C library's signal for setuid ends a program that execs while the signal is pending,
        // even untraced.
        if modes.iter().any(|mode| mode == "exec") {
            modes.retain(|mode| mode != "setid");
        }
        // The signal by which the C library changes users interrupts waits, and its handler must
        // not be left by a jump. While a thread is cancelled, the C library itself waits for ever.
        if modes.iter().any(|mode| mode == "setid") {
            modes.retain(|mode| mode != "waits" && mode != "cancel" && !mode.starts_with("jumps"));
        }
        // ThreadSanitizer holds signals back.
        if build.sanitizer() == Some("thread") {
            modes.retain(|mode| !mode.contains(':'));
        }
        Target { build, kind, modes, starts: random.u8(..4) == 0 }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts = if self.starts { " from the start" } else { "" };
        write!(f, "{} {:?} {}{starts}", self.build.name, self.kind, self.modes.join(" "))
    }
}

/// The directory in which programs are compiled and run.
pub struct ChaosDirectory {
    directory: PathBuf,
}

impl ChaosDirectory {
    /// Makes the directory under `target/`.
    pub fn new() -> Result<ChaosDirectory> {
        let directory = shell::target().join("chaos");
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        Ok(ChaosDirectory { directory })
    }

    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the program, compiled again if it is older than its sources.
    fn program(&self, target: &Target) -> Result<PathBuf> {
        let Target { build, kind, .. } = target;
        let path = self.file(&format!("{}-{kind:?}", build.name));
        let sources = shell::root().join("xtask/programs/chaos");
        let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        let files = fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))?;
        let newest = files.flatten().filter_map(|file| time(&file.path())).max();
        if time(&path) > newest {
            return Ok(path);
        }
        let source = |name: &str| sources.join(name);
        let mut command = Command::new(build.compiler);
        command.args(build.flags).args(["-w", "-pthread", "-o"]).arg(&path).args(["-x", "c"]);
        command.args(SOURCES.map(source));
        match kind {
            Kind::Plain => {}
            // The compiler would turn the call of malloc in calloc into one of `calloc`.
            Kind::Allocator => drop(command.arg("-fno-builtin").arg(source("allocator.c"))),
            Kind::Throws => drop(command.arg("-DTHROWS").args(["-x", "c++"]).arg(source("throws.cpp"))),
        }
        if !build.is_static {
            command.args(["-x", "c", "-DLIBRARIES"]).arg(source("libraries.c")).arg("-ldl");
            let mut library = Command::new(build.compiler);
            library
                .args(build.flags)
                .args(["-shared", "-fPIC", "-o"])
                .arg(self.file(&format!("{}-{kind:?}.so", build.name)));
            shell::output(library.arg(source("library.c")))?;
        }
        command.arg("-lrt").args((*kind == Kind::Throws).then_some("-lstdc++"));
        shell::output(&mut command)?;
        Ok(path)
    }
}

/// Number of counters of threads in the file that a program shares with the driver. Two further
/// counters follow: signals, and failures.
const COUNTERS: usize = 60;
/// Time limit for a thread to make progress, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for a program to end.
const ENDING: Duration = Duration::from_secs(60);
/// Time limit for a thread to be resumed.
const RESUMING: Duration = Duration::from_secs(3);

/// A running program.
pub struct Running {
    /// Process id.
    pub pid: u32,
    child: Child,
    output: BufReader<ChildStdout>,
    /// Whether the program has said that it is ready.
    is_ready: bool,
    counters: File,
}

/// The verdict of a program, printed at its end.
pub struct Verdict {
    /// Number of signals that it has checked.
    pub signals: u64,
    /// The error that it has found.
    pub complaint: Option<String>,
}

impl Running {
    /// Starts the program.
    pub fn start(target: &Target, place: &ChaosDirectory) -> Result<Running> {
        let (program, file, errors) =
            (place.program(target)?, place.file("counters"), place.file("errors.log"));
        fs::write(&file, [0; (COUNTERS + 2) * 8])?;
        let counters = File::open(&file)?;
        let mut command = Command::new(program);
        command.arg(&file).args(&target.modes).current_dir(&place.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(errors)?);
        // A report of the sanitizer is not about calltap.
        command.env("ASAN_OPTIONS", "detect_leaks=0").env("TSAN_OPTIONS", "report_bugs=0");
        let mut child = command.spawn().with_context(|| format!("starting {target}"))?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Running { pid: child.id(), child, output, is_ready: false, counters })
    }

    /// Waits until the program is ready.
    pub fn await_ready(&mut self) -> Result<(), String> {
        let mut line = String::new();
        if !self.is_ready {
            self.output.read_line(&mut line).map_err(|error| error.to_string())?;
            self.is_ready = line == "ready\n";
        }
        if self.is_ready { Ok(()) } else { Err(format!("it does not begin: {}", self.errors())) }
    }

    fn counters(&self) -> Vec<u64> {
        let mut bytes = vec![0; (COUNTERS + 2) * 8];
        let _ = self.counters.read_exact_at(&mut bytes, 0);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
    }

    /// Checks that each thread of the ready program makes progress, and that none is stopped.
    pub fn goes_on(&mut self) -> Result<(), String> {
        self.await_ready()?;
        let (before, start) = (self.counters(), Instant::now());
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it has ended: {status}"));
            }
            let now = self.counters();
            let used = (0..COUNTERS).filter(|n| before[*n] != 0);
            let waiting: Vec<usize> = used.filter(|n| now[*n] == before[*n]).collect();
            let stopped = self.stopped();
            if waiting.is_empty() && stopped.is_empty() {
                return Ok(());
            }
            if !stopped.is_empty() && start.elapsed() > RESUMING {
                return Err(format!("threads are stopped: {stopped:?}"));
            }
            if start.elapsed() > TIME_LIMIT {
                return Err(format!("threads {waiting:?} do not go on: {}", self.places()));
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Collects a value for each thread, from its directory in /proc.
    fn threads<T>(&self, of: impl Fn(&Path) -> Option<T>) -> Vec<T> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        tasks.filter_map(|task| of(&task.path())).collect()
    }

    fn stopped(&self) -> Vec<String> {
        self.threads(|task| {
            let line = fs::read_to_string(task.join("stat")).ok()?;
            let state = line.rsplit_once(") ")?.1.chars().next()?;
            matches!(state, 'T' | 't').then(|| format!("{} {state}", task.display()))
        })
    }

    fn places(&self) -> String {
        let place = |task: &Path| {
            let call = fs::read_to_string(task.join("syscall")).ok()?;
            let status = fs::read_to_string(task.join("status")).ok()?;
            let sets = status.lines().filter(|line| line.starts_with("SigPnd") || line.starts_with("SigBlk"));
            let sets = sets.collect::<Vec<_>>().join(" ").replace('\t', " ");
            Some(format!("{}: {}; {sets}", task.file_name()?.to_str()?, call.trim()))
        };
        self.threads(place).join("; ")
    }

    /// Checks that the text is that of the files, and that no mapping of calltap is left except the
    /// agent, whose file is deleted.
    pub fn is_as_it_was(&self) -> Result<(), String> {
        let changed = changed_text(self.pid);
        if !changed.is_empty() {
            return Err(format!("text is changed: {changed:?}"));
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let is_agent = |line: &str| line.trim_end_matches(" (deleted)").ends_with("/attached.so");
        match maps.lines().find(|line| line.contains("/calltap-") && !is_agent(line)) {
            Some(line) => Err(format!("still mapped: {line}")),
            None => Ok(()),
        }
    }

    /// Closes the program's input, and returns its verdict.
    pub fn end(mut self) -> Verdict {
        drop(self.child.stdin.take());
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                _ if start.elapsed() > ENDING => break None,
                _ => sleep(Duration::from_millis(2)),
            }
        };
        let places = status.is_none().then(|| self.places());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut said = String::new();
        let _ = self.output.read_to_string(&mut said);
        let counters = self.counters();
        let errors = self.errors();
        let complaint = match status {
            Some(status) if status.success() => None,
            Some(status) => Some(format!("it ended with {status}: {errors}")),
            None => Some(format!("it does not end: {} {errors}", places.unwrap_or_default())),
        };
        Verdict { signals: counters[COUNTERS], complaint }
    }

    fn errors(&self) -> String {
        let text = fs::read_to_string(shell::target().join("chaos/errors.log")).unwrap_or_default();
        text.chars().take(400).collect::<String>().trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
