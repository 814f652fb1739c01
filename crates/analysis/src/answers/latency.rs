//! Histograms of call durations: one for each function, or for each of its threads or callers.

use super::buckets::{Buckets, bars};
use super::cut::CutCalls;
use super::{AROUND, EndedCall, Function, QueryContext, Question};
use crate::histogram::Quantiles;
use crate::off::Off;
use crate::units::{count, counted, duration, one_line};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Quantiles shown of durations: parts per thousand, title, JSON key.
pub(super) const PERMILLES: [(u32, &str, &str); 4] =
    [(500, "p50", "p50_ns"), (900, "p90", "p90_ns"), (990, "p99", "p99_ns"), (999, "p99.9", "p999_ns")];

/// How the calls of a function are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A group for each function.
    Function,
    /// A group for each thread.
    Thread,
    /// A group for each caller.
    Caller,
    /// A group for each combination of captured values.
    Value,
}

/// The durations of the calls of one function, in one group.
#[derive(Clone, Debug, Default)]
struct CallDurations {
    /// Number of calls with a duration.
    timed: u64,
    cut: CutCalls,
    /// Sum of the durations of all calls in ticks, from which the average is made.
    durations: u64,
    /// Sum of the durations of outermost calls in ticks, which include recursive ones.
    total: u64,
    min: u64,
    max: u64,
    buckets: BTreeMap<u64, u64>,
    quantiles: Quantiles,
    /// Number of calls whose off-CPU time is known.
    known: u64,
    /// Off-CPU time of outermost calls.
    off: Off,
    /// Calls by the bucket of their blocked time, if they were blocked.
    blocked: BTreeMap<u64, u64>,
}

impl CallDurations {
    fn calls(&self) -> u64 {
        self.timed + self.cut.total()
    }

    /// Adds a call with a duration, in both units.
    fn add(&mut self, (ticks, ns): (u64, u64), off: Option<Off>, outermost: bool, buckets: Buckets) {
        self.min = if self.timed == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.timed += 1;
        self.durations = self.durations.saturating_add(ticks);
        self.total = self.total.saturating_add(if outermost { ticks } else { 0 });
        *self.buckets.entry(buckets.place(ns)).or_default() += 1;
        self.quantiles.record(ns);
        let Some(off) = off else { return };
        self.known += 1;
        self.off += if outermost { off } else { Off::default() };
        if off.blocked > 0 {
            *self.blocked.entry(buckets.place(off.blocked)).or_default() += 1;
        }
    }

    /// Durations at the quantiles of [`PERMILLES`], nanoseconds.
    fn permilles(&self) -> [u64; 4] {
        self.quantiles.permilles(PERMILLES.map(|(permille, ..)| permille), self.min, self.max)
    }

    /// Off-CPU time, if it is known of all calls with a duration.
    fn off(&self) -> Option<Off> {
        (self.known == self.timed).then_some(self.off)
    }
}

/// The answer to `latency`.
pub struct Latency {
    buckets: Buckets,
    by: By,
    rows: HashMap<(Function, Option<u32>), CallDurations>,
    /// Number of calls without a recorded caller: the enclosing traced function counts as their
    /// caller.
    around: u64,
}

impl Latency {
    /// Makes an answer without calls.
    pub fn new(buckets: Buckets, by: By) -> Latency {
        Latency { buckets, by, rows: HashMap::new(), around: 0 }
    }

    /// Returns the rows, largest total time first.
    fn rows<'k>(&'k self, known: &'k QueryContext) -> Vec<(Function, Option<&'k str>, &'k CallDurations)> {
        let mut rows: Vec<_> = Vec::new();
        for ((function, who), row) in &self.rows {
            rows.push((*function, self.who(known, *who), row));
        }
        let name = |function: Function| (known.name(function), known.module(function));
        rows.sort_by(|a, b| b.2.total.cmp(&a.2.total).then_with(|| (name(a.0), a.1).cmp(&(name(b.0), b.1))));
        rows
    }

    fn who<'k>(&self, known: &'k QueryContext, who: Option<u32>) -> Option<&'k str> {
        match (self.by, who) {
            (By::Function | By::Value, _) => None,
            (_, Some(who)) => Some(known.word(who)),
            (_, None) => Some("[unknown]"),
        }
    }
}

