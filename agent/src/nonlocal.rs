//! Nonlocal exits: longjmp, and the unwinder before it enters a landing pad, leave calls whose
//! returns no hook sees. An event tells up to which slot.
//!
//! Uses `unsafe` because it reads the object with the stack pointer, and the C library's key.

use crate::record::record_at;
use crate::state::Session;
use calltap_abi::event::code;
use calltap_abi::nonlocal::{CODE, IS_MANGLED, KEY_AT, OFFSET, ROTATED};
use calltap_abi::stub;
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

/// Called at the entry of such a function. `object` is its first argument, `stub` the hook's return
/// address in its stub.
pub extern "C" fn exits(_: u32, object: u64, stub: u64, _: u64) -> u8 {
    let Some(session) = Session::get() else { return 0 };
    let Some(program) = session.program_of(stub) else { return 0 };
    let (offset, is_mangled) = (program[OFFSET].load(Relaxed), program[IS_MANGLED].load(Relaxed));
    let kept = object.wrapping_add(offset) as *const u64;
    // SAFETY: the function has just been entered with this object and reads the same word, or has
    // it written by the unwinder that calls it: the recorder found the offset in their code. The
    // object is this thread's, so no other thread writes to it meanwhile.
    let kept = unsafe { kept.read_unaligned() };
    let stack_pointer = if is_mangled == 0 { kept } else { kept.rotate_right(ROTATED) ^ key() };
    // A call pushes its return address below the stack pointer.
    let slot = stack_pointer.wrapping_sub(8);
    let in_stub = stub as u32 / stub::SIZE as u32 * stub::SIZE as u32;
    let code = program[CODE].load(Relaxed) as u32 & code::MASK;
    // The hook runs on the stack of the function.
    let here = &raw const slot as u64;
    record_at(session, in_stub | code, here, slot).into()
}

/// Returns the key of mangled pointers.
fn key() -> u64 {
    let key: u64;
    // SAFETY: longjmp of this C library reads the same word of the thread's control block.
    unsafe {
        asm!("mov {0}, qword ptr fs:[{1}]", out(reg) key, const KEY_AT,
             options(nostack, readonly, preserves_flags));
    }
    key
}
