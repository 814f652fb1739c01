//! Another process: its memory, mappings and threads, calls injected into it, stacks, system call filters.
//!
//! All of its unsafe code but that of shared memory, which `calltap-collect` has, is here.
#![deny(unsafe_code)]

pub mod agent;
pub mod clock;
mod error;
pub mod frames;
pub mod go;
pub mod guards;
pub mod inferior;
pub mod inject;
pub mod launch;
mod limits;
pub mod linker;
pub mod maps;
pub mod pages;
pub mod patch_log;
pub mod placed;
pub mod preload;
pub mod proc;
mod reason;
pub mod seccomp;
pub mod sharing;
pub mod standstill;
pub mod stops;
pub mod target;
pub mod text;
pub mod threads;
pub mod traced;
pub mod tracee;
pub mod unwind;
pub mod urgent;
pub mod wait;

pub use error::Error;
pub use reason::Reason;
