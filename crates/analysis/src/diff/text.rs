//! The comparison as text.

use super::{Diff, Measure, Row, Verdict, evidence, rule};
use crate::columns::{self, Fitting, Leavable};
use crate::units::{count, counted, duration, one_line};
use std::io::{self, Write};

impl Diff {
    /// Writes a table of the rows that differ beyond the noise, and the number of rows left out.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for (side, letter) in self.sides.iter().zip(["A", "B"]) {
            for recording in side {
                for (at, line) in recording.head.lines().enumerate() {
                    let name =
                        if at == 0 { format!("{}: ", one_line(&recording.name)) } else { String::new() };
                    writeln!(out, "# {letter}: {name}{}", line.trim_start_matches("# "))?;
                }
            }
        }
        if let Some(restriction) = &self.restriction {
            writeln!(out, "# {restriction}")?;
        }
        let what = if self.options.by_path { "path" } else { "function" };
        let (beyond, rest): (Vec<&Row>, Vec<&Row>) = self.rows.iter().partition(|row| self.is_beyond(row));
        let all = counted(self.rows.len() as u64, what);
        let noise = if self.is_of_single_recordings() {
            format!("within one recording a side ({} standard errors", rule::ERRORS)
        } else {
            format!("between recordings ({} % confidence", (1.0 - evidence::ERROR_RATE) * 100.0)
        };
        writeln!(
            out,
            "# beyond the noise {noise}, and {} %): {} of {all}",
            self.options.min_change * 100.0,
            count(beyond.len() as u64),
        )?;
        self.seldom(&rest, what, out)?;
        for (merged, letter) in self.merged.iter().zip(["A", "B"]) {
            if *merged > 0 {
                writeln!(
                    out,
                    "# {letter}: {} by further paths are part of their callers",
                    counted(*merged, "call")
                )?;
            }
        }
        let mut shown = if self.options.all { self.rows.iter().collect() } else { beyond };
        let cut = shown.len() - self.options.limit.unwrap_or(usize::MAX).min(shown.len());
        shown.truncate(shown.len() - cut);
        if !shown.is_empty() {
            self.table(&shown, out)?;
        }
        if cut > 0 {
            writeln!(out, "# {} not shown", counted(cut as u64, what))?;
        }
        Ok(())
    }

    /// Writes how many rows may differ, but have too few calls or recordings to decide.
    fn seldom(&self, rest: &[&Row], what: &str, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.columns();
        let unknown = |row: &&&Row| {
            let unknown = |measure: &Measure| {
                *measure != Measure::Max && row.verdict(*measure, self.rule()) == Some(Verdict::Unknown)
            };
            columns.iter().any(unknown)
        };
        let mut rows = rest.iter().filter(unknown);
        // The rows are sorted: the first differs most.
        let Some(first) = rows.next() else { return Ok(()) };
        let others = counted(1 + rows.count() as u64, what);
        let name = one_line(&self.functions[first.function as usize].name);
        let seldom = if self.is_of_single_recordings() { "called" } else { "recorded" };
        writeln!(out, "# {seldom} too seldom to tell (?): {others}, first {name}")
    }

    fn table(&self, rows: &[&Row], out: &mut dyn Write) -> io::Result<()> {
        let measures = self.columns();
        let mut titles: Vec<String> = Vec::new();
        for measure in &measures {
            let name = measure.name().to_uppercase();
            titles.extend([format!("{name} A"), format!("{name} B"), "CHANGE".to_owned()]);
        }
        let numbers = titles.len();
        if self.tells_states() {
            titles.push("OF TOTAL".to_owned());
        }
        titles.push("MODULE".to_owned());
        titles.push(if self.options.by_path { "PATH" } else { "FUNCTION" }.to_owned());
        let cells: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row, &measures)).collect();
        let width = self.options.width;
        let is_chosen = !self.options.columns.is_empty();
        let measure = if is_chosen { Leavable::named } else { Leavable::usual };
        // Columns between numbers and names are left out first, then measures, from the last to the
        // second.
        let between = (numbers..titles.len() - 1).rev().map(|at| Leavable::usual(vec![at]));
        let mut leavable: Vec<Leavable> = between.collect();
        leavable.extend((3..numbers).step_by(3).rev().map(|at| measure((at..at + 3).collect())));
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let fitting = Fitting { width, leavable: &leavable, flags: "--columns, --full-names" };
        columns::write_fitting(out, &titles, numbers, cells, fitting)
    }

    /// Formats the margin of the change in percent of A: ` ±1.2`; empty if it is unknown or the
    /// change is no percentage.
    fn margin(&self, row: &Row, measure: Measure) -> String {
        let [Some(a), Some(b)] = [0, 1].map(|side| row.mean(side, measure)) else { return String::new() };
        let interval = evidence::interval(measure, &a, &b, self.rule().comparisons);
        match interval {
            Some((low, high)) if high > low && a.mean > 0.0 && b.mean > 0.0 => {
                format!(" ±{:.1}", (high - low) / 2.0 / a.mean * 100.0)
            }
            _ => String::new(),
        }
    }

    /// Whether changes of the total are split into thread states.
    fn tells_states(&self) -> bool {
        self.timed && self.states && self.columns().contains(&Measure::Total)
    }

    /// Formats the states that differ beyond the noise, largest difference first:
    /// `blocked +16.495 ms, cpu -1.000 ms`; `?` if states are unknown.
    fn changed_states(&self, row: &Row) -> String {
        let mut changes = Vec::new();
        for state in Measure::STATES {
            let [Some(a), Some(b)] = row.values(state) else { return "?".to_owned() };
            if row.verdict(state, self.rule()).is_some_and(Verdict::differs) {
                changes.push((a.abs_diff(b), state, if b > a { '+' } else { '-' }));
            }
        }
        changes.sort_by_key(|(by, ..)| std::cmp::Reverse(*by));
        let texts =
            changes.iter().map(|(by, state, sign)| format!("{} {sign}{}", state.name(), duration(*by)));
        texts.collect::<Vec<_>>().join(", ")
    }

    fn cells(&self, row: &Row, measures: &[Measure]) -> Vec<String> {
        let mut cells = Vec::new();
        for &measure in measures {
            let values = row.values(measure);
            let form = |value: u64| if measure.is_time() { duration(value) } else { count(value) };
            cells.extend(values.map(|value| value.map_or_else(|| "-".to_owned(), form)));
            cells.push(match values {
                [Some(a), Some(b)] => {
                    change(a, b, row.verdict(measure, self.rule())) + &self.margin(row, measure)
                }
                _ => String::new(),
            });
        }
        if self.tells_states() {
            cells.push(self.changed_states(row));
        }
        let function = &self.functions[row.function as usize];
        cells.push(one_line(&function.module).into_owned());
        cells.push(match row.path {
            Some(node) => one_line(&self.path(node).join(" > ")).into_owned(),
            None => one_line(&function.name).into_owned(),
        });
        cells
    }
}

/// Formats a change: `+12.3 %`, with `~` in front within the noise and `?` if undecided.
fn change(a: u64, b: u64, verdict: Option<Verdict>) -> String {
    let text = match (a, b) {
        _ if a == b => return "=".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        _ if b / 10 >= a => format!("{:.1}x", b as f64 / a as f64),
        _ => format!("{:+.1} %", (b as f64 / a as f64 - 1.0) * 100.0),
    };
    match verdict {
        Some(Verdict::Same) => format!("~{text}"),
        Some(Verdict::Unknown) | None => format!("?{text}"),
        Some(_) => text,
    }
}
