//! Why threads do not run: switches, wakers and system calls, as the kernel tells of them.

pub(crate) mod addresses;
pub(crate) mod holds;
pub mod kernel;
pub(crate) mod switches;
