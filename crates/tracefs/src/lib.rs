//! The control directory: ftrace's files, formats, errors, buffers and instances, for one process.
//!
//! This crate only computes. Its input is the metadata and events of a process:
//! [`Tracefs::record`], [`Tracefs::events`], [`Tracefs::settle`]. It answers the requests of a file
//! system: look up, open, read, write, close. Changes for the process to carry out are returned as
//! [`Effects`].
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod clocks;
pub mod control;
mod errors;
mod files;
mod handle;
mod ingest;
mod instance;
mod nodes;
mod options;
mod pages;
mod reader;
mod ring;
mod stack;
mod stack_tracer;
mod symbols;
mod text;
mod tokens;
mod tracefs;
mod trigger;
mod values;

pub use clocks::Moment;
pub use handle::Read;
pub use tracefs::{Attributes, Effects, Listing, Refresh, Tracefs};
