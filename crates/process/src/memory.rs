//! The memory of another process: its mappings, and its text, which is written in one place.

pub mod maps;
pub mod patch_log;
pub mod text;
