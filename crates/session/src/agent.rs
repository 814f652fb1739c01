//! The agent's image.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};

/// The shared object that is written beside every session's files and loaded into the program.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));

/// Where a symbol of the agent is, counted from its load address.
pub fn symbol(name: &str) -> Option<u64> {
    let file = ElfFile64::<Endianness>::parse(IMAGE).ok()?;
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
    found.map(|symbol| symbol.address())
}
