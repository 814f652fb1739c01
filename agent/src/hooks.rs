//! The data path: stubs call these hooks when a traced function is entered and when it returns.
//!
//! The hooks are assembly because they must preserve *every* register and flag: callers compiled
//! with -fipa-ra keep values in caller-saved registers, `rax` counts variadic vector arguments,
//! `r10` is a static chain, `r11` a tail call's target. They use integer registers only, so the
//! x87, SSE and AVX state need not be saved.
//!
//! How the stack moves in a call-through (S = the slot of the caller's return address R0):
//!
//! ```text
//! site:     jmp stub             [S] = R0                    rsp = S
//! stub:     call entry           [S-8] = stub+5              rsp = S-8
//!   entry:  shadow[S] = R0; [S] = stub+5; rsp = S; ret    -> stub+5, rsp = S+8
//! stub+5:   call body            [S] = stub+11               the body sees the stack as compiled, arguments included
//!   body:   ret                                           -> stub+11, rsp = S+8
//! stub+11:  call exit            [S] = stub+16               rsp = S
//!   exit:   [S-8] = stub+16; [S] = shadow[S]; ret         -> stub+16, rsp = S
//! stub+16:  ret                                           -> R0, predicted: every call had its ret
//! ```
//!
//! After a prologue (mcount) the site *calls* its stub, `entry` finds S at 8(%rbp) and puts stub+11
//! there itself.
//!
//! A function whose exits are rewritten keeps its return address. The shadow stack only holds a
//! mark of the call that is open in this slot.
//!
//! ```text
//! site:     jmp stub             [S] = R0                    rsp = S
//! stub+2:   call enter           [S-8] = stub+7
//!   enter:  shadow[S] = stub+7; ret                       -> stub+7: jmp body
//! exit:     jmp copy
//! copy:     (instructions in front of the exit)              rsp = S
//!           lea rsp, [rsp-128]                               the red zone stays as it is
//!           call stub+13         [S-136] = back into the copy
//! stub+13:  call leave           [S-144] = stub+18
//!   leave:  shadow[S] is the mark? shadow[S] = 0; ret     -> stub+18: ret 128
//! copy:     ret, or jmp          with [S] as it always was
//! ```
//!
//! A Go function does the same without a mark: its stack may move, so it has no shadow stack. Each
//! of its returns is recorded, and the recorder tells by the slot which call it ends. Go's runtime
//! unwinds no frame of a running hook: its tables do not cover the hook's code.
//!
//! A function entered by a jump finds a stub's address in S (its caller's stub+11). Its entry is
//! recorded, the slot stays as it is, and one return closes both calls.
//!
//! Unwind tables: while a hook runs, the next outer frame is the *caller of the traced function*.
//! Its return address is in `[S]` until the hook overwrites that, then in `shadow[S]`; `entry`
//! writes the shadow stack before S, so both are right at the instruction where the rule changes.

use crate::{go_values, loader, nonlocal, profile, python, record, shadow, state, sys, values};
use calltap_abi::event::{self, code};
use calltap_abi::profile as abi_profile;
use calltap_abi::values as abi_values;
use calltap_abi::{CHUNK_DATA, CHUNK_LIMIT, Control, FIRST_CALLS_AT, first_calls, stub};
use core::arch::global_asm;
use core::mem::offset_of;

// A single item of assembly: the compiler does not keep the order of several, and macros must come
// first.
#[cfg(not(feature = "attached"))]
macro_rules! hooks {
    ($($rest:tt)*) => {
        global_asm!(include_str!("hooks/state.s"), $($rest)*);
    };
}
#[cfg(feature = "attached")]
macro_rules! hooks {
    ($($rest:tt)*) => {
        global_asm!(
            include_str!("hooks/state_attached.s"),
            $($rest)*
            sysinfo = const calltap_abi::SYSINFO,
            states = const calltap_abi::THREAD_MAX,
            shift = const size_of::<state::Thread>().ilog2(),
            base = sym crate::word::STATES,
            owner_at = sym crate::word::OWNER_AT,
            owner = const offset_of!(state::Thread, owner),
        );
    };
}

