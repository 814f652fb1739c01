//! The user's rules for which recorded calls are kept.

pub mod chosen;
pub mod keeping;
pub mod triggers;
