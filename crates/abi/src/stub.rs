//! The stub of a site: 32 bytes that a patched site jumps to (or, after a prologue, calls).
//!
//! ```text
//!      call-through (graph)             entry only (function)        after the prologue (mcount)
//!  0:  call entry                   2:  call entry               1:  call entry
//!  5:  call body      6 bytes       7:  jmp body                 6:  ret
//! 11:  call exit                                                11:  call exit      <- the function returns here
//! 16:  ret                                                      16:  ret
//! 17:  jmp body       tail calls, and calls that are not recorded
//! 24:  address of the body, where it is out of reach of a direct call
//! ```
//!
//! A function whose exits are rewritten has this stub:
//!
//! ```text
//!  2:  call enter
//!  7:  jmp body
//! 13:  call leave     called by the copies of its exits
//! 18:  ret 128         back above the red zone
//! 24:  address of the body
//! ```
//!
//! In the stub of a Go function, two bytes behind the `ret 128` hold the offset of the goroutine's
//! number in its `g`, in words, and that of its starter's number.
//!
//! Stubs start at different offsets because the unwind table of all stubs is one rule over the
//! offset of the pc.

/// Bytes of a stub.
pub const SIZE: usize = 32;
/// Bytes of the stub region; it is aligned to its size in the target.
pub const REGION: usize = 32 << 20;
/// Stubs in the region.
pub const COUNT: usize = REGION / SIZE;
/// Offset to which the entry hook of a call-through stub returns.
pub const AFTER_ENTRY: usize = 5;
/// Offset to which the entry hook of an entry-only stub returns.
pub const AFTER_CALL: usize = 7;
/// Offset to which the entry hook of a stub after a prologue returns.
pub const AFTER_MCOUNT: usize = 6;
/// Offset to which the function's body returns.
pub const LANDING: usize = 11;
/// Offset to which `call exit` returns: the `ret`.
pub const AFTER_EXIT: usize = 16;
/// Offset that the copy of a rewritten exit calls.
pub const LEAVE: usize = 13;
/// Offset to which `call leave` returns.
pub const AFTER_LEAVE: usize = 18;
/// Bytes below the stack pointer that a function may use without moving it. The copy of an exit
/// skips them before it pushes anything: they may be in use if the place is not an exit after all.
pub const RED_ZONE: usize = 128;
/// Offset of the byte, in the stub of a Go function, with the offset of a goroutine's number in its
/// `g`, in words.
pub const GOID: usize = 21;
/// Offset of the byte, in the stub of a Go function, with the offset in `g`, in words, of the
/// number of the goroutine that started it; 0 if the offset is unknown. The address of the
/// goroutine's first function is [`STARTED_AT`] words behind.
pub const STARTED_BY: usize = 22;
/// Distance in `g`, in words, between the number of a goroutine's starter and the address of its
/// first function, in all versions of Go that have both.
pub const STARTED_AT: u64 = 3;
/// Bytes of a goroutine's stack that the hooks of a function need which does not check its stack,
/// with the red zone at its exits.
pub const GO_ROOM: u32 = 400;
/// Offset of the jump into the body that leaves the return address alone.
pub const TAIL: usize = 17;
/// Offset of the body's address.
pub const BODY: usize = 24;

/// Bytes of a near veneer, close to a module that the stub region is too far from: `jmp *2(%rip)`,
/// padding, address.
pub const VENEER_SIZE: usize = 16;
/// Bytes of the veneer area in the code file, behind the stubs.
pub const VENEERS: usize = COUNT * VENEER_SIZE;
/// Bit of a hook set, the events that the tracers of a site record together: entries with their
/// callers.
pub const FUNCTION: u8 = 1;
/// Bit: events of entries and returns.
pub const GRAPH: u8 = 2;
/// Bit: calls and their durations summed up in the program, without events ([`crate::profile`]).
pub const PROFILE: u8 = 4;
/// Bit, in addition: arguments, results, or a condition ([`crate::values`]).
pub const VALUES: u8 = 8;

/// Bit: the stack has little room (Go's), or no return address may be replaced. There are only
/// events of entries, and sums without times.
pub const SMALL_STACK: u8 = 16;

/// Bit: as on a small stack, but for a Go function with its `g` in r14. Events name their
/// goroutine, and exits are rewritten. Sums are without times.
pub const GOROUTINE: u8 = 32;

/// Bit: the function is CPython's evaluator, where the agent learns of Python functions
/// ([`crate::python`]). The evaluator itself has no events. With [`GRAPH`], its returns are those
/// of the Python functions.
pub const PYTHON: u8 = 64;

/// Bit: the function is not traced; its entry tells the agent something, by a program. The thread
/// leaves calls without their returns ([`crate::nonlocal`]), which is recorded
/// ([`crate::event::is_nonlocal`]). With [`SMALL_STACK`], the function has the
/// arguments of prctl ([`crate::values::step::FORBID`]).
pub const WATCH: u8 = 128;

/// How a function is entered and left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// The site jumps; the stub's address replaces the return address while the function runs.
    CallThrough,
    /// The site calls, after the prologue; the stub's address replaces the return address while the
    /// function runs.
    AfterPrologue,
    /// The site jumps, and so do the function's exits; the return address stays.
    Exits,
}