hooks!(
    include_str!("hooks/frame.s"),
    include_str!("hooks/events.s"),
    include_str!("hooks/profile.s"),
    include_str!("hooks/entries.s"),
    include_str!("hooks/returns.s"),
    include_str!("hooks/exits.s"),
    include_str!("hooks/values.s"),
    include_str!("hooks/small.s"),
    include_str!("hooks/go.s"),
    include_str!("hooks/python.s"),
    include_str!("hooks/watched.s"),
    include_str!("hooks/shims.s"),
    include_str!("hooks/all.s"),
    include_str!("hooks/first.s"),
    include_str!("hooks/table.s"),
    include_str!("hooks/stubs.s"),
    control = sym state::CONTROL,
    stubs = sym state::STUBS,
    record_slow = sym record::record_slow,
    record_goroutine = sym record::record_goroutine,
    shadow_slow = sym shadow::shadow_slow,
    profile_slow = sym profile::profile_slow,
    first_slow = sym record::first_slow,
    read_values = sym values::read_values,
    read_go_values = sym go_values::read_go_values,
    python_enter = sym python::enter,
    python_leave = sym python::leave,
    python_return = sym python::returns,
    loader_changed = sym loader::changed,
    nonlocal_exit = sym nonlocal::exits,
    set_tsc = const abi_values::PR_SET_TSC,
    prctl = const abi_values::PRCTL,
    private = sym state::PRIVATE,
    sigprocmask = const sys::RT_SIGPROCMASK,
    stacks = const offset_of!(state::Private, stacks),
    stacks_mask = const state::STACKS - 1,
    stack_shift = const state::STACK_SIZE.ilog2(),
    stack_memory = const offset_of!(state::Stacks, memory),
    process = const offset_of!(state::Private, process),
    suspended = const offset_of!(Control, first_calls) + offset_of!(first_calls::Counters, suspended),
    golden = const first_calls::GOLDEN as i64,
    bucket_shift = const 64 - first_calls::BITS,
    buckets = const FIRST_CALLS_AT,
    records = const first_calls::RECORDS,
    ip_at = const FIRST_CALLS_AT + first_calls::BUCKETS_SIZE + offset_of!(first_calls::Record, ip),
    next_at = const FIRST_CALLS_AT + first_calls::BUCKETS_SIZE + offset_of!(first_calls::Record, next),
    process_at = const FIRST_CALLS_AT + first_calls::BUCKETS_SIZE + offset_of!(first_calls::Record, process),
    longest = const first_calls::MAX_CHAIN,
    profiles = const offset_of!(state::Thread, profiles),
    profile_shift = const abi_profile::SITES.ilog2(),
    profile_mask = const abi_profile::SITES - 1,
    hits = const CHUNK_DATA + offset_of!(abi_profile::Record, hits),
    timed = const CHUNK_DATA + offset_of!(abi_profile::Record, timed),
    total = const CHUNK_DATA + offset_of!(abi_profile::Record, total),
    max = const CHUNK_DATA + offset_of!(abi_profile::Record, max),
    squares_low = const CHUNK_DATA + offset_of!(abi_profile::Record, squares_low),
    squares_high = const CHUNK_DATA + offset_of!(abi_profile::Record, squares_high),
    timed_bit = const abi_profile::TIMED,
    region = const stub::REGION,
    red_zone = const stub::RED_ZONE,
    granule = const stub::SHADOW_GRANULE,
    shadow_bit = const stub::SHADOW_BIT,
    max_arguments = const MAX_ARGUMENT_WORDS,
    shadow_size = const shadow::GRANULES,
    data = const CHUNK_DATA,
    room = const CHUNK_LIMIT - CHUNK_DATA,
    epoch = const offset_of!(state::Thread, epoch),
    newest = const state::TO_NEWEST + offset_of!(state::Newest, event),
    window = const offset_of!(state::Thread, window),
    g = const offset_of!(state::Thread, g),
    goroutine = const offset_of!(state::Thread, goroutine),
    stack_top = const record::STACK_TOP,
    goid_behind_entry = const stub::GOID - stub::AFTER_CALL,
    goid_behind_leave = const stub::GOID - stub::AFTER_LEAVE,
    go_left = const stub::AFTER_LEAVE as u32 ^ code::GO_EXIT,
    window_size = const event::WINDOW,
    window_bits = const event::WINDOW.ilog2(),
    clock_bits = const event::CLOCK_BITS,
    parent_code = const code::PARENT,
    parent_high_code = const code::PARENT_HIGH,
    tick = const offset_of!(Control, tick),
    counter = const offset_of!(Control, counter),
    lost_without_room = const offset_of!(Control, lost_without_room),
    to_landing = const stub::LANDING - stub::AFTER_MCOUNT,
    to_tail = const stub::TAIL - stub::AFTER_ENTRY,
    since_entry = const stub::AFTER_LEAVE - stub::AFTER_CALL,
    left = const stub::AFTER_LEAVE as u32 ^ code::EXIT,
);

/// Maximum number of words that a function with a return stub takes from the stack when it returns.
const MAX_ARGUMENT_WORDS: u32 = 64;

unsafe extern "C" {
    static calltap_hook_table: [[i32; stub::HOOK_COUNT]; 4];
    static calltap_stub: u8;
    static calltap_first: u8;
}

/// Returns the address of the hook that replaces the profiling function.
pub fn first() -> u64 {
    &raw const calltap_first as u64
}

/// Returns the address of a hook for a clock.
pub fn hook(clock: usize, index: usize) -> u64 {
    // SAFETY: the table above, constant, with 4 rows of HOOK_COUNT offsets from its own address;
    // the index expressions check bounds.
    let table = unsafe { &calltap_hook_table };
    let row = &table[clock & 3];
    let offset = if index < stub::HOOK_COUNT { row[index] } else { 0 };
    (core::ptr::from_ref(table) as u64).wrapping_add_signed(i64::from(offset))
}

/// Returns the region reserved by link.ld for the stubs: its start, and its length.
pub fn reserved_region() -> (usize, usize) {
    (&raw const calltap_stub as usize, 2 * stub::REGION)
}

/// Returns the start of the aligned stub region inside the reserved one.
pub fn stub_region() -> usize {
    reserved_region().0.next_multiple_of(stub::REGION)
}
