//! The futex operations of system calls.

use super::names::name;

/// A futex operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Futex {
    /// Address of the futex; [`SEVERAL`] if the call waits for several, whose addresses the program
    /// keeps in its memory.
    pub address: u64,
    /// Name of the operation.
    pub operation: &'static str,
    /// Whether the operation waits.
    pub waits: bool,
}

/// Names of the operations, and whether they wait, by number; the upper bits of the number are
/// flags.
const OPERATIONS: [(&str, bool); 14] = [
    ("FUTEX_WAIT", true),
    ("FUTEX_WAKE", false),
    ("FUTEX_FD", false),
    ("FUTEX_REQUEUE", false),
    ("FUTEX_CMP_REQUEUE", false),
    ("FUTEX_WAKE_OP", false),
    ("FUTEX_LOCK_PI", true),
    ("FUTEX_UNLOCK_PI", false),
    ("FUTEX_TRYLOCK_PI", false),
    ("FUTEX_WAIT_BITSET", true),
    ("FUTEX_WAKE_BITSET", false),
    ("FUTEX_WAIT_REQUEUE_PI", true),
    ("FUTEX_CMP_REQUEUE_PI", false),
    ("FUTEX_LOCK_PI2", true),
];

/// In place of an address: several futexes.
pub const SEVERAL: u64 = 0;

/// Returns the futex operation of a system call, if it is one.
pub fn futex(number: u32, arguments: &[u64; 6]) -> Option<Futex> {
    let (address, operation, waits) = match name(number)? {
        "futex" => {
            let (operation, waits) = *OPERATIONS.get((arguments[1] & 0x7f) as usize)?;
            (arguments[0], operation, waits)
        }
        "futex_wait" => (arguments[0], "FUTEX2_WAIT", true),
        "futex_wake" => (arguments[0], "FUTEX2_WAKE", false),
        "futex_waitv" => (SEVERAL, "FUTEX2_WAITV", true),
        _ => return None,
    };
    Some(Futex { address, operation, waits })
}
