//! Heatmaps: calls of functions by start and duration. A call whose end is unknown has no duration
//! and is left out.

use super::calls::Slowest;
use super::{Bar, Explorer, Function, SlowCall};
use crate::error::Error;
use crate::sources::drive::run_by_thread;
use crate::sources::source::Source;
use crate::tree::{Call, Visitor};
use calltap_trace::ThreadId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The calls of a function by start and duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heat {
    /// The rows: bars of the histogram of all calls of the function.
    pub rows: Vec<Bar>,
    /// Number of calls by column and row; cells without calls are absent.
    pub cells: BTreeMap<(u32, u32), u64>,
}

/// An interval, in nanoseconds since the beginning of the timeline, divided into columns of equal
/// length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    /// The interval.
    pub of: Range<u64>,
    /// Number of columns.
    pub count: u32,
}

impl Columns {
    /// Returns the column of a time, if it lies within the interval.
    fn at(&self, moment: u64) -> Option<u32> {
        let length = u128::from(self.of.end.checked_sub(self.of.start).filter(|length| *length > 0)?);
        let since = u128::from(moment.checked_sub(self.of.start).filter(|_| moment <= self.of.end)?);
        let column = since * u128::from(self.count) / length;
        Some((column as u32).min(self.count.saturating_sub(1)))
    }
}

/// The counts of one function.
struct Counted {
    rows: Vec<Bar>,
    cells: BTreeMap<(u32, u32), u64>,
}

struct Counter<'a> {
    /// Index in `all`, by site.
    by_site: Vec<Option<usize>>,
    all: Vec<Counted>,
    columns: &'a Columns,
    /// Converts the start of a call from ticks to nanoseconds since the beginning of the timeline.
    began: &'a dyn Fn(u64) -> u64,
}

impl Visitor for Counter<'_> {
    fn close(&mut self, _: ThreadId, call: &Call) {
        let place = self.by_site.get(call.site.0 as usize).copied().flatten();
        let Some(counted) = place.and_then(|place| self.all.get_mut(place)) else { return };
        if call.ending.is_cut() {
            return;
        }
        let row = counted.rows.partition_point(|bar| bar.ticks.1 < call.total);
        let is_in = counted.rows.get(row).is_some_and(|bar| bar.ticks.0 <= call.total);
        if let Some(column) = self.columns.at((self.began)(call.start)).filter(|_| is_in) {
            *counted.cells.entry((column, row as u32)).or_default() += 1;
        }
    }
}

/// The slowest calls of those that began in a column.
struct InCell<'a> {
    slowest: Slowest,
    columns: &'a Columns,
    column: u32,
    began: &'a dyn Fn(u64) -> u64,
}

impl Visitor for InCell<'_> {
    fn close(&mut self, thread: ThreadId, call: &Call) {
        if self.slowest.is_of(call) && self.columns.at((self.began)(call.start)) == Some(self.column) {
            self.slowest.close(thread, call);
        }
    }
}

impl<S: Source> Explorer<S> {
    /// Returns the heatmaps of functions, each with at most `rows` rows. The events are read once
    /// for all of them.
    pub fn heat(&self, functions: &[&Function], columns: &Columns, rows: usize) -> Result<Vec<Heat>, Error> {
        let mut by_site = vec![None; self.source.meta().sites.len() + 1];
        for (place, function) in functions.iter().enumerate() {
            for site in self.sites(function) {
                by_site[site.0 as usize] = Some(place);
            }
        }
        let all = functions
            .iter()
            .map(|function| Counted { rows: self.histogram(function, rows), cells: BTreeMap::new() });
        let all = all.collect();
        let mut counter = Counter { by_site, all, columns, began: &|ticks| self.began(ticks) };
        run_by_thread(&self.source, &mut counter, None)?;
        Ok(counter.all.into_iter().map(|Counted { rows, cells }| Heat { rows, cells }).collect())
    }

    /// Returns the slowest calls of a function in a cell of its heatmap, slowest first: those that
    /// began in the column and whose durations are in the bar.
    pub fn in_cell(
        &self,
        function: &Function,
        bar: &Bar,
        columns: &Columns,
        column: u32,
    ) -> Result<Vec<SlowCall>, Error> {
        let slowest = self.within(function, bar);
        let mut cell = InCell { slowest, columns, column, began: &|ticks| self.began(ticks) };
        run_by_thread(&self.source, &mut cell, None)?;
        Ok(self.longest_first(&cell.slowest, &self.sites(function)))
    }

    fn began(&self, ticks: u64) -> u64 {
        self.source.to_ns(ticks).saturating_sub(self.timeline.origin())
    }
}