/// Number of hooks: entries by hook set, at a function's entry and after a prologue; exits; the
/// same with rewritten exits; as many again that first read values; those for small stacks; those
/// of Go functions, which name their goroutine; those of CPython's evaluator; those of watched
/// functions; those of Go functions that first read values; and that of calls without room.
pub const HOOK_COUNT: usize = GO_LOST_HOOK + 1;
/// Number of sets of the tracers function, function_graph and profile.
const TRACER_SETS: usize = 7;
/// Number of sets with returns: function_graph, profile, and both.
const RETURN_SETS: usize = 3;
/// Index of the entries after a prologue; those of functions come before.
const ENTRIES_AFTER_PROLOGUE: usize = TRACER_SETS;
const EXIT_HOOKS: usize = ENTRIES_AFTER_PROLOGUE + TRACER_SETS;
/// Index of the entries of functions whose exits are rewritten: of all sets but the first, function
/// alone, which records no returns.
const ENTRIES_WITH_EXITS: usize = EXIT_HOOKS + RETURN_SETS;
/// Index of the rewritten exits.
const REWRITTEN_EXITS: usize = ENTRIES_WITH_EXITS + TRACER_SETS - 1;
/// Number of hooks that record without reading values.
const PLAIN_HOOKS: usize = REWRITTEN_EXITS + RETURN_SETS;
const SMALL_STACK_HOOKS: usize = 2 * PLAIN_HOOKS;
/// Number of small-stack hooks of one style.
const SMALL_HOOKS: usize = 3;
const GO_HOOKS: usize = SMALL_STACK_HOOKS + 2 * SMALL_HOOKS;
/// Number of entry hooks of Go functions. The exit hook follows them.
const GO_ENTRIES: usize = 7;
/// Index of the evaluator's hooks: entry and return of a call-through, then those with rewritten
/// exits or without returns.
const PYTHON_HOOKS: usize = GO_HOOKS + GO_ENTRIES + 1;
const WATCH_HOOKS: usize = PYTHON_HOOKS + 4;
const GO_VALUES_HOOKS: usize = WATCH_HOOKS + 2;
/// Index of the hook that counts a call of a Go function as lost: the stack has no room for
/// another. It continues at the address in r12, and uses no stack.
pub const GO_LOST_HOOK: usize = GO_VALUES_HOOKS + GO_ENTRIES + 1;

/// Index of the first hook of Go functions.
const fn go_hooks(hook_set: u8) -> usize {
    if hook_set & VALUES != 0 { GO_VALUES_HOOKS } else { GO_HOOKS }
}

/// Returns the hook that a stub calls when a function is entered.
pub const fn entry_hook(hook_set: u8, style: Style) -> usize {
    if hook_set & WATCH != 0 {
        return if hook_set & SMALL_STACK == 0 { WATCH_HOOKS } else { WATCH_HOOKS + 1 };
    }
    if hook_set & PYTHON != 0 {
        let calls = hook_set & GRAPH != 0 && !matches!(style, Style::Exits);
        return if calls { PYTHON_HOOKS } else { PYTHON_HOOKS + 2 };
    }
    if hook_set & GOROUTINE != 0 {
        return go_hooks(hook_set) + ((hook_set & (FUNCTION | GRAPH | PROFILE)) as usize).saturating_sub(1);
    }
    if hook_set & SMALL_STACK != 0 {
        let first = match style {
            Style::CallThrough | Style::Exits => SMALL_STACK_HOOKS,
            Style::AfterPrologue => SMALL_STACK_HOOKS + SMALL_HOOKS,
        };
        return first
            + match (hook_set & FUNCTION != 0, hook_set & PROFILE != 0) {
                (_, false) => 0,
                (false, true) => 1,
                (true, true) => 2,
            };
    }
    let tracers = ((hook_set & !VALUES) as usize).saturating_sub(1) % TRACER_SETS;
    let first = match style {
        // A hook set without returns needs no mark of entries.
        Style::Exits if tracers > 0 => ENTRIES_WITH_EXITS - 1,
        Style::CallThrough | Style::Exits => 0,
        Style::AfterPrologue => ENTRIES_AFTER_PROLOGUE,
    };
    first + tracers + values(hook_set)
}

const fn values(hook_set: u8) -> usize {
    if hook_set & VALUES != 0 { PLAIN_HOOKS } else { 0 }
}

/// Returns the hook that a stub calls when the function returns, if its return is hook_set.
pub const fn exit_hook(hook_set: u8, style: Style) -> Option<usize> {
    let first = match style {
        Style::Exits => REWRITTEN_EXITS,
        Style::CallThrough | Style::AfterPrologue => EXIT_HOOKS,
    };
    if hook_set & WATCH != 0 {
        return None;
    }
    match (hook_set & GRAPH != 0, hook_set & PROFILE != 0) {
        (false, _) if hook_set & PYTHON != 0 => None,
        _ if hook_set & PYTHON != 0 => match style {
            Style::Exits => Some(PYTHON_HOOKS + 3),
            Style::CallThrough | Style::AfterPrologue => Some(PYTHON_HOOKS + 1),
        },
        _ if hook_set & SMALL_STACK != 0 => None,
        (false, _) if hook_set & GOROUTINE != 0 => None,
        _ if hook_set & GOROUTINE != 0 => Some(go_hooks(hook_set) + GO_ENTRIES),
        (true, false) => Some(first + values(hook_set)),
        (false, true) => Some(first + 1 + values(hook_set)),
        (true, true) => Some(first + 2 + values(hook_set)),
        (false, false) => None,
    }
}

/// Bit that differs between a stack slot and its shadow-stack slot, which holds the true return
/// address while a traced call runs.
pub const SHADOW_BIT: u32 = 44;
/// Shadow stacks are mapped in pieces of this many bytes (log2).
pub const SHADOW_GRANULE: u32 = 23;
