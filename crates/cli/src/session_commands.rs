//! `calltap attach`, `set`, `status`, `detach`, `snapshot`: commands for a session that goes on
//! without a controller.
//!
//! If the process has a controller all the same, as while it is recorded, a command leaves its
//! request there. Otherwise the command opens the session and does its work itself.

use crate::command_line::arguments::Arguments;
use crate::command_line::keep;
use crate::command_line::processes;
use crate::command_line::select;
use crate::command_line::values;
use crate::ending::without_numbers;
use crate::many;
use crate::terminal::named_pipe;
use crate::terminal::output::Output;
use crate::terminal::progress::tell;
use crate::terminal::started;
use crate::terminal::trace_path;
use crate::terminal::units::{bytes, ms};
use anyhow::{Result, anyhow, bail};
use calltap_analysis::units;
use calltap_process::proc;
use calltap_selection::{Ftraced, ParsedSelection};
use calltap_session::{
    Answer, Attached, Discovery, Options, PlanOptions, Reports, Request, RingOptions, Status, Subject, ask,
    in_sessions, kept_size,
};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Runs one of the commands for each process that `-p` names.
pub fn run(name: &str, arguments: &Arguments) -> Result<()> {
    let pids = match (processes::all(arguments)?, name) {
        (pids, _) if !pids.is_empty() => pids,
        (_, "status") => return list(arguments),
        _ => bail!("no process named: add '-p PID' ('calltap status' lists the attached processes)"),
    };
    let is_several = pids.len() > 1;
    // The status of all processes goes to one output.
    let mut out = if name == "status" { Some(Output::create(arguments)?) } else { None };
    let mut one = |pid: u32| {
        let of = if is_several { processes::of_one(pid) } else { String::new() };
        match name {
            "attach" => attach(pid, &of, arguments),
            "set" => set(pid, &of, arguments),
            "status" => out.as_mut().map_or(Ok(()), |out| status(pid, is_several, arguments, out)),
            "snapshot" => snapshot(pid, &of, arguments),
            _ => detach(pid, &of),
        }
    };
    // A failure with one process does not keep the others from being handled, and a listed process
    // that has ended meanwhile is no error.
    let listed: Vec<(u32, bool)> = pids.into_iter().map(|pid| (pid, processes::was_there(pid))).collect();
    let (mut failed, mut done) = (None, 0);
    for (pid, was_there) in &listed {
        match one(*pid) {
            Ok(()) => done += 1,
            Err(error) if listed.len() > 1 && *was_there && many::is_of_ended(&error) => {
                tell!("calltap: {error:#}; skipped");
            }
            Err(error) => {
                failed.take().into_iter().for_each(|error: anyhow::Error| tell!("calltap: {error:#}"));
                failed = Some(processes::named_in(error, *pid, is_several));
            }
        }
    }
    if let Some(out) = out.filter(|_| done > 0) {
        out.finish()?;
    }
    if failed.is_none() && done == 0 {
        bail!("nothing to do: all named processes had ended");
    }
    failed.map_or(Ok(()), Err)
}

/// Tells notes, each with the name of this calltap's process if it is one of several.
pub fn say(notes: &[String]) {
    let of = processes::of_many();
    for note in notes {
        tell!("calltap: {of}{}", without_numbers(note));
    }
}

/// Opens the session of a process that has no controller, and tells its notes.
pub fn find(pid: u32) -> Result<Attached> {
    let attached = Attached::find(pid)?;
    say(&attached.notes);
    Ok(attached)
}

fn attach(pid: u32, of: &str, arguments: &Arguments) -> Result<()> {
    let (mut words, discovery) = (select::words(arguments)?, values::discovery(arguments));
    words.ftraced = (discovery == Discovery::FirstCall).then(Ftraced::default);
    calltap_selection::add_valued(&mut words)?;
    let subject = Subject::Process { pid, duration: None, max_overhead: None };
    let selection = ParsedSelection::new(&words, arguments.is_set("later"))?;
    let rings = RingOptions {
        buffer_size: Some(values::buffer_size(arguments)?.unwrap_or_else(|| kept_size(pid))),
        overwrite: true,
        ..RingOptions::default()
    };
    let patch_mode = values::patch_mode(arguments, false)?;
    let plan = PlanOptions { discovery, ..PlanOptions::new(selection, patch_mode) };
    let started = if of.is_empty() { started::tell } else { started::tell_of_one };
    let reports = Reports { tell, started, ..Reports::default() };
    let options = Options { rings, reports, ..Options::new(subject, plan) };
    let (attached, stops, notes) = Attached::attach(&options, pid)?;
    say(&notes);
    let status = attached.status()?;
    tell!(
        "calltap: attached to {} ({pid}): {} on; stopped for {} ({})",
        status.comm,
        units::counted(status.functions_enabled as u64, "function"),
        ms(stops.total),
        units::counted(stops.threads as u64, "thread"),
    );
    Ok(())
}

