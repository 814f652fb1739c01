//! What there is to show, of a recording or of a process that runs.

use crate::top::switches::Switches;
use calltap_analysis::explore::Explorer;
use calltap_analysis::live::Interval;

/// What there is to show.
pub struct Shown<'a, S> {
    /// Recorded calls.
    pub explorer: &'a Explorer<S>,
    /// Changes when they do.
    pub number: u64,
    /// A line about all of it.
    pub head: &'a str,
    /// Of a process.
    pub live: Option<Live<'a>>,
}

/// What there is to show of a process that runs.
pub struct Live<'a> {
    /// The last interval.
    pub interval: &'a Interval,
    /// Its switches.
    pub switches: &'a Switches,
}
