//! `cargo xtask fuzz-programs`: runs generated programs alone and traced, and requires the same
//! output; compares the recorded calls with those that a debugger sees.
//!
//! A program is a list of pieces. One that fails is made smaller by leaving pieces out, and is kept
//! among the programs of `xtask/regressions`, which a test runs. All choices follow from a seed.

mod builds;
mod go;
mod pieces;
mod random;
mod regressions;
mod replay;
mod rust;
mod truth;

pub use regressions::run as run_regressions;

use crate::shell;
use anyhow::{Context, Result, bail};
use builds::Build;
use pieces::Piece;
use random::Random;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit in seconds, longer than any generated program runs on a loaded machine.
const TIME_LIMIT_S: &str = "60";
/// Number of rounds of a program that is attached to.
const ROUNDS: u32 = 4_000;

/// A generated program: its seed, pieces and build.
#[derive(Clone)]
struct Case {
    seed: u64,
    pieces: Vec<Piece>,
    build: Build,
}

/// The source of a program, its build and its directory.
struct Program {
    text: String,
    build: Build,
    directory: PathBuf,
}

/// A way to trace a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// From its start, with these tracers. The events of function_graph alone and of function alone
    /// are compared with those that a debugger sees.
    Start(&'static [&'static str]),
    /// From its start, with only some of its functions, as after attaching to a running program,
    /// where other functions are open. Events are compared with those that a debugger sees.
    Selected,
    /// Attached to and detached from several times while it runs.
    Attached,
}

/// All ways to trace a program.
const MODES: [Mode; 6] = [
    Mode::Start(&["function_graph"]),
    Mode::Selected,
    Mode::Start(&["function"]),
    Mode::Start(&["profile"]),
    Mode::Start(&["profile", "function_graph"]),
    Mode::Attached,
];

/// The end and the output of a program.
#[derive(PartialEq, Eq)]
struct Outcome {
    status: String,
    output: String,
}

impl Outcome {
    /// Whether calltap refused the program, as it has no function that can be traced: small
    /// programs without names and unwinding information may have none.
    fn is_refused(&self) -> bool {
        self.output.starts_with("calltap: ") && self.output.contains(": no traceable function: ")
    }

    /// Whether the time limit ended the program.
    fn is_cut(&self) -> bool {
        self.status == format!("{:?}", Some(128 + 9))
    }
}

/// Counts of all programs.
#[derive(Default)]
struct Counts {
    programs: u32,
    runs: u32,
    refused: u32,
    compared: u64,
}

impl Counts {
    /// Adds the counts of another thread.
    fn add(&mut self, other: &Counts) {
        self.programs += other.programs;
        self.runs += other.runs;
        self.refused += other.refused;
        self.compared += other.compared;
    }
}

