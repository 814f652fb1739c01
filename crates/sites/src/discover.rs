//! Facts about the functions of a file, and the list of them. `decide.rs` asks the rules that look
//! at these facts.

pub(crate) mod calls;
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
pub(crate) mod records;
pub(crate) mod resolvers;
pub(crate) mod return_address_readers;
pub(crate) mod rseq;
pub(crate) mod scope;
pub(crate) mod swift;
pub(crate) mod xray;
