//! Functions that were not built for tracing: calltap beside other tracers, in one interleaved run.

use super::Bench;
use super::measure::median;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::env;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which each subject is measured in a round.
const WINDOW: Duration = Duration::from_millis(400);
/// Limit in seconds for a tracer to attach and detach.
const TIME_LIMIT: &str = "60";
/// Milliseconds above which a tracer is not tried with more functions.
const SLOW: f64 = 10_000.0;
/// Numbers of functions, with a glob and a regular expression for them.
const COUNTS: [(&str, &str, &str); 3] =
    [("1", "f_00000", "^f_00000$"), ("1,000", "f_00*", "^f_00"), ("20,000", "f_*", "^f_")];

/// A tracer.
#[derive(Clone, Copy, PartialEq)]
enum Tracer {
    None,
    Calltap(&'static str),
    /// calltap's flight recorder.
    Flight,
    Left,
    Uprobes,
    Frida,
    Uftrace,
}

/// The room that the compiler left for tracing.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Nothing,
    Nops,
    Sleds,
}

/// The subjects: tracer, build, and name.
const SUBJECTS: [(Tracer, Build, &str); 11] = [
    (Tracer::None, Build::Nothing, "alone"),
    (Tracer::Calltap("function_graph"), Build::Nothing, "**calltap, function_graph**"),
    (Tracer::Calltap("function"), Build::Nothing, "**calltap, function**"),
    (Tracer::Calltap("profile"), Build::Nothing, "**calltap, profile**"),
    (Tracer::Flight, Build::Nothing, "**calltap, attach (flight recorder)**"),
    (Tracer::Left, Build::Nothing, "**after calltap has detached**"),
    (Tracer::Calltap("function_graph"), Build::Nops, "calltap, function_graph, NOPs left by the compiler"),
    (Tracer::Calltap("function_graph"), Build::Sleds, "calltap, function_graph, sleds of XRay"),
    (Tracer::Uprobes, Build::Nothing, "uprobes, entry and return (bpftrace, a counter)"),
    (Tracer::Frida, Build::Nothing, "Frida's Interceptor, entry and return (in C, a counter)"),
    (Tracer::Uftrace, Build::Nothing, "uftrace -P (from the program's start)"),
];

/// Returns the tables.
pub fn table(bench: &Bench) -> Result<String> {
    let programs = Programs::build(bench)?;
    let is_there = |(tracer, build, _): &(Tracer, Build, &str)| tracer.is_there() && build.is_there();
    let there: Vec<_> = SUBJECTS.into_iter().filter(is_there).collect();
    let mut costs: Vec<Vec<f64>> = there.iter().map(|_| Vec::new()).collect();
    for round in 1..=bench.rounds {
        eprintln!("round {round} of {}", bench.rounds);
        for ((tracer, build, name), costs) in there.iter().zip(&mut costs) {
            costs.push(cost(bench, *tracer, programs.path(*build)).with_context(|| (*name).to_owned())?);
        }
    }
    let alone = median(costs[0].clone());
    let mut text = "### Unmodified functions, and what one would take instead\n\n\
         Nanoseconds that a call of one function costs a running program's thread more than alone (its processor time, in the kernel too).\n\n\
         | tracer | added ns per call | of calltap's function_graph |\n|---|--:|--:|\n"
        .to_owned();
    let added: Vec<f64> = costs.iter().map(|costs| median(costs.clone()) - alone).collect();
    for ((_, _, name), added_here) in there.iter().zip(&added).skip(1) {
        // A negative difference is noise.
        let added_here = added_here.max(0.0);
        writeln!(text, "| {name} | {added_here:.1} | {:.2} |", added_here / added[1])?;
    }
    writeln!(
        text,
        "\nMilliseconds to come into a running program of 20,002 functions, have so many traced, and leave it as it was.\n\n\
         | tracer | {} |\n|---|{}|",
        COUNTS.map(|(count, ..)| count).join(" | "),
        COUNTS.map(|_| "--:").join("|")
    )?;
    for (tracer, name) in [
        (Tracer::Calltap(""), "**calltap**"),
        (Tracer::Uprobes, "uprobes (bpftrace)"),
        (Tracer::Frida, "Frida's Interceptor"),
    ] {
        if !tracer.is_there() {
            writeln!(text, "| {name} | not here | | |")?;
            continue;
        }
        let mut cells = Vec::new();
        let mut slow = false;
        for (_, glob, expression) in COUNTS {
            // Removing uprobes takes the kernel as long again, and cannot be interrupted.
            if slow {
                cells.push("not tried".to_owned());
                continue;
            }
            let mut times = Some(Vec::new());
            for _ in 0..bench.rounds.min(3) {
                let took = attach(bench, tracer, programs.path(Build::Nothing), glob, expression)?;
                times = times.zip(took).map(|(times, took)| [times, vec![took]].concat());
                // A tracer that takes too long is not run again.
                if times.as_ref().is_none_or(|times| times.iter().any(|time| *time > SLOW)) {
                    break;
                }
            }
            slow = times.as_ref().is_none_or(|times| times.iter().any(|time| *time > SLOW));
            cells.push(times.map_or(format!("over {TIME_LIMIT} s"), |times| format!("{:.0}", median(times))));
        }
        writeln!(text, "| {name} | {} |", cells.join(" | "))?;
    }
    for (_, _, name) in SUBJECTS.iter().filter(|subject| !is_there(subject)) {
        writeln!(text, "\nNot measured, as it was not there: {name}.")?;
    }
    Ok(text)
}

