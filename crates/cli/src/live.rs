//! `calltap attach`, `set`, `status`, `detach`, `snapshot`: a running process with nobody at it.

use crate::arguments::Arguments;
use crate::output::Output;
use crate::record::{bytes, ms};
use crate::select::Selection;
use crate::values;
use anyhow::{Context, Result, bail};
use calltap_analysis::units;
use calltap_session::{Attached, Clock, Options, Status, Subject, Words};
use std::io::Write;
use std::time::Duration;

/// Runs one of them.
pub fn run(name: &str, arguments: &Arguments) -> Result<()> {
    let pid: u32 = arguments.number("pid")?.context("which process: '-p PID'")?;
    match name {
        "attach" => attach(pid, arguments),
        "set" => set(pid, arguments),
        "status" => status(pid, arguments),
        "snapshot" => snapshot(pid, arguments),
        _ => detach(pid),
    }
}

fn words(arguments: &Arguments) -> Words {
    Words {
        tracers: arguments.texts("tracer"),
        filter: arguments.texts("filter"),
        notrace: arguments.texts("notrace"),
    }
}

fn selection(words: &Words, later: bool) -> Result<Selection> {
    Selection::new(&words.tracers, &words.filter, &words.notrace, later)
}

fn say(notes: &[String]) {
    for note in notes {
        eprintln!("calltap: {note}");
    }
}

fn attach(pid: u32, arguments: &Arguments) -> Result<()> {
    let words = words(arguments);
    let selection = selection(&words, arguments.is_set("later"))?;
    let options = Options {
        subject: Subject::Process { pid, duration: None, max_overhead: None },
        output: Default::default(),
        tracers: selection.tracers().to_vec(),
        selector: &selection,
        clock: Clock::Tsc,
        buffer_size: values::size(&arguments.text("buffer-size").unwrap_or_default())?,
        overwrite: true,
        wait: Duration::ZERO,
        patch_mode: values::patch_mode(arguments),
        version: env!("CARGO_PKG_VERSION"),
    };
    let (attached, stops, notes) = Attached::attach(&options, pid, words)?;
    say(&notes);
    let status = attached.status()?;
    eprintln!(
        "calltap: attached to {} ({pid}): {} on; stopped for {} ({})",
        status.name,
        units::counted(status.sites_on as u64, "function"),
        ms(stops.total),
        units::counted(stops.threads as u64, "thread"),
    );
    Ok(())
}

fn set(pid: u32, arguments: &Arguments) -> Result<()> {
    let mut attached = Attached::find(pid)?;
    let (given, mut words) = (self::words(arguments), attached.settings.words.clone());
    let mut on = attached.settings.on;
    for (kept, given) in [
        (&mut words.tracers, given.tracers),
        (&mut words.filter, given.filter),
        (&mut words.notrace, given.notrace),
    ] {
        if !given.is_empty() {
            // An empty word clears what was set before.
            *kept = given.into_iter().filter(|word| !word.is_empty()).collect();
            on = true;
        }
    }
    match (arguments.is_set("on"), arguments.is_set("off")) {
        (true, true) => bail!("--on and --off exclude each other"),
        (true, _) => on = true,
        (_, true) => on = false,
        _ => {}
    }
    let selection = selection(&words, arguments.is_set("later"))?;
    let (tally, notes) = attached.set(selection.tracers(), &selection, words, on)?;
    say(&notes);
    let stopped =
        if tally.stopped.is_zero() { String::new() } else { format!("; stopped for {}", ms(tally.stopped)) };
    let on = units::counted(u64::from(tally.on), "function");
    eprintln!("calltap: {on} switched on, {} off{stopped}", tally.off);
    Ok(())
}

fn status(pid: u32, arguments: &Arguments) -> Result<()> {
    let status = Attached::find(pid)?.status()?;
    let mut out = Output::create(arguments)?;
    if arguments.text("format").as_deref() == Some("json") {
        serde_json::to_writer_pretty(&mut out, &status)?;
        writeln!(out)?;
    } else {
        text(&status, &mut out)?;
    }
    out.finish()
}

fn text(status: &Status, out: &mut impl Write) -> Result<()> {
    let state = if status.on { "on" } else { "off" };
    writeln!(
        out,
        "process    {} ({}), attached for {}",
        status.pid,
        status.name,
        units::duration(status.age_ns)
    )?;
    writeln!(
        out,
        "functions  {} on of {} that ever were; switched {state}",
        status.sites_on, status.sites_known
    )?;
    for tracer in &status.tracers {
        let list =
            |globs: &[String], none: &str| if globs.is_empty() { none.to_owned() } else { globs.join(" ") };
        let notrace = list(&tracer.notrace, "");
        let but = if notrace.is_empty() { notrace } else { format!(", but not {notrace}") };
        writeln!(out, "tracer     {}: {}{but}", tracer.name, list(&tracer.filter, "every function"))?;
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

fn snapshot(pid: u32, arguments: &Arguments) -> Result<()> {
    let attached = Attached::find(pid)?;
    let selection = selection(&attached.settings.words, true)?;
    let output = arguments.path("output").unwrap_or_default();
    let snapshot = attached.snapshot(&output, selection.tracers(), &selection)?;
    eprintln!(
        "calltap: the last {} from {}, {} overwritten before, {} in {}; not recording for {}",
        units::counted(snapshot.totals.events, "event"),
        units::counted(u64::from(snapshot.totals.threads), "thread"),
        units::count(snapshot.totals.lost_entries + snapshot.totals.lost_exits),
        bytes(snapshot.file_size),
        output.display(),
        ms(snapshot.gap),
    );
    Ok(())
}

fn detach(pid: u32) -> Result<()> {
    let (stops, notes) = calltap_session::leave(pid)?;
    say(&notes);
    eprintln!("calltap: detached; stopped for {}", ms(stops.total));
    if notes.is_empty() { Ok(()) } else { bail!("something was left behind: try again") }
}
