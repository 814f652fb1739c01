//! Functions whose calls announce an event in the thread to the agent, traced or not.

use crate::address::Svma;
use serde::{Deserialize, Serialize};

/// The event in a thread that a call of the function announces to the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Watch {
    /// The thread leaves calls without their returns, up to the frame with the stack pointer in the
    /// object that the first argument points to.
    NonlocalExit(KeptPointer),
    /// Nonlocal exit by the unwinder, which continues in a caller of the calls that it leaves.
    Unwinding(KeptPointer),
    /// Arguments of prctl, which may forbid the thread to read the time stamp counter.
    Prctl {
        /// Number of arguments in front of them.
        behind: u8,
    },
}

/// Position of a stack pointer in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptPointer {
    /// Bytes from the beginning of the object.
    pub offset: u16,
    /// Whether the C library has mangled it: exclusive or with the key in the thread's control
    /// block, then rotated to the left by 17.
    pub is_mangled: bool,
}

/// A watched function of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watched {
    /// Entry address.
    pub(crate) address: Svma,
    pub(crate) watch: Watch,
}

/// Names of nonlocal exits, in any file that defines them.
pub const NONLOCAL_EXITS: [&str; 8] = [
    SET_IP,
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__libc_longjmp",
    "__libc_siglongjmp",
    "__longjmp_chk",
    "__siglongjmp_chk",
];
/// Function of the unwinder that has the thread continue in a frame.
pub(crate) const SET_IP: &str = "_Unwind_SetIP";
/// Names of functions with the arguments of prctl, and the number of arguments in front.
const PRCTLS: [(&str, u8); 3] = [("prctl", 0), ("__prctl", 0), ("syscall", 1)];

impl Watch {
    /// Returns the watch of a function with the arguments of prctl, by its name.
    pub fn prctl(name: &[u8]) -> Option<Watch> {
        let (_, behind) = PRCTLS.iter().find(|(known, _)| known.as_bytes() == name)?;
        Some(Watch::Prctl { behind: *behind })
    }
}
