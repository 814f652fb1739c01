//! An object file: its sections, which all lie within the file and do not overlap.

use crate::error::Error;
use crate::format::{Format, Header, Machine, Symbol, u16_at, u32_at};
use object::elf;

/// A section.
pub(crate) struct Section<'d> {
    pub header: Header,
    pub name: &'d [u8],
    /// Bytes of the section in the file.
    pub data: &'d [u8],
}

impl Section<'_> {
    /// Whether the section is of this type.
    pub(crate) fn is(&self, kind: elf::SectionType) -> bool {
        self.header.kind == kind.0
    }

    /// Whether the section has this flag.
    pub(crate) fn has(&self, flag: elf::SectionFlags) -> bool {
        self.header.flags & flag.0 != 0
    }
}

/// An object file.
pub(crate) struct Object<'d> {
    pub data: &'d [u8],
    pub format: Format,
    pub sections: Vec<Section<'d>>,
    /// Offset of the section headers.
    pub headers_at: usize,
    /// Number of the section with the sections' names.
    pub names: usize,
    /// Number of the symbol table's section.
    pub symbols: Option<usize>,
}

const HEADERS: &str = "the section headers";

impl<'d> Object<'d> {
    /// Parses the headers.
    pub(crate) fn parse(data: &'d [u8]) -> Result<Object<'d>, Error> {
        let format = format(data)?;
        let (offset, sizes) = format.headers_field();
        let broken = || Error::corrupt(HEADERS);
        let at = format.get(data, offset).and_then(|at| usize::try_from(at).ok()).ok_or_else(broken)?;
        let half = |index: usize| u16_at(data, sizes + 2 * index).ok_or_else(broken);
        let (size, count, names) = (half(0)?, half(1)?, half(2)?);
        let mut object =
            Object { data, format, sections: Vec::new(), headers_at: at, names: 0, symbols: None };
        if at == 0 {
            return Ok(object);
        }
        if usize::from(size) != format.header_size() {
            return Err(broken());
        }
        let table = data.get(at..).ok_or_else(broken)?;
        // Numbers that do not fit the file's header are in the first section's.
        let first = format.header(table).ok_or_else(broken)?;
        let count = if count == 0 { first.size } else { count.into() };
        object.names = if names == elf::SHN_XINDEX.0 { first.link as usize } else { names.into() };
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(format.header_size()));
        let table = table.get(..length.ok_or_else(broken)?).ok_or_else(broken)?;
        let headers = table.chunks_exact(format.header_size()).map(|bytes| format.header(bytes));
        let headers: Vec<Header> = headers.collect::<Option<_>>().ok_or_else(broken)?;
        let mut taken = vec![(0, sizes + 6), (at, at + table.len())];
        for (index, header) in headers.iter().enumerate() {
            let range = range(header).filter(|range| range.end <= data.len());
            let range = range
                .ok_or_else(|| Error::corrupt(format!("section {index} lies beyond the end of the file")))?;
            if !range.is_empty() {
                taken.push((range.start, range.end));
            }
            object.sections.push(Section { header: *header, name: &[], data: &data[range] });
        }
        taken.sort_unstable();
        if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::corrupt("sections overlap"));
        }
        let names = object.section(object.names)?.data;
        object.symbols = object.sections.iter().position(|section| section.is(elf::SHT_SYMTAB));
        object.sections.iter_mut().for_each(|section| section.name = string(names, section.header.name));
        Ok(object)
    }

    /// Returns the section with this number.
    pub(crate) fn section(&self, index: usize) -> Result<&Section<'d>, Error> {
        self.sections
            .get(index)
            .ok_or_else(|| Error::corrupt(format!("there is no section {index}, which another refers to")))
    }

    /// Returns all sections of this type with their numbers.
    pub(crate) fn of_type(&self, kind: elf::SectionType) -> impl Iterator<Item = (usize, &Section<'d>)> {
        self.sections.iter().enumerate().filter(move |(_, section)| section.is(kind))
    }

    /// Returns the symbols of a symbol table.
    pub(crate) fn symbols_of(&self, table: &Section<'d>) -> impl Iterator<Item = Symbol> {
        let format = self.format;
        table.data.chunks_exact(format.symbol_size()).filter_map(move |bytes| format.symbol(bytes))
    }
}

/// Returns the format of the file, or why no list is added to it.
fn format(data: &[u8]) -> Result<Format, Error> {
    if !data.starts_with(&elf::ELFMAG) {
        let what = if data.starts_with(b"!<arch>") {
            "an archive: its members must have their calls recorded before they are put into it"
        } else if data.starts_with(b"BC\xc0\xde") {
            "LLVM bitcode, not an object file: it has no calls yet"
        } else {
            "not an ELF file"
        };
        return Err(Error::NotElf { what });
    }
    let broken = || Error::corrupt("the file header");
    let (class, order) = (data.get(4).ok_or_else(broken)?, data.get(5).ok_or_else(broken)?);
    let half =
        |at| u16_at(data, at).map(|half| if *order == elf::ELFDATA2MSB.0 { half.swap_bytes() } else { half });
    let (kind, number) = (half(16).ok_or_else(broken)?, half(18).ok_or_else(broken)?);
    let little = *order == elf::ELFDATA2LSB.0;
    let wide = *class == elf::ELFCLASS64.0;
    let machine = match number {
        _ if number == elf::EM_X86_64.0 && little => Machine::X86_64,
        _ if number == elf::EM_386.0 && little && !wide => Machine::I386,
        _ => return Err(Error::Machine { number }),
    };
    if !wide && *class != elf::ELFCLASS32.0 {
        return Err(broken());
    }
    let what = match elf::FileType(kind) {
        elf::ET_REL => return Ok(Format { wide, machine }),
        elf::ET_EXEC => "an executable",
        elf::ET_DYN => "an executable or shared object",
        elf::ET_CORE => "a core dump",
        _ => "an ELF file of an unknown type",
    };
    Err(Error::NotRelocatable { what })
}

/// Returns the range of a section in the file.
fn range(header: &Header) -> Option<std::ops::Range<usize>> {
    if header.kind == elf::SHT_NOBITS.0 || header.kind == elf::SHT_NULL.0 || header.size == 0 {
        return Some(0..0);
    }
    let end = header.offset.checked_add(header.size)?;
    Some(usize::try_from(header.offset).ok()?..usize::try_from(end).ok()?)
}

/// Returns a string of a string table, cut off behind the length of any name that matters here;
/// empty if it lies outside.
pub(crate) fn string(strings: &[u8], at: u32) -> &[u8] {
    let rest = strings.get(at as usize..).unwrap_or_default();
    let longest = &rest[..rest.len().min(64)];
    longest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Returns the section numbers that did not fit the symbols of a table, and the number of their
/// section.
pub(crate) fn wide_indices<'o>(object: &'o Object<'_>, table: usize) -> Option<(usize, &'o [u8])> {
    let mut found = object.of_type(elf::SHT_SYMTAB_SHNDX);
    let (index, section) = found.find(|(_, section)| section.header.link as usize == table)?;
    Some((index, section.data))
}

/// Returns the number of the section that contains a symbol; 0 for none.
pub(crate) fn section_of(symbol: &Symbol, number: usize, wide: Option<(usize, &[u8])>) -> u32 {
    let written = || u32_at(wide?.1, number.checked_mul(4)?);
    match symbol.section {
        index if index < elf::SHN_LORESERVE => index.into(),
        index if index == elf::SHN_XINDEX.0 => written().unwrap_or(0),
        _ => 0,
    }
}
