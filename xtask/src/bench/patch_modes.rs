//! The ways to change running code, side by side: each `--patch-mode` on `benches/patch_modes.c`,
//! which reports how long its calls were held up.

use super::{Bench, median};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The modes that change running code: name, and description.
const MODES: [(&str, &str); 4] = [
    ("stop_machine", "stop_machine"),
    ("breakpoint", "breakpoint: `int3`, operand, first byte"),
    ("jmp3f", "jmp3f: `jmp 3f` behind A9, one byte after the other"),
    ("live", "live, the default: A9, operand, first byte"),
];
/// Numbers of sites in a batch, with the filters that select them.
const SIZES: [(&str, &str); 3] = [("1", "f_00000"), ("1,000", "f_00???"), ("20,000", "f_*")];
/// Length of a pause in which nothing is changed, about as long as switching takes.
const ALONE: Duration = Duration::from_millis(50);

/// The program that calls the functions.
struct Caller {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Caller {
    fn start(program: &Path) -> Result<Caller> {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("its input")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let mut caller = Caller { child, input, lines };
        caller.line()?;
        Ok(caller)
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("the program has ended")??)
    }

    /// Returns the longest wait between two calls since the last request, in microseconds.
    fn longest(&mut self) -> Result<f64> {
        self.input.write_all(b"\n")?;
        let line = self.line()?;
        match line.split_once(' ') {
            Some((longest, "0")) => Ok(longest.parse()?),
            _ => bail!("calls went wrong: {line}"),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The measurements of one mode and size of batch, in microseconds.
#[derive(Default)]
struct Measurements {
    written: Vec<f64>,
    stopped: Vec<f64>,
    waits: Vec<f64>,
}

impl Measurements {
    fn print(&self, text: &mut String, mode: &str, sites: &str) -> Result<()> {
        let middle = |all: &[f64]| match all {
            [] => "0".to_owned(),
            all => format!("{:.0}", median(all.to_vec())),
        };
        let longest = self.waits.iter().copied().fold(0.0, f64::max);
        let (written, stopped, wait) = (middle(&self.written), middle(&self.stopped), middle(&self.waits));
        Ok(writeln!(text, "| {mode} | {sites} | {written} | {stopped} | {wait} | {longest:.0} |")?)
    }
}

/// Returns a time behind some words of a message of `calltap set`.
fn time_behind(said: &str, what: &str) -> Option<f64> {
    let rest = said.split_once(what)?.1;
    let mut words = rest.split([' ', ';', '\n']).filter(|word| !word.is_empty());
    let number: f64 = words.next()?.parse().ok()?;
    let factor = match words.next()? {
        "ns" => 1e-3,
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number * factor)
}

/// Switches the functions of a filter off and on repeatedly.
fn measure(bench: &Bench, program: &Path, mode: &str, filter: &str, rounds: usize) -> Result<Measurements> {
    let mut caller = Caller::start(program)?;
    let pid = caller.child.id().to_string();
    let calltap = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(&bench.calltap);
        let run = shell::output(command.args(arguments).args(["-p", &pid]))?;
        Ok(String::from_utf8_lossy(&run.stderr).into_owned())
    };
    calltap(&["attach", "--tracer", "function", "--patch-mode", mode, "-F", filter])?;
    let mut row = Measurements::default();
    for _ in 0..rounds {
        for turn in ["--off", "--on"] {
            caller.longest()?;
            let said = calltap(&["set", turn])?;
            row.waits.push(caller.longest()?);
            if said.contains("as by default") {
                bail!("{mode}: {said}");
            }
            row.written.push(time_behind(&said, "written in ").with_context(|| said.clone())?);
            row.stopped.extend(time_behind(&said, "stopped for "));
        }
    }
    calltap(&["detach"])?;
    Ok(row)
}

/// Returns the table.
pub fn table(bench: &Bench) -> Result<String> {
    let program = bench.place.join("patch_modes");
    let source = shell::root().join("benches/patch_modes.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fpatchable-function-entry=5", "-o"]).args([&program, &source]).arg("-lpthread");
    shell::status(&mut gcc)?;
    let rounds = if bench.quick { 2 } else { 50 };
    let times = 2 * rounds;
    let mut text = format!(
        "### Patch modes\n\n\
         `calltap set --off` or `--on`, {times} times in each mode, of functions that a thread calls all the time. \
         Microseconds. What a caller waits for when nothing is changed is the machine's other work.\n\n\
         | mode | sites | written in | nothing runs for | a caller waits: median | longest |\n\
         |---|--:|--:|--:|--:|--:|\n\
         | the kernel's stop_machine, 2008 | | | 800 | | |\n"
    );
    let mut caller = Caller::start(&program)?;
    let mut alone = Measurements::default();
    for _ in 0..times {
        caller.longest()?;
        thread::sleep(ALONE);
        alone.waits.push(caller.longest()?);
    }
    drop(caller);
    alone.print(&mut text, "nothing is changed, for 50 ms", "")?;
    for (mode, name) in MODES {
        for (sites, filter) in SIZES {
            measure(bench, &program, mode, filter, rounds)?.print(&mut text, name, sites)?;
        }
    }
    writeln!(text, "| before-start: `record -- PROGRAM` | any | | 0 | 0 | 0 |")?;
    Ok(text)
}