/// Returns the error for an answer of a process's controller that is not the expected one: its
/// refusal, or an answer of another version.
pub fn unexpected(pid: u32, answer: Answer) -> anyhow::Error {
    match answer {
        Answer::Refused(why) => anyhow!("{}", units::one_line(&why)),
        _ => anyhow!(
            "process {pid}: the calltap that controls it answered in an unknown way: use the version that attached"
        ),
    }
}

fn set(pid: u32, of: &str, arguments: &Arguments) -> Result<()> {
    let (given, later) = (select::words(arguments)?, arguments.is_set("later"));
    let kept = keep::kept(arguments)?;
    let on = match (arguments.is_set("on"), arguments.is_set("off")) {
        (true, true) => bail!("--on and --off exclude each other"),
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let (on, off, written, stopped, notes) =
        match ask(pid, &Request::Set { given: given.clone(), kept: kept.clone(), on, later })? {
            Some(Answer::Set { on, off, written_ns, stopped_ns, notes }) => {
                (on, off, Duration::from_nanos(written_ns), Duration::from_nanos(stopped_ns), notes)
            }
            Some(answer) => return Err(unexpected(pid, answer)),
            None => {
                let mut attached = find(pid)?;
                if !kept.is_empty() {
                    return Err(attached.refuse_kept().into());
                }
                let (tally, notes) = attached.set(given.clone(), (on, later))?;
                (tally.on, tally.off, tally.written, tally.stopped, notes)
            }
        };
    say(&notes);
    let took = |what: &str, time: Duration| match time.is_zero() {
        true => String::new(),
        false => format!("; {what} {}", units::duration(time.as_nanos() as u64)),
    };
    let (written, stopped) = (took("code written in", written), took("stopped for", stopped));
    let on = units::counted(u64::from(on), "function");
    let off = units::count(u64::from(off));
    let python: Vec<String> = given.python.iter().filter(|glob| !glob.is_empty()).cloned().collect();
    let python = started::python(&python);
    tell!("calltap: {of}{on} enabled, {off} disabled{written}{stopped}{python}");
    Ok(())
}

/// A status as JSON, with the version of its keys.
#[derive(Serialize)]
struct Versioned<'a> {
    calltap_status: u32,
    #[serde(flatten)]
    status: &'a Status,
}

/// Prints a line about each process that has a session.
fn list(arguments: &Arguments) -> Result<()> {
    proc::check()?;
    let mut out = Output::create(arguments)?;
    let is_json = arguments.format().as_deref() == Some("json");
    let mut found = 0;
    for pid in in_sessions() {
        // A session may end meanwhile. A killed calltap leaves that of a process that has ended.
        let status = match asked(pid) {
            Ok(status) => status,
            Err(_) if !proc::exists(pid) => continue,
            Err(error) => {
                tell!("calltap: {:#}", processes::named_in(error, pid, true));
                continue;
            }
        };
        found += 1;
        if is_json {
            serde_json::to_writer(&mut out, &Versioned { calltap_status: 1, status: &status })?;
            writeln!(out)?;
            continue;
        }
        let how = if status.recording { "being recorded" } else { "attached" };
        let (age, functions) =
            (units::duration(status.age_ns), units::counted(status.functions_enabled as u64, "function"));
        writeln!(out, "{:>8}  {:<16} {how} for {age}, {functions} on", status.pid, status.comm)?;
    }
    if found == 0 && !is_json {
        writeln!(out, "no process has a session")?;
    }
    out.finish()
}

/// Asks the controller of a process for its status or, where there is none, the session.
fn asked(pid: u32) -> Result<Status> {
    match ask(pid, &Request::Status)? {
        Some(Answer::Status(status)) => Ok(status),
        _ => find(pid)?.status().map_err(Into::into),
    }
}

