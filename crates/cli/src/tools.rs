//! `calltap tools` and what installs itself: commands about files, not about processes or traces.

pub mod audit;
pub mod cc;
pub mod debuginfo;
pub mod install;
pub mod recordmcount;
pub mod sites;
