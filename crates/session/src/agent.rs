//! The agent's image.

/// The shared object that is written beside every session's files and loaded into the program.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));
