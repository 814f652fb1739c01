//! `calltap view`: shows a recording, or a running process, as a page in a browser.
//!
//! The server delivers the page's files, and passes the page's questions to a subject. The subject
//! of a recording reads the events while the page is served already; that of a process watches it
//! in a thread of its own.

mod api;
mod browser;
mod compare;
mod connections;
mod functions;
mod save;
mod server;
pub mod source;
mod subject;

use crate::command_line::arguments::{Arguments, is_standard};
use crate::command_line::table::LOOKING;
use crate::command_line::values;
use crate::input;
use crate::observed::ObservedProcess;
use crate::terminal::output::Output;
use crate::terminal::progress::Progress;
use crate::terminal::units::bytes;
use crate::top::{self, several, several::Watching};
use anyhow::{Context, Result, anyhow, bail};
use calltap_analysis::explore::{Base, Explorer};
use calltap_analysis::timeline::Limits;
use calltap_trace::TraceReader;
use compare::Compared;
use server::Server;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;
use subject::{File, Process};

/// Interval between two looks whether the server is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the page until the user ends it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let port: u16 = arguments.number("port")?.unwrap_or(0);
    let pids = crate::command_line::processes::all(arguments)?;
    if let Some(page) = arguments.path("save") {
        if arguments.is_given("port") {
            bail!("--port and --save exclude each other: a saved page needs no server");
        }
        return match pids.first() {
            None => save(&trace(arguments)?, &page, arguments),
            Some(pid) => bail!("--save needs a trace: 'calltap record -p {pid}' makes one"),
        };
    }
    if let (Some(pid), Some(_)) = (pids.first(), arguments.path("base")) {
        bail!("--base compares traces: 'calltap record -p {pid}' makes one");
    }
    match (arguments.shown(), &pids[..]) {
        (Some(_), [_, ..]) => bail!("a trace and '-p PID' exclude each other: name one of them"),
        (_, []) => file(trace(arguments)?, port, arguments),
        (None, pids) => all_of(pids, port, arguments),
    }
}

/// Returns the trace to show. Flags of the recording would have no effect on it.
fn trace(arguments: &Arguments) -> Result<PathBuf> {
    let path = arguments.shown().unwrap_or_else(|| "calltap.data".into());
    arguments.refuse_with_trace(LOOKING, &path)?;
    if arguments.is_given("idle") {
        bail!(
            "{}: --idle needs '-p PID': a trace needs no tracing that could be switched off",
            path.display()
        );
    }
    Ok(path)
}

fn file(path: PathBuf, port: u16, arguments: &Arguments) -> Result<()> {
    let reader = input::open(&path)?;
    let base = open_base(arguments)?;
    let events = reader.event_count() + base.as_ref().map_or(0, |(_, base)| base.event_count());
    // The port is bound before the events are read, so that an error appears at once.
    let server = Server::new(port)?;
    let over = end_flag()?;
    let subject = Arc::new(File::new(path, events));
    // A scope would wait for this thread: calltap ends when it is told to, even if events are still
    // to be read.
    let reading = {
        let subject = Arc::clone(&subject);
        thread::spawn(move || read(&subject, reader, base, events))
    };
    server.announce(arguments)?;
    server.serve(&*subject, || {
        while !over.load(Acquire) && (!reading.is_finished() || subject.is_read()) {
            thread::sleep(LOOK_INTERVAL);
        }
    });
    if reading.is_finished() && !subject.is_read() {
        return reading
            .join()
            .map_err(|_| anyhow!("the thread that reads the events failed: this is a bug of calltap"))?;
    }
    Ok(())
}

/// Writes the page of a trace into a file, which can be viewed without calltap.
fn save(path: &Path, page: &Path, arguments: &Arguments) -> Result<()> {
    let reader = input::open(path)?;
    let base = open_base(arguments)?;
    let mut progress = Progress::new(reader.event_count());
    let explorer = Explorer::new(reader, Limits::default(), Some(&mut |done| progress.set(done)))?;
    progress.finish();
    let base = base.map(|(title, base)| compared(title, base, &explorer, &mut |_| {})).transpose()?;
    let saved = save::page(&explorer, base.as_ref(), &path.display().to_string())?;
    let name = if is_standard(page) { "standard output".to_owned() } else { page.display().to_string() };
    let written = || -> Result<()> {
        if is_standard(page) {
            return Ok(io::stdout().write_all(saved.text.as_bytes())?);
        }
        let mut out = Output::at(page.to_owned())?;
        out.write_all(saved.text.as_bytes())?;
        out.finish()
    };
    written().with_context(|| name.clone())?;
    tell!("calltap: {} in {name}. {}", bytes(saved.text.len() as u64), saved.note);
    Ok(())
}

