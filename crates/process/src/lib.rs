//! Another process: its memory, mappings and threads, calls injected into it, stacks, and system
//! call filters.
//!
//! All unsafe code that operates on another process is here. Shared memory is `calltap-collect`'s.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

pub mod agent;
pub mod clock;
mod control_group;
mod error;
pub mod frames;
pub mod free_memory;
pub mod freezer;
pub mod go;
pub mod injection;
pub mod launch;
pub mod limits;
pub mod memory;
mod no_breakpoints;
pub mod pages;
pub mod proc;
pub mod ptrace;
pub mod reason;
pub mod seccomp;
pub mod status;
pub mod target;
pub mod unwind;

pub use error::Error;
pub use no_breakpoints::NoBreakpoints;
pub use reason::Reason;