/// Writes the status of a process. For several processes, JSON has one object per line, and a text
/// ends with an empty line.
fn status(pid: u32, is_several: bool, arguments: &Arguments, out: &mut impl Write) -> Result<()> {
    let status = asked(pid)?;
    let is_json = arguments.format().as_deref() == Some("json");
    if is_json && is_several {
        serde_json::to_writer(&mut *out, &Versioned { calltap_status: 1, status: &status })?;
    } else if is_json {
        serde_json::to_writer_pretty(&mut *out, &Versioned { calltap_status: 1, status: &status })?;
    } else {
        text(&status, out)?;
    }
    if is_json || is_several {
        writeln!(out)?;
    }
    Ok(())
}

fn text(status: &Status, out: &mut impl Write) -> Result<()> {
    let state = if status.on { "on" } else { "off" };
    let how = if status.recording { "being recorded" } else { "attached" };
    writeln!(
        out,
        "process    {} ({}), {how} for {}",
        status.pid,
        status.comm,
        units::duration(status.age_ns)
    )?;
    writeln!(
        out,
        "functions  {} enabled, {} enabled at some time; tracing is {state}",
        status.functions_enabled, status.functions_known
    )?;
    writeln!(
        out,
        "code       {} of stubs and copies; changed by the patch mode {}",
        bytes(status.code_bytes),
        status.patch_mode.name()
    )?;
    for tracer in &status.tracers {
        let list =
            |globs: &[String], none: &str| if globs.is_empty() { none.to_owned() } else { globs.join(" ") };
        let none = if status.named_only { "no function in C" } else { "every function" };
        let notrace = list(&tracer.notrace, "");
        let but = if notrace.is_empty() { notrace } else { format!(", but not {notrace}") };
        writeln!(out, "tracer     {}: {}{but}", tracer.name, list(&tracer.filter, none))?;
    }
    if !status.python.is_empty() {
        writeln!(out, "python     {}", status.python.join(" "))?;
    }
    if let Some(kept) = &status.kept {
        writeln!(out, "kept       only calls {kept}")?;
    }
    writeln!(
        out,
        "rings      {} of {} and {}",
        bytes(status.ring_bytes),
        units::counted(u64::from(status.threads), "thread"),
        units::counted(u64::from(status.processes), "process")
    )?;
    Ok(())
}

/// Writes a snapshot. With several processes each has a file, FILE.PID.
fn snapshot(pid: u32, of: &str, arguments: &Arguments) -> Result<()> {
    let attached = find(pid)?;
    let selection = ParsedSelection::new(&attached.settings.words, true)?;
    let mut output = trace_path::of(arguments)?.into_os_string();
    if !of.is_empty() {
        if arguments.names_standard_output() {
            bail!("-o -: standard output has room for one snapshot: name a file, or one process");
        }
        output.push(format!(".{pid}"));
    }
    let output = PathBuf::from(output);
    let _reader = named_pipe::with_reader(&output)?;
    let snapshot = attached.snapshot(&output, &selection)?;
    tell!(
        "calltap: {of}the last {} from {}, {} overwritten before, {} in {}",
        units::counted(snapshot.totals.events, "event"),
        units::counted(u64::from(snapshot.totals.threads), "thread"),
        units::count(snapshot.totals.lost_entries + snapshot.totals.lost_exits),
        bytes(snapshot.file_size),
        trace_path::name(&output),
    );
    if snapshot.too_fast > 0 {
        tell!(
            "calltap: {of}{} overwrote the rings faster than they could be copied: these events are not in the snapshot; a larger --buffer-size helps",
            units::counted(u64::from(snapshot.too_fast), "thread")
        );
    }
    if snapshot.replaced {
        tell!(
            "calltap: {of}process {pid} has executed another program since calltap attached: the events are those of the former one, and the names of its functions are not known"
        );
    }
    Ok(())
}

fn detach(pid: u32, of: &str) -> Result<()> {
    if let Some(Answer::Detaching) = ask(pid, &Request::Detach)? {
        tell!("calltap: {of}its recorder detached and ended");
        return Ok(());
    }
    let left = calltap_session::detach_process(pid)?;
    say(&left.notes);
    if !left.whole {
        bail!(
            "calltap could not remove all of its code from process {pid}: repeat 'calltap detach -p {pid}'"
        );
    }
    tell!("calltap: {of}detached; stopped for {}", ms(left.stops.total));
    Ok(())
}
