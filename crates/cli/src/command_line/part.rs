//! `--from`, `--until`, `--thread`, `--graph`, `--callers`, `--depth`, `--longer`, `-F`: the part
//! of a trace that is read.

use crate::command_line::arguments::Arguments;
use crate::command_line::values;
use crate::command_line::view_flags;
use anyhow::{Context, Result, bail};
use calltap_analysis::sources::part::{Part, Which};
use calltap_analysis::{Glob, Source, Stamp, Word};
use calltap_trace::{Session, ThreadId};
use chrono::{DateTime, Days, Local, NaiveTime, Offset, TimeZone};
use std::time::Duration;

/// Returns the part that the command line selects. `levels`: whether `--depth` selects calls.
/// `functions`: whether `-F` does.
pub fn which(source: &dyn Source, arguments: &Arguments, levels: bool, functions: bool) -> Result<Which> {
    let roots = arguments.names("graph");
    let targets = arguments.names("callers");
    let functions = if functions { arguments.names("function") } else { Vec::new() };
    roots
        .iter()
        .chain(&targets)
        .chain(&functions)
        .try_for_each(|glob| view_flags::must_match(source.meta(), glob))?;
    let time = |flag| arguments.text(flag).map(|text| moment(source, flag, &text)).transpose();
    let (from, until) = (time("from")?, time("until")?);
    let longer = values::time_of(arguments, "longer")?;
    let depth = if levels { arguments.number("depth")? } else { None };
    if depth == Some(0) {
        bail!("--depth: no call is 0 levels deep; 1 is the outermost calls");
    }
    if longer.is_some() && !source.has_time() {
        bail!("--longer: the trace has no times (--clock counter)");
    }
    check_times(source, from, until)?;
    let words = |words: &[String]| words.iter().map(|word| Word::listed(word)).collect();
    Ok(Which {
        threads: threads(source, &arguments.texts("thread"))?,
        from,
        until,
        roots: words(&roots),
        targets: words(&targets),
        functions: words(&functions),
        depth,
        longer: longer.map(ns),
    })
}

/// Whether the part is some of the calls: what happens outside of them does not belong to it.
pub fn chooses_calls(arguments: &Arguments) -> bool {
    ["graph", "callers", "function", "longer"].iter().any(|flag| !arguments.texts(flag).is_empty())
}

fn check_times(source: &dyn Source, from: Option<u64>, until: Option<u64>) -> Result<()> {
    let start = Part::beginning(source);
    let since = |ns: u64| Stamp::Since(start).at(ns);
    match (from, until, Part::end(source)) {
        (from, Some(until), _) if until <= from.unwrap_or(start) => {
            bail!(
                "--until: {} s is not after {} s, where the part begins",
                since(until),
                since(from.unwrap_or(start))
            )
        }
        (Some(from), _, Some(end)) if from > end => {
            bail!("--from: {} s is after the last event of the trace, at {} s", since(from), since(end))
        }
        _ => Ok(()),
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the threads that words name, by kernel thread id or by a glob of names.
fn threads(source: &dyn Source, words: &[String]) -> Result<Option<Vec<ThreadId>>> {
    if words.is_empty() {
        return Ok(None);
    }
    let mut chosen: Vec<ThreadId> = Vec::new();
    for word in words.iter().flat_map(|words| words.split(',')) {
        let (glob, tid) = (Glob::new(word), word.parse::<u32>().ok());
        let threads = source.meta().threads.iter();
        let is_it =
            |thread: &&calltap_trace::Thread| tid.map_or(glob.matches(&thread.comm), |tid| thread.tid == tid);
        let before = chosen.len();
        chosen.extend(threads.filter(is_it).map(|thread| thread.id));
        if chosen.len() == before {
            bail!("no thread {} ('calltap info' lists them)", if word.is_empty() { "''" } else { word });
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(Some(chosen))
}

/// Parses a time into nanoseconds of CLOCK_MONOTONIC: seconds since the beginning of the trace, a
/// time of day, or a date with a time.
fn moment(source: &dyn Source, flag: &str, text: &str) -> Result<u64> {
    if !source.has_time() {
        bail!("--{flag}: the trace has no times (--clock counter)");
    }
    let start = Part::beginning(source);
    let seconds = || values::time(&format!("{text}s")).or_else(|_| values::time(text));
    if let Ok(since) = seconds() {
        return Ok(start.saturating_add(ns(since)));
    }
    let session = source.meta().session.as_ref();
    let wall = |ns: i64| {
        let session = dated(session)
            .with_context(|| format!("--{flag}: the trace does not say when it was recorded"))?;
        let since = i128::from(ns) - i128::from(session.start_realtime_ns);
        Ok(u64::try_from(i128::from(session.start_monotonic_ns) + since).unwrap_or(0))
    };
    if let Ok(date) = DateTime::parse_from_rfc3339(text) {
        return wall(date.timestamp_nanos_opt().unwrap_or(i64::MAX));
    }
    if let Ok(time) =
        NaiveTime::parse_from_str(text, "%H:%M:%S%.f").or_else(|_| NaiveTime::parse_from_str(text, "%H:%M"))
    {
        let began = session.map_or(0, |session| session.start_realtime_ns.cast_signed());
        let date = Local.timestamp_nanos(began).date_naive();
        let on = |date: chrono::NaiveDate| {
            Local.from_local_datetime(&date.and_time(time)).earliest()?.timestamp_nanos_opt()
        };
        let today = on(date).with_context(|| format!("--{flag}: there is no {text} on that day"))?;
        let tomorrow = date.checked_add_days(Days::new(1)).and_then(on);
        let end = Part::end(source).unwrap_or(start);
        // A recording across midnight may have this time of day twice.
        return match tomorrow.map(wall).transpose()? {
            Some(tomorrow) if today < began && tomorrow <= end => Ok(tomorrow),
            _ => wall(today),
        };
    }
    bail!(
        "--{flag}: '{text}' is not a time: seconds since the beginning (1.5, 300ms), a time of day (14:03:21.5), or RFC 3339 (2026-05-01T14:03:21Z)"
    )
}

/// Returns the session, if it says at which time of day it began.
fn dated(session: Option<&Session>) -> Option<&Session> {
    session.filter(|session| session.start_realtime_ns != 0)
}

/// Returns how times are written, by `--time`.
pub fn stamp(source: &dyn Source, arguments: &Arguments) -> Result<Option<Stamp>> {
    match arguments.text("time").as_deref() {
        Some("relative") => Ok(Some(Stamp::Since(Part::beginning(source)))),
        Some("wall") => match dated(source.meta().session.as_ref()) {
            Some(session) => Ok(Some(wall(session))),
            None => bail!("--time wall: the trace does not say when it was recorded"),
        },
        _ => Ok(None),
    }
}

/// Writes times as the local time of day or, for a trace without the time of its recording, as the
/// time since its beginning.
pub fn wall(session: &Session) -> Stamp {
    if session.start_realtime_ns == 0 {
        return Stamp::Since(session.start_monotonic_ns);
    }
    let began = Local.timestamp_nanos(session.start_realtime_ns.cast_signed());
    Stamp::wall(session, began.offset().fix().local_minus_utc())
}
