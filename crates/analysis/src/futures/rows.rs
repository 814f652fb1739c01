//! Spans summed up by type.

use super::{End, Span};
use std::collections::HashMap;

/// The futures of a type. Times are in ticks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// The type.
    pub name: String,
    /// How many,
    pub futures: u64,
    /// how many of these were spawned,
    pub tasks: u64,
    /// and how many ran on several threads.
    pub moved: u64,
    /// How many ended how.
    pub ends: HashMap<End, u64>,
    /// Polls,
    pub polls: u64,
    /// their time,
    pub busy: u64,
    /// and the longest.
    pub longest_poll: u64,
    /// Time between polls,
    pub idle: u64,
    /// and the longest.
    pub longest_idle: u64,
    /// From the first poll of one to its end, at most.
    pub longest_life: u64,
}

impl Row {
    /// How many ended so.
    pub fn ended(&self, how: End) -> u64 {
        self.ends.get(&how).copied().unwrap_or(0)
    }
}

/// By name.
#[derive(Clone, Debug, Default)]
pub struct Rows(HashMap<String, Row>);

impl Rows {
    /// Adds a span.
    pub fn add(&mut self, span: &Span) {
        let row = match self.0.get_mut(&span.name) {
            Some(row) => row,
            None => {
                self.0.entry(span.name.clone()).or_insert(Row { name: span.name.clone(), ..Row::default() })
            }
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
        row.longest_life = row.longest_life.max(span.end - span.start);
    }

    /// The busiest first.
    pub fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.0.values().collect();
        rows.sort_by(|a, b| b.busy.cmp(&a.busy).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}
