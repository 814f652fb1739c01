//! `cargo xtask server`: nginx under load, while calltap attaches to its workers, switches
//! functions, and detaches.
//!
//! Requests per second and latency are for information. The command fails if a request fails, an
//! answer changes, a worker ends, or text differs from that of the file afterwards.

mod load;
mod nginx;

use crate::bench::median;
use crate::{programs, shell};
use anyhow::{Context, Result, bail};
use load::{Checker, Load, load};
use nginx::Server;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The operations on every worker in one phase.
enum Meanwhile {
    Nothing,
    /// A single attach session, as long as the phase.
    Attach(&'static [&'static str]),
    /// A session with these flags, in which these commands are repeated.
    Attached(&'static [&'static str], &'static [&'static [&'static str]]),
    /// Repeated attach sessions.
    AttachAgain(&'static [&'static str]),
}

const GLOBS: &[&[&str]] = &[
    &["set", "-F", "ngx_http_*"],
    &["set", "-F", "*"],
    &["set", "-F", "ngx_event_*"],
    &["set", "-F", "*_filter"],
];
const TOGGLE: &[&[&str]] = &[&["set", "--off"], &["set", "--on"]];
const SHORT: &[&str] = &["record", "-q", "--duration", "50ms", "-o", "/dev/null"];
const STOPPED: &[&str] =
    &["record", "-q", "--duration", "50ms", "-o", "/dev/null", "--patch-mode", "stop_machine"];

const PHASES: [(&str, Meanwhile); 10] = [
    ("before", Meanwhile::Nothing),
    ("`record -p --max-overhead 5%`", Meanwhile::Attach(&["record", "-q", "-o", "/dev/null"])),
    ("`attach -F 'ngx_http_*'` (flight recorder)", Meanwhile::Attached(&["-F", "ngx_http_*"], &[])),
    ("`attach`, all functions on", Meanwhile::Attached(&[], &[])),
    ("`attach`, then `set --off`, `--on`, again and again", Meanwhile::Attached(&[], TOGGLE)),
    ("`attach`, then `set -F` with other globs, again and again", Meanwhile::Attached(&[], GLOBS)),
    ("`record -p --duration 50ms`, again and again", Meanwhile::AttachAgain(SHORT)),
    ("the same with `--patch-mode stop_machine`", Meanwhile::AttachAgain(STOPPED)),
    (
        "`attach --patch-mode stop_machine`, then `set --off`, `--on`, again and again",
        Meanwhile::Attached(&["--patch-mode", "stop_machine"], TOGGLE),
    ),
    ("after", Meanwhile::Nothing),
];

