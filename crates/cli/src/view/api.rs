//! The page's questions about recorded calls. A question is a name with a query string, and its
//! answer is JSON. Times are nanoseconds since the beginning of the timeline.

use super::functions::{functions, short_names, states};
use super::source;
use calltap_analysis::explore::{
    Around, CallValues, Columns, Explorer, Flame, Function, Heat, SlowCall, Window,
};
use calltap_analysis::paths::By;
use calltap_analysis::timeline::{Band, Block, Piece, Timeline};
use calltap_analysis::values::FormattedValue;
use calltap_analysis::why::{CallToExplain, why_call};
use calltap_analysis::{Names, Off, Part, Source, incidents, left_out};
use calltap_trace::{Incident, SiteId, ThreadId};
use serde_json::{Value, json};
use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

/// Number of bars of a histogram at most.
const BARS: usize = 60;
/// Number of columns and rows of a heatmap at most.
const HEAT_COLUMNS: u32 = 60;
const HEAT_ROWS: usize = 24;
/// Width of the narrowest box of a flame graph, as a share of the graph's width.
const MIN_BOX_WIDTH: f64 = 1.0 / 3000.0;
/// Number of columns of the overview, and of threads in it, at most.
const COLUMNS: u64 = 4096;
const THREADS: usize = 64;
/// Number of stretches that a window of time is divided into at most.
const FINEST: u64 = 1 << 16;
/// Number of a thread's incidents that are marked at most.
const MARKS: u64 = 4096;

/// The reason why a question has no answer.
pub struct Refusal {
    /// Status code of HTTP.
    pub code: u16,
    /// The reason, in one sentence.
    pub why: String,
}

impl Refusal {
    /// Returns a refusal with this code and sentence.
    pub fn new(code: u16, why: &str) -> Refusal {
        Refusal { code, why: why.to_owned() }
    }
}

/// A query string: `from=1&to=2`.
pub struct Query<'a>(pub &'a str);

impl Query<'_> {
    /// Returns the value of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
    }

    /// Returns the number of a required key.
    pub fn number<T: FromStr>(&self, key: &str) -> Result<T, Refusal> {
        let number = self.text(key).and_then(|text| text.parse().ok());
        number.ok_or_else(|| Refusal::new(400, &format!("'{key}' is not a number that fits")))
    }

    /// Whether the value of a key is 1.
    pub fn is_set(&self, key: &str) -> bool {
        self.text(key).is_some_and(|value| value == "1")
    }
}

/// Answers a question about recorded calls.
pub fn explore<S: Source + Sync>(
    explorer: &Explorer<S>,
    title: &str,
    name: &str,
    query: &Query<'_>,
) -> Result<String, Refusal> {
    Ok(match name {
        "summary" => summary(explorer, title).to_string(),
        "functions" => match window(explorer, query)? {
            Some(window) => functions(&window.functions).to_string(),
            None => functions(&explorer.functions).to_string(),
        },
        "timeline" => timeline(explorer, query)?,
        "overview" => overview(explorer, query)?,
        "states" => off(explorer, query)?.to_string(),
        "why" => why(explorer, query)?.to_string(),
        "flame" => flame(explorer, query, MIN_BOX_WIDTH)?.to_string(),
        "function" => function(explorer, query)?.to_string(),
        "calls" => calls(explorer, query)?.to_string(),
        "source" => json!(source_text(explorer, query_function(explorer, query, "f")?)).to_string(),
        "values" => values(explorer, query)?.to_string(),
        "heat" => heat(explorer, query)?.to_string(),
        "cell" => cell(explorer, query)?.to_string(),
        "next" => next(explorer, query)?.to_string(),
        _ => return Err(Refusal::new(404, "no such question")),
    })
}

