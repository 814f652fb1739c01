//! Time during which threads do not run: waits, wakers, faults, and the calls that they delay.

mod incidents;
mod servers;
mod system_calls;
mod tools;
mod users;
mod waits;
mod why;
