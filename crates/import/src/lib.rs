//! A `trace.dat` of trace-cmd as a trace of calltap, and several traces as one.
//!
//! `head` reads what stands before the events, of both versions of the file; `stream` the pages of a processor, `decode`
//! what is in their events, by the formats in the file itself; `merge` puts processors into one order by time; and
//! `frames`, `states`, `lane` and `writer` make of them calls, context switches, wakings and system calls of threads. `together` puts traces of one
//! machine on one timeline. Nothing in a file is trusted.
#![forbid(unsafe_code)]

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
