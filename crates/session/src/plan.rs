//! The plan of changes: the session's files, modules, the selection resolved to sites, stubs, and
//! the journal.

pub(crate) mod breakpoints;
pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod directory;
pub(crate) mod journal;
pub(crate) mod journaled_changes;
pub(crate) mod loaded;
pub(crate) mod modules;
pub(crate) mod planner;
pub(crate) mod program;
pub(crate) mod read_ahead;
pub(crate) mod reason;
mod script;
pub(crate) mod search;
pub(crate) mod stubs;
pub(crate) mod watched;
