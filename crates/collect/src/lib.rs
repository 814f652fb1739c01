//! Collection: maps a session's shared memory, decodes the event words that threads write to it,
//! pairs them into calls, and hands these to consumers.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod blank;
pub mod callers;
pub mod collector;
pub mod fault;
mod goroutines;
pub mod governor;
pub mod heartbeat;
pub mod kept;
pub mod living;
pub mod metadata;
pub mod output;
pub mod pairing;
pub mod profile;
pub mod programs;
pub mod python;
pub mod raw;
pub mod reader;
pub mod shm;
pub mod slow;
pub mod snapshot;
pub mod subtree;
pub mod trace_file;
pub mod waits;
