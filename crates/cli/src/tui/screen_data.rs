//! The data that the screen shows, of a recording or of a running process.

use crate::top::switches::Switches;
use calltap_analysis::explore::Explorer;
use calltap_analysis::intervals::Interval;

/// The data that the screen shows.
pub struct ScreenData<'a, S> {
    /// The recorded calls.
    pub explorer: &'a Explorer<S>,
    /// Number that changes with the calls.
    pub number: u64,
    /// The heading line.
    pub head: &'a str,
    /// The present state, if a running process is shown.
    pub live: Option<Live<'a>>,
}

/// The present state of a running process.
pub struct Live<'a> {
    /// The last interval.
    pub interval: &'a Interval,
    /// The switches of the process.
    pub switches: &'a Switches,
}
