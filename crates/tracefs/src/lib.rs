//! The control directory: ftrace's files, formats, errors, buffers and instances, for one process.
//!
//! This crate only computes. It is told what the process has and what happened in it ([`Tracefs::record`], [`Tracefs::events`],
//! [`Tracefs::settle`]), and answers what a file system asks: look up, open, read, write, close. What it wants of the process in
//! return it says in [`Effects`].
#![forbid(unsafe_code)]

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