impl Question for Latency {
    fn ended(&mut self, known: &mut QueryContext, ended: &EndedCall<'_>) {
        let who = match self.by {
            By::Function | By::Value => None,
            By::Thread => {
                let task = known.task(ended.thread);
                Some(known.number_of(task))
            }
            By::Caller => {
                self.around += u64::from(!ended.has_caller());
                known.caller(ended)
            }
        };
        let row = self.rows.entry((ended.function, who)).or_default();
        if ended.call.ending.is_cut() {
            row.cut.add(ended.call.ending);
            return;
        }
        let ticks = ended.call.total;
        row.add((ticks, known.ns(ticks)), known.off(ended.call.off), ended.outermost, self.buckets);
    }

    fn text(&self, known: &QueryContext) -> String {
        let mut text = if self.around > 0 { AROUND.to_owned() } else { String::new() };
        for (function, who, row) in self.rows(known) {
            let who = who.map(|who| match self.by {
                By::Thread => format!(", thread {who}"),
                _ => format!(", called by {who}"),
            });
            let average = known.ns(row.durations).checked_div(row.timed).unwrap_or(0);
            let calls = counted(row.calls(), "call");
            let times = match row.timed {
                0 => String::new(),
                _ => format!(
                    ", avg {}, min {}, max {}",
                    duration(average),
                    duration(row.min),
                    duration(row.max)
                ),
            };
            let heading = format!("{}{}: {calls}{times}", known.name(function), who.unwrap_or_default());
            text += &one_line(&heading);
            text += &format!("{}\n", row.cut.text());
            if row.timed > 0 {
                let one = |((_, name, _), ns): (&(u32, &str, &str), u64)| format!("{name} {}", duration(ns));
                let all: Vec<String> = PERMILLES.iter().zip(row.permilles()).map(one).collect();
                text += &format!("  {}\n", all.join(", "));
            }
            bars(self.buckets, &row.buckets, &mut text);
            if !row.blocked.is_empty() {
                let calls = row.blocked.values().sum();
                text += &format!(
                    "  of that, blocked: {} in {}{}\n",
                    duration(row.off.blocked),
                    counted(calls, "call"),
                    if row.known < row.timed {
                        format!("; not known of {}", count(row.timed - row.known))
                    } else {
                        String::new()
                    }
                );
                bars(self.buckets, &row.blocked, &mut text);
            }
            text += "\n";
        }
        if text.is_empty() { "no calls\n".to_owned() } else { text }
    }

    fn json(&self, known: &QueryContext) -> Value {
        let rows: Vec<Value> = self
            .rows(known)
            .into_iter()
            .map(|(function, who, row)| {
                let bucket = |(place, calls): (&u64, &u64)| {
                    let (from, to) = self.buckets.bounds(*place);
                    json!({ "from_ns": from, "to_ns": to, "calls": calls })
                };
                let buckets = |of: &BTreeMap<u64, u64>| of.iter().map(bucket).collect::<Vec<_>>();
                let off = row.off();
                let mut object = json!({
                    "function": known.name(function),
                    "module": known.module(function),
                    "calls": row.calls(),
                    "timed": row.timed,
                    "unfinished": row.cut.total(),
                    "without_duration": row.cut.json(),
                    "total_ns": known.ns(row.total),
                    "min_ns": row.min,
                    "max_ns": row.max,
                    "buckets": buckets(&row.buckets),
                    "cpu_ns": off.and_then(|off| off.cpu(known.ns(row.total))),
                    "runnable_ns": off.map(|off| off.runnable),
                    "blocked_ns": off.map(|off| off.blocked),
                    "tracing_ns": off.map(|off| off.tracing),
                    "blocked_buckets": off.map(|_| buckets(&row.blocked)),
                });
                for ((.., key), ns) in PERMILLES.into_iter().zip(row.permilles()) {
                    object[key] = (row.timed > 0).then_some(ns).into();
                }
                match self.by {
                    By::Function | By::Value => {}
                    By::Thread => object["thread"] = who.into(),
                    By::Caller => object["caller"] = who.into(),
                }
                object
            })
            .collect();
        json!({ "functions": rows, "traced_callers_only": self.around })
    }
}