impl Tracer {
    fn is_there(self) -> bool {
        match self {
            Tracer::Uprobes => shell::have("bpftrace"),
            Tracer::Frida => frida().is_some(),
            Tracer::Uftrace => shell::have("uftrace"),
            Tracer::None | Tracer::Calltap(_) | Tracer::Flight | Tracer::Left => true,
        }
    }
}

impl Build {
    fn is_there(self) -> bool {
        self != Build::Sleds || shell::have(CLANG)
    }
}

const CLANG: &str = "clang-16";

/// Returns the Python interpreter with Frida's module: `pip install frida==16.5.9`.
fn frida() -> Option<PathBuf> {
    env::var_os("CALLTAP_FRIDA").map(PathBuf::from)
}

struct Programs {
    bare: PathBuf,
    nops: PathBuf,
    sleds: PathBuf,
}

impl Programs {
    fn build(bench: &Bench) -> Result<Programs> {
        let source = shell::root().join("benches/unmodified.c");
        let build = |name: &str, compiler: &str, flags: &[&str]| -> Result<PathBuf> {
            let program = bench.place.join(name);
            let mut command = Command::new(compiler);
            shell::status(command.arg("-O2").args(flags).arg("-o").args([&program, &source]))?;
            Ok(program)
        };
        let bare = build("unmodified", "gcc", &["-fpatchable-function-entry=0"])?;
        let nops = build("unmodified-nops", "gcc", &["-fpatchable-function-entry=5"])?;
        let xray = ["-fxray-instrument", "-fxray-instruction-threshold=1", "-fnoxray-link-deps"];
        let sleds =
            if Build::Sleds.is_there() { build("unmodified-sleds", CLANG, &xray)? } else { PathBuf::new() };
        Ok(Programs { bare, nops, sleds })
    }

    fn path(&self, build: Build) -> &Path {
        match build {
            Build::Nothing => &self.bare,
            Build::Nops => &self.nops,
            Build::Sleds => &self.sleds,
        }
    }
}

/// The running program.
struct Running {
    child: Child,
    costs: Receiver<f64>,
}

