//! Passes over a file, each of which decides something about its functions: where they may be patched, how they return, or why not.
//!
//! Their order says which has the last word:
//!
//! 1. `read.rs` gives every function a site where it was built with room for one, else a reason. `tail_jumps.rs` then takes the return stub from some of those
//!    that have a site.
//! 2. `unmodified.rs`, where it is asked for, decides anew about each function without a site: what it says replaces kind and reason. Of Go's code, `go.rs` has
//!    decided before.
//! 3. `libcalls.rs` adds stubs of the program's calls into libraries, `polls.rs` says which functions poll futures: neither changes what was decided.
//!
//! A call of the profiling function that is found when it is first executed (`session/src/plan/planner/first.rs`) makes a site of a function that has none,
//! whatever its reason. So what must never be patched has to be refused there, too.

pub(crate) mod askers;
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
pub(crate) mod parts;
pub(crate) mod polls;
pub(crate) mod profilers;
pub(crate) mod read;
pub(crate) mod records;
pub(crate) mod resolvers;
pub(crate) mod rseq;
pub(crate) mod scope;
pub(crate) mod tail_jumps;
pub(crate) mod unmodified;
pub(crate) mod xray;
