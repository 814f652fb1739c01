//! Computes the bytes to write into a program: the stub of a site and the veneer that leads to it
//! ([`stub_bytes`]), the site itself ([`Site`]), and the order of writes while the program runs
//! (`batch`).
//!
//! Safe code that only computes, and writes through a given [`Text`]. Addresses are those of the
//! running process ([`Avma`], actual virtual memory address), so a link-time
//! [`Svma`](calltap_sites::Svma) cannot be patched by mistake.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod address;
mod audit;
mod batch;
mod bytes;
mod copy;
mod encoding;
mod guard;
mod hook_set;
pub mod log;
mod site;
mod steps;
mod stubs;

pub use address::{Avma, Bias};
pub use audit::Audit;
pub use batch::{Change, ChangeError, Failed, Prepared, Text, carry_out};
pub use bytes::{Bytes, MAX_SITE_LEN};
pub use calltap_abi::PAGE;
pub use copy::{Leaves, LoadedG, Uncopied, copy, copy_check, copy_room};
pub use encoding::{OutOfReach, exit_targets, reaches};
pub use guard::{AT_ENTRY as GUARD, guard_bytes};
pub use hook_set::HookSet;
pub use site::{Demand, Site, State, calls_out};
pub use steps::{STEPS, Steps, Transition};
pub use stubs::{Agent, body_address, entry_offset, is_after_prologue, stub_bytes, style, veneer_bytes};
