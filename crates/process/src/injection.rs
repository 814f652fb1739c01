//! Ways to bring the agent into a process: at its start, by its dynamic linker, or placed by a
//! hijacked thread.

mod allocators;
mod block;
pub mod call;
mod flags;
pub mod guards;
pub mod inferior;
pub mod inject;
pub mod leaks;
pub mod linker;
pub mod placed;
pub mod preload;
pub mod start;
