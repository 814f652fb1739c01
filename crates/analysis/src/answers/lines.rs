//! Calls as they end, a line each: all of them, or those that took longer than some time.

use super::{AROUND, Function, Known, Over, Question};
use crate::columns;
use crate::off::Off;
use crate::units::{count, duration, one_line};
use crate::values;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Lines that are held back, at most: of more, the earlier half goes on.
const HELD: usize = 1 << 20;

/// The form of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// For people.
    Text,
    /// An object; with this name its version.
    Json(&'static str),
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    shown: u64,
    /// Of the outermost calls: those inside them lie in their time.
    total: u64,
    longest: u64,
    /// Of `total`, in ticks.
    off: Off,
}

/// Makes lines.
pub struct Lines {
    form: Form,
    /// Shorter calls are only counted, nanoseconds.
    threshold: Option<u64>,
    /// At most so many lines.
    limit: Option<u64>,
    /// It is said that callers are the traced functions around.
    warned: bool,
    made: u64,
    /// Lines that were not taken yet.
    lines: String,
    /// Lines that are held back until they can be put in the order of time, by the ticks at which their calls began; none: lines come as
    /// calls end.
    held: Option<Vec<(u64, String)>>,
    functions: HashMap<Function, Sum>,
}

impl Lines {
    /// Of calls that take longer than `threshold`, at most `limit`.
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

    /// The same, in the order in which calls began.
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

    /// The earliest of the lines that are held back.
    fn release(&mut self, number: usize) {
        let Some(held) = &mut self.held else { return };
        held.sort_by_key(|(start, _)| *start);
        self.lines.extend(held.drain(..number.min(held.len())).map(|(_, line)| line));
    }

    /// What has come since this was last asked for: whole lines.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.lines)
    }

    /// Is enough shown?
    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.made >= limit)
    }

    /// The functions that took most time first.
    fn rows(&self, known: &Known) -> Vec<(Function, Sum)> {
        let mut rows: Vec<_> = self.functions.iter().map(|(function, sum)| (*function, *sum)).collect();
        let name = |function: Function| (known.name(function), known.module(function));
        rows.sort_by(|a, b| {
            (b.1.shown, b.1.total).cmp(&(a.1.shown, a.1.total)).then_with(|| name(a.0).cmp(&name(b.0)))
        });
        rows
    }
}

/// The callers of a call, innermost first: all that were unwound, else one.
fn callers(known: &mut Known, over: &Over<'_>) -> Vec<String> {
    let numbers: Vec<u32> = match over.callers {
        Some(_) => known.path(over).into_iter().rev().skip(1).collect(),
        None => known.caller(over).into_iter().collect(),
    };
    numbers.into_iter().map(|caller| known.word(caller).to_owned()).collect()
}

