//! The developer's commands. They are a library, as the oracle tests need the real programs as
//! well.

pub mod bench;
pub mod book;
pub mod chaos;
pub mod ci;
pub mod coverage;
pub mod demo;
pub mod dist;
pub mod fuzz;
pub mod fuzz_targets;
pub mod landing;
pub mod oracle;
pub mod package;
pub mod picture;
pub mod programs;
pub mod server;
pub mod shell;
pub mod suites;
pub mod test;
pub mod watched;
