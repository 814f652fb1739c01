//! Reads arguments and results of Go functions, in front of the hooks that record.
//!
//! A goroutine's stack has no room for this, so it runs on a stack of the agent, with signals
//! blocked. Uses `unsafe` because it reads the registers that the hook and the shim have saved.

use crate::record::{FRAME_RETURN, FRAME_SLOT, FRAME_SLOT_LEFT, STACK_TOP};
use crate::state::Session;
use crate::values as own;
use calltap_abi::event::code;
use calltap_abi::{stub, values};
use core::ops::Range;

/// The registers of a call.
struct GoCall<'a> {
    session: Session,
    /// In the order of [`values::register`].
    registers: [u64; values::register::COUNT],
    vectors: &'a [[u64; 2]; 16],
    slot: u64,
}

impl values::Call for GoCall<'_> {
    fn register(&self, n: usize) -> u64 {
        self.registers.get(n).copied().unwrap_or(0)
    }

    fn xmm(&self, n: usize) -> u64 {
        self.vectors.get(n).map_or(0, |[low, _]| *low)
    }

    fn slot(&self) -> u64 {
        self.slot
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.session.read_memory(address, bytes)
    }

    // A goroutine's stack may move during the call, so it has no shadow stack.
    fn remember(&self, _: u64) {}

    fn recall(&self) -> Option<u64> {
        None
    }

    fn copy_stack(&self, _: u32) {}

    // Functions with the arguments of prctl are the C library's.
    fn forbid_counter(&self) {}

    // The recorder requests it only of library functions, which are not of Go.
    fn is_made_in(&self, _: Range<u64>) -> bool {
        false
    }
}

/// Reads the values of a call that is entered or returns, and writes them in front of its event.
/// `frame` points to the hook's last push; the shim's pushes lie below.
///
/// # Safety
/// Only the shim calls this, with pointers to the registers that it has saved.
pub unsafe extern "C" fn read_go_values(
    _: u32,
    _: u64,
    rbx: u64,
    g: u64,
    frame: u64,
    vectors: *const [[u64; 2]; 16],
) -> u8 {
    let word = |address: u64| {
        // SAFETY: words of the hook's frame and of the shim's, and of the `g` that the function's
        // stack check has read.
        unsafe { *(address as *const u64) }
    };
    // SAFETY: as the caller promises.
    let vectors = unsafe { &*vectors };
    let Some(session) = Session::get() else { return 1 };
    let in_stub = word(frame + FRAME_RETURN);
    let Some(program) = session.program_of(in_stub) else { return 1 };
    let exit = in_stub as usize % stub::SIZE == stub::AFTER_LEAVE;
    let slot = frame + if exit { FRAME_SLOT_LEFT } else { FRAME_SLOT };
    let [rdi, rsi, r8, r9, r10] = [24, 32, 40, 48, 56].map(|below| word(frame - below));
    let [r11, rdx, rcx, rax] = [8, 16, 24, 32].map(|above| word(frame + above));
    let registers = [rdi, rsi, rdx, rcx, r8, r9, rax, r10, rbx, r11];
    let call = GoCall { session, registers, vectors, slot };
    let Some(stored) = values::run(program, exit, &call) else { return 1 };
    if !stored.bytes().is_empty() {
        let position = slot.wrapping_sub(word(g + STACK_TOP)) as u32;
        let code = if exit { code::RESULTS } else { code::ARGUMENTS };
        let low = position << 22 ^ (in_stub as u32 & !code::MASK) | code;
        // Without room the values are lost; the event finds no room either, and is counted.
        let _ = own::write(session, low, stored.bytes());
    }
    1
}
