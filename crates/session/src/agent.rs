//! The agent's image.

use crate::maps::Region;
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

/// Its name in the directory of a program that is started,
pub const FILE: &str = "agent.so";
/// and of a process that is attached to: there it is in the middle of a thread's life, and does less at its start.
pub const ATTACHED: &str = "attached.so";

/// Is this a mapping of an agent's file?
pub fn is_mapped(region: &Region) -> bool {
    // (The file itself is deleted when its session ends.)
    matches!(region.name().trim_end_matches(" (deleted)"), FILE | ATTACHED)
}
