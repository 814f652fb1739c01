//! Why threads do not run: context switches, wakings and system calls, as the kernel records them.

pub(crate) mod addresses;
pub(crate) mod holds;
pub mod kernel;
pub(crate) mod switches;
mod thread_ids;
mod waker_ids;
