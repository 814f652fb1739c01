//! The plan of changes: the session's files, modules, the selection resolved to sites, stubs, and
//! the journal.

pub mod breakpoints;
pub mod cache;
pub mod contents;
pub mod directory;
pub mod journal;
pub mod journaled_changes;
pub mod loaded;
pub mod modules;
pub mod planner;
pub mod program;
pub mod read_ahead;
pub mod reason;
mod script;
pub mod search;
pub mod stubs;
pub mod watched;
