//! Operations that the recorder can have a thread of a running process carry out, by calling the
//! agent's `calltap_remote(operation, path)`.

/// Makes the plan's mappings.
pub const MAP: u32 = 0;
/// Undoes the mappings that the plan lists.
pub const UNMAP: u32 = 1;
/// Gives back the memory of all veneers, and keeps their addresses reserved. The plan lists them.
pub const RESERVE: u32 = 8;
/// Gives back the pages that the plan lists, as their contents are those of their files.
pub const GIVE_BACK: u32 = 5;
/// Tells the kernel that the recorder will sync the process's processors ([`crate::plan::Sync`]).
/// A new thread does so, as the kernel takes some ten milliseconds for a process of several
/// threads.
pub const REGISTER: u32 = 2;
/// Registers as [`REGISTER`] does, in the calling thread, for a process of one thread.
pub const REGISTER_ALONE: u32 = 7;
/// Unmaps everything of the session. No thread may be inside a hook, or have a stub's address on
/// its stack.
pub const LEAVE: u32 = 3;
/// Handles SIGTRAP for the [breakpoints](crate::traps) that the recorder will write, unless the
/// program uses the signal. The plan lists those that stay.
pub const TRAPS: u32 = 6;
/// Joins the session whose agent has this path.
pub const JOIN: u32 = 4;
