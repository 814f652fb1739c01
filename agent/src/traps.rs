//! Handles breakpoints at sites, of two kinds. Temporary ones, which the recorder writes while it
//! changes sites (`--patch-mode breakpoint`): a thread that executes one resumes behind the site.
//! And those that stay, where there is no room for a jump (`--allow-int3`): a thread that executes
//! one resumes at the target of the jump.
//!
//! The handler is installed from the first such batch until the recorder detaches, so breakpoints
//! of a recorder that was killed do no harm. It takes no lock, reads no code, and looks up one
//! address in shared memory. Any other SIGTRAP ends the program as without calltap.
//!
//! Uses `unsafe` because it is a signal handler, which reads and changes the kernel's signal frame,
//! and because it maps the list of breakpoints that stay.

use crate::state::Session;
use crate::sys::{self, Action};
use calltap_abi::plan::Map;
use calltap_abi::traps::{KeptTrap, answer, target};
use core::arch::global_asm;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

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
/// A handler of the program that interrupts the agent's may execute a breakpoint, too.
const SA_NODEFER: u64 = 0x4000_0000;

// Unwinders recognize a signal frame by these instructions, debuggers by this name.
global_asm!(
    ".text",
    ".balign 16",
    "nop", // so that the byte before belongs to no other function
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

/// The beginning of `ucontext_t`, up to rip.
#[repr(C)]
struct Context {
    before: [u64; 21],
    rip: u64,
}

/// Address of the newest [`Table`]; 0 while there is none. It is private like the program's text: a
/// forked child has the list that its breakpoints need.
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Whether the handler was installed since the agent joined the session.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Header of a list of [`KeptTrap`]. No writer waits for handlers that read it, so it is never
/// changed: a new table replaces it, and all are unmapped when calltap detaches.
#[repr(C)]
struct Table {
    /// Address of the previous table.
    before: usize,
    count: usize,
}

impl Table {
    const fn bytes(count: usize) -> usize {
        size_of::<Table>() + count * size_of::<KeptTrap>()
    }

    fn newest() -> Option<&'static Table> {
        let at = KEPT.load(Acquire) as *const Table;
        // SAFETY: null, or a table of `keep`, which is unmapped only when no thread runs the
        // handler.
        unsafe { at.as_ref() }
    }

    fn list(&self) -> &[KeptTrap] {
        // SAFETY: `keep` has written `count` elements behind the header, aligned, and no code
        // writes there again.
        unsafe { slice::from_raw_parts((&raw const *self).add(1).cast(), self.count) }
    }
}

/// Replaces the list of breakpoints that stay, in the order of their addresses. Returns false if
/// there is no memory.
fn keep(listed: &[Map]) -> bool {
    let known = Table::newest().map_or(&[][..], Table::list);
    let new = listed
        .iter()
        .map(|map| KeptTrap { site: map.address.load(Relaxed), target: map.offset.load(Relaxed) });
    if known.len() == listed.len() && known.iter().copied().eq(new.clone()) {
        return true;
    }
    let (protection, flags) = (sys::PROT_READ | sys::PROT_WRITE, sys::MAP_PRIVATE | sys::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let Ok(at) = (unsafe { sys::map(0, Table::bytes(listed.len()), protection, flags, None) }) else {
        return false;
    };
    let table = at as *mut Table;
    // SAFETY: just mapped, of that length, and no other code knows of it.
    let list = unsafe {
        table.write(Table { before: KEPT.load(Relaxed), count: listed.len() });
        slice::from_raw_parts_mut(table.add(1).cast::<KeptTrap>(), listed.len())
    };
    list.iter_mut().zip(new).for_each(|(place, kept)| *place = kept);
    KEPT.store(at, Release);
    true
}

/// Returns the address of the handler.
fn own() -> u64 {
    handle as *const () as u64
}

/// The handler of SIGTRAP.
extern "C" fn handle(_: i32, info: *const Info, context: *mut Context) {
    // SAFETY: the kernel passes these two pointers to every handler with SA_SIGINFO, on the stack.
    let (by_breakpoint, context) = unsafe { ((*info).code == BY_BREAKPOINT, &mut *context) };
    let at = context.rip.wrapping_sub(1);
    let kept = || target(Table::newest()?.list(), at);
    let passing = || Session::get()?.traps().knows(at).then(|| context.rip.wrapping_add(REST));
    if let Some(next) = by_breakpoint.then(|| kept().or_else(passing)).flatten() {
        context.rip = next;
        return;
    }
    // Restores the default action: the program ends when this handler has returned, at the
    // instruction where it would have ended without calltap.
    sys::block_signal(SIGTRAP);
    let _ = sys::set_action(SIGTRAP, Some(&Action::default()));
    sys::send_to_self(SIGTRAP, info.cast());
}

/// Installs the handler, unless the program handles SIGTRAP, or has a handler during which it is
/// blocked. `listed` are the breakpoints that stay. Returns one of [`answer`].
pub fn handle_traps(listed: &[Map]) -> u32 {
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
    if !keep(listed) {
        return answer::NO_MEMORY;
    }
    let flags = SA_SIGINFO | SA_RESTORER | SA_RESTART | SA_NODEFER;
    let new = Action { handler: own(), flags, restorer: &raw const RETURN as u64, mask: 0 };
    INSTALLED.store(true, Relaxed);
    match sys::set_action(SIGTRAP, Some(&new)) {
        Ok(before) if is_free(before.handler) => answer::WORKS,
        // The program has installed a handler meanwhile.
        Ok(before) => {
            let _ = sys::set_action(SIGTRAP, Some(&before));
            answer::HANDLED
        }
        Err(_) => answer::HANDLED,
    }
}

/// Removes the handler and its lists. No site is a breakpoint, and no SIGTRAP of one is pending.
pub fn leave() {
    // If the handler was never installed, the program's seccomp filter may kill it for the call.
    let is_installed = INSTALLED.swap(false, Relaxed);
    if is_installed && sys::set_action(SIGTRAP, None).is_ok_and(|action| action.handler == own()) {
        let _ = sys::set_action(SIGTRAP, Some(&Action::default()));
    }
    let mut table = KEPT.swap(0, Relaxed) as *const Table;
    // SAFETY: null, or made by `keep`; no handler reads it any more.
    while let Some(Table { before, count }) = unsafe { table.as_ref() } {
        let (at, bytes) = (table as usize, Table::bytes(*count));
        table = *before as *const Table;
        // SAFETY: as above.
        unsafe { sys::unmap(at, bytes) };
    }
}