/// Opens the trace of `--base`.
fn open_base(arguments: &Arguments) -> Result<Option<(String, TraceReader)>> {
    let Some(path) = arguments.path("base") else { return Ok(None) };
    let (reader, title) = (input::open(&path)?, path.display().to_string());
    Ok(Some((title, reader)))
}

/// Reads the events of a base.
fn compared(
    title: String,
    base: TraceReader,
    explorer: &Explorer<TraceReader>,
    progress: &mut dyn FnMut(u64),
) -> Result<Compared> {
    Ok(Compared { title, base: Base::new(base, explorer, Some(progress))? })
}

/// Reads all events, while the page is served already.
fn read(subject: &File, reader: TraceReader, base: Option<(String, TraceReader)>, events: u64) -> Result<()> {
    let own = reader.event_count();
    let mut progress = Progress::new(events);
    let explorer = Explorer::new(
        reader,
        Limits::default(),
        Some(&mut |done| {
            progress.set(done);
            subject.has_read(done);
        }),
    );
    let explorer = explorer?;
    let mut has_read = |done| {
        progress.set(own + done);
        subject.has_read(own + done);
    };
    let base = base.map(|(title, base)| compared(title, base, &explorer, &mut has_read)).transpose()?;
    progress.finish();
    subject.complete(explorer, base);
    Ok(())
}

fn all_of(pids: &[u32], port: u16, arguments: &Arguments) -> Result<()> {
    let interval = top::interval(arguments)?;
    let idle = arguments.text("idle").unwrap_or_default();
    let idle = if idle == "none" { None } else { values::time_of(arguments, "idle")? };
    let all = Watching::new(pids, arguments)?;
    let server = Server::new(port)?;
    // The flag is set up first: a signal may arrive right after the end of the process.
    let over = end_flag()?;
    let one =
        |pid: &u32| Process { seen: ObservedProcess::new(*pid), ended: AtomicBool::new(false), pid: *pid };
    let subjects: Vec<Process> = pids.iter().map(one).collect();
    let (shown, result) = thread::scope(|scope| {
        let watch = |(one, subject): (&'_ Watching, &'_ Process)| {
            let outcome = subject.seen.watch(&one.options, interval);
            subject.ended.store(true, Release);
            outcome
        };
        let watching: Vec<_> =
            all.iter().zip(&subjects).map(|pair| scope.spawn(move || watch(pair))).collect();
        // The processes are detached from whatever happens here, even a panic.
        let leave: Vec<_> = subjects.iter().map(|subject| subject.seen.switches.end_on_drop()).collect();
        let has_begun = |subject: &Process| subject.seen.intervals() > 0;
        let is_waited_for = |subject: &Process| !has_begun(subject) && !subject.ended.load(Acquire);
        while subjects.iter().any(is_waited_for) {
            thread::sleep(LOOK_INTERVAL);
        }
        let join = || {
            let joined = watching.into_iter().map(|thread| thread.join()).collect();
            several::tell(&all, joined)
        };
        if !subjects.iter().any(has_begun) {
            drop(leave);
            return (Ok(()), join().1);
        }
        let shown = server.announce(arguments);
        // A single server runs until the end, so that a request that arrives while a process ends
        // is answered.
        let result = server.serve(&subjects, || {
            let runs = |subject: &Process| !subject.ended.load(Acquire);
            while shown.is_ok() && subjects.iter().any(runs) && !server.is_forgotten(idle) {
                thread::sleep(LOOK_INTERVAL);
            }
            drop(leave);
            let (outcomes, result) = join();
            let has_ended = outcomes.iter().flatten().all(|outcome| outcome.ended);
            // The last events of an ended process remain visible.
            if has_ended && shown.is_ok() && outcomes.iter().any(Option::is_some) {
                let what = if pids.len() > 1 {
                    "all processes have ended; the page with their calls"
                } else {
                    "the process has ended; the page with its calls"
                };
                tell!("calltap: {what} stays until Ctrl-C");
                while !over.load(Acquire) && !server.is_forgotten(idle) {
                    thread::sleep(LOOK_INTERVAL);
                }
            }
            result
        });
        (shown, result)
    });
    result?;
    shown
}

/// Returns a flag that is set when calltap is told to end.
fn end_flag() -> Result<Arc<AtomicBool>> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, over.clone())?;
    }
    Ok(over)
}

/// Writes a line to standard output, for the process that started calltap.
fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot print the address of the page")
}
