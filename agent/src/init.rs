//! The initializer: the dynamic linker calls it when it has loaded the agent, before the program's
//! first instruction or later in a running process.
//!
//! Uses `unsafe` because the dynamic linker calls it, with arguments that depend on the C library.

use crate::state::Session;
use crate::{env, loader, plan, register, start, sys};
use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;

// DT_INIT. glibc calls it with (argc, argv, envp), before all other initializers (-z initfirst).
// musl calls it without arguments: then the environment is in `environ`, a weak reference that is
// null where no library defines it.
global_asm!(
    ".text",
    ".weak environ",
    ".globl calltap_init",
    ".hidden calltap_init",
    ".type calltap_init, @function",
    "calltap_init:",
    ".cfi_startproc",
    "sub rsp, 8", ".cfi_adjust_cfa_offset 8",
    "mov rcx, qword ptr [rip + environ@GOTPCREL]",
    "test rcx, rcx",
    "jz 1f",
    "mov rcx, qword ptr [rcx]",
    "1:",
    "call {start}",
    "add rsp, 8", ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    start = sym initialise,
);

/// End of the agent's path in a process that ran before it was loaded.
const ATTACHED: &[u8] = b"/attached.so";

/// Joins the session beside the agent. The arguments are those of `main` if the C library passes
/// them.
extern "C" fn initialise(count: usize, arguments: *mut *mut u8, given: *mut *mut u8, environ: *mut *mut u8) {
    let Some(own) = loader::own_path() else { return };
    if own.ends_with(ATTACHED) {
        // A thread of the program is interrupted here: do as little as possible.
        start::join(own);
        return;
    }
    let environment = if given == arguments.wrapping_add(count).wrapping_add(1) { given } else { environ };
    // SAFETY: the initial environment, or null; no other thread exists yet.
    unsafe { env::remove_preload(environment, own) };
    if start::join(own).is_none() {
        return;
    }
    if let Some(process) = Session::get().and_then(register::process) {
        // The process has one thread, so the registration is fast.
        process.sync.store(sys::register_for_sync() as u32, Relaxed);
    }
    plan::modules_changed();
}
