//! The program of a nonlocal exit: a function through which a thread leaves calls without their
//! returns, as longjmp. Its stub's hook reads the program, and no hook runs it.
//!
//! The function's first argument points to an object with the stack pointer of the frame in which
//! the thread will continue.

use crate::values;

/// Index of the word with the stack pointer's offset in the object, in bytes.
pub const OFFSET: usize = 1;
/// Index of the word that is 1 if the C library has mangled the stack pointer.
pub const IS_MANGLED: usize = 2;
/// Index of the word with the code of the event.
pub const CODE: usize = 3;
/// Bits by which a mangled pointer was rotated to the left.
pub const ROTATED: u32 = 17;
/// Offset of the key of mangled pointers in a thread's control block.
pub const KEY_AT: u64 = 0x30;

/// Returns the words of a program that records an event of this code.
pub fn words(offset: u64, is_mangled: bool, code: u32) -> [u64; 4] {
    [values::without_steps(4), offset, u64::from(is_mangled), u64::from(code)]
}
