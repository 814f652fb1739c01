//! System calls, and how they become events.
//!
//! A file has the system calls of a thread apart from its events, as the kernel reports them. A
//! reader puts each where it happened: it is a call of `sys_NAME` in a module of their own, within
//! the call of the program that was open then.

mod added;
mod arguments;
mod calls;
mod futex;
mod names;

pub(crate) use added::{AddedCalls, Bounds};
pub use futex::{Futex, SEVERAL, futex};
pub use names::name;

/// Name of the module of system calls.
pub const MODULE: &str = "[system calls]";
