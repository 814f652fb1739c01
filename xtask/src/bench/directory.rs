//! The control directory: switching 20,000 functions by one `echo`, and `cat trace` beside `calltap
//! replay` of the same calls.

use super::Bench;
use super::expect::{at_least, at_most};
use super::measure::median;
use crate::programs::{Build, Variant, compile};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const FUNCTIONS: usize = 20_000;
const CALLS: usize = 1_000_000;
/// Size of the rings: no event must be lost.
const MEMORY: &str = "64M";

/// Makes the calls of `work` for each line that it reads, with pauses in which the recorder can
/// follow: no event must be lost.
const MAIN: &str = r#"
#include <stdio.h>
#include <unistd.h>
static volatile long sum;
void work(long n) { sum += n; }
int main(void) {
    puts("ready");
    fflush(stdout);
    for (char line[80]; fgets(line, sizeof line, stdin);) {
        for (long n = 0; n < CALLS; n++) { work(n); if (n % 5000 == 0) usleep(2000); }
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"#;

/// A program that does its work on request.
struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(program: &Path) -> Result<Worker> {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let mut worker = Worker { child, output };
        worker.read("ready")?;
        Ok(worker)
    }

    fn read(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() != word { bail!("the program said {line:?}, not {word}") } else { Ok(()) }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn work(&mut self) -> Result<()> {
        self.child.stdin.as_mut().context("its input")?.write_all(b"\n")?;
        self.read("done")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A mounted control directory.
struct Mounted(PathBuf);

impl Mounted {
    fn new(bench: &Bench, pid: &str) -> Result<Mounted> {
        let place = bench.place.join("directory");
        fs::create_dir_all(&place)?;
        shell::status(
            Command::new(&bench.calltap).args(["mount", "-p", pid, "--buffer-size", MEMORY]).arg(&place),
        )?;
        Ok(Mounted(place))
    }

    fn echo(&self, value: &str, name: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, format!("{value}\n")).with_context(|| format!("{value} > {}", path.display()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let program = program(bench)?;
    let mut text = String::from("### The control directory\n\n| | |\n|---|--:|\n");
    for tracer in ["function", "function_graph"] {
        let mut worker = Worker::start(&program)?;
        let trace = record(bench, &mut worker, tracer)?;
        let mounted = Mounted::new(bench, &worker.pid())?;
        mounted.echo("300000", "buffer_size_kb")?;
        mounted.echo("work", "set_ftrace_filter")?;
        mounted.echo(tracer, "current_tracer")?;
        worker.work()?;
        reading(&mut text, bench, &mounted, &trace, tracer)?;
        if tracer == "function" {
            switching(&mut text, bench, &mounted)?;
        }
    }
    Ok(text)
}

/// Compiles the program: `work`, and many other functions.
fn program(bench: &Bench) -> Result<PathBuf> {
    let source = bench.place.join("many_at_work.c");
    let mut code = MAIN.replace("CALLS", &CALLS.to_string());
    for index in 0..FUNCTIONS {
        writeln!(code, "int f{index}(int x) {{ return x + {index}; }}")?;
    }
    if fs::read_to_string(&source).ok().as_ref() != Some(&code) {
        fs::write(&source, code)?;
    }
    compile(&source, Build::gcc(Variant::Nop), &["-O1", "-fno-inline"])
}

/// Records one round of work into a trace.
fn record(bench: &Bench, worker: &mut Worker, tracer: &str) -> Result<PathBuf> {
    let (pid, trace) = (worker.pid(), bench.place.join("directory.trace"));
    let mut record = Command::new(&bench.calltap);
    record.args(["record", "--quiet", "-p", &pid, "--tracer", tracer, "-F", "work"]);
    record.args(["--buffer-size", MEMORY]);
    record.args(["--max-overhead", "none", "-o"]).arg(&trace);
    let mut record = record.stderr(Stdio::null()).spawn()?;
    // Waits until the session answers at all.
    while !Command::new(&bench.calltap)
        .args(["status", "-p", &pid])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?
        .success()
    {}
    worker.work()?;
    shell::status(Command::new(&bench.calltap).args(["detach", "-p", &pid]).stderr(Stdio::null()))?;
    record.wait()?;
    Ok(trace)
}

/// Appends the row of reading the file `trace`, beside that of replaying a trace of the same calls.
fn reading(text: &mut String, bench: &Bench, mounted: &Mounted, trace: &Path, tracer: &str) -> Result<()> {
    let speed = |command: &mut Command| -> Result<f64> {
        let start = Instant::now();
        let output = shell::output(command)?.stdout;
        let found = output.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).count();
        if found < CALLS {
            bail!("{tracer}: {found} lines instead of {CALLS}")
        }
        Ok(output.len() as f64 / start.elapsed().as_secs_f64() / 1e6)
    };
    let (mut cat, mut replay, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let ours = speed(Command::new("cat").arg(mounted.0.join("trace")))?;
        let beside = speed(Command::new(&bench.calltap).args(["replay", "-i"]).arg(trace))?;
        cat.push(ours);
        replay.push(beside);
        ratios.push(ours / beside);
    }
    writeln!(
        text,
        "| `cat trace`, {tracer}, a million calls, MB/s; `calltap replay`; ratio | {:.0}; {:.0}; {} |",
        median(cat),
        median(replay),
        at_least(median(ratios), 1.0, 2)
    )?;
    Ok(())
}

/// Appends the rows of switching all functions on and off by a filter.
fn switching(text: &mut String, bench: &Bench, mounted: &Mounted) -> Result<()> {
    let mut switched = Vec::new();
    for _ in 0..2 * bench.rounds {
        for filter in ["f*", "work"] {
            let start = Instant::now();
            mounted.echo(filter, "set_ftrace_filter")?;
            switched.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let (first, all) = (switched[0], at_most(median(switched), 100.0, 1));
    writeln!(text, "| `echo` into `set_ftrace_filter` that switches {FUNCTIONS} functions, ms | {all} |")?;
    writeln!(text, "| the first of them, which makes their stubs, ms | {first:.1} |")?;
    Ok(())
}
