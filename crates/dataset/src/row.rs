//! A row of the dataset.

use calltap_analysis::Ending;
use calltap_trace::{SiteId, ThreadId};

/// A call.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its thread,
    pub thread: ThreadId,
    /// with the ids of the operating system.
    pub tid: u32,
    /// Of its process.
    pub pid: u32,
    /// None: these calls were lost.
    pub site: Option<SiteId>,
    /// The function below it.
    pub caller: Option<SiteId>,
    /// Nanoseconds since 1970; none with a counter clock.
    pub start: Option<i64>,
    /// In all, and its own; none if that is not known.
    pub times: Option<[u64; 2]>,
    /// What of it its thread ran, had no processor, slept; none if that is not known.
    pub states: Option<[u64; 4]>,
    /// Page faults, major ones, moves to other processors and signals in the call itself; none where that is not known.
    pub incidents: [Option<u64>; 4],
    /// Frames below it.
    pub depth: u32,
    /// None: that is not known.
    pub ending: Option<Ending>,
    /// How many it stands for.
    pub calls: u32,
    /// What was read when it was entered,
    pub arguments: Option<Box<str>>,
    /// and when it returned: JSON objects.
    pub results: Option<Box<str>>,
}
