//! The comparison as JSON; `docs/guides/diff.md` describes the format.

use super::{Diff, Measure, Recording, Row, evidence, rule};
use crate::head::disabled;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Version of the format: incremented when a member that readers rely on changes or disappears, not
/// when one is added.
const VERSION: u32 = 1;

impl Diff {
    /// Writes the comparison as one JSON object, one row to a line, with all functions or paths and
    /// all their measures.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let member = |name: &str, value: Value| format!("\"{name}\":{value},\n");
        writeln!(out, "{{\"calltap_diff\":{VERSION},")?;
        for (side, name) in self.sides.iter().zip(["a", "b"]) {
            out.write_all(member(name, of_side(side)).as_bytes())?;
        }
        out.write_all(member("compared", json!(if self.timed { "times" } else { "calls" })).as_bytes())?;
        out.write_all(member("restriction", json!(self.restriction)).as_bytes())?;
        let rule = json!({
            "standard_errors": rule::ERRORS,
            "min_change": self.options.min_change,
            "least_calls": rule::MIN_CALLS,
            "percentile_step_ns": self.rule().step_ns,
            "between_recordings": !self.is_of_single_recordings(),
            "confidence": 1.0 - evidence::ERROR_RATE,
            "least_recordings": evidence::MIN_RECORDINGS,
        });
        out.write_all(member("noise", rule).as_bytes())?;
        out.write_all(
            member("merged_calls", json!({ "a": self.merged[0], "b": self.merged[1] })).as_bytes(),
        )?;
        let conditions = self.outcomes.iter().map(|outcome| {
            let holds_of = outcome.holds_of.iter().map(|holds| {
                let [a, b] = holds.values;
                let verdict = holds.verdict.map(|verdict| verdict.name());
                json!({
                    "function": holds.function,
                    "a": a,
                    "b": b,
                    "verdict": verdict,
                    "proven": holds.proven,
                    "margin": holds.margin,
                })
            });
            json!({
                "condition": outcome.condition,
                "finding": outcome.finding.name(),
                "holds_of": holds_of.collect::<Vec<_>>(),
            })
        });
        out.write_all(member("conditions", conditions.collect()).as_bytes())?;
        write!(out, "\"{}\":[", if self.options.by_path { "paths" } else { "functions" })?;
        let rows = self.rows.iter().take(self.options.limit.unwrap_or(usize::MAX));
        for (at, row) in rows.enumerate() {
            write!(out, "{}{}", if at == 0 { "\n" } else { ",\n" }, self.row(row))?;
        }
        out.write_all(b"\n]}\n")
    }

    /// Returns the confidence interval of the change from A to B, or null with too few recordings.
    fn interval(&self, row: &Row, measure: Measure) -> Value {
        let [Some(a), Some(b)] = [0, 1].map(|side| row.mean(side, measure)) else { return Value::Null };
        match evidence::interval(measure, &a, &b, self.rule().comparisons) {
            Some((low, high)) => json!({ "low": low, "high": high }),
            None => Value::Null,
        }
    }

    fn row(&self, row: &Row) -> Value {
        let function = &self.functions[row.function as usize];
        let mut object = Map::new();
        object.insert("function".to_owned(), json!(function.name));
        object.insert("module".to_owned(), json!(function.module));
        if let Some(node) = row.path {
            object.insert("path".to_owned(), json!(self.path(node)));
        }
        object.insert("beyond_noise".to_owned(), json!(self.is_beyond(row)));
        for measure in Measure::ALL {
            if self.options.by_path && !measure.is_by_path() {
                continue;
            }
            let [a, b] = row.values(measure);
            let verdict = row.verdict(measure, self.rule()).map(|verdict| verdict.name());
            let of = if self.timed || !measure.is_time() {
                json!({ "a": a, "b": b, "verdict": verdict, "change": self.interval(row, measure) })
            } else {
                Value::Null
            };
            object.insert(measure.key(), of);
        }
        Value::Object(object)
    }
}

/// Returns the sums over all recordings of a side.
fn of_side(side: &[Recording]) -> Value {
    let sum = |number: fn(&Recording) -> u64| side.iter().map(number).sum::<u64>();
    json!({
        "file": side.first().map(|recording| &recording.name),
        "files": side.iter().map(|recording| &recording.name).collect::<Vec<_>>(),
        "events": sum(|recording| recording.totals.events),
        "threads": sum(|recording| recording.totals.threads),
        "calls": sum(|recording| recording.totals.calls),
        "lost_calls": sum(|recording| recording.lost),
        "unfinished": sum(|recording| recording.totals.unfinished),
        disabled::KEY: side.iter().flat_map(|recording| &recording.disabled_by_limit).collect::<BTreeSet<_>>(),
        "damaged_parts": sum(|recording| recording.totals.damaged),
        "clock": side.first().and_then(|recording| recording.clock),
    })
}
