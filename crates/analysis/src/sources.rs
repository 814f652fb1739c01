//! The sources of events, parts of them, and the engine that runs over them.

pub(crate) mod drive;
pub(crate) mod memory;
pub mod part;
mod picker;
pub(crate) mod reader;
pub(crate) mod recent;
pub(crate) mod share;
pub(crate) mod source;
pub(crate) mod wakeups;
