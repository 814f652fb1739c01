//! Passes over a file. Each decides something about the functions: their sites, how their returns
//! are seen, or why they cannot be traced.
//!
//! A later pass overrides an earlier one:
//!
//! 1. `read.rs` gives a function that was built with room a site, and refuses every other one.
//!    `tail_jumps.rs` then takes the return stub from some of the functions with a site.
//! 2. `unmodified.rs`, on request, decides anew about each function without a site, and replaces
//!    its [verdict](crate::Verdict). For Go's code, `go.rs` has decided before.
//! 3. `libcalls.rs` adds the linker's stubs for calls into libraries, and `polls.rs` marks
//!    functions that poll futures. Neither changes an earlier decision.
//!
//! With `Discovery::FirstCall`, `session/src/plan/planner/first_calls.rs` gives a function a site
//! when it first calls the profiling function, whatever its reason. A function that must never be
//! traced has to be refused there, too.

pub(crate) mod calls;
pub(crate) mod exits;
pub(crate) mod functions;
pub(crate) mod go;
pub(crate) mod go_exits;
pub(crate) mod goid;
pub(crate) mod jumps;
pub(crate) mod landings;
pub(crate) mod libcalls;
pub(crate) mod lookup;
pub(crate) mod names;
pub(crate) mod nonlocal;
pub(crate) mod parts;
pub(crate) mod polls;
pub(crate) mod profilers;
pub(crate) mod read;
pub(crate) mod records;
pub(crate) mod resolvers;
pub(crate) mod return_address_readers;
pub(crate) mod rseq;
pub(crate) mod scope;
pub(crate) mod tail_jumps;
pub(crate) mod unmodified;
pub(crate) mod xray;
