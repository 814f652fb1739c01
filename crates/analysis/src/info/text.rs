//! The description as text.

use super::{Entered, Options, active_ns, damage, sites_by_module};
use crate::head::events_and_marks;
use crate::head::{left_out, untraceable};
use crate::names::Names;
use crate::sources::source::Source;
use crate::units::{count, counted, duration, one_line};
use calltap_names::{demangle, file_name};
use calltap_trace::{ClockKind, KernelEvents, Meta, Scheduling, ThreadId, TracerKind};
use std::collections::HashMap;
use std::io::{self, Write};

pub(super) fn write(source: &dyn Source, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let meta = source.meta();
    session(meta, out)?;
    clock(source, out)?;
    let entered = Entered::by_thread(source);
    let sum = Entered::sum(&entered);
    let events = events_and_marks(source.event_count(), sum.marks(source));
    line(out, "events", &format!("{events}, {}", counted(meta.sites.len() as u64, "function")))?;
    if !meta.loss.is_empty() {
        line(out, "calls", &equation(&sum))?;
    }
    match &meta.end {
        Some(end) => {
            line(out, "end", &end.status)?;
            let (wall, cpu, recorder) =
                (duration(end.wall_ns), duration(end.cpu_ns), duration(end.recorder_cpu_ns));
            let time = match (end.cpu_ns, end.recorder_cpu_ns) {
                // Imported traces lack these times.
                (0, 0) => format!("{wall} wall"),
                _ => format!("{wall} wall, {cpu} processor, {recorder} recorder"),
            };
            line(out, "time", &time)?;
        }
        None => line(out, "end", "not recorded: the file is incomplete")?,
    }
    for sentence in left_out::by_choice(source) {
        line(out, "kept", &sentence)?;
    }
    let names = Names::new(meta, options.linker_names);
    for disabled in &meta.disabled_by_limit {
        let function = one_line(names.function(disabled.site));
        let rate = count(disabled.events_per_s);
        line(out, "disabled", &format!("{function}, by --max-overhead: {rate} events a second"))?;
    }
    if let Some(Scheduling { refused, lost }) = &meta.scheduling {
        let text = match refused {
            Some(refused) => refused.clone(),
            None if *lost > 0 => format!("context switches, {} of them lost", count(*lost)),
            None => "context switches".to_owned(),
        };
        line(out, "waits", &text)?;
    }
    for text in meta.kernel_events.iter().flat_map(kernel_events) {
        line(out, "kernel", &text)?;
    }
    for note in &meta.notes {
        line(out, "note", note)?;
    }
    let (unreadable, damage) = damage(source);
    if let Some(first) = damage.first_damage {
        let (events, parts) = (counted(unreadable, "event"), counted(damage.damaged, "part"));
        line(out, "damage", &format!("{events} in {parts} of the file unreadable; the first: {first}"))?;
    }
    for complaint in source.complaints() {
        line(out, "complaint", complaint)?;
    }
    processes(meta, out)?;
    threads(source, &entered, out)?;
    modules(source, out)?;
    untraceable(source, options, out)?;
    if options.sites {
        sites(meta, options, out)?;
    }
    Ok(())
}

/// Returns lines about the recorded kernel events, and about requested ones that could not be
/// recorded.
fn kernel_events(events: &KernelEvents) -> Vec<String> {
    let told = [
        (events.wakings, "wakeups"),
        (events.system_calls, "system calls"),
        (events.incidents, "page faults, migrations"),
        (events.signals, "signals"),
    ];
    let told: Vec<&str> = told.into_iter().filter_map(|(is_told, what)| is_told.then_some(what)).collect();
    let lost = if events.lost > 0 { format!("; {} records lost", count(events.lost)) } else { String::new() };
    let mut lines = events.refused.clone();
    if !told.is_empty() {
        lines.push(format!("{}{lost}", told.join(", ")));
    }
    lines
}

fn line(out: &mut dyn Write, key: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{key:<10} {}", one_line(value))
}

fn equation(calls: &Entered) -> String {
    let mut text = format!(
        "{} entered = {} recorded + {} lost",
        count(calls.entered),
        count(calls.recorded),
        count(calls.lost)
    );
    if calls.dropped > 0 {
        text += &format!(" + {} dropped on purpose", count(calls.dropped));
    }
    text
}

fn session(meta: &Meta, out: &mut dyn Write) -> io::Result<()> {
    let Some(session) = &meta.session else {
        return line(out, "session", "not recorded: the file is incomplete");
    };
    line(out, "command", &session.command.join(" "))?;
    let when = match session.start_realtime_ns {
        0 => "at a time that is not known,".to_owned(),
        ns => utc(ns),
    };
    line(out, "recorded", &format!("{when} by calltap {}", session.calltap))?;
    let host = [&session.host, &session.kernel, &session.cpu].map(String::as_str);
    let host: Vec<&str> = host.into_iter().filter(|part| !part.is_empty()).collect();
    line(out, "host", &if host.is_empty() { "not known".to_owned() } else { host.join(", ") })?;
    for tracer in &session.tracers {
        let kind = match tracer.kind {
            TracerKind::Function => "function",
            TracerKind::FunctionGraph => "function_graph",
            TracerKind::Profile => "profile",
        };
        let filter =
            if tracer.filter.is_empty() { "every function".to_owned() } else { tracer.filter.join(" ") };
        let mut text = format!("{} ({kind}): {filter}", tracer.name);
        if !tracer.notrace.is_empty() {
            text += &format!("; not {}", tracer.notrace.join(" "));
        }
        line(out, "tracer", &text)?;
    }
    Ok(())
}

