//! Imports a `trace.dat` of trace-cmd as a trace of calltap, and merges several traces into one.
//!
//! `head` reads the head of the file, in both versions; `stream` the pages of a processor; `decode`
//! their events, by the formats in the file itself; `merge` orders the events of all processors by
//! time; and `frames`, `states`, `lane` and `writer` turn them into calls, context switches,
//! wakings and system calls of threads. `together` puts traces of one machine on one timeline. No
//! content of a file is trusted.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod bytes;
mod compression;
mod decode;
mod error;
mod frames;
mod head;
mod import;
mod lane;
mod merge;
mod pages;
mod states;
mod stream;
mod summary;
mod symbols;
mod together;
mod writer;

pub use bytes::Bytes;
pub use error::Error;
pub use import::{Named, import};
pub use pages::{Described, Pages, import_pages};
pub use summary::Summary;
pub use together::{Joined, Others, Recording, Refused, join};
