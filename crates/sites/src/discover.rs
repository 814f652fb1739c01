//! Passes over a file, each of which decides something about its functions: where they may be patched, how they return, or why not.

pub(crate) mod askers;
pub(crate) mod calls;
pub(crate) mod exits;
pub(crate) mod functions;
pub(crate) mod go;
pub(crate) mod go_exits;
pub(crate) mod goid;
pub(crate) mod handed;
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
pub(crate) mod unmodified;
pub(crate) mod xray;
