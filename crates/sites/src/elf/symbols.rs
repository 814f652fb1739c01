//! Function symbols from the linker's and the loader's symbol tables.

use object::LittleEndian as Le;
use object::elf::{self, Sym64};

use super::dynamic::{Dynamic, whole};
use super::image::{Image, string};

/// Length of the longest name that is read.
const MAX_NAME_LEN: usize = 1 << 16;

/// A symbol of a function; several may share an address.
pub(crate) struct Symbol<'d> {
    pub address: u64,
    pub size: u64,
    /// Name without its `@VERSION`.
    pub name: &'d [u8],
    /// Rank of the name; lower is better: global, weak, local, and last the name of a function that
    /// a [resolver](Self::is_chosen) chooses. Of the first two, names that are not
    /// [reserved](is_reserved) come first.
    pub rank: u8,
    /// Whether new programs are not linked with this name, but with another version of it or with
    /// none.
    is_former: bool,
    /// Position in the file, which orders symbols that differ in nothing else.
    order: u32,
}

/// Returns every function symbol in executable memory, by address, the best name of an address
/// first.
pub(crate) fn functions<'d>(
    image: &Image<'d>,
    dynamic: &Dynamic<'d>,
    complaints: &mut Vec<String>,
) -> Vec<Symbol<'d>> {
    let mut all = Vec::new();
    // In a hostile file, many symbols may share one long name. Reading stops once the names
    // together exceed what any linker writes.
    let mut budget = image.data.len().saturating_mul(8).max(1 << 20);
    let mut add = |symbols: &[Sym64<Le>], strings: &'d [u8], is_former: &dyn Fn(usize) -> bool| {
        let functions = symbols.iter().enumerate().filter(|(_, symbol)| is_function(image, symbol));
        for (number, symbol) in functions {
            let name = string(strings, symbol.st_name.get(Le), MAX_NAME_LEN);
            let Some(left) = budget.checked_sub(name.map_or(MAX_NAME_LEN, <[u8]>::len)) else { return false };
            budget = left;
            let order = all.len() as u32;
            all.extend(name.and_then(|name| named(symbol, name, is_former(number), order)));
        }
        true
    };
    let mut complete = add(dynamic.symbols, dynamic.strings, &|number| dynamic.is_former(number));
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let Some(section) = image.sections.iter().find(|section| section.kind == kind) else { continue };
        let strings = image.sections.get(section.link as usize).and_then(|table| image.section_data(table));
        let is_dynamic = kind == elf::SHT_DYNSYM;
        match (image.section_data(section), strings) {
            (Some(bytes), Some(strings)) => {
                complete &= add(whole(bytes), strings, &|number| is_dynamic && dynamic.is_former(number))
            }
            _ => complaints.push("a symbol table lies beyond the end of the file".to_owned()),
        }
    }
    if !complete {
        complaints.push("the symbols' names are absurdly long: some were skipped".to_owned());
    }
    // Sorts in place, as there are many symbols; the order within an address is only needed where
    // several share it.
    all.sort_unstable_by_key(|symbol| symbol.address);
    for names in all.chunk_by_mut(|a, b| a.address == b.address).filter(|names| names.len() > 1) {
        let key = |symbol: &Symbol<'d>| {
            let is_reserved = symbol.rank <= WEAK && is_reserved(symbol.name);
            let visible = if symbol.rank <= WEAK { 0 } else { symbol.rank };
            (
                is_cold(symbol.name),
                visible,
                is_reserved,
                symbol.is_former,
                symbol.rank,
                symbol.name,
                symbol.order,
            )
        };
        names.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    }
    all
}

/// Rank of a weak symbol; that of a global one is lower.
const WEAK: u8 = 1;
/// Rank of a symbol whose address is that of a resolver.
const CHOSEN: u8 = 3;

/// Whether a name is reserved for implementations and is no mangled one: people write `malloc` and
/// `read` for `__libc_malloc` and `__read`.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"_") && !name.starts_with(b"_Z") && !name.starts_with(b"_R")
}

impl Symbol<'_> {
    /// Whether the symbol names a function that a resolver chooses (IFUNC). Its address is the
    /// resolver's.
    pub(crate) fn is_chosen(&self) -> bool {
        self.rank == CHOSEN
    }
}

/// Whether the symbol may be a function's. Of those without a type, [`named`] accepts only parts.
fn is_function(image: &Image<'_>, symbol: &Sym64<Le>) -> bool {
    let index = symbol.st_shndx.get(Le);
    if !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE)
        || index == elf::SHN_UNDEF
        || !image.is_code(symbol.st_value.get(Le))
    {
        return false;
    }
    // Data may share an executable segment with code, but not a section. Special indices have no
    // section.
    let section = image.sections.get(usize::from(index.0));
    section.is_none_or(|section| section.is_code() && !section.is_plt())
}

fn named<'d>(symbol: &Sym64<Le>, name: &'d [u8], is_former: bool, order: u32) -> Option<Symbol<'d>> {
    let (name, has_former_version) = without_version(name);
    let is_former = is_former || has_former_version;
    if symbol.st_type() == elf::STT_NOTYPE && section_part(name).is_none() {
        return None;
    }
    let rank = match symbol.st_bind() {
        _ if symbol.st_type() == elf::STT_GNU_IFUNC => CHOSEN,
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 0,
        elf::STB_WEAK => WEAK,
        _ => 2,
    };
    let (address, size) = (symbol.st_value.get(Le), symbol.st_size.get(Le));
    (!name.is_empty()).then_some(Symbol { address, size, name, rank, is_former, order })
}

/// Returns the name without `@VERSION` or `@@VERSION`, and whether it had the first of these: new
/// programs are not linked with such a name.
fn without_version(name: &[u8]) -> (&[u8], bool) {
    match name.iter().position(|&byte| byte == b'@') {
        Some(at) if at > 0 => (&name[..at], !name[at + 1..].starts_with(b"@")),
        _ => (name, false),
    }
}

/// Whether the name is that of a cold part, as `foo.cold` or `foo.cold.N`: code of `foo` that only
/// jumps enter.
pub(crate) fn is_cold(name: &[u8]) -> bool {
    cold_parent(name).is_some()
}

/// Returns `foo` for `foo.__part.N`, clang's name for a block of foo in a section of its own. Their
/// symbols have no type.
fn section_part(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let parent = name[..name.len() - digits].strip_suffix(b".__part.")?;
    Some(parent).filter(|parent| digits > 0 && !parent.is_empty())
}

/// Returns `foo` for `foo.cold`, `foo.cold.N` and `foo.__part.N`.
pub(crate) fn cold_parent(name: &[u8]) -> Option<&[u8]> {
    if let Some(parent) = section_part(name) {
        return Some(parent);
    }
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem = &name[..name.len() - digits];
    let stem = if digits == 0 { name } else { stem.strip_suffix(b".")? };
    stem.strip_suffix(b".cold").filter(|parent| !parent.is_empty())
}
