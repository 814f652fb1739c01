//! `calltap view`: a recording, or a running process, as a page in a browser.

mod api;
mod connections;
mod save;
mod server;
mod subject;

use crate::command_line::arguments::Arguments;
use crate::command_line::keep;
use crate::command_line::values;
use crate::seen::Seen;
use crate::terminal::progress::Progress;
use crate::terminal::units::bytes;
use crate::top;
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::explore::Explorer;
use calltap_analysis::timeline::Limits;
use calltap_trace::TraceReader;
use server::Server;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;
use subject::{File, Process};

/// Between two looks whether it is time to go.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves the page until the user ends it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let port: u16 = arguments.number("port")?.unwrap_or(0);
    let pid: Option<u32> = crate::command_line::processes::one(arguments)?;
    if let Some(page) = arguments.path("save") {
        return match pid {
            None => save(&arguments.shown().unwrap_or_else(|| "calltap.data".into()), &page),
            Some(pid) => bail!("--save is of a trace: 'calltap record -p {pid}' makes one"),
        };
    }
    match (arguments.shown(), pid) {
        (Some(_), Some(_)) => bail!("a trace, or a process with -p: not both"),
        (_, None) if keep::subtree(arguments)?.is_some() => bail!("{}", keep::OF_PROCESS),
        (path, None) => file(path.unwrap_or_else(|| "calltap.data".into()), port),
        (None, Some(pid)) => process(pid, port, arguments),
    }
}

fn file(path: PathBuf, port: u16) -> Result<()> {
    let reader = TraceReader::open(&path)?;
    for complaint in reader.complaints() {
        eprintln!("calltap: {complaint}");
    }
    // Before the events are read: a port that cannot be bound needs no answers.
    let server = Server::new(port)?;
    let over = end_flag()?;
    let subject = Arc::new(File::new(path, reader.event_count()));
    // Not within a scope: calltap ends when it is told to, whatever is still to be read.
    let reading = {
        let subject = Arc::clone(&subject);
        thread::spawn(move || read(&subject, reader))
    };
    server.announce()?;
    server.serve(&*subject, || {
        while !over.load(Acquire) && (!reading.is_finished() || subject.is_read()) {
            thread::sleep(PAUSE);
        }
    });
    if reading.is_finished() && !subject.is_read() {
        return reading.join().map_err(|_| anyhow!("reading the events failed"))?;
    }
    Ok(())
}

/// Writes the page of a trace into a file, which needs no calltap.
fn save(path: &Path, page: &Path) -> Result<()> {
    let reader = TraceReader::open(path)?;
    let mut progress = Progress::new(reader.event_count());
    let explorer = Explorer::new(reader, Limits::default(), Some(&mut |done| progress.set(done)))?;
    progress.finish();
    let saved = save::page(&explorer, &path.display().to_string())?;
    std::fs::write(page, &saved.text).with_context(|| page.display().to_string())?;
    eprintln!("calltap: {} in {}. {}", bytes(saved.text.len() as u64), page.display(), saved.note);
    Ok(())
}

/// Reads all events, while the page is served already.
fn read(subject: &File, reader: TraceReader) -> Result<()> {
    let mut progress = Progress::new(reader.event_count());
    let explorer = Explorer::new(
        reader,
        Limits::default(),
        Some(&mut |done| {
            progress.set(done);
            subject.has_read(done);
        }),
    );
    progress.finish();
    subject.complete(explorer?);
    Ok(())
}

fn process(pid: u32, port: u16, arguments: &Arguments) -> Result<()> {
    let interval = top::interval(arguments)?;
    let idle = arguments.text("idle").unwrap_or_default();
    let idle = if idle == "none" { None } else { Some(values::time(&idle)?) };
    let options = top::options(pid, arguments)?;
    let server = Server::new(port)?;
    // From the beginning: a signal may come right behind the end of the process.
    let over = end_flag()?;
    let seen = Seen::new(pid);
    let ended = AtomicBool::new(false);
    let subject = Process { seen: &seen, ended: &ended, pid };
    let (outcome, shown) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let outcome = seen.watch(&options, interval);
            ended.store(true, Release);
            outcome.inspect(top::say)
        });
        // Whatever happens here, also a panic: the process is let go.
        let leave = seen.switches.end_on_drop();
        while seen.intervals() == 0 && !watching.is_finished() {
            thread::sleep(PAUSE);
        }
        if seen.intervals() == 0 {
            return (watching.join(), Ok(()));
        }
        let shown = server.announce();
        // One server until the end: a request that arrives while the process ends is answered.
        let outcome = server.serve(&subject, || {
            while shown.is_ok() && !watching.is_finished() && !server.is_forgotten(idle) {
                thread::sleep(PAUSE);
            }
            drop(leave);
            let outcome = watching.join();
            let has_ended = matches!(&outcome, Ok(Ok(outcome)) if outcome.ended);
            // What a process did last can still be looked at.
            if has_ended && shown.is_ok() {
                eprintln!("calltap: the process has ended; what was seen of it last stays until Ctrl-C");
                while !over.load(Acquire) && !server.is_forgotten(idle) {
                    thread::sleep(PAUSE);
                }
            }
            outcome
        });
        (outcome, shown)
    });
    outcome.map_err(|_| anyhow!("watching process {pid} failed"))??;
    shown
}

/// Set when calltap is told to end.
fn end_flag() -> Result<Arc<AtomicBool>> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, over.clone())?;
    }
    Ok(over)
}

/// Says something to the process that started calltap, if there is one.
fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot say where the page is")
}
