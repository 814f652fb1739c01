//! What an ELF file holds: headers, sections, symbols, tables of others. Nothing here decides what may be patched.

pub(crate) mod dynamic;
pub(crate) mod entries;
pub(crate) mod frames;
pub(crate) mod image;
pub(crate) mod machines;
pub(crate) mod pclntab;
pub(crate) mod plt;
pub(crate) mod pointers;
pub(crate) mod symbols;
