//! Analyses of machine code: which instructions can be relocated, where branches lead, where a
//! function keeps its return address.

pub(crate) mod addresses;
pub(crate) mod branches;
pub(crate) mod decode;
mod find_branches;
pub(crate) mod kept;
pub(crate) mod landing;
pub(crate) mod movable;
pub(crate) mod nops;
pub(crate) mod padding;
pub(crate) mod prologue;
pub(crate) mod red_zone;
pub(crate) mod return_address;
pub(crate) mod search;
pub(crate) mod stack_check;
pub(crate) mod stack_depth;
pub(crate) mod switches;
pub(crate) mod tables;
pub(crate) mod workers;
