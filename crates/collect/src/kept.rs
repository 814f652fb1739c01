//! Which calls go on of all that are recorded: the rules that the user gave.

pub mod chosen;
pub mod keeping;
pub mod triggers;
