//! How long calls take: a histogram for each function, or for each of its threads or callers.

use super::{AROUND, Function, Known, Over, Question};
use crate::off::Off;
use crate::units::{count, counted, duration, one_line};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Stars of the longest bar.
const BAR: usize = 40;
/// Linear buckets of a row; what takes longer is in the last.
const LINEAR: u64 = 1000;

/// How durations are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buckets {
    /// By powers of two, nanoseconds.
    Log2,
    /// In steps of so many nanoseconds.
    Linear(u64),
}

impl Buckets {
    fn place(self, ns: u64) -> u64 {
        match self {
            Buckets::Log2 => u64::from(ns.max(1).ilog2()),
            Buckets::Linear(width) => (ns / width).min(LINEAR - 1),
        }
    }

    /// From, and up to but not including (none: no end).
    fn bounds(self, place: u64) -> (u64, Option<u64>) {
        match self {
            Buckets::Log2 if place == 0 => (0, Some(2)),
            Buckets::Log2 => (1 << place, 1u64.checked_shl(place as u32 + 1)),
            Buckets::Linear(width) if place == LINEAR - 1 => (place.saturating_mul(width), None),
            Buckets::Linear(width) => (place.saturating_mul(width), Some((place + 1).saturating_mul(width))),
        }
    }
}

/// What calls are told apart by, besides their function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Nothing.
    Function,
    /// The functions that make the calls.
    Thread,
    /// The function they return to.
    Caller,
}

#[derive(Clone, Debug, Default)]
struct Row {
    calls: u64,
    unfinished: u64,
    total: u64,
    min: u64,
    max: u64,
    buckets: BTreeMap<u64, u64>,
    /// Calls of which it is known how long their threads did not run,
    known: u64,
    /// how long that was,
    off: Off,
    /// and how long they were blocked, if they were.
    blocked: BTreeMap<u64, u64>,
}

impl Row {
    fn add(&mut self, ns: u64, off: Option<Off>, buckets: Buckets) {
        self.min = if self.calls == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.calls += 1;
        self.total = self.total.saturating_add(ns);
        *self.buckets.entry(buckets.place(ns)).or_default() += 1;
        let Some(off) = off else { return };
        self.known += 1;
        self.off += off;
        if off.blocked > 0 {
            *self.blocked.entry(buckets.place(off.blocked)).or_default() += 1;
        }
    }

    /// How long the threads did not run, if that is known of all calls.
    fn off(&self) -> Option<Off> {
        (self.known == self.calls).then_some(self.off)
    }
}

/// Keeps histograms.
pub struct Latency {
    buckets: Buckets,
    by: By,
    rows: HashMap<(Function, Option<u32>), Row>,
    /// Calls that count for the traced function around them.
    around: u64,
}

impl Latency {
    /// Empty ones.
    pub fn new(buckets: Buckets, by: By) -> Latency {
        Latency { buckets, by, rows: HashMap::new(), around: 0 }
    }

    /// The longest in sum first.
    fn rows<'k>(&'k self, known: &'k Known) -> Vec<(Function, Option<&'k str>, &'k Row)> {
        let mut rows: Vec<_> = Vec::new();
        for ((function, who), row) in &self.rows {
            rows.push((*function, self.who(known, *who), row));
        }
        let name = |function: Function| (known.name(function), known.module(function));
        rows.sort_by(|a, b| b.2.total.cmp(&a.2.total).then_with(|| (name(a.0), a.1).cmp(&(name(b.0), b.1))));
        rows
    }

    fn who<'k>(&self, known: &'k Known, who: Option<u32>) -> Option<&'k str> {
        match (self.by, who) {
            (By::Function, _) => None,
            (_, Some(who)) => Some(known.word(who)),
            (_, None) => Some("[unknown]"),
        }
    }
}

