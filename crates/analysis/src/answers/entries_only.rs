//! Calls of functions of which only entries are recorded: they have no duration and no end, so an
//! answer made from ended calls does not have them.

use super::{Function, QueryContext};
use crate::units::{counted, one_line};
use std::collections::HashMap;

/// Maximum number of functions that are named.
const NAMED: usize = 5;

/// Number of these calls by function.
#[derive(Default)]
pub struct EntriesOnly(HashMap<Function, u64>);

impl EntriesOnly {
    pub(super) fn add(&mut self, function: Function) {
        *self.0.entry(function).or_default() += 1;
    }

    /// Number of all these calls.
    pub fn calls(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns a sentence about these calls, if there are any.
    pub fn sentence(&self, known: &QueryContext) -> Option<String> {
        let calls = self.calls();
        let mut names: Vec<&str> = self.0.keys().map(|function| known.name(*function)).collect();
        names.sort_unstable();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(NAMED);
        let (calls, names) = ((calls > 0).then(|| counted(calls, "call"))?, names.join(", "));
        Some(format!(
            "{calls} of {}{more} without an end: only entries are recorded ('calltap sites FILE' says why)",
            one_line(&names)
        ))
    }
}
