//! Functions through which threads leave calls without their returns.

use crate::address::Svma;
use serde::{Deserialize, Serialize};

/// Names of the functions, in any file that defines them.
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

/// A function through which a thread leaves calls without their returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NonlocalExit {
    /// Entry address.
    pub address: Svma,
    /// Position of the stack pointer in the object that the first argument points to.
    pub stack_pointer: KeptPointer,
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