fn summary<S: Source + Sync>(explorer: &Explorer<S>, title: &str) -> Value {
    let (meta, totals) = (explorer.source.meta(), &explorer.totals);
    let names = Names::new(meta, false);
    let process = |thread: ThreadId| {
        let process = meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process);
        meta.processes.get(process as usize)
    };
    let threads = explorer.timeline.threads().map(|thread| {
        let (depth, deeper) = explorer.timeline.depth(thread);
        json!({
            "id": thread.0,
            "tid": names.tid(thread),
            "name": names.title(thread),
            "pid": process(thread).map_or(0, |process| process.pid),
            "process": process(thread).map_or("", |process| &process.comm),
            "depth": depth,
            "deeper": deeper,
        })
    });
    let lost = meta
        .loss
        .iter()
        .fold((0, 0), |(entries, exits), loss| (entries + loss.lost_entries, exits + loss.lost_exits));
    let mut notes = left_out::sentences(&explorer.source);
    notes.extend_from_slice(explorer.source.complaints());
    notes.extend(meta.notes.iter().cloned());
    notes.extend(totals.first_damage.iter().map(|first| {
        format!("{} parts of the file are unreadable and left out; the first: {first}", totals.damaged)
    }));
    json!({
        "title": title,
        "command": meta.session.as_ref().map(|session| session.command.join(" ")),
        "host": meta.session.as_ref().map(|session| &session.host),
        "timed": explorer.source.has_time(),
        "switched": explorer.source.has_switches(),
        "begin": begin(explorer),
        "end": explorer.timeline.end(),
        "events": totals.events - totals.marks,
        "calls": totals.calls,
        "lost": lost.0.max(totals.lost_entries) + lost.1.max(totals.lost_exits),
        "threads": threads.collect::<Vec<_>>(),
        "notes": notes,
        "short": short_names(&explorer.functions),
    })
}

/// Returns the time of the page's beginning since that of the recording, in nanoseconds.
fn begin<S: Source + Sync>(explorer: &Explorer<S>) -> u64 {
    match explorer.source.has_time() {
        true => explorer.timeline.origin().saturating_sub(Part::beginning(&explorer.source)),
        false => 0,
    }
}

/// Returns the calls between `from=1&to=2`; `None` without these keys.
fn window<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Option<Arc<Window>>, Refusal> {
    if query.text("from").is_none() {
        return Ok(None);
    }
    let window = explorer.window(query.number("from")?, query.number("to")?);
    window.map(Some).map_err(|error| Refusal::new(500, &error.to_string()))
}

/// Answers `lanes=THREAD.FIRST.LAST,...`: the timelines of these threads, at these depths.
fn timeline<S: Source + Sync>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<String, Refusal> {
    let (from, to): (u64, u64) = (query.number("from")?, query.number("to")?);
    // No screen shows all calls of a long time.
    let resolution = query.number::<u64>("resolution")?.max(to.saturating_sub(from) / FINEST);
    let focus = match query.text("focus") {
        Some(_) => Some(only(explorer, query_function(explorer, query, "focus")?)?),
        None => None,
    };
    let mut text = String::from("[");
    for lane in query.text("lanes").unwrap_or_default().split(',').filter(|lane| !lane.is_empty()) {
        let numbers: Vec<u32> = lane.split('.').filter_map(|number| number.parse().ok()).collect();
        let [thread, first, last] = numbers[..] else {
            return Err(Refusal::new(400, "a lane is THREAD.FIRST.LAST"));
        };
        text += if text.len() > 1 { "," } else { "" };
        let (thread, tracks) = (ThreadId(thread), (first, last));
        let lane = TimelineRequest { thread, tracks, window: (from, to), resolution, of_states: resolution };
        lane.write(explorer, focus.as_deref(), &mut text)?;
    }
    Ok(text + "]")
}

/// A request for a thread's timeline.
pub struct TimelineRequest {
    /// The thread.
    pub thread: ThreadId,
    /// The first and the last depth.
    pub tracks: (u32, u32),
    /// The first and the last time.
    pub window: (u64, u64),
    /// Calls are joined to one block up to this length.
    pub resolution: u64,
    /// States are joined to one piece up to this length.
    pub of_states: u64,
}

