//! Where the time goes while nothing runs: waits, wakers, faults, and whom they keep waiting.

mod incidents;
mod servers;
mod tools;
mod users;
mod waits;
mod why;
