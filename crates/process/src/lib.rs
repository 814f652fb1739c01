//! Another process: its memory, mappings and threads, calls injected into it, stacks, system call filters.
//!
//! All of its unsafe code but that of shared memory, which `calltap-collect` has, is here.
#![deny(unsafe_code)]

pub mod agent;
pub mod clock;
mod error;
pub mod frames;
pub mod go;
pub mod injection;
pub mod launch;
mod limits;
pub mod memory;
pub mod pages;
pub mod proc;
pub mod ptrace;
mod reason;
pub mod seccomp;
pub mod target;
pub mod unwind;

pub use error::Error;
pub use reason::Reason;
