//! The rows and columns of the table of functions.

use super::screen_data::ScreenData;
use crate::top::switches::State;
use crate::top::view;
use calltap_analysis::Source;
use calltap_analysis::explore::Function;
use calltap_analysis::units::{count, duration};
use calltap_trace::SiteId;

/// A column with numbers: title, width.
pub struct Column {
    pub title: &'static str,
    pub width: u16,
    /// The sort key of a line, and the text of its cell.
    value: fn(&Line) -> f64,
    text: fn(&Line) -> String,
}

/// A row of the table: a function.
pub struct Line {
    pub site: SiteId,
    pub name: String,
    pub module: String,
    pub state: Option<State>,
    calls: u64,
    rate: f64,
    rate_text: String,
    /// Total, own, average, p99 and longest time, in nanoseconds.
    times: Option<[u64; 5]>,
}

impl Column {
    /// Returns the text of a line's cell.
    pub fn text(&self, line: &Line) -> String {
        (self.text)(line)
    }
}

fn time(line: &Line, at: usize) -> f64 {
    line.times.map_or(-1.0, |times| times[at] as f64)
}

fn time_text(line: &Line, at: usize) -> String {
    line.times.map_or("-".to_owned(), |times| duration(times[at]))
}

const TOTAL: Column =
    Column { title: "TOTAL", width: 11, value: |line| time(line, 0), text: |line| time_text(line, 0) };
const OWN: Column =
    Column { title: "SELF", width: 11, value: |line| time(line, 1), text: |line| time_text(line, 1) };
const CALLS: Column =
    Column { title: "CALLS", width: 12, value: |line| line.calls as f64, text: |line| count(line.calls) };
const RATE: Column =
    Column { title: "CALLS/S", width: 12, value: |line| line.rate, text: |line| line.rate_text.clone() };
const AVG: Column =
    Column { title: "AVG", width: 11, value: |line| time(line, 2), text: |line| time_text(line, 2) };
const P99: Column =
    Column { title: "P99", width: 11, value: |line| time(line, 3), text: |line| time_text(line, 3) };
const MAX: Column =
    Column { title: "MAX", width: 11, value: |line| time(line, 4), text: |line| time_text(line, 4) };

/// The columns for a recording.
pub const FILE: [Column; 6] = [TOTAL, OWN, CALLS, AVG, P99, MAX];
/// The columns for a process: of the last interval, except p99, which is of the newest events.
pub const LIVE: [Column; 4] = [RATE, AVG, P99, MAX];

/// Returns the functions with `filter` in their names, sorted by a column, or by name without one.
pub fn lines<S: Source + Sync>(shown: &ScreenData<'_, S>, filter: &str, sort: Option<&Column>) -> Vec<Line> {
    let times = |function: &Function| {
        let p99 = |all: [u64; 4]| all[2];
        function.times.map(|t| [t.total_ns, t.self_ns, t.avg_ns, t.percentiles_ns.map_or(0, p99), t.max_ns])
    };
    let mut lines: Vec<Line> = match &shown.live {
        None => shown
            .explorer
            .functions
            .iter()
            .map(|function| Line {
                site: function.site,
                name: function.name.clone(),
                module: function.module.clone(),
                state: None,
                calls: function.calls,
                rate: 0.0,
                rate_text: String::new(),
                times: times(function),
            })
            .collect(),
        Some(live) => live
            .interval
            .rows
            .iter()
            .filter_map(|row| {
                let site = *row.sites.first()?;
                let known = shown.explorer.function(site).and_then(times);
                let [.., p99, _] = known.unwrap_or_default();
                Some(Line {
                    site,
                    name: row.function.clone(),
                    module: row.module.clone(),
                    state: Some(live.switches.state(row)),
                    calls: row.calls,
                    rate: live.interval.rate(row.calls),
                    rate_text: view::rate(live.interval, row),
                    times: (row.ended > 0).then_some([row.total_ns, 0, row.avg_ns, p99, row.max_ns]),
                })
            })
            .collect(),
    };
    let filter = filter.to_lowercase();
    lines.retain(|line| line.name.to_lowercase().contains(&filter));
    lines.sort_by(|a, b| {
        let number = |column: &Column| (column.value)(b).total_cmp(&(column.value)(a));
        sort.map_or(std::cmp::Ordering::Equal, number).then_with(|| a.name.cmp(&b.name))
    });
    lines
}