impl TimelineRequest {
    /// Writes the timeline. `focus`: the timeline of the chosen function, whose calls are added.
    pub fn write<S: Source + Sync>(
        &self,
        explorer: &Explorer<S>,
        focus: Option<&Timeline>,
        text: &mut String,
    ) -> Result<(), Refusal> {
        let TimelineRequest { thread, tracks: (first, last), window: (from, to), resolution, of_states } =
            *self;
        let window = explorer.timeline.window(&explorer.source, thread, (from, to), resolution);
        let _ = write!(text, "{{\"thread\":{},\"lost\":", thread.0);
        blocks(explorer, &window.lost, text);
        *text += ",\"tracks\":[";
        let count = (last.saturating_sub(first) as usize).saturating_add(1);
        for (at, track) in window.tracks.iter().skip(first as usize).take(count).enumerate() {
            *text += if at > 0 { "," } else { "" };
            blocks(explorer, track, text);
        }
        *text += "],\"focus\":";
        let focused =
            focus.map(|focus| focus.window(&explorer.source, thread, (from, to), resolution).tracks);
        blocks(explorer, &focused.into_iter().flatten().flatten().collect::<Vec<_>>(), text);
        *text += ",\"states\":";
        match band(explorer, thread)? {
            Some(band) => pieces(&band.window(from, to, of_states), text),
            None => *text += "null",
        }
        *text += ",\"incidents\":";
        let all = explorer.source.incidents(thread).map_err(|error| Refusal::new(500, &error.to_string()))?;
        write_incidents(explorer, &all.entries, (from, to), resolution, text);
        *text += "}";
        Ok(())
    }
}

/// Writes the time and text of each incident as one list; only the first within a resolution.
fn write_incidents<S: Source>(
    explorer: &Explorer<S>,
    all: &[Incident],
    (from, to): (u64, u64),
    resolution: u64,
    text: &mut String,
) {
    let (origin, resolution) = (explorer.timeline.origin(), resolution.max(to.saturating_sub(from) / MARKS));
    let at = |incident: &Incident| explorer.source.to_ns(incident.at).saturating_sub(origin);
    let first = all.partition_point(|incident| at(incident) < from);
    let (mut next, mut shown) = (0, Vec::new());
    for incident in all[first..].iter().take_while(|incident| at(incident) <= to) {
        let now = at(incident);
        if now >= next {
            shown.extend([json!(now), json!(incidents::text(&incident.what))]);
            next = now.saturating_add(resolution.max(1));
        }
    }
    let _ = write!(text, "{}", Value::from(shown));
}

fn band<S: Source + Sync>(
    explorer: &Explorer<S>,
    thread: ThreadId,
) -> Result<Option<std::sync::Arc<Band>>, Refusal> {
    let band = explorer.timeline.band(&explorer.source, thread);
    band.map_err(|error| Refusal::new(500, &error.to_string()))
}

/// Writes six numbers for each piece of a band as one list: start, length, and the times in which
/// the thread was runnable, was blocked, was held by calltap, and in which its state is unknown.
fn pieces(pieces: &[Piece], text: &mut String) {
    text.push('[');
    for (at, Piece { start, end, off }) in pieces.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let Off { runnable, blocked, unknown, tracing } = off;
        let _ = write!(text, "{comma}{start},{},{runnable},{blocked},{tracing},{unknown}", end - start);
    }
    text.push(']');
}

/// Answers `thread=1&from=2&to=3`: the states of a thread in this time.
fn off<S: Source + Sync>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let (from, to): (u64, u64) = (query.number("from")?, query.number("to")?);
    let band = band(explorer, ThreadId(query.number("thread")?))?;
    Ok(band.map_or(Value::Null, |band| states(to.saturating_sub(from), &band.off(from, to))))
}

/// Answers `thread=1&from=2&to=3&f=4`: the waits and wakers that made a function's call slow.
fn why<S: Source + Sync>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let origin = explorer.timeline.origin();
    let at = |key| Ok(query.number::<u64>(key)?.saturating_add(origin));
    let (thread, site) = (ThreadId(query.number("thread")?), Some(SiteId(query.number("f")?)));
    let asked = CallToExplain { thread, site, from_ns: at("from")?, to_ns: at("to")? };
    why_call(&explorer.source, asked, origin).map_err(|error| Refusal::new(500, &error.to_string()))
}

/// Writes seven numbers for each block as one list: start, length, function, number of calls, the
/// longest, time in calls, number of cut calls.
fn blocks<S: Source>(explorer: &Explorer<S>, blocks: &[Block], text: &mut String) {
    text.push('[');
    for (at, block) in blocks.iter().enumerate() {
        let (comma, f) = (if at > 0 { "," } else { "" }, explorer.known(block.site).0);
        let Block { start, end, busy, longest, calls, cut, .. } = block;
        let _ = write!(text, "{comma}{start},{},{f},{calls},{longest},{busy},{cut}", end - start);
    }
    text.push(']');
}