/// Runs programs for a time, with seeds from `seed` on, one on each processor.
pub fn run(seconds: u64, seed: u64) -> Result<()> {
    let calltap = shell::calltap()?;
    let place = shell::target().join("fuzz-programs");
    let (begin, next) = (Instant::now(), AtomicU64::new(seed));
    let work = || -> Result<(Counts, Vec<u64>)> {
        let (mut counts, mut failed) = (Counts::default(), Vec::new());
        while begin.elapsed() < Duration::from_secs(seconds) {
            let seed = next.fetch_add(1, Relaxed);
            if !passes(seed, &calltap, &place.join(seed.to_string()), &mut counts)? {
                failed.push(seed);
            }
        }
        Ok((counts, failed))
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for worker in done {
        let (own, seeds) = worker?;
        counts.add(&own);
        failed.extend(seeds);
    }
    println!(
        "{} programs, {} runs traced, {} refused, {} calls compared with a debugger's; seeds up to {}",
        counts.programs,
        counts.runs,
        counts.refused,
        counts.compared,
        next.load(Relaxed) - 1
    );
    if failed.is_empty() { Ok(()) } else { bail!("{} programs fail: seeds {failed:?}", failed.len()) }
}

/// Runs the program of a seed in every mode. Returns whether all is as untraced; a program that
/// fails is made smaller, reported and kept.
fn passes(seed: u64, calltap: &Path, directory: &Path, counts: &mut Counts) -> Result<bool> {
    let case = Case::generate(seed);
    counts.programs += 1;
    let program = case.program(directory);
    program.build()?;
    let failing =
        MODES.into_iter().find_map(|mode| Some((mode, program.check(mode, calltap, counts).err()?)));
    let Some((mode, what)) = failing else {
        fs::remove_dir_all(directory)?;
        return Ok(true);
    };
    let small = case.reduce(mode, calltap, directory);
    let program = small.program(directory);
    program.build()?;
    let what = program.check(mode, calltap, counts).err().unwrap_or(what);
    println!("{}", small.report(&program, mode, calltap, &format!("{what:#}")));
    println!("  kept: {}", regressions::keep(&program, seed, mode, &what)?.display());
    Ok(false)
}

/// Builds the program of a seed in a directory, and returns the compiler and flags.
pub fn build(seed: u64, directory: &Path) -> Result<String> {
    let program = Case::generate(seed).program(directory);
    program.build()?;
    Ok(program.build.line())
}

/// Builds the program of a seed by a compiler of C or C++ with one flag.
pub fn build_by(compiler: &str, flag: &str, seed: u64, directory: &Path) -> Result<()> {
    Case::generate_for(Build::plain(compiler, flag), seed, Random::new(seed)).program(directory).build()
}

impl Case {
    fn generate(seed: u64) -> Case {
        let mut random = Random::new(seed);
        let build = Build::choose(&mut random);
        Case::generate_for(build, seed, random)
    }

    fn generate_for(build: Build, seed: u64, mut random: Random) -> Case {
        let count = 2 + random.below(7);
        let mut pieces: Vec<Piece> =
            (0..count).map(|_| Piece::choose(&mut random, build.language())).collect();
        pieces.retain(|piece| !build.has_sections() || !piece.has_differences());
        // Static programs open no libraries: these would load a second C library.
        pieces.retain(|piece| !build.is_static() || !piece.opens_libraries());
        Case { seed, pieces, build }
    }

    fn program(&self, directory: &Path) -> Program {
        let text = pieces::program(self.build.language(), &self.pieces);
        Program { text, build: self.build.clone(), directory: directory.to_owned() }
    }

    /// Returns the program with as few pieces as still fail.
    fn reduce(&self, mode: Mode, calltap: &Path, directory: &Path) -> Case {
        let mut small = self.clone();
        let mut n = 0;
        while n < small.pieces.len() {
            let mut smaller = small.clone();
            smaller.pieces.remove(n);
            let program = smaller.program(directory);
            let is_built = program.build().is_ok();
            match program.check(mode, calltap, &mut Counts::default()) {
                Err(_) if is_built => small = smaller,
                _ => n += 1,
            }
        }
        small
    }

    fn report(&self, program: &Program, mode: Mode, calltap: &Path, what: &str) -> String {
        let run = match mode {
            Mode::Start(tracers) => {
                format!("{} record --tracer {} -- ./program 3", calltap.display(), tracers.join(" --tracer "))
            }
            Mode::Selected => {
                let functions =
                    truth::functions(&program.directory.join("program"), &calltap.to_string_lossy());
                let left_out = truth::left_out(&functions.unwrap_or_default()).join(" --notrace ");
                format!("{} record --notrace {left_out} -- ./program 3", calltap.display())
            }
            Mode::Attached => {
                format!("./program {ROUNDS} & {} record --duration 50ms -p $!", calltap.display())
            }
        };
        format!(
            "FAILED: seed {}: {what}\n  cd {}\n  {}: {}\n  {run}\n  pieces: {:?}\n  again: cargo xtask fuzz-programs --seconds 1 --seed {}",
            self.seed,
            program.directory.display(),
            self.build.source(),
            self.build.line(),
            self.pieces,
            self.seed
        )
    }
}

impl Program {
    fn build(&self) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(self.directory.join(self.build.source()), &self.text)?;
        self.build.compile(&self.directory)
    }

    /// Whether the order of calls depends on scheduling.
    fn has_threads(&self) -> bool {
        ["pthread_create", "thread::spawn"].iter().any(|word| self.text.contains(word))
    }

    /// Runs the program alone and traced; an error says how they differ.
    fn check(&self, mode: Mode, calltap: &Path, counts: &mut Counts) -> Result<()> {
        counts.runs += 1;
        match mode {
            Mode::Start(tracers) => self.check_start(calltap, tracers, counts),
            Mode::Selected => self.check_selected(calltap, counts),
            Mode::Attached => self.check_attached(calltap),
        }
    }

    fn check_start(&self, calltap: &Path, tracers: &[&str], counts: &mut Counts) -> Result<()> {
        let options: Vec<&str> = tracers.iter().flat_map(|tracer| ["--tracer", tracer]).collect();
        let is_compared = matches!(tracers, ["function" | "function_graph"]) && self.is_comparable();
        if !self.record(calltap, &options, counts)? || !is_compared {
            return Ok(());
        }
        let functions = truth::functions(&self.directory.join("program"), &calltap.to_string_lossy())?;
        let (calls, replayed) = (self.calls(&functions, counts)?, self.replay(calltap)?);
        match tracers {
            ["function"] => replay::compare_callers(&replayed, &calls, &functions),
            _ => replay::compare_depths(&replayed, &calls, &functions, &[]),
        }
    }

    fn check_selected(&self, calltap: &Path, counts: &mut Counts) -> Result<()> {
        if !self.is_comparable() {
            return Ok(());
        }
        let functions = truth::functions(&self.directory.join("program"), &calltap.to_string_lossy())?;
        let left_out = truth::left_out(&functions);
        let options: Vec<&str> = left_out.iter().flat_map(|name| ["--notrace", name]).collect();
        if !self.record(calltap, &options, counts)? {
            return Ok(());
        }
        let (calls, replayed) = (self.calls(&functions, counts)?, self.replay(calltap)?);
        replay::compare_depths(&replayed, &calls, &functions, &left_out)
    }

    /// Whether the order of calls can be compared by name.
    fn is_comparable(&self) -> bool {
        self.build.has_names() && !self.has_threads()
    }

    /// Runs the program alone and recorded, and compares both. False if calltap refused it.
    fn record(&self, calltap: &Path, options: &[&str], counts: &mut Counts) -> Result<bool> {
        let alone = finish(&mut limited(&self.directory, &["./program", "3"]))?;
        let calltap = calltap.to_string_lossy();
        let mut record = vec![&*calltap, "record", "-q", "--max-wait", "20s", "-o", "trace"];
        record.extend(options);
        record.extend(["--", "./program", "3"]);
        let traced = finish(&mut limited(&self.directory, &record))?;
        if traced.is_refused() {
            counts.refused += 1;
            return Ok(false);
        }
        compare(&alone, &traced).map(|()| true)
    }

    /// Returns the calls that a debugger sees.
    fn calls(&self, functions: &[truth::Function], counts: &mut Counts) -> Result<Vec<truth::Call>> {
        let calls = truth::calls(&self.directory.join("program"), functions)?;
        counts.compared += calls.len() as u64;
        Ok(calls)
    }

    /// Returns the recorded calls as text.
    fn replay(&self, calltap: &Path) -> Result<String> {
        let mut replay = Command::new(calltap);
        replay.current_dir(&self.directory).args(["replay", "--linker-names", "-i", "trace"]);
        Ok(String::from_utf8_lossy(&shell::output(&mut replay)?.stdout).into_owned())
    }

    fn check_attached(&self, calltap: &Path) -> Result<()> {
        let directory = &self.directory;
        let rounds = ROUNDS.to_string();
        let alone = finish(&mut limited(directory, &["./program", &rounds]))?;
        if alone.is_cut() {
            return Ok(());
        }
        let mut program = Command::new("./program");
        program.arg(&rounds).current_dir(directory).stdin(Stdio::null());
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program.spawn().context("cannot start the program")?;
        let id = program.id().to_string();
        for _ in 0..3 {
            if program.try_wait()?.is_some() {
                break;
            }
            let mut attached = limited(
                directory,
                &[
                    &calltap.to_string_lossy(),
                    "record",
                    "-q",
                    "--duration",
                    "50ms",
                    "-o",
                    "attached",
                    "-p",
                    &id,
                ],
            );
            // The program may have ended meanwhile.
            attached.stdin(Stdio::null()).output()?;
        }
        let output = program.wait_with_output()?;
        compare(&alone, &outcome(&output))
    }
}

