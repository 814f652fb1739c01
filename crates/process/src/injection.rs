//! The agent, brought into a process: with its start, by the dynamic linker, or placed by a borrowed thread.

pub mod guards;
pub mod inferior;
pub mod inject;
pub mod linker;
pub mod placed;
pub mod preload;