/// Runs all phases in turns, and prints a table.
pub fn run(quick: bool) -> Result<()> {
    if !shell::have("wrk") {
        bail!("no wrk here (apt-get install wrk): it makes the load");
    }
    let (rounds, seconds) = if quick { (1, 2) } else { (4, 7) };
    let calltap = shell::build_calltap()?;
    let place = shell::target().join("server");
    fs::create_dir_all(&place)?;
    let server = Server::start(&programs::nginx()?, &place)?;
    let workers = server.workers()?;
    let before = workers.iter().map(|worker| nginx::state(*worker)).collect::<Result<Vec<_>>>()?;
    let mut results: Vec<Vec<(Load, usize)>> = PHASES.iter().map(|_| Vec::new()).collect();
    let (mut requests, mut compared, mut failures) = (0, 0, Vec::new());
    println!("load at the start {}", loadavg());
    for round in 1..=rounds {
        for ((name, how), results) in PHASES.iter().zip(&mut results) {
            let checker = Checker::start();
            let (got, count) = phase(&calltap, &workers, how, || load(&place, seconds))
                .with_context(|| (*name).to_owned())?;
            let (answers, wrong) = checker.end();
            eprintln!("{round}: {name}: {:.0} requests/s, {count} commands, load {}", got.rate, loadavg());
            let mut failed = |what: String| failures.push(format!("{name}, round {round}: {what}"));
            if got.failed > 0 {
                failed(format!("{} requests failed", got.failed));
            }
            wrong.into_iter().for_each(&mut failed);
            if server.workers()? != workers {
                bail!("{name}: the workers are no longer the same");
            }
            for (worker, before) in workers.iter().zip(&before) {
                nginx::changed_text(*worker)?.into_iter().for_each(&mut failed);
                if nginx::state(*worker)? != *before {
                    failed(format!("{:?} where there was {before:?}", nginx::state(*worker)?));
                }
            }
            requests += got.requests;
            compared += answers;
            results.push((got, count));
        }
    }
    println!("load at the end {}\n", loadavg());
    println!("| | requests/s | p50 | p99 | worst | failed |\n|---|--:|--:|--:|--:|--:|");
    for ((name, how), all) in PHASES.iter().zip(&results) {
        let of = |what: fn(&Load) -> f64| median(all.iter().map(|(load, _)| what(load)).collect());
        let worst = all.iter().map(|(load, _)| load.worst).fold(0.0, f64::max);
        let failed: u64 = all.iter().map(|(load, _)| load.failed).sum();
        let count: usize = all.iter().map(|(_, count)| count).sum();
        let count = match how {
            Meanwhile::Attached(_, []) | Meanwhile::Nothing | Meanwhile::Attach(_) => String::new(),
            _ => format!(" ({count} in {} s, in each of two workers)", rounds * seconds),
        };
        println!(
            "| {name}{count} | {:.0} | {:.2} | {:.1} | {worst:.1} | {failed} |",
            of(|load| load.rate),
            of(|load| load.p50),
            of(|load| load.p99)
        );
    }
    println!("\n{requests} requests, and {compared} more whose answers were compared.");
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// Runs one phase. Returns its load, and the number of commands run in each worker.
fn phase(
    calltap: &Path,
    workers: &[u32],
    how: &Meanwhile,
    load: impl FnOnce() -> Result<Load>,
) -> Result<(Load, usize)> {
    let again = |commands: &[&[&str]], load: &mut dyn FnMut() -> Result<Load>| {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    all(calltap, workers, commands[count % commands.len()])?;
                    count += 1;
                }
                Ok::<usize, anyhow::Error>(count)
            });
            let got = load();
            over.store(true, Ordering::Relaxed);
            let count = others.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            Ok((got?, count))
        })
    };
    let mut load = Some(load);
    let mut load = move || load.take().context("once")?();
    match how {
        Meanwhile::Nothing => Ok((load()?, 0)),
        Meanwhile::AttachAgain(words) => again(&[words], &mut load),
        Meanwhile::Attach(words) => {
            let mut sessions =
                workers.iter().map(|worker| start(calltap, *worker, words)).collect::<Result<Vec<_>>>()?;
            thread::sleep(Duration::from_millis(700));
            let got = load();
            for session in &mut sessions {
                shell::output(Command::new("kill").args(["-TERM", &session.id().to_string()]))?;
            }
            for mut session in sessions {
                session.wait()?;
            }
            Ok((got?, 1))
        }
        Meanwhile::Attached(flags, commands) => {
            all(calltap, workers, &[&["attach"], *flags].concat())?;
            let got =
                if commands.is_empty() { load().map(|got| (got, 0)) } else { again(commands, &mut load) };
            all(calltap, workers, &["detach"])?;
            got
        }
    }
}

/// Runs the same command for every worker, at the same time.
fn all(calltap: &Path, workers: &[u32], words: &[&str]) -> Result<()> {
    let started = workers.iter().map(|worker| start(calltap, *worker, words)).collect::<Result<Vec<_>>>()?;
    for child in started {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("calltap {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

fn start(calltap: &Path, worker: u32, words: &[&str]) -> Result<Child> {
    let mut command = Command::new(calltap);
    command.args(words).args(["-p", &worker.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().with_context(|| shell::line(&command))
}

fn loadavg() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Writes a file of the server's directory.
fn file(place: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = place.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}
