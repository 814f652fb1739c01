//! The calls that a live recording leaves out on purpose.

use super::QueryContext;
use crate::head::left_out;

impl QueryContext {
    /// Returns a sentence for each rule about which calls are kept.
    pub fn left_out(&self) -> Vec<String> {
        self.kept.iter().map(|kept| left_out::kept_calls(kept, |ticks| self.since_start(ticks))).collect()
    }
}
