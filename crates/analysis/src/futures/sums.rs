//! Sums of spans by type.

use super::{End, Span};
use std::collections::HashMap;

/// The futures of a type. Times are in ticks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FutureSums {
    /// Name of the type.
    pub name: String,
    /// Number of futures.
    pub futures: u64,
    /// Number of spawned futures.
    pub tasks: u64,
    /// Number of futures polled by several threads.
    pub moved: u64,
    /// Number of futures by how they ended.
    pub ends: HashMap<End, u64>,
    /// Number of polls.
    pub polls: u64,
    /// Time in polls.
    pub busy: u64,
    /// Longest poll.
    pub longest_poll: u64,
    /// Time between polls.
    pub idle: u64,
    /// Longest time between polls.
    pub longest_idle: u64,
    /// Time between polls in which tasks had been woken, as far as it is known.
    pub runnable: u64,
    /// Time between polls after which the waker of the task is unknown.
    pub unknown: u64,
    /// Longest time from the first poll of a future to its end.
    pub longest_life: u64,
}

impl FutureSums {
    /// Returns the number of futures that ended in this way.
    pub(crate) fn ended(&self, how: End) -> u64 {
        self.ends.get(&how).copied().unwrap_or(0)
    }
}

/// Sums by the name of the type.
#[derive(Clone, Debug, Default)]
pub(crate) struct SumsByType(HashMap<String, FutureSums>);

impl SumsByType {
    /// Adds a span.
    pub(crate) fn add(&mut self, span: &Span) {
        let row = match self.0.get_mut(&span.name) {
            Some(row) => row,
            None => self
                .0
                .entry(span.name.clone())
                .or_insert(FutureSums { name: span.name.clone(), ..FutureSums::default() }),
        };
        row.futures += 1;
        row.tasks += u64::from(span.task.is_some());
        row.moved += u64::from(span.threads.len() > 1);
        *row.ends.entry(span.how).or_default() += 1;
        row.polls += span.polls;
        row.busy += span.busy;
        row.longest_poll = row.longest_poll.max(span.longest_poll);
        row.idle += span.idle;
        row.longest_idle = row.longest_idle.max(span.longest_idle);
        row.runnable += span.runnable;
        row.unknown += span.unknown;
        row.longest_life = row.longest_life.max(span.end - span.start);
    }

    /// Returns the rows, most time in polls first.
    pub(crate) fn sorted(&self) -> Vec<&FutureSums> {
        let mut rows: Vec<&FutureSums> = self.0.values().collect();
        rows.sort_by(|a, b| b.busy.cmp(&a.busy).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}
