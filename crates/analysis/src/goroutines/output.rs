//! Writes the goroutines as text, CSV and JSON.

use super::{Goroutine, Goroutines, Starter, States};
use crate::bytes::push_csv;
use crate::columns::{self, Fitting, Leavable};
use crate::head::facts::List;
use crate::report::Format;
use crate::units::{count, counted, duration, one_line};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Deepest indentation of the text, in levels.
const MAX_LEVELS: usize = 24;
/// The columns of CSV.
const CSV: &str = "pid,goroutine,started_by,function,calls,first_ns,seen_ns,waited_ns,waits_at_end,cpu_ns,runnable_ns,blocked_ns,unknown_ns";
/// Titles of the states other than waiting.
const STATES: [&str; 4] = ["RAN", "RUNNABLE", "BLOCKED", "UNKNOWN"];

impl Goroutines {
    /// Writes the list in `format`.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => self.write_text(out),
            Format::Csv => self.write_csv(out),
            Format::Json => self.write_json(out),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.head.as_bytes())?;
        if self.rows.is_empty() {
            writeln!(out, "# no goroutines")?;
            return Ok(());
        }
        let several = self.rows.iter().map(|row| row.pid).collect::<BTreeSet<_>>().len() > 1;
        let mut titles = vec!["CALLS"];
        if self.timed {
            titles.extend(["FIRST", "SEEN", "WAITED"]);
        }
        let has_states = self.timed && self.rows.iter().any(|row| row.states.is_some());
        titles.extend(has_states.then_some(STATES).into_iter().flatten());
        titles.extend(["GOROUTINE", "STARTED BY"]);
        titles.extend(several.then_some("PROCESS"));
        let numbers = titles.len();
        titles.push("FUNCTION");
        let cells = self.rows.iter().map(|row| self.cells(row, has_states, several)).collect();
        let leavable: Vec<Leavable> = ["FIRST", "CALLS", "UNKNOWN", "BLOCKED", "SEEN"]
            .iter()
            .filter_map(|title| Some(Leavable::usual(vec![titles.iter().position(|other| other == title)?])))
            .collect();
        let fitting = Fitting { width: self.width, leavable: &leavable, flags: "--full-names" };
        columns::write_fitting(out, &titles, numbers, cells, fitting)?;
        if self.cut > 0 {
            writeln!(out, "# {} not shown", counted(self.cut, "goroutine"))?;
        }
        Ok(())
    }

    fn cells(&self, row: &Goroutine, has_states: bool, several: bool) -> Vec<String> {
        let mut cells = vec![count(row.calls)];
        if self.timed {
            cells.extend([duration(row.first_ns), duration(row.seen_ns)]);
            let more = if row.waits { ">" } else { "" };
            cells.push(row.waited_ns.map_or("?".to_owned(), |ns| format!("{more}{}", duration(ns))));
        }
        if has_states {
            let states = row.states.map(States::all);
            cells.extend((0..STATES.len()).map(|n| states.map_or("?".to_owned(), |all| duration(all[n]))));
        }
        cells.extend([row.number.to_string(), row.starter.text()]);
        cells.extend(several.then(|| row.pid.to_string()));
        let function = row.function.as_deref().map_or("?".into(), one_line);
        cells.push(format!("{}{function}", "  ".repeat(row.depth.min(MAX_LEVELS))));
        cells
    }

    fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{CSV}")?;
        let or_empty = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
        for row in &self.rows {
            let mut line = Vec::new();
            write!(line, "{},{},{},", row.pid, row.number, or_empty(row.starter.number()))?;
            push_csv(&mut line, row.function.as_deref().unwrap_or_default());
            let [first, seen, waited] = self.times(row).map(or_empty);
            write!(line, ",{},{first},{seen},{waited},{}", row.calls, row.waits)?;
            for n in 0..STATES.len() {
                write!(line, ",{}", or_empty(row.states.map(|states| states.all()[n])))?;
            }
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }

    /// Returns the beginning, the length and the waits of a goroutine in nanoseconds; none if the
    /// clock does not measure time.
    fn times(&self, row: &Goroutine) -> [Option<u64>; 3] {
        [Some(row.first_ns), Some(row.seen_ns), row.waited_ns].map(|ns| ns.filter(|_| self.timed))
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut list = List::begin(out, ("calltap_goroutines", "goroutines"), &self.facts)?;
        for row in &self.rows {
            let [first, seen, waited] = self.times(row);
            let object = json!({
                "pid": row.pid,
                "goroutine": row.number,
                "started_by": row.starter.number(),
                "function": row.function,
                "calls": row.calls,
                "first_ns": first,
                "seen_ns": seen,
                "waited_ns": waited,
                "waits_at_end": row.waits,
                "cpu_ns": row.states.map(|states| states.ran_ns),
                "runnable_ns": row.states.map(|states| states.runnable_ns),
                "blocked_ns": row.states.map(|states| states.blocked_ns),
                "unknown_ns": row.states.map(|states| states.unknown_ns),
            });
            write!(list.next()?, "{object}")?;
        }
        list.end()
    }
}

impl States {
    /// Returns the times in the order of [`STATES`].
    fn all(self) -> [u64; STATES.len()] {
        [self.ran_ns, self.runnable_ns, self.blocked_ns, self.unknown_ns]
    }
}

impl Starter {
    fn text(self) -> String {
        match self {
            Starter::Unknown => "?".to_owned(),
            Starter::Runtime => "runtime".to_owned(),
            Starter::Goroutine(number) => number.to_string(),
        }
    }

    /// Returns the number in CSV and JSON: 0 for the runtime.
    fn number(self) -> Option<u64> {
        match self {
            Starter::Unknown => None,
            Starter::Runtime => Some(0),
            Starter::Goroutine(number) => Some(number),
        }
    }
}
