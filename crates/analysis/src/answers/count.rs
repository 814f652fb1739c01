//! Call counts of functions, from the sums that the profile tracer keeps in the program or from
//! events.

use super::{Function, QueryContext, Question};
use crate::columns;
use crate::head::disabled::at_least;
use crate::units::{count, counted, one_line};
use calltap_trace::{Profile, SiteId};
use serde_json::{Value, json};
use std::collections::HashMap;

/// How often a function was called, by source.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// Calls counted from events.
    events: u64,
    /// Calls counted by the profile tracer.
    sums: u64,
}

impl Counted {
    /// Returns the larger of both counts: a call that was traced in both ways is in both.
    fn calls(self) -> u64 {
        self.events.max(self.sums)
    }
}

/// The answer to `count`: calls of each function.
pub struct Count {
    functions: HashMap<Function, Counted>,
    /// Calls per second while all functions were on, if the program's sums were read then.
    rates: Option<HashMap<Function, f64>>,
    limit: Option<usize>,
    /// Whether calls that do not satisfy a condition are not recorded.
    is_conditional: bool,
}

impl QueryContext {
    /// Returns a number of calls of a function as tables show it.
    pub(super) fn calls(&self, function: Function, calls: u64) -> String {
        at_least(self.disabled.contains(self.full_name(function)), count(calls))
    }
}

impl Question for Count {
    fn enter(&mut self, function: Function) {
        self.functions.entry(function).or_default().events += 1;
    }

    fn text(&self, known: &QueryContext) -> String {
        let rows = self.rows(known);
        let shown = self.limit.unwrap_or(rows.len()).min(rows.len());
        let cells: Vec<Vec<String>> = rows[..shown]
            .iter()
            .map(|(function, calls)| {
                let rate = match &self.rates {
                    Some(rates) => rates.get(function).copied().unwrap_or(0.0),
                    None => *calls as f64 * 1e9 / known.elapsed.ns().max(1) as f64,
                };
                let (module, name) = (known.module(*function), known.name(*function));
                let calls = known.calls(*function, *calls);
                let rate = at_least(calls.starts_with('>'), format!("{rate:.1}"));
                vec![calls, rate, one_line(module).into(), one_line(name).into()]
            })
            .collect();
        let mut out = Vec::new();
        // Writing to a vector cannot fail.
        let _ = columns::write(&mut out, &["CALLS", "CALLS/S", "MODULE", "FUNCTION"], 2, &cells);
        let mut text = String::from_utf8_lossy(&out).into_owned();
        if shown < rows.len() {
            text += &format!("# {} not shown\n", counted((rows.len() - shown) as u64, "function"));
        }
        let never = known.all_wanted().count().saturating_sub(rows.len()) as u64;
        if never > 0 {
            let what =
                if self.is_conditional { "without a call that satisfies --if" } else { "never called" };
            text += &format!("# {} {what}\n", counted(never, "function"));
        }
        text
    }

    fn json(&self, known: &QueryContext) -> Value {
        let called: HashMap<Function, u64> = self.rows(known).into_iter().collect();
        let mut all: Vec<(Function, u64)> = known
            .all_wanted()
            .map(|function| (function, called.get(&function).copied().unwrap_or(0)))
            .collect();
        sort(&mut all, known);
        let row = |(function, calls): &(Function, u64)| json!({ "function": known.name(*function), "module": known.module(*function), "calls": calls });
        let rows: Vec<Value> = all.iter().take(self.limit.unwrap_or(usize::MAX)).map(row).collect();
        json!({ "functions": rows })
    }
}

impl Count {
    /// Shows at most `limit` rows.
    pub fn new(limit: Option<usize>) -> Count {
        Count { functions: HashMap::new(), rates: None, limit, is_conditional: false }
    }

    /// Counts calls that satisfy a condition; others are not recorded.
    pub fn conditional(self, is_conditional: bool) -> Count {
        Count { is_conditional, ..self }
    }

    /// Replaces the sums of the profile tracer by newer ones.
    pub fn sums(&mut self, known: &QueryContext, rows: &[Profile]) {
        self.functions.values_mut().for_each(|counted| counted.sums = 0);
        for Profile { site, hits, .. } in rows {
            if let Some(function) = known.wanted(SiteId(site.0)) {
                self.functions.entry(function).or_default().sums += hits;
            }
        }
    }

    /// Takes two readings of the program's sums, and the nanoseconds between them. While functions
    /// are enabled and disabled one after another, the time does not fit the calls.
    pub fn rates(&mut self, known: &QueryContext, [first, last]: [&[Profile]; 2], ns: u64) {
        let mut calls: HashMap<Function, i64> = HashMap::new();
        for (rows, sign) in [(first, -1), (last, 1)] {
            for Profile { site, hits, .. } in rows {
                if let Some(function) = known.wanted(SiteId(site.0)) {
                    *calls.entry(function).or_default() += sign * *hits as i64;
                }
            }
        }
        let rate = |calls: i64| calls.max(0) as f64 * 1e9 / ns.max(1) as f64;
        self.rates = Some(calls.into_iter().map(|(function, calls)| (function, rate(calls))).collect());
    }

    /// Returns the functions that were called, most frequent first.
    fn rows(&self, known: &QueryContext) -> Vec<(Function, u64)> {
        let calls = self.functions.iter().map(|(function, counted)| (*function, counted.calls()));
        let mut rows: Vec<(Function, u64)> = calls.filter(|(_, calls)| *calls > 0).collect();
        sort(&mut rows, known);
        rows
    }
}

fn sort(rows: &mut [(Function, u64)], known: &QueryContext) {
    let name = |function: Function| (known.name(function), known.module(function));
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| name(a.0).cmp(&name(b.0))));
}
