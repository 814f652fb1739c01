//! Texts that the screen and the plain table share.

use super::switches::Status;
use calltap_analysis::intervals::{FunctionCalls, Interval};
use calltap_analysis::units::{count, counted, one_line};
use std::collections::BTreeSet;

/// Text for what is not known: no call has ended, or none was seen while the function was disabled.
const UNKNOWN: &str = "-";

/// Returns a line such as `app (4711): 4,938,280 events/s, 0 lost, tracing costs 1.2 %, 3 functions
/// on, 1 off`.
pub fn heading(status: &Status, interval: &Interval) -> String {
    let (on, all) = status.functions;
    let cost = status.cost.map(|cost| format!(", tracing costs {}", share(cost))).unwrap_or_default();
    format!(
        "{} ({}): {} events/s, {} lost{cost}, {} on, {} off{}",
        one_line(&status.name),
        status.pid,
        count(interval.rate(interval.events) as u64),
        count(interval.lost),
        counted(on as u64, "function"),
        count(all.saturating_sub(on) as u64),
        kept(status.kept.as_deref()),
    )
}

/// Returns a line about several processes: `3 processes (nginx): 4,938,280 events/s, 0 lost,
/// tracing costs up to 1.2 %, 9 functions on, 3 off`.
pub fn heading_of_all(all: &[Status], interval: &Interval) -> String {
    let names: BTreeSet<_> = all.iter().map(|status| one_line(&status.name)).collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).filter(|name| !name.is_empty()).collect();
    let (on, known) =
        all.iter().fold((0, 0), |sum, status| (sum.0 + status.functions.0, sum.1 + status.functions.1));
    let cost = all.iter().filter_map(|status| status.cost).reduce(f64::max);
    let cost = cost.map(|cost| format!(", tracing costs up to {}", share(cost))).unwrap_or_default();
    format!(
        "{} ({}): {} events/s, {} lost{cost}, {} on, {} off{}",
        counted(all.len() as u64, "process"),
        names.join(", "),
        count(interval.rate(interval.events) as u64),
        count(interval.lost),
        counted(on as u64, "function"),
        count(known.saturating_sub(on) as u64),
        kept(all.iter().find_map(|status| status.kept.as_deref())),
    )
}

/// Returns the part of the heading about calls that are left out.
fn kept(calls: Option<&str>) -> String {
    calls.map_or(String::new(), |calls| format!(", only calls {}", one_line(calls)))
}

/// Returns a share as text; a small share is not shown as 0.
fn share(cost: f64) -> String {
    if 0.0 < cost && cost < 0.001 { "less than 0.1 %".to_owned() } else { format!("{:.1} %", cost * 100.0) }
}

/// Returns a function's calls per second; `>6.0` if the function was disabled for a part of the
/// interval.
pub fn rate(interval: &Interval, row: &FunctionCalls) -> String {
    at_least(row, interval.rate(row.calls))
}

/// Returns the percentage of the interval that was spent in a function; `>6.0` if the function was
/// disabled for a part of the interval.
pub fn share_of_time(interval: &Interval, row: &FunctionCalls) -> String {
    at_least(row, interval.percent(row.total_ns))
}

/// Returns a text about the durations of a function's calls, or `-` if no call ended: those that
/// are open, or whose ends are not recorded, have none.
pub fn known(row: &FunctionCalls, text: String) -> String {
    if row.ended == 0 { UNKNOWN.to_owned() } else { text }
}

fn at_least(row: &FunctionCalls, number: f64) -> String {
    match row.is_partial {
        true if row.calls == 0 && number == 0.0 => UNKNOWN.to_owned(),
        true => format!(">{number:.1}"),
        false => format!("{number:.1}"),
    }
}
