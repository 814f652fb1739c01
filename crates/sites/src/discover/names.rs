//! Names for functions whose symbols were stripped: from the separate debugging file, or from the
//! small symbol table that some distributions pack into the file itself (`.gnu_debugdata`).

use std::collections::BTreeMap;
use std::io::{self, Write};

use object::LittleEndian as Le;
use object::elf;
use object::read::ReadRef;
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _};

use crate::binary::Binary;
use crate::elf::image::{Image, string};
use crate::elf::symbols::is_reserved;
use crate::error::Error;
use crate::function::Function;

/// Largest unpacked symbol table.
const MAX_TABLE_SIZE: usize = 256 << 20;
/// Length of the longest name that is read.
const MAX_NAME_LEN: usize = 1 << 16;

/// Whether the file has functions without a name.
pub fn lacks_names(binary: &Binary) -> bool {
    binary.functions.iter().any(is_unnamed)
}

/// Whether a function has no name but its position (`module+0x...`).
pub fn is_unnamed(function: &Function) -> bool {
    let name = function.name.strip_suffix(".cold").filter(|_| function.is_part()).unwrap_or(&function.name);
    name.trim_end_matches(|digit: char| digit.is_ascii_hexdigit()).ends_with("+0x")
}

/// Gives functions their names from another file of the same build. Returns the number of functions
/// named.
pub fn add_names(binary: &mut Binary, other: &[u8]) -> usize {
    let names = names(other).unwrap_or_default();
    let mut named = 0;
    for function in binary.functions.iter_mut().filter(|function| is_unnamed(function)) {
        let Some(found) = names.get(&function.address.0) else { continue };
        let mut found = found.iter().map(|(_, name)| name.clone());
        if let Some(name) = found.next() {
            function.name = name;
            function.aliases.extend(found);
            function.aliases.sort_unstable();
            function.aliases.dedup();
            function.aliases.retain(|alias| *alias != function.name);
            named += 1;
        }
    }
    named
}

/// The names at each address, the best first: global and weak ones, of these the reserved last, and
/// then local ones.
fn names(data: &[u8]) -> object::Result<BTreeMap<u64, Vec<(u8, String)>>> {
    let file = ElfFile64::<Le, _>::parse(data)?;
    let mut all: BTreeMap<u64, Vec<(u8, String)>> = BTreeMap::new();
    let table = file.elf_symbol_table();
    let strings = file.elf_section_table().section(table.string_section())?.data(Le, data)?;
    for symbol in
        table.symbols().iter().filter(|symbol| symbol.st_type() == elf::STT_FUNC && !symbol.is_undefined(Le))
    {
        let Some(name) =
            string(strings, symbol.st_name.get(Le), MAX_NAME_LEN).filter(|name| !name.is_empty())
        else {
            continue;
        };
        let rank = match symbol.st_bind() {
            elf::STB_GLOBAL | elf::STB_WEAK if is_reserved(name) => 2,
            elf::STB_GLOBAL => 0,
            elf::STB_WEAK => 1,
            _ => 3,
        };
        all.entry(symbol.st_value.get(Le)).or_default().push((rank, calltap_names::printable_bytes(name)));
    }
    all.values_mut().for_each(|names| names.sort());
    Ok(all)
}

/// Returns the build identifier of a file, for a comparison with [`Binary::build_id`].
pub fn build_id_of(data: &[u8]) -> Option<String> {
    build_id_in(data)
}

/// Returns the build identifier of a file that is read in parts.
pub(crate) fn build_id_in<'d>(data: impl ReadRef<'d>) -> Option<String> {
    use object::Object as _;
    let id = object::File::parse(data).ok()?.build_id().ok()??.to_vec();
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the name, without directories, of the debugging file to which this file refers
/// (`.gnu_debuglink`).
pub fn debug_link(data: &[u8]) -> Option<Vec<u8>> {
    use object::Object as _;
    let file = object::File::parse(data).ok()?;
    let (name, _) = file.gnu_debuglink().ok()??;
    Some(name.to_vec())
}

/// Gives functions their names from the symbol table packed into their own file.
pub fn add_packed_names(data: &[u8], binary: &mut Binary) -> Result<(), Error> {
    add_packed(&Image::parse(data, &mut Vec::new())?, binary);
    Ok(())
}

/// Gives functions their names from the symbol table packed into a parsed file.
pub(crate) fn add_packed(image: &Image<'_>, binary: &mut Binary) {
    if lacks_names(binary)
        && let Some(table) = packed(image)
    {
        add_names(binary, &table);
    }
}

/// Unpacks the symbol table that is packed into the file.
fn packed(image: &Image<'_>) -> Option<Vec<u8>> {
    let bytes = image.section_data(image.section(b".gnu_debugdata")?)?;
    let mut unpacked = Limited(Vec::new());
    lzma_rs::xz_decompress(&mut io::Cursor::new(bytes), &mut unpacked).ok()?;
    Some(unpacked.0)
}

/// A buffer that refuses to grow beyond [`MAX_TABLE_SIZE`]: a hostile file may unpack to any size.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TABLE_SIZE {
            return Err(io::Error::other("too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