/// Returns the depth of each thread's stack, column by column.
fn overview<S: Source + Sync>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<String, Refusal> {
    let columns = query.number::<u64>("columns")?.clamp(1, COLUMNS);
    let end = explorer.timeline.end().max(1);
    let threads: Vec<Value> = explorer
        .timeline
        .threads()
        .take(THREADS)
        .map(|thread| {
            let mut depths = vec![0u32; columns as usize];
            let window = explorer.timeline.window(&explorer.source, thread, (0, end), end / columns);
            let column = |at: u64| {
                (u128::from(at) * u128::from(columns) / u128::from(end)).min(u128::from(columns) - 1) as usize
            };
            for (depth, track) in window.tracks.iter().enumerate() {
                for block in track {
                    depths[column(block.start)..=column(block.end)].fill(depth as u32 + 1);
                }
            }
            json!({ "thread": thread.0, "depths": depths })
        })
        .collect();
    Ok(Value::from(threads).to_string())
}

/// Answers `by=wall&root=0`: a flame graph without boxes narrower than a share of its width.
pub fn flame<S: Source>(explorer: &Explorer<S>, query: &Query<'_>, narrowest: f64) -> Result<Value, Refusal> {
    let by: By = query
        .text("by")
        .unwrap_or("wall")
        .parse()
        .map_err(|why: calltap_analysis::NotOneOf| Refusal::new(400, &why.to_string()))?;
    let window = window(explorer, query)?;
    let flame = if query.text("f").is_some() {
        let (function, callers) = (query_function(explorer, query, "f")?, query.is_set("callers"));
        let flame = match &window {
            Some(window) => explorer.flame_of_in(window, function, callers, by, narrowest),
            None => explorer.flame_of(function, callers, by, narrowest),
        };
        flame.ok_or_else(|| Refusal::new(404, "it is in none of the call paths that were kept"))?
    } else {
        let root = query.number("root")?;
        match &window {
            Some(window) => explorer.flame_in(window, root, by, narrowest),
            None => explorer.flame(root, by, narrowest),
        }
    };
    let Flame { boxes, below, timed, merged, unknown } = flame;
    let site = |site: Option<SiteId>| site.map(|site| site.0);
    let boxes = boxes.iter().map(|b| {
        let states = b.off.map(|off| states(b.total, &off));
        json!([b.node, site(b.site), b.left, b.width, b.level, b.calls, b.weight, b.own, states])
    });
    let below = below.into_iter().map(|(node, function)| json!([node, site(function)]));
    Ok(json!({
        "boxes": boxes.collect::<Vec<_>>(),
        "below": below.collect::<Vec<_>>(),
        "timed": timed,
        "merged": merged,
        "unknown": unknown,
    }))
}

fn query_function<'a, S: Source>(
    explorer: &'a Explorer<S>,
    query: &Query<'_>,
    key: &str,
) -> Result<&'a Function, Refusal> {
    let function = explorer.function(SiteId(query.number(key)?));
    function.ok_or_else(|| Refusal::new(404, "no such function was called"))
}

fn function<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let function = query_function(explorer, query, "f")?;
    let bars = explorer.histogram(function, BARS);
    let Around { callers, callees } = explorer.around(function);
    let relatives = |list: Vec<calltap_analysis::explore::Relative>| -> Vec<Value> {
        list.into_iter().map(|r| json!([r.site.0, r.calls, r.total_ns])).collect()
    };
    Ok(json!({
        "bars": bars.iter().map(|bar| json!([bar.from_ns, bar.to_ns, bar.calls])).collect::<Vec<_>>(),
        "slowest": slow(explorer.slowest(function)),
        "callers": relatives(callers),
        "callees": relatives(callees),
        "values": explorer.has_values(function),
    }))
}

fn slow(calls: Vec<SlowCall>) -> Vec<Value> {
    let call = |c: SlowCall| json!([c.thread.0, c.start_ns, c.duration_ns, c.depth]);
    calls.into_iter().map(call).collect()
}

fn calls<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let function = query_function(explorer, query, "f")?;
    let bars = explorer.histogram(function, BARS);
    let bar = bars.get(query.number::<usize>("bar")?).ok_or_else(|| Refusal::new(404, "no such bar"))?;
    let calls = explorer.in_bar(function, bar).map_err(|error| Refusal::new(500, &error.to_string()))?;
    Ok(slow(calls).into())
}

