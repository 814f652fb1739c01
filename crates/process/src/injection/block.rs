//! The data block behind the injected code: what the code calls, and the registers and signal masks
//! that it restores.

use crate::injection::call::Call;
use crate::ptrace::threads::FAULT_SIGNALS;
use nix::libc::user_regs_struct;
use zerocopy::{Immutable, IntoBytes};

/// The data block behind the code.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Block {
    pub(super) function: u64,
    /// Function to call if `function` returns 0. It returns a string with the reason.
    pub(super) complaint: u64,
    pub(super) arguments: [u64; 2],
    /// Signals to block while `function` runs.
    pub(super) waiting: u64,
    /// Signals to block while there is no stack for a handler.
    pub(super) all_signals: u64,
    /// Signals that the thread blocks by itself.
    pub(super) signals: u64,
    /// Signals that the program has a handler for and the thread does not block.
    pub(super) handled: u64,
    /// Rounds to wait before the way back.
    pub(super) linger: u64,
    /// Whether an opener makes the call.
    pub(super) opens_files: u64,
    /// Program counter and rax to resume with if one of the handled signals is pending: the
    /// thread's system call is then not restarted.
    pub(super) interrupted: [u64; 2],
    pub(super) rax: u64,
    pub(super) rbx: u64,
    pub(super) rcx: u64,
    pub(super) rdx: u64,
    pub(super) rsi: u64,
    pub(super) rdi: u64,
    pub(super) rbp: u64,
    pub(super) r8: u64,
    pub(super) r9: u64,
    pub(super) r10: u64,
    pub(super) r11: u64,
    pub(super) r12: u64,
    pub(super) r13: u64,
    pub(super) r14: u64,
    pub(super) r15: u64,
    pub(super) rsp: u64,
    pub(super) rip: u64,
    pub(super) flags: u64,
}

impl Block {
    /// Returns the block for a call, after which the thread has the registers `back`.
    pub(super) fn new(
        call: &Call<'_>,
        signals: u64,
        handled: u64,
        linger: u64,
        interrupted: [u64; 2],
        back: &user_regs_struct,
    ) -> Block {
        Block {
            function: call.function,
            complaint: call.complaint,
            arguments: call.arguments,
            waiting: !(call.let_in | FAULT_SIGNALS) | signals,
            all_signals: !FAULT_SIGNALS | signals,
            signals,
            handled,
            linger,
            opens_files: u64::from(call.opens_files),
            interrupted,
            rax: back.rax,
            rbx: back.rbx,
            rcx: back.rcx,
            rdx: back.rdx,
            rsi: back.rsi,
            rdi: back.rdi,
            rbp: back.rbp,
            r8: back.r8,
            r9: back.r9,
            r10: back.r10,
            r11: back.r11,
            r12: back.r12,
            r13: back.r13,
            r14: back.r14,
            r15: back.r15,
            rsp: back.rsp,
            rip: back.rip,
            flags: back.eflags,
        }
    }
}
