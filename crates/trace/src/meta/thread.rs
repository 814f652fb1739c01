//! Threads and goroutines.

use super::ThreadId;
use serde::{Deserialize, Serialize};

/// A thread of the trace, or a goroutine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Index in [`Meta::threads`](super::Meta::threads).
    pub id: ThreadId,
    /// Index of its process in [`Meta::processes`](super::Meta::processes).
    pub process: u32,
    /// Kernel thread id. For a goroutine, its number, truncated.
    pub tid: u32,
    /// Thread name.
    pub comm: String,
    /// Number of the goroutine, which threads of the process run in turns; `None` for a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goroutine: Option<u64>,
    /// Start of the goroutine; `None` for a thread, and if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<GoStart>,
}

impl Thread {
    /// Creates a thread, which is no goroutine.
    pub fn new(id: ThreadId, process: u32, tid: u32, comm: String) -> Thread {
        Thread { id, process, tid, comm, goroutine: None, started: None }
    }
}

/// The start of a goroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GoStart {
    /// Number of the goroutine that started it; 0: the runtime did, on a thread's own stack.
    pub by: u64,
    /// Address of the function that it was started with, in the process.
    pub function: u64,
}