/// Answers `f=1`: the file and line of a function's source, `/src/app.c:12`, if they are known.
pub fn source_text<S: Source>(explorer: &Explorer<S>, function: &Function) -> Option<String> {
    let found = source::of(explorer.source.meta(), function.site)?;
    Some(format!("{}:{}", found.file, found.line))
}

/// Answers `f=1&thread=2&start=3&depth=4`: name and text of a call's arguments and results.
fn values<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let function = query_function(explorer, query, "f")?;
    let place = (ThreadId(query.number("thread")?), query.number("start")?, query.number("depth")?);
    let found = explorer.values_of(&[function], &[place]);
    let found = found.map_err(|error| Refusal::new(500, &error.to_string()))?;
    Ok(found.get(&place).map_or(Value::Null, values_json))
}

/// Returns the name and text of each value.
pub fn values_json(CallValues { arguments, results }: &CallValues) -> Value {
    let list = |all: &[FormattedValue]| all.iter().map(|one| json!([one.name, one.text])).collect::<Vec<_>>();
    json!({ "arguments": list(arguments), "results": list(results) })
}

/// Answers `f=1`, and `from=1&to=2` or else all time: a heatmap of calls by begin and length.
fn heat<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let (function, columns) = (query_function(explorer, query, "f")?, columns(explorer, query)?);
    let all = explorer.heat(&[function], &columns, HEAT_ROWS);
    let all = all.map_err(|error| Refusal::new(500, &error.to_string()))?;
    Ok(all.first().map_or(Value::Null, |heat| heat_json(heat, &columns)))
}

/// Returns a heatmap; its cells are one list with column, row and number of calls.
pub fn heat_json(Heat { rows, cells }: &Heat, columns: &Columns) -> Value {
    let cells = cells.iter().flat_map(|((column, row), calls)| [u64::from(*column), u64::from(*row), *calls]);
    json!({
        "from": columns.of.start,
        "to": columns.of.end,
        "columns": columns.count,
        "rows": rows.iter().map(|bar| json!([bar.from_ns, bar.to_ns])).collect::<Vec<_>>(),
        "cells": cells.collect::<Vec<u64>>(),
    })
}

/// Returns the heatmaps of functions over all time.
pub fn heats<S: Source>(
    explorer: &Explorer<S>,
    functions: &[&Function],
) -> Result<Vec<Value>, calltap_analysis::Error> {
    let columns = Columns { of: 0..explorer.timeline.end().max(1), count: HEAT_COLUMNS };
    let all = explorer.heat(functions, &columns, HEAT_ROWS)?;
    Ok(all.iter().map(|heat| heat_json(heat, &columns)).collect())
}

fn columns<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Columns, Refusal> {
    let of = match query.text("from") {
        Some(_) => query.number("from")?..query.number("to")?,
        None => 0..explorer.timeline.end().max(1),
    };
    Ok(Columns { of, count: HEAT_COLUMNS })
}

/// Answers `f=1&column=2&row=3`, with a heatmap's time: the slowest calls in one of its cells.
fn cell<S: Source>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let (function, columns) = (query_function(explorer, query, "f")?, columns(explorer, query)?);
    let rows = explorer.histogram(function, HEAT_ROWS);
    let row = rows.get(query.number::<usize>("row")?).ok_or_else(|| Refusal::new(404, "no such row"))?;
    let calls = explorer.in_cell(function, row, &columns, query.number("column")?);
    Ok(slow(calls.map_err(|error| Refusal::new(500, &error.to_string()))?).into())
}

/// Returns the timeline of one function.
fn only<S: Source + Sync>(
    explorer: &Explorer<S>,
    function: &Function,
) -> Result<std::sync::Arc<Timeline>, Refusal> {
    explorer.only(function).map_err(|error| Refusal::new(500, &error.to_string()))
}

fn next<S: Source + Sync>(explorer: &Explorer<S>, query: &Query<'_>) -> Result<Value, Refusal> {
    let function = query_function(explorer, query, "f")?;
    let calls = only(explorer, function)?;
    let moment = query.text("at").map(|_| query.number("at")).transpose()?;
    let found = explorer.next_call(&calls, moment, !query.is_set("back"));
    Ok(found.map_or(Value::Null, |(thread, start, end)| {
        let depth = explorer.depth_of(thread, function, start);
        json!([thread.0, start, end - start, depth])
    }))
}
