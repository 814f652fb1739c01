//! Whether, and how, a function can be traced: every rule, in evaluation order.
//!
//! A rule is a function from facts about one function of a file to a reason against tracing it. The
//! first rule of a table that gives a reason stands. The facts are gathered once per file, by
//! `discover/` and [`FileFacts`](facts::FileFacts); a rule only looks at them.
//!
//! | table | evaluated for | rules in | a reason means |
//! |---|---|---|---|
//! | [`ROOM`] | every function | `room.rs` | no usable room of this kind; without any room: not traced |
//! | `tail_jumps.rs` | functions with such room | | only entries are recorded |
//! | [`GO`] | Go functions without a site | `go.rs` | not traced |
//! | [`GO_UNCHECKED`] | those that pass [`GO`] and do not check their stack | `go_unchecked.rs` | not traced |
//! | [`FUNCTION`] | other functions without a site | `function.rs` | not traced |
//! | [`PROLOGUE`] | those that pass [`FUNCTION`] | `jump.rs` | no jump over the prologue: a jump in the padding, or a breakpoint, or not traced |
//! | [`SITE`] | those with any of these three | `site.rs` | not traced |
//! | [`EXITS`], then `exits.rs` | those that pass [`GO`] or [`SITE`] | `rewriting.rs` | a return stub sees the return |
//! | [`RETURN_STUB`] | those for which a return stub is left | `return_stub.rs` | not traced; of Go functions, entries |
//! | [`FIRST_CALL`] | functions that are found when they first call the profiling function | `first_call.rs` | the call becomes a NOP |
//!
//! The tables are evaluated in this order, and a later one replaces the verdict of an earlier
//! one: a function that [`ROOM`] refuses has no site, so [`GO`] or [`FUNCTION`] decides. Without
//! a search for prologues, only [`ROOM`] and `tail_jumps.rs` are evaluated. The linker's stubs
//! (`discover/libcalls.rs`) come with their sites. `unmodified.rs` evaluates the rules for code
//! without room, and chooses the form of the site. `polls.rs` marks functions that poll futures
//! and decides nothing.
//!
//! To add a reason: a row in `reason.rs`, a rule in the file of its subject, its place in the table
//! of the functions that it concerns, and a test. A rule about all functions has a place in
//! [`ROOM`], [`GO`] and [`FUNCTION`].

pub(crate) mod exits;
pub(crate) mod facts;
pub(crate) mod first_call;
pub(crate) mod function;
pub(crate) mod go;
pub(crate) mod go_facts;
pub(crate) mod go_unchecked;
pub(crate) mod jump;
pub(crate) mod return_stub;
pub(crate) mod rewriting;
pub(crate) mod room;
pub(crate) mod site;
pub(crate) mod tail_jumps;
pub(crate) mod unmodified;

use crate::function::Function;
use crate::reason::Reason;
use facts::{FunctionFacts, PrologueFacts, SiteFacts};
use go_facts::GoFacts;
use room::{Candidate, RoomFacts};

/// Gives the reason against tracing a function, if its facts hold one.
type Rule<F> = fn(&F) -> Option<Reason>;

/// The kinds of room that compilers leave. The first one that can be patched becomes the site; if
/// none can, the reason is that of the first one that is there.
const ROOM: [fn(&RoomFacts<'_>) -> Option<Candidate>; 4] =
    [room::xray, room::patchable, room::recorded_call, room::plain_call];

/// Rules for a Go function.
const GO: &[fn(&GoFacts<'_>) -> Option<Reason>] = &[
    go::unknown,
    go::checks_itself,
    go::check_leads_out,
    go::check_is_lost,
    go::branches_into_check,
    go::lies_in_two_pages,
];

/// Rules for a Go function that does not check its stack.
const GO_UNCHECKED: &[fn(&GoFacts<'_>) -> Option<Reason>] = &[
    go_unchecked::is_of_unknown_version,
    go_unchecked::is_assembly,
    go_unchecked::is_of_c,
    go_unchecked::runs_on_other_stack,
    go_unchecked::is_of_fork,
    go_unchecked::sets_goroutine,
    go_unchecked::restarts,
];

/// Rules for a function, however it would be patched.
const FUNCTION: &[fn(&FunctionFacts<'_>) -> Option<Reason>] = &[
    function::is_entry_point,
    function::is_of_ocaml,
    function::has_odd_stack,
    function::is_entered_with_frame,
    function::reads_red_zone,
    function::may_get_red_zone,
    function::may_be_part,
];

/// Rules for a jump over the prologue.
const PROLOGUE: &[fn(&PrologueFacts<'_>) -> Option<Reason>] = &[
    jump::has_unmovable_instruction,
    jump::is_cut_short,
    jump::is_too_short,
    jump::is_not_in_file,
    jump::is_landed_in_by_unresolved_jump,
    jump::lies_in_two_pages,
    jump::is_jumped_into,
];

/// Rules for a site of any form, once there is one.
const SITE: &[fn(&SiteFacts<'_>) -> Option<Reason>] =
    &[site::loops_to_entry, site::may_throw_out_of_line, site::needs_breakpoint];

/// Rules for rewriting exits, before each exit is looked at.
const EXITS: &[fn(&FunctionFacts<'_>) -> Option<Reason>] = &[
    rewriting::has_room_at_entry,
    rewriting::has_unknown_goroutine,
    rewriting::ends_goroutine,
    rewriting::sets_goroutine,
    rewriting::is_go_assembly,
    rewriting::shares_many_parts,
    rewriting::runs_on,
    rewriting::may_have_data_behind_calls,
    rewriting::may_throw_out_of_line,
];

/// Rules for a return stub.
const RETURN_STUB: &[fn(&FunctionFacts<'_>) -> Option<Reason>] = &[
    return_stub::reads_return_address,
    return_stub::moves_return_address,
    return_stub::pops_arguments,
    return_stub::may_pop_arguments,
    return_stub::is_of_virtual_machine,
];

/// Rules for a function of a file that is found when it first calls the profiling function. The
/// call is room for a site, so no reason of another table holds.
const FIRST_CALL: &[Rule<Function>] = &[first_call::is_profiler];

/// Returns the first reason that rules give.
fn refusal<F>(rules: &[Rule<F>], facts: &F) -> Option<Reason> {
    rules.iter().find_map(|rule| rule(facts))
}
