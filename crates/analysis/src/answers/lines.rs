//! A line for each call as it ends: for all calls, or for those longer than a threshold.

use super::{AROUND, EndedCall, Function, QueryContext, Question};
use crate::columns;
use crate::off::Off;
use crate::units::{duration, one_line};
use crate::values;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Maximum number of held lines; when it is reached, the earlier half is released.
const HELD: usize = 1 << 20;

/// Output form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Plain text.
    Text,
    /// A JSON object per line; the string is the key of its version.
    Json(&'static str),
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    shown: u64,
    /// Total time of outermost calls in ticks, which include recursive ones.
    total: u64,
    longest: Option<u64>,
    /// Off-CPU part of `total`, in ticks.
    off: Off,
}

/// The answer to `slower` and `watch`: a line for each call.
pub struct Lines {
    form: Form,
    /// Calls of at most so many nanoseconds are counted but not shown.
    threshold: Option<u64>,
    /// Maximum number of lines.
    limit: Option<u64>,
    /// Whether the line [`AROUND`] has been written.
    warned: bool,
    made: u64,
    /// Lines that [`take`](Self::take) has not returned yet.
    lines: String,
    /// Held lines by the ticks at which their calls began, for output in that order. `None`: lines
    /// are written as calls end.
    held: Option<Vec<(u64, String)>>,
    functions: HashMap<Function, Sum>,
}

impl Lines {
    /// Shows calls that take longer than `threshold` nanoseconds, at most `limit`.
    pub fn new(form: Form, threshold: Option<u64>, limit: Option<u64>) -> Lines {
        Lines {
            form,
            threshold,
            limit,
            warned: false,
            made: 0,
            lines: String::new(),
            held: None,
            functions: HashMap::new(),
        }
    }

    /// Orders the lines by the time at which calls began.
    pub fn sorted(self) -> Lines {
        Lines { held: Some(Vec::new()), ..self }
    }

    fn add(&mut self, start: u64, line: &str) {
        match &mut self.held {
            None => {
                self.lines += line;
                self.lines.push('\n');
            }
            Some(held) => {
                held.push((start, format!("{line}\n")));
                if held.len() >= HELD {
                    self.release(HELD / 2);
                }
            }
        }
    }

    /// Releases the earliest held lines.
    fn release(&mut self, number: usize) {
        let Some(held) = &mut self.held else { return };
        held.sort_by_key(|(start, _)| *start);
        self.lines.extend(held.drain(..number.min(held.len())).map(|(_, line)| line));
    }

    /// Returns the whole lines made since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.lines)
    }

    /// Whether the limit of lines is reached.
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.made >= limit)
    }

    /// Returns the functions, most shown calls first, then by total time.
    fn rows(&self, known: &QueryContext) -> Vec<(Function, Sum)> {
        let mut rows: Vec<_> = self.functions.iter().map(|(function, sum)| (*function, *sum)).collect();
        let name = |function: Function| (known.name(function), known.module(function));
        rows.sort_by(|a, b| {
            (b.1.shown, b.1.total).cmp(&(a.1.shown, a.1.total)).then_with(|| name(a.0).cmp(&name(b.0)))
        });
        rows
    }
}

/// Returns the callers of a call, innermost first: all unwound ones, else the known one.
fn callers(known: &mut QueryContext, ended: &EndedCall<'_>) -> Vec<String> {
    let numbers: Vec<u32> = match ended.callers {
        Some(_) => known.path(ended).into_iter().rev().skip(1).collect(),
        None => known.caller(ended).into_iter().collect(),
    };
    numbers.into_iter().map(|caller| known.word(caller).to_owned()).collect()
}

/// Formats off-CPU time: `  blocked 16.6 ms, runnable 100 us`; empty if the thread ran all the
/// time.
fn waited(off: Off) -> String {
    let parts = [("blocked", off.blocked), ("runnable", off.runnable), ("held by calltap", off.tracing)];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(state, ns)| format!("{state} {}", duration(ns)))
        .collect();
    if parts.is_empty() { String::new() } else { format!("  {}", parts.join(", ")) }
}

