//! Contents of an ELF file: headers, sections, symbols, and tables of other formats. No module here
//! decides which bytes may be patched.

pub(crate) mod dynamic;
pub(crate) mod entries;
pub(crate) mod frames;
pub(crate) mod image;
pub(crate) mod machines;
pub(crate) mod pcdata;
pub(crate) mod pclntab;
pub(crate) mod plt;
pub(crate) mod pointers;
pub(crate) mod symbols;
