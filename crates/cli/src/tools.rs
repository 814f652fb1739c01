//! `calltap tools`, and the installation of completions: commands for files, not for processes or
//! traces.

pub mod audit;
pub mod cc;
pub mod debuginfo;
pub mod install;
pub mod recordmcount;
pub mod sites;
