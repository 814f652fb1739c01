//! Records about what the kernel told: context switches, wakings, system calls, and the addresses that threads wait at.

use serde::{Deserialize, Serialize};

/// Whether the context switches of the threads were recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Scheduling {
    /// Why not, in a sentence, if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Records of the kernel that were lost: what all threads did around them is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

/// Whether it was recorded who woke the threads, and their system calls.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelEvents {
    /// Wakings were recorded.
    #[serde(default)]
    pub wakings: bool,
    /// System calls were recorded.
    #[serde(default)]
    pub system_calls: bool,
    /// Page faults and moves to other processors were recorded,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incidents: bool,
    /// and signals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signals: bool,
    /// Why not, a sentence each, where they were asked for and were not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Records of the kernel that were lost: what they cover is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// The recorder's process id: whom it woke had waited for it.
    #[serde(default)]
    pub recorder: u32,
}

/// What is at an address that threads have waited at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    /// Index in `Meta::processes`.
    pub process: u32,
    /// The address.
    pub address: u64,
    /// The object there (`queue.lock`, or with an offset `queue+16`), as the symbol table of its file has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is mapped there: the path of a file, or `heap`, `stack`, `anonymous memory`.
    pub place: String,
    /// The memory is calltap's own: who waits there waits for the recorder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorder: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
