//! What the user sees: where output goes, and what stands on a terminal meanwhile.

pub mod output;
pub mod pager;
pub mod progress;
pub mod search;
pub mod started;
pub mod units;