fn clock(source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    let Some(session) = &source.meta().session else { return Ok(()) };
    let kind = match session.clock {
        ClockKind::Tsc => "time stamp counter, every event",
        ClockKind::Sparse => "time stamp counter, every block of events; interpolated between",
        ClockKind::Coarse => "coarse, about a millisecond",
        ClockKind::Counter => "counter: order, no time",
        ClockKind::Monotonic => "CLOCK_MONOTONIC, every event",
        ClockKind::Kernel => "a clock of the kernel, every event",
    };
    line(out, "clock", kind)?;
    if let Some(note) = &session.clock_note {
        line(out, "", note)?;
    }
    Ok(())
}

fn processes(meta: &Meta, out: &mut dyn Write) -> io::Result<()> {
    let executed = meta.processes.iter().filter(|process| process.executed).count();
    let processes = counted((meta.processes.len() - executed) as u64, "process");
    match executed {
        0 => writeln!(out, "\n{processes}:")?,
        _ => writeln!(out, "\n{processes}, with {}:", counted(executed as u64, "executed program"))?,
    }
    writeln!(out, "{:>8}  {:>8}  NAME", "PID", "PARENT")?;
    for process in &meta.processes {
        let parent = meta.parent_of(process).map_or_else(|| "-".to_owned(), |parent| parent.pid.to_string());
        let executed = if process.executed { " (executed)" } else { "" };
        writeln!(out, "{:>8}  {parent:>8}  {}{executed}", process.pid, one_line(&process.comm))?;
    }
    Ok(())
}

fn threads(source: &dyn Source, entered: &HashMap<ThreadId, Entered>, out: &mut dyn Write) -> io::Result<()> {
    let meta = source.meta();
    writeln!(out, "\n{}:", counted(meta.threads.len() as u64, "thread"))?;
    writeln!(out, "{:>8}  {:>8}  {:>13}  {:<16}  CALLS", "PID", "TID", "ACTIVE", "NAME")?;
    for thread in &meta.threads {
        let pid = meta.processes.get(thread.process as usize).map_or(0, |process| process.pid);
        let active = active_ns(source, thread.id).map_or_else(|| "-".to_owned(), duration);
        let calls = entered.get(&thread.id).map_or_else(|| "totals not recorded".to_owned(), equation);
        let comm = one_line(&thread.comm);
        writeln!(out, "{pid:>8}  {:>8}  {active:>13}  {comm:<16}  {calls}", thread.tid)?;
    }
    Ok(())
}

fn modules(source: &dyn Source, out: &mut dyn Write) -> io::Result<()> {
    let modules = &source.meta().modules;
    writeln!(out, "\n{}:", counted(modules.len() as u64, "module"))?;
    writeln!(out, "{:>9}  {:<40}  PATH", "FUNCTIONS", "BUILD-ID")?;
    for (module, sites) in modules.iter().zip(sites_by_module(source)) {
        let build_id = module.build_id.as_deref().unwrap_or("-");
        let unloaded = if module.unloaded_ticks.is_some() { " (unloaded)" } else { "" };
        writeln!(out, "{:>9}  {build_id:<40}  {}{unloaded}", count(sites), one_line(&module.path))?;
    }
    Ok(())
}

/// Lists selected functions that cannot be traced.
fn untraceable(source: &dyn Source, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let meta = source.meta();
    let all = untraceable::number(meta);
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "\n{} cannot be traced:", counted(all, "selected function"))?;
    let mut told = 0;
    for (module, function) in untraceable::named(meta) {
        let name = if options.linker_names { function.name.clone() } else { demangle(&function.name) };
        let module = file_name(&module.path);
        writeln!(out, "{} ({}): {}", one_line(&name), one_line(module), one_line(&function.reason))?;
        told += 1;
    }
    if told < all {
        writeln!(out, "... and {} more", count(all - told))?;
    }
    Ok(())
}

fn sites(meta: &Meta, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let names = Names::new(meta, options.linker_names);
    writeln!(out, "\n{}:", counted(meta.sites.len() as u64, "function"))?;
    writeln!(out, "{:>16}  {:>7}  {:<10}  {:<16}  FUNCTION", "ADDRESS", "SIZE", "KIND", "MODULE")?;
    for site in &meta.sites {
        let (module, function) = (names.module(site.id), names.function(site.id));
        writeln!(
            out,
            "{:>16x}  {:>7}  {:<10}  {:<16}  {}",
            site.address,
            site.size,
            site.kind,
            one_line(module),
            one_line(function)
        )?;
    }
    Ok(())
}

/// Formats nanoseconds since the epoch: `2026-11-20 16:53:04 UTC`.
fn utc(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a date by eras of 400 years that begin on 1 March.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400 * 1_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_193_584 * 1_000_000_000), "2026-11-20 16:53:04 UTC");
    }
}