impl Question for Latency {
    fn over(&mut self, known: &mut Known, over: &Over<'_>) {
        let who = match self.by {
            By::Function => None,
            By::Thread => {
                let task = known.task(over.thread);
                Some(known.number_of(task))
            }
            By::Caller => {
                self.around += u64::from(!over.has_caller());
                known.caller(over)
            }
        };
        let row = self.rows.entry((over.function, who)).or_default();
        if over.call.ending.is_cut() {
            row.unfinished += 1;
            return;
        }
        row.add(known.ns(over.call.total), known.off(over.call.off), self.buckets);
    }

    fn text(&self, known: &Known) -> String {
        let mut text = if self.around > 0 { AROUND.to_owned() } else { String::new() };
        for (function, who, row) in self.rows(known) {
            let who = who.map(|who| match self.by {
                By::Thread => format!(", thread {who}"),
                _ => format!(", called by {who}"),
            });
            let average = row.total.checked_div(row.calls).unwrap_or(0);
            let heading = format!(
                "{}{}: {}, avg {}, min {}, max {}",
                known.name(function),
                who.unwrap_or_default(),
                counted(row.calls, "call"),
                duration(average),
                duration(row.min),
                duration(row.max)
            );
            text += &one_line(&heading);
            if row.unfinished > 0 {
                text += &format!("; {} not over", count(row.unfinished));
            }
            text += "\n";
            self.bars(&row.buckets, &mut text);
            if !row.blocked.is_empty() {
                let calls = row.blocked.values().sum();
                text += &format!(
                    "  of that, blocked: {} in {}{}\n",
                    duration(row.off.blocked),
                    counted(calls, "call"),
                    if row.known < row.calls {
                        format!("; not known of {}", count(row.calls - row.known))
                    } else {
                        String::new()
                    }
                );
                self.bars(&row.blocked, &mut text);
            }
            text += "\n";
        }
        if text.is_empty() { "no calls\n".to_owned() } else { text }
    }

    fn json(&self, known: &Known) -> Value {
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
                    "calls": row.calls,
                    "unfinished": row.unfinished,
                    "total_ns": row.total,
                    "min_ns": row.min,
                    "max_ns": row.max,
                    "buckets": buckets(&row.buckets),
                    "cpu_ns": off.and_then(|off| off.cpu(row.total)),
                    "runnable_ns": off.map(|off| off.runnable),
                    "blocked_ns": off.map(|off| off.blocked),
                    "blocked_buckets": off.map(|_| buckets(&row.blocked)),
                });
                match self.by {
                    By::Function => {}
                    By::Thread => object["thread"] = who.into(),
                    By::Caller => object["caller"] = who.into(),
                }
                object
            })
            .collect();
        json!({ "functions": rows, "traced_callers_only": self.around })
    }
}

impl Latency {
    /// A line for every bucket from the first to the last that holds something.
    fn bars(&self, buckets: &BTreeMap<u64, u64>, text: &mut String) {
        let (Some((first, _)), Some((last, _))) = (buckets.first_key_value(), buckets.last_key_value())
        else {
            return;
        };
        let most = buckets.values().copied().max().unwrap_or(1);
        let mut empty = 0;
        for place in *first..=*last {
            let calls = buckets.get(&place).copied().unwrap_or(0);
            // Long gaps say nothing.
            empty = if calls == 0 { empty + 1 } else { 0 };
            if empty > 1 && self.buckets != Buckets::Log2 {
                continue;
            }
            let (from, to) = self.buckets.bounds(place);
            let to = to.map(duration).unwrap_or_default();
            let stars = (u128::from(calls) * BAR as u128).div_ceil(u128::from(most)) as usize;
            let bar = "*".repeat(stars);
            *text += &format!("{:>14} .. {to:<13} {:>12} |{bar:<BAR$}|\n", duration(from), count(calls));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_within_the_bounds_of_its_bucket() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for ns in edges.chain([u64::MAX]) {
            for buckets in [Buckets::Log2, Buckets::Linear(1), Buckets::Linear(250_000)] {
                let (from, to) = buckets.bounds(buckets.place(ns));
                assert!(from <= ns && to.is_none_or(|to| ns < to), "{ns} in {from}..{to:?}");
            }
        }
    }
}
