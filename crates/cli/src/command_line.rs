//! The command line: the table of commands and flags, its parser, and the parsed values.

pub mod arguments;
pub mod grammar;
pub mod keep;
pub mod mistakes;
pub mod part;
pub mod processes;
pub mod select;
pub mod table;
pub mod values;
pub mod view_flags;
