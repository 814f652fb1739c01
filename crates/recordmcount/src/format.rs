//! The two dimensions in which object files differ: the width of their headers and tables, and the
//! machine. x32 has narrow tables, and code like any other of x86-64.
//!
//! The `object` crate has a set of structures for each width; the structures here are also written,
//! by the same code for both.

use crate::error::Error;
use object::elf;

/// Name of the section that lists the calls to mcount.
pub(crate) const LIST: &[u8] = b"__mcount_loc";

/// The machine of the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    X86_64,
    I386,
}

/// The properties that decide the layout of the file's tables.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// Whether the class is ELFCLASS64.
    pub wide: bool,
    pub machine: Machine,
}

/// A relocation from a table.
pub(crate) struct Relocation {
    pub offset: u64,
    pub symbol: u32,
    pub kind: u32,
}

/// The header of a section.
#[derive(Clone, Copy, Default)]
pub(crate) struct Header {
    pub name: u32,
    pub kind: u32,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub alignment: u64,
    pub entry: u64,
}

/// The fields of a symbol's entry that are used here.
pub(crate) struct Symbol {
    pub name: u32,
    pub info: u8,
    pub section: u16,
    pub value: u64,
}

impl Format {
    /// Returns the size of a word of the tables, in bytes.
    pub(crate) fn word(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Returns the size of an entry of the list, in bytes: that of the compiler's lists, on x32
    /// too.
    pub(crate) fn pointer(self) -> usize {
        match self.machine {
            Machine::X86_64 => 8,
            Machine::I386 => 4,
        }
    }

    /// Appends a word.
    pub(crate) fn put(self, to: &mut Vec<u8>, value: u64) {
        to.extend_from_slice(&value.to_le_bytes()[..self.word()]);
    }

    /// Reads a word of the tables.
    pub(crate) fn get(self, bytes: &[u8], at: usize) -> Option<u64> {
        let mut value = [0; 8];
        value[..self.word()].copy_from_slice(bytes.get(at..at.checked_add(self.word())?)?);
        Some(u64::from_le_bytes(value))
    }

    /// Returns the offset in the file header of the section headers' offset, and that of their
    /// size, which their number and the section of their names follow.
    pub(crate) fn headers_field(self) -> (usize, usize) {
        if self.wide { (0x28, 0x3a) } else { (0x20, 0x2e) }
    }

    /// Returns the size of a section header, in bytes.
    pub(crate) fn header_size(self) -> usize {
        16 + 6 * self.word()
    }

    /// Reads a section header.
    pub(crate) fn header(self, bytes: &[u8]) -> Option<Header> {
        let word = |index: usize, halves: usize| self.get(bytes, index * self.word() + halves * 4);
        Some(Header {
            name: u32_at(bytes, 0)?,
            kind: u32_at(bytes, 4)?,
            flags: word(0, 2)?,
            address: word(1, 2)?,
            offset: word(2, 2)?,
            size: word(3, 2)?,
            link: u32_at(bytes, 8 + 4 * self.word())?,
            info: u32_at(bytes, 12 + 4 * self.word())?,
            alignment: word(4, 4)?,
            entry: word(5, 4)?,
        })
    }

    /// Appends a section header.
    pub(crate) fn put_header(self, to: &mut Vec<u8>, header: &Header) {
        to.extend_from_slice(&header.name.to_le_bytes());
        to.extend_from_slice(&header.kind.to_le_bytes());
        for word in [header.flags, header.address, header.offset, header.size] {
            self.put(to, word);
        }
        to.extend_from_slice(&header.link.to_le_bytes());
        to.extend_from_slice(&header.info.to_le_bytes());
        self.put(to, header.alignment);
        self.put(to, header.entry);
    }

    /// Returns the size of a relocation in a table of this type, in bytes; `None` for other tables.
    pub(crate) fn relocation_size(self, table: u32) -> Option<usize> {
        match elf::SectionType(table) {
            elf::SHT_REL => Some(2 * self.word()),
            elf::SHT_RELA => Some(3 * self.word()),
            _ => None,
        }
    }

    /// Returns the type of the tables in which this machine's objects have their relocations.
    pub(crate) fn relocation_table(self) -> u32 {
        match self.machine {
            Machine::X86_64 => elf::SHT_RELA.0,
            Machine::I386 => elf::SHT_REL.0,
        }
    }

    /// Returns the type of a relocation that is a whole pointer.
    pub(crate) fn pointer_relocation(self) -> u32 {
        match self.machine {
            Machine::X86_64 => elf::R_X86_64_64.0,
            Machine::I386 => elf::R_386_32.0,
        }
    }

    /// Returns the number of bits below the symbol's number in a relocation's second word.
    fn kind_bits(self) -> u32 {
        if self.wide { 32 } else { 8 }
    }

    /// Reads a relocation.
    pub(crate) fn relocation(self, bytes: &[u8]) -> Option<Relocation> {
        let info = self.get(bytes, self.word())?;
        Some(Relocation {
            offset: self.get(bytes, 0)?,
            symbol: (info >> self.kind_bits()) as u32,
            kind: (info & ((1 << self.kind_bits()) - 1)) as u32,
        })
    }

    /// Returns a relocation's second word.
    pub(crate) fn relocation_info(self, symbol: u32, kind: u32) -> Result<u64, Error> {
        if !self.wide && symbol >> 24 != 0 {
            return Err(Error::Unknown { what: "too many symbols for a relocation of 32 bits".to_owned() });
        }
        Ok(u64::from(symbol) << self.kind_bits() | u64::from(kind))
    }

    /// Returns the size of a symbol, in bytes.
    pub(crate) fn symbol_size(self) -> usize {
        if self.wide { 24 } else { 16 }
    }

    /// Reads a symbol.
    pub(crate) fn symbol(self, bytes: &[u8]) -> Option<Symbol> {
        let (info, section, value) = if self.wide { (4, 6, 8) } else { (12, 14, 4) };
        Some(Symbol {
            name: u32_at(bytes, 0)?,
            info: *bytes.get(info)?,
            section: u16_at(bytes, section)?,
            value: self.get(bytes, value)?,
        })
    }

    /// Returns the symbol of a section.
    pub(crate) fn section_symbol(self, section: u16) -> Vec<u8> {
        let (info, index) = if self.wide { (4, 6) } else { (12, 14) };
        let mut symbol = vec![0; self.symbol_size()];
        symbol[info] = elf::STT_SECTION.0; // STB_LOCAL is 0.
        symbol[index..index + 2].copy_from_slice(&section.to_le_bytes());
        symbol
    }
}

/// Reads a word of 32 bits.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads a word of 16 bits.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// Returns words of 32 bits.
pub(crate) fn u32s(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}
