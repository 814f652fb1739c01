//! Records about the kernel's entries: context switches, wakings, system calls, and the addresses
//! that threads wait at.

use serde::{Deserialize, Serialize};

/// Whether the context switches of the threads were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scheduling {
    /// The reason as a sentence, if they were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Number of the kernel's records that were lost: the states of all threads around them are not
    /// known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

/// Whether wakings, system calls and incidents of the threads were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelEvents {
    /// Whether wakings were recorded.
    #[serde(default)]
    pub wakings: bool,
    /// Whether system calls were recorded.
    #[serde(default)]
    pub system_calls: bool,
    /// Whether page faults and moves to other processors were recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incidents: bool,
    /// Whether signals were recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signals: bool,
    /// The reasons, a sentence each, where they were requested and not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Number of the kernel's records that were lost: the events around them are not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Process id of the recorder: a thread that it woke had waited for it.
    #[serde(default)]
    pub recorder: u32,
    /// Process ids of the recorders of the other recordings that this one was merged from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_recorders: Vec<u32>,
    /// Ids of threads whose system calls are among their events, as in an imported recording, or
    /// whose events are those of the kernel's functions, too. A reader adds the system calls of all
    /// other threads from their logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls_in_events: Vec<u32>,
}

/// The object at an address that threads have waited at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// Index in `Meta::processes`.
    pub process: u32,
    /// The address.
    pub address: u64,
    /// The object, as the symbol table of its file names it, with the member that the debugging
    /// information has there (`queue.lock`), or with an offset (`queue+16`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address at which the object with this name begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<u64>,
    /// The mapping there: the path of a file, or `heap`, `stack`, `anonymous memory`.
    pub place: String,
    /// Whether the memory is calltap's own: a thread that waits there waits for the recorder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorder: bool,
}

impl KernelEvents {
    /// Whether a process is a recorder.
    pub fn is_recorder(&self, pid: u32) -> bool {
        pid != 0 && (self.recorder == pid || self.other_recorders.contains(&pid))
    }
}

impl Address {
    /// Returns the address at which the object begins, or of what has no name.
    pub fn object(&self) -> u64 {
        self.object.unwrap_or(self.address)
    }
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}