/// `  blocked 16.6 ms, runnable 100 us`; nothing of a call whose thread ran all the time.
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
    fn over(&mut self, known: &mut Known, over: &Over<'_>) {
        let ns = known.ns(over.call.total);
        let sum = self.functions.entry(over.function).or_default();
        let ending = over.call.ending;
        sum.calls += 1;
        let is_known = ending.goes_on() || !ending.is_cut();
        if self.threshold.is_some_and(|threshold| !is_known || ns <= threshold) {
            return;
        }
        if !ending.is_cut() {
            sum.longest = sum.longest.max(ns);
        }
        if !ending.is_cut() && over.outermost {
            sum.total = sum.total.saturating_add(ns);
            sum.off += over.call.off;
        }
        sum.shown += 1;
        if self.is_full() {
            return;
        }
        self.made += 1;
        let callers = callers(known, over);
        let line = match self.form {
            Form::Text => {
                if !over.has_caller() && !callers.is_empty() && !std::mem::replace(&mut self.warned, true) {
                    self.lines += AROUND;
                }
                text_line(known, over, &callers, is_known)
            }
            Form::Json(version) => json_line(known, over, &callers, is_known, version),
        };
        self.add(over.call.start, &line);
    }

    fn finish(&mut self, _: &Known) {
        self.release(usize::MAX);
    }

    fn text(&self, known: &Known) -> String {
        let cells: Vec<Vec<String>> = self
            .rows(known)
            .iter()
            .filter(|(_, sum)| sum.shown > 0)
            .map(|(function, sum)| {
                vec![
                    count(sum.shown),
                    count(sum.calls),
                    duration(sum.total),
                    duration(sum.longest),
                    known.off(sum.off).map_or("?".to_owned(), |off| duration(off.blocked)),
                    one_line(known.module(*function)).into(),
                    one_line(known.name(*function)).into(),
                ]
            })
            .collect();
        let shown = if self.threshold.is_some() { "SLOWER" } else { "SHOWN" };
        let mut out = Vec::new();
        // A vector takes everything.
        let titles = [shown, "CALLS", "TIME", "MAX", "BLOCKED", "MODULE", "FUNCTION"];
        let _ = columns::write(&mut out, &titles, 5, &cells);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn json(&self, known: &Known) -> Value {
        let row = |(function, sum): &(Function, Sum)| {
            let off = known.off(sum.off);
            json!({
                "function": known.name(*function),
                "module": known.module(*function),
                "calls": sum.calls,
                "slower": sum.shown,
                "slower_ns": sum.total,
                "max_ns": sum.longest,
                "cpu_ns": off.and_then(|off| off.cpu(sum.total)),
                "runnable_ns": off.map(|off| off.runnable),
                "blocked_ns": off.map(|off| off.blocked),
                "tracing_ns": off.map(|off| off.tracing),
            })
        };
        let rows: Vec<Value> = self.rows(known).iter().map(row).collect();
        json!({ "threshold_ns": self.threshold, "functions": rows })
    }
}

/// The line of a call, for people. `is_known`: its time is, or how long it has taken already.
fn text_line(known: &mut Known, over: &Over<'_>, callers: &[String], is_known: bool) -> String {
    let ns = known.ns(over.call.total);
    let ending = over.call.ending;
    let caller: String = callers.iter().map(|caller| format!("  <- {caller}")).collect();
    let time = known.stamp(over.call.start);
    let took = match (is_known, ending.is_cut()) {
        (true, false) => duration(ns),
        (true, true) => format!(">{}", duration(ns)),
        (false, _) => format!("~{}", ending.name()),
    };
    let call = values::call(known.name(over.function), over.arguments);
    let results = values::results(over.results);
    let results = if results.is_empty() { results } else { format!("  {results}") };
    let waited = known.off(over.call.off).filter(|_| is_known).map(waited).unwrap_or_default();
    let task = known.task(over.thread);
    one_line(&format!("{time:>12}  {task:<22} {took:>13}  {call}{results}{waited}{caller}")).into_owned()
}

/// The same as an object, in which the key `version` says which form it has.
fn json_line(
    known: &mut Known,
    over: &Over<'_>,
    callers: &[String],
    is_known: bool,
    version: &str,
) -> String {
    let ns = known.ns(over.call.total);
    let ending = over.call.ending;
    let off = known.off(over.call.off).filter(|_| is_known);
    let mut object = json!({
        "start_ns": known.since_start(over.call.start),
        "start_epoch_ns": known.since_epoch(over.call.start),
        "duration_ns": is_known.then_some(ns),
        "cpu_ns": off.and_then(|off| off.cpu(ns)),
        "runnable_ns": off.map(|off| off.runnable),
        "blocked_ns": off.map(|off| off.blocked),
        "tracing_ns": off.map(|off| off.tracing),
        "end": ending.name(),
        "unfinished": ending.goes_on(),
        "tid": known.tid(over.thread),
        "thread": known.task(over.thread),
        "function": known.name(over.function),
        "module": known.module(over.function),
        "caller": callers.first(),
        "caller_is_around": !over.has_caller(),
    });
    if over.callers.is_some() {
        object["callers"] = callers.into();
    }
    if !over.arguments.is_empty() {
        object["arguments"] = values::object(over.arguments);
    }
    if !over.results.is_empty() {
        object["results"] = values::object(over.results);
    }
    object[version] = 1.into();
    object.to_string()
}
