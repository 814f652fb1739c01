//! Breakpoints that the recorder writes to sites while it changes them (`--patch-mode breakpoint`): whoever meets one resumes behind the site.
//!
//! The handler is there from the first such batch until the recorder leaves, so whoever is killed meanwhile leaves breakpoints that harm nobody. It takes no lock,
//! reads no code, and looks up one address in shared memory. What it does not know ends the program as it would have without us.
//!
//! Unsafe because it is a signal handler: it reads and changes what the kernel hands it.

use crate::state::Session;
use crate::sys::{self, Action};
use calltap_abi::traps::answer;
use core::arch::global_asm;

const SIGTRAP: usize = 5;
const SIGNALS: usize = 64;
/// `si_code` of a breakpoint (SI_KERNEL).
const BY_BREAKPOINT: i32 = 0x80;
/// Bytes behind the breakpoint that belong to the site.
const REST: u64 = 4;

const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_RESTART: u64 = 0x1000_0000;
/// A handler of the program that interrupts ours may come to a breakpoint, too.
const SA_NODEFER: u64 = 0x4000_0000;

// Unwinders know the frame of a signal by these instructions, debuggers by this name.
global_asm!(
    ".text",
    ".balign 16",
    "nop", // so that the byte before is nobody's, either
    "__restore_rt:",
    "mov rax, {sigreturn}",
    "syscall",
    sigreturn = const 15,
);

unsafe extern "C" {
    #[link_name = "__restore_rt"]
    static RETURN: u8;
}

/// The beginning of `siginfo_t`.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
}

/// Of `ucontext_t`, what is before rip in it, and rip.
#[repr(C)]
struct Context {
    before: [u64; 21],
    rip: u64,
}

fn own() -> u64 {
    handle as *const () as u64
}

extern "C" fn handle(_: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel hands every handler with SA_SIGINFO these two, on the stack.
    let (by_breakpoint, context) = unsafe { ((*info).code == BY_BREAKPOINT, &mut *context) };
    let known = |at| Session::get().is_some_and(|session| session.traps().knows(at));
    if by_breakpoint && known(context.rip.wrapping_sub(1)) {
        context.rip = context.rip.wrapping_add(REST);
        return;
    }
    // Nobody but us handles it: the program ends when this handler has returned, at the instruction where it would have ended.
    sys::block_signal(SIGTRAP);
    let _ = sys::set_action(SIGTRAP, Some(&Action::default()));
    sys::send_to_self(SIGTRAP, info.cast());
}

/// Handles SIGTRAP from now on, unless the program does, or has a handler during which it is blocked. One of [`answer`].
pub fn handle_traps() -> u32 {
    let action = |signal| sys::set_action(signal, None).unwrap_or_default();
    let bit = 1u64 << (SIGTRAP - 1);
    for signal in (1..=SIGNALS).filter(|signal| *signal != SIGTRAP) {
        let Action { handler, mask, .. } = action(signal);
        if handler != DEFAULT && handler != IGNORE && mask & bit != 0 {
            return answer::BLOCKED + signal as u32;
        }
    }
    let is_free = |handler| handler == DEFAULT || handler == own();
    if !is_free(action(SIGTRAP).handler) {
        return answer::HANDLED;
    }
    let flags = SA_SIGINFO | SA_RESTORER | SA_RESTART | SA_NODEFER;
    let new = Action { handler: own(), flags, restorer: &raw const RETURN as u64, mask: 0 };
    match sys::set_action(SIGTRAP, Some(&new)) {
        Ok(before) if is_free(before.handler) => answer::WORKS,
        // It was faster.
        Ok(before) => {
            let _ = sys::set_action(SIGTRAP, Some(&before));
            answer::HANDLED
        }
        Err(_) => answer::HANDLED,
    }
}

/// Handles it no more. No site is a breakpoint, and no thread has one to be handled.
pub fn leave() {
    if sys::set_action(SIGTRAP, None).is_ok_and(|action| action.handler == own()) {
        let _ = sys::set_action(SIGTRAP, Some(&Action::default()));
    }
}