impl Question for Lines {
    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        let ns = known.ns(ended.call.total);
        let sum = self.functions.entry(ended.function).or_default();
        let ending = ended.call.ending;
        sum.calls += 1;
        let is_known = ending.goes_on() || !ending.is_cut();
        if self.threshold.is_some_and(|threshold| !is_known || ns <= threshold) {
            return;
        }
        if !ending.is_cut() {
            sum.longest = sum.longest.max(Some(ns));
        }
        if !ending.is_cut() && ended.outermost {
            sum.total = sum.total.saturating_add(ended.call.total);
            sum.off += ended.call.off;
        }
        sum.shown += 1;
        if self.is_full() {
            return;
        }
        self.made += 1;
        let callers = callers(known, ended);
        let line = match self.form {
            Form::Text => {
                if !ended.has_caller() && !callers.is_empty() && !std::mem::replace(&mut self.warned, true) {
                    self.lines += AROUND;
                }
                text_line(known, ended, &callers, is_known)
            }
            Form::Json(version) => json_line(known, ended, &callers, is_known, version),
        };
        self.add(ended.call.start, &line);
    }

    fn finish(&mut self, _: &QueryContext) {
        self.release(usize::MAX);
    }

    fn text(&self, known: &QueryContext) -> String {
        let cells: Vec<Vec<String>> = self
            .rows(known)
            .iter()
            .filter(|(_, sum)| sum.shown > 0)
            .map(|(function, sum)| {
                vec![
                    known.calls(*function, sum.shown),
                    known.calls(*function, sum.calls),
                    duration(known.ns(sum.total)),
                    sum.longest.map_or("-".to_owned(), duration),
                    known.off(sum.off).map_or("?".to_owned(), |off| duration(off.blocked)),
                    one_line(known.module(*function)).into(),
                    one_line(known.name(*function)).into(),
                ]
            })
            .collect();
        if let (Some(threshold), true) = (self.threshold, cells.is_empty()) {
            return format!("no call took longer than {}\n", duration(threshold));
        }
        let shown = if self.threshold.is_some() { "SLOWER" } else { "SHOWN" };
        let mut out = Vec::new();
        // Writing to a vector cannot fail.
        let titles = [shown, "CALLS", "TIME", "MAX", "BLOCKED", "MODULE", "FUNCTION"];
        let _ = columns::write(&mut out, &titles, 5, &cells);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn json(&self, known: &QueryContext) -> Value {
        let row = |(function, sum): &(Function, Sum)| {
            let off = known.off(sum.off);
            json!({
                "function": known.name(*function),
                "module": known.module(*function),
                "calls": sum.calls,
                "slower": sum.shown,
                "slower_ns": known.ns(sum.total),
                "max_ns": sum.longest,
                "cpu_ns": off.and_then(|off| off.cpu(known.ns(sum.total))),
                "runnable_ns": off.map(|off| off.runnable),
                "blocked_ns": off.map(|off| off.blocked),
                "tracing_ns": off.map(|off| off.tracing),
            })
        };
        let rows: Vec<Value> = self.rows(known).iter().map(row).collect();
        json!({ "threshold_ns": self.threshold, "functions": rows })
    }
}

/// Formats a call as text. `is_known`: its duration is known, or for a call still open the time so
/// far.
fn text_line(known: &mut QueryContext, ended: &EndedCall<'_>, callers: &[String], is_known: bool) -> String {
    let ns = known.ns(ended.call.total);
    let ending = ended.call.ending;
    let caller: String = callers.iter().map(|caller| format!("  <- {caller}")).collect();
    let time = known.stamp(ended.call.start);
    let took = match (is_known, ending.is_cut()) {
        (true, false) => duration(ns),
        (true, true) => format!(">{}", duration(ns)),
        (false, _) => format!("~{}", ending.name()),
    };
    let call = values::call(known.name(ended.function), ended.arguments);
    let results = values::results(ended.results);
    let results = if results.is_empty() { results } else { format!("  {results}") };
    let waited = known.off(ended.call.off).filter(|_| is_known).map(waited).unwrap_or_default();
    let task = known.task(ended.thread);
    one_line(&format!("{time:>12}  {task:<22} {took:>13}  {call}{results}{waited}{caller}")).into_owned()
}

/// Formats a call as a JSON object; the key `version` holds the version of the format.
fn json_line(
    known: &mut QueryContext,
    ended: &EndedCall<'_>,
    callers: &[String],
    is_known: bool,
    version: &str,
) -> String {
    let ns = known.ns(ended.call.total);
    let ending = ended.call.ending;
    let off = known.off(ended.call.off).filter(|_| is_known);
    let mut object = json!({
        "start_ns": known.since_start(ended.call.start),
        "start_epoch_ns": known.since_epoch(ended.call.start),
        "duration_ns": is_known.then_some(ns),
        "cpu_ns": off.and_then(|off| off.cpu(ns)),
        "runnable_ns": off.map(|off| off.runnable),
        "blocked_ns": off.map(|off| off.blocked),
        "tracing_ns": off.map(|off| off.tracing),
        "end": ending.name(),
        "open": ending.goes_on(),
        "tid": known.tid(ended.thread),
        "thread": known.task(ended.thread),
        "function": known.name(ended.function),
        "module": known.module(ended.function),
        "caller": callers.first(),
        "caller_is_around": !ended.has_caller(),
    });
    if ended.callers.is_some() {
        object["callers"] = callers.into();
    }
    if !ended.arguments.is_empty() {
        object["arguments"] = values::object(ended.arguments);
    }
    if !ended.results.is_empty() {
        object["results"] = values::object(ended.results);
    }
    object[version] = 1.into();
    object.to_string()
}