impl Running {
    fn start(program: &Path) -> Result<Running> {
        let mut child = Command::new(program).stdout(Stdio::piped()).spawn()?;
        let (send, costs) = channel();
        let output = child.stdout.take().context("its output")?;
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line.parse().is_ok_and(|cost| send.send(cost).is_err()) {
                    break;
                }
            }
        });
        let running = Running { child, costs };
        running.costs.recv().context("it says nothing")?;
        Ok(running)
    }

    /// Measures the present cost of a call.
    fn cost(&self) -> Result<f64> {
        self.costs.try_iter().for_each(drop);
        // A round of calls may have begun earlier.
        self.costs.recv()?;
        thread::sleep(WINDOW);
        let costs: Vec<f64> = std::iter::once(self.costs.recv()?).chain(self.costs.try_iter()).collect();
        Ok(median(costs))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures the cost of a call of `leaf`.
fn cost(bench: &Bench, tracer: Tracer, program: &Path) -> Result<f64> {
    if tracer == Tracer::Uftrace {
        let mut uftrace = Command::new("uftrace");
        uftrace
            .args(["record", "-P", "^leaf$", "--no-libcall", "-d"])
            .arg(bench.place.join("unmodified.data"));
        let output = shell::output(uftrace.arg(program).arg("100"))?;
        let lines = String::from_utf8(output.stdout)?;
        return Ok(median(lines.lines().filter_map(|line| line.parse().ok()).collect()));
    }
    let running = Running::start(program)?;
    let pid = running.child.id().to_string();
    let mut calltap = Command::new(&bench.calltap);
    calltap.args(["record", "-q", "-p", &pid, "-F", "leaf", "--max-overhead", "none", "-o", "/dev/null"]);
    let mut command = match tracer {
        Tracer::None | Tracer::Uftrace => return running.cost(),
        Tracer::Left => {
            shell::output(calltap.args(["--duration", "100ms"]))?;
            return running.cost();
        }
        Tracer::Flight => {
            let own =
                |words: &[&str]| shell::output(Command::new(&bench.calltap).args(words).args(["-p", &pid]));
            own(&["attach", "-F", "leaf"])?;
            let cost = running.cost();
            own(&["detach"])?;
            return cost;
        }
        Tracer::Calltap(kind) => {
            calltap.args(["--tracer", kind, "--duration", "1s"]);
            calltap
        }
        Tracer::Uprobes => {
            let mut bpftrace = bpftrace(program, "leaf");
            bpftrace.args(["-p", &pid]);
            bpftrace
        }
        Tracer::Frida => frida_visit(&pid, "^leaf$", "1")?,
    };
    let before = running.cost()?;
    let mut visitor = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Every tracer adds more than this: the threshold tells when tracing has begun.
    let begin = Instant::now();
    loop {
        let now = running.costs.recv()?;
        if now > before * 1.5 + 3.0 {
            break;
        }
        if begin.elapsed() > Duration::from_secs(30) {
            bail!("{} has no effect", shell::line(&command));
        }
    }
    let cost = running.cost();
    visitor.wait()?;
    cost
}

/// Returns a command that counts entries and returns for a second.
fn bpftrace(program: &Path, glob: &str) -> Command {
    let path = program.display();
    let script = format!(
        "uprobe:{path}:{glob} {{ @entries = count(); }} uretprobe:{path}:{glob} {{ @returns = count(); }} interval:s:1 {{ exit(); }}"
    );
    let mut command = Command::new("timeout");
    command.args([TIME_LIMIT, "bpftrace", "-e", &script]).env("BPFTRACE_MAX_PROBES", "50000");
    command
}

fn frida_visit(pid: &str, expression: &str, seconds: &str) -> Result<Command> {
    let mut command = Command::new("timeout");
    command.arg(TIME_LIMIT).arg(frida().context("no Frida here")?);
    command.arg(shell::root().join("benches/unmodified.py")).args([pid, expression, seconds]);
    Ok(command)
}

/// Returns the milliseconds that attaching, tracing these functions and detaching take; `None` if
/// they exceed the limit.
fn attach(
    bench: &Bench,
    tracer: Tracer,
    program: &Path,
    glob: &str,
    expression: &str,
) -> Result<Option<f64>> {
    let running = Running::start(program)?;
    let pid = running.child.id().to_string();
    let (mut command, idle) = match tracer {
        Tracer::Uprobes => (bpftrace(program, glob), 1000.0),
        Tracer::Frida => (frida_visit(&pid, expression, "0")?, 0.0),
        _ => {
            let mut calltap = Command::new(&bench.calltap);
            calltap.args(["record", "-q", "-p", &pid, "-F", glob, "--duration", "1ms", "-o", "/dev/null"]);
            (calltap, 1.0)
        }
    };
    let begin = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let took = begin.elapsed().as_secs_f64() * 1e3 - idle;
    match status.code() {
        Some(0) => Ok(Some(took)),
        Some(124) => Ok(None),
        _ => bail!("{}: {status}", shell::line(&command)),
    }
}
