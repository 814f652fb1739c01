//! The selection of what is traced: parses the user's words, and finds the functions that they
//! select.
//!
//! The command line, the control directory and the session all hold a [`Selection`], the words.
//! [`ParsedSelection`] answers what its tracers want of a function. This crate knows no processes,
//! and of files only the location of [debugging files](debug_files).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod candidates;
pub mod debug_files;
mod error;
mod ftraced;
mod listed;
mod named;
mod request;
mod selector;
mod words;

pub use calltap_values::words::STACK_SIZE as DEFAULT_STACK_SIZE;
pub use calltap_values::{Program, Reason as ValueReason, is_readied};
pub use candidates::{Candidates, ReadModule};
pub use error::Error;
pub use ftraced::{Alarm, Ftraced, OVERFLOW};
pub use listed::{Listed, Profiled};
pub use named::{MayChoose, Named};
pub use request::{ParsedSelection, Purpose, SiteRequest, Typed, chooser};
pub use selector::Selector;
pub use words::{
    EVALUATOR, SAVE_THREAD, Selection, TracerSelection, add, add_coroutines, add_go_waits, add_python,
    add_valued, take_python_arguments, tracer, tracers,
};
