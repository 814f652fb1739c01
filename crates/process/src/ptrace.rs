//! Threads of other processes, stopped, followed and released by ptrace.

pub mod sharing;
pub mod standstill;
pub mod stops;
pub mod threads;
pub mod traced;
pub mod tracee;
pub mod urgent;
pub mod wait;
