//! The memory of another process: its mappings, and its text, which only `text` writes.

pub mod faults;
pub mod maps;
pub mod patch_log;
pub mod text;
