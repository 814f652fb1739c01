//! Time during which threads do not run: waits, wakers, faults, and the calls that they delay.

mod incidents;
pub mod servers;
mod system_calls;
mod tools;
pub mod users;
mod waits;
mod why;
