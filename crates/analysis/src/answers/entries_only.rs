//! Calls of functions of which only entries are recorded: they have no duration and no end, so an
//! answer made from ended calls does not have them.

use super::{Function, QueryContext};
use crate::units::{counted, first_names};
use std::collections::HashMap;

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
        (calls > 0).then(|| {
            format!(
                "{} of {} without an end: only entries are recorded ('calltap sites FILE' says why)",
                counted(calls, "call"),
                first_names(&names)
            )
        })
    }
}
