//! The table as plain text or JSON: a block, or an object in a line, for every interval.

use super::Show;
use super::intervals::Intervals;
use super::switches::Switches;
use super::view::{self, heading};
use anyhow::Result;
use calltap_analysis::intervals::{FunctionCalls, Interval};
use calltap_analysis::units::one_line;
use calltap_session::SessionOutcome;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The titles of the columns; in all columns but the last, values are one word.
const TITLES: [&str; 7] = ["CALLS/S", "AVG_US", "MAX_US", "TIME%", "STATE", "MODULE", "FUNCTION"];

/// Prints the intervals of each process, up to the number that the user asked for. Returns, by
/// process, the last interval if it was cut short.
pub fn print_intervals(
    intervals: &mut Intervals,
    switches: &[Switches],
    show: &Show,
) -> Result<Vec<Option<Interval>>> {
    let mut short = vec![None; switches.len()];
    let mut printed = vec![0; switches.len()];
    let is_enough = |printed: u64| show.count.is_some_and(|count| printed >= count);
    while let Some((at, interval)) = intervals.next() {
        if let Some(interval) = interval.filter(|_| !is_enough(printed[at])) {
            // Only the last interval can be shorter.
            if interval.length_ns * 10 < show.interval.as_nanos() as u64 * 9 {
                short[at] = Some(interval);
                continue;
            }
            block(interval, &switches[at], show)?;
            printed[at] += 1;
        }
        if (0..printed.len()).all(|at| is_enough(printed[at]) || !intervals.runs(at)) {
            break;
        }
    }
    Ok(short)
}

/// Prints the last interval if the end of the process cut it short.
pub fn finish(
    short: Option<Interval>,
    outcome: &SessionOutcome,
    switches: &Switches,
    show: &Show,
) -> Result<()> {
    match short.filter(|_| outcome.ended) {
        Some(interval) => block(interval, switches, show),
        None => Ok(()),
    }
}

fn block(mut interval: Interval, switches: &Switches, show: &Show) -> Result<()> {
    interval.sort(show.sort);
    let mut out = io::stdout().lock();
    match show.json {
        true => out.write_all(format!("{}\n", object(&interval, switches, show.limit)).as_bytes())?,
        false => write(&interval, switches, show.limit, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Returns an interval as JSON. A function that was off for a part of it is `partial`: its numbers
/// are lower bounds, and averages are null if no call ended.
fn object(interval: &Interval, switches: &Switches, limit: Option<usize>) -> Value {
    let (status, shown) = (switches.status(), limit.unwrap_or(usize::MAX).min(interval.rows.len()));
    let row = |row: &FunctionCalls| {
        let of_ended = |ns: u64| (row.ended > 0).then_some(ns);
        json!({
            "function": row.function, "module": row.module, "state": switches.state(row).word(),
            "calls": row.calls, "ended": row.ended, "total_ns": row.total_ns,
            "avg_ns": of_ended(row.avg_ns), "max_ns": of_ended(row.max_ns), "partial": row.is_partial,
        })
    };
    let (enabled, known) = status.functions;
    json!({
        "calltap_top": 1,
        "pid": status.pid,
        "comm": status.name,
        "length_ns": interval.length_ns,
        "events": interval.events,
        "lost": interval.lost,
        "functions_enabled": enabled,
        "functions_known": known,
        "cost": status.cost,
        "kept": status.kept,
        "functions": interval.rows[..shown].iter().map(row).collect::<Vec<_>>(),
    })
}

fn write(
    interval: &Interval,
    switches: &Switches,
    limit: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown = limit.unwrap_or(usize::MAX).min(interval.rows.len());
    let mut lines = vec![TITLES.map(str::to_owned)];
    lines.extend(interval.rows[..shown].iter().map(|row| {
        let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        [
            view::rate(interval, row),
            view::known(row, us(row.avg_ns)),
            view::known(row, us(row.max_ns)),
            view::share_of_time(interval, row),
            switches.state(row).word().to_owned(),
            one_line(&row.module).replace(' ', "_"),
            one_line(&row.function).into_owned(),
        ]
    }));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = format!("# {}\n", heading(&switches.status(), interval));
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            text += &match column {
                0..=3 => format!("{cell:>width$}  "),
                4..=5 => format!("{cell:<width$}  "),
                _ => format!("{cell}\n"),
            };
        }
    }
    // A single write, so that a reader sees whole blocks.
    out.write_all((text + "\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::SiteId;

    #[test]
    fn a_block_is_a_heading_titles_and_words_in_columns() {
        let row = |function: &str, calls, avg_ns| FunctionCalls {
            function: function.into(),
            module: "my app".into(),
            sites: vec![SiteId(calls as u32)],
            calls,
            ended: calls,
            avg_ns,
            max_ns: 2 * avg_ns,
            total_ns: calls * avg_ns,
            is_partial: function != "often",
        };
        let rows = vec![
            row("often", 1_234_567, 80),
            row("max<int>(int, int)", 3, 1_500),
            row("never", 0, 0),
            row("cut", 1, 1),
        ];
        let interval = Interval { length_ns: 500_000_000, events: 2_469_140, lost: 7, rows };
        let switches = Switches::new(4711);
        switches.set_name("app");
        switches.toggle(&interval.rows[1]);
        let mut out = Vec::new();
        write(&interval, &switches, Some(3), &mut out).unwrap();
        let expected = [
            "# app (4711): 4,938,280 events/s, 7 lost, 0 functions on, 0 off",
            "  CALLS/S  AVG_US  MAX_US  TIME%  STATE      MODULE  FUNCTION",
            "2469134.0   0.080   0.160   19.8  on         my_app  often",
            "     >6.0   1.500   3.000   >0.0  off(user)  my_app  max<int>(int, int)",
            "        -       -       -      -  on         my_app  never",
            "\n",
        ];
        assert_eq!(String::from_utf8(out).unwrap(), expected.join("\n"));
        let same = object(&interval, &switches, Some(3));
        let of = |at: usize, key: &str| same["functions"][at][key].clone();
        assert_eq!(
            [of(0, "calls"), of(0, "avg_ns"), of(2, "avg_ns")],
            [json!(1_234_567), json!(80), json!(null)]
        );
        assert_eq!([of(1, "state"), of(1, "partial")], [json!("off(user)"), json!(true)]);
        assert_eq!((&same["lost"], same["functions"].as_array().map(Vec::len)), (&json!(7), Some(3)));
    }
}
