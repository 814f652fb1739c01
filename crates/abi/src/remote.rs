//! What the recorder can have a thread of a running process do, by a call of the agent's `calltap_remote(operation, path)`.

/// Carry out the plan's mappings.
pub const MAP: u32 = 0;
/// Undo the mappings that the plan lists.
pub const UNMAP: u32 = 1;
/// Give back the pages that the plan lists: they are as in their files.
pub const GIVE_BACK: u32 = 5;
/// Tell the kernel that the recorder will sync the process's processors ([`crate::plan::Sync`]).
pub const REGISTER: u32 = 2;
/// Unmap all that belongs to the session. No thread may be inside a hook, nor have a stub's address on its stack.
pub const LEAVE: u32 = 3;
/// Handle SIGTRAP for the [breakpoints](crate::traps) that the recorder will write, if the program does not mind. Those that stay are listed by the plan.
pub const TRAPS: u32 = 6;
/// Join the session whose agent has this path.
pub const JOIN: u32 = 4;