/// Returns a command that runs in a directory with a time limit.
fn limited(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", TIME_LIMIT_S]).args(words).current_dir(directory);
    command
}

fn finish(command: &mut Command) -> Result<Outcome> {
    let output = command.stdin(Stdio::null()).output();
    Ok(outcome(&output.with_context(|| format!("cannot start {}", shell::line(command)))?))
}

fn outcome(output: &std::process::Output) -> Outcome {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // `timeout` reports a signal as its number plus 128; so does calltap.
    use std::os::unix::process::ExitStatusExt;
    let status = output.status.code().or(output.status.signal().map(|signal| 128 + signal));
    Outcome { status: format!("{status:?}"), output: text(&output.stdout) + &text(&output.stderr) }
}

fn compare(alone: &Outcome, traced: &Outcome) -> Result<()> {
    if alone.status != traced.status {
        bail!("it ends with {} alone and {} traced: {}", alone.status, traced.status, traced.output);
    }
    let mut lines = alone.output.lines().zip(traced.output.lines());
    match lines.find(|(alone, traced)| alone != traced) {
        Some((alone, traced)) => bail!("it prints '{alone}' alone and '{traced}' traced"),
        None if alone.output != traced.output => bail!("it prints more or less when it is traced"),
        None => Ok(()),
    }
}
