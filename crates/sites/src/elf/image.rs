//! The file as the loader sees it: headers, segments, and the bytes at an address.

use std::ops::Range;

use object::elf::{self, FileHeader64, ProgramHeader64, ProgramType, SectionHeader64, SectionType};
use object::{LittleEndian as Le, pod};
use serde::{Deserialize, Serialize};

use crate::address::Svma;
use crate::error::Error;

/// A range of the file that the loader maps (PT_LOAD).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Address of the first byte in memory.
    pub address: Svma,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory; those past `file_size` are zero.
    pub memory_size: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
    /// Whether it is mapped writable.
    pub writable: bool,
}

/// A section header, with the section's name.
#[derive(Clone, Copy)]
pub(crate) struct Section<'d> {
    pub name: &'d [u8],
    pub kind: SectionType,
    pub flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
}

impl Section<'_> {
    /// Whether the section holds machine instructions.
    pub(crate) fn is_code(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR.0 != 0
    }

    /// Whether the section holds the linker's call stubs instead of functions.
    pub(crate) fn is_plt(&self) -> bool {
        self.name == b".plt" || self.name.starts_with(b".plt.") || self.name == b".iplt"
    }

    /// Whether `address` lies in the loaded section.
    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// An ELF file with checked headers.
pub(crate) struct Image<'d> {
    pub data: &'d [u8],
    pub header: &'d FileHeader64<Le>,
    pub program_headers: &'d [ProgramHeader64<Le>],
    /// Loaded segments in address order, without overlaps.
    pub segments: Vec<Segment>,
    /// Sections; empty if the file has no usable section headers.
    pub sections: Vec<Section<'d>>,
    /// Beginnings and ends of the sections of code, in address order.
    code: Vec<(u64, u64)>,
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::Corrupt { what: what.into() }
}

/// Returns `data[offset..offset + size]`, for file offsets.
pub(crate) fn slice(data: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    data.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

impl<'d> Image<'d> {
    /// Checks the headers. Partial damage is noted in `complaints`.
    pub(crate) fn parse(data: &'d [u8], complaints: &mut Vec<String>) -> Result<Self, Error> {
        let header = file_header(data)?;
        let size = usize::from(header.e_phentsize.get(Le));
        let count = usize::from(header.e_phnum.get(Le));
        if count != 0 && size != size_of::<ProgramHeader64<Le>>() {
            return Err(corrupt(format!("program headers of {size} bytes each")));
        }
        let table = usize::try_from(header.e_phoff.get(Le)).ok().and_then(|at| data.get(at..));
        let (program_headers, _) = table
            .and_then(|table| pod::slice_from_bytes::<ProgramHeader64<Le>>(table, count).ok())
            .ok_or_else(|| corrupt("the program headers lie beyond the end of the file"))?;
        let segments = segments(data, program_headers, complaints)?;
        if segments.is_empty() {
            return Err(corrupt("no segment to load"));
        }
        let sections = sections(data, header).unwrap_or_else(|what| {
            complaints.push(format!("{what}: only what the loader needs can be found, no trace sites"));
            Vec::new()
        });
        let of_code = sections.iter().filter(|section| section.is_code());
        let range = |section: &Section<'_>| (section.address, section.address.saturating_add(section.size));
        let mut code: Vec<(u64, u64)> = of_code.map(range).collect();
        code.sort_unstable();
        Ok(Image { data, header, program_headers, segments, sections, code })
    }

    /// Returns the first program header of a type.
    pub(crate) fn program_header(&self, kind: ProgramType) -> Option<&'d ProgramHeader64<Le>> {
        self.program_headers.iter().find(|header| header.p_type.get(Le) == kind)
    }

    /// Returns the file's bytes of a program header.
    pub(crate) fn program_data(&self, header: &ProgramHeader64<Le>) -> Option<&'d [u8]> {
        slice(self.data, header.p_offset.get(Le), header.p_filesz.get(Le))
    }

    /// Returns the file's bytes of a section.
    pub(crate) fn section_data(&self, section: &Section<'_>) -> Option<&'d [u8]> {
        if section.kind == elf::SHT_NOBITS {
            return None;
        }
        slice(self.data, section.offset, section.size)
    }

    /// Returns the memory that holds data, with its addresses. Linkers may put data and code into
    /// one segment; if the file has no section headers then, all of the segment counts as data.
    pub(crate) fn data_areas(&self) -> Vec<(u64, &'d [u8])> {
        let mut areas = Vec::new();
        for segment in &self.segments {
            if !segment.executable || self.sections.is_empty() {
                areas.push((segment.address.0, self.tail(segment.address.0, segment.file_size)));
                continue;
            }
            let within = segment.address.0..segment.address.0.saturating_add(segment.file_size);
            let is_data = |section: &&Section<'_>| {
                section.flags & elf::SHF_ALLOC.0 != 0
                    && !section.is_code()
                    && within.contains(&section.address)
            };
            let sections = self.sections.iter().filter(is_data);
            areas.extend(sections.filter_map(|section| Some((section.address, self.section_data(section)?))));
        }
        areas
    }

    /// Returns the section with this name.
    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section<'d>> {
        self.sections.iter().find(|section| section.name == name)
    }

    fn segment(&self, address: u64) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.address.0 <= address);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (address - segment.address.0 < segment.memory_size).then_some(segment)
    }

    /// Whether `address` lies in an executable segment.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|segment| segment.executable)
    }

    /// Returns the address behind the section of code that contains `address`; the highest one if
    /// there is none.
    pub(crate) fn section_end(&self, address: u64) -> u64 {
        let after = self.code.partition_point(|(start, _)| *start <= address);
        let end = after.checked_sub(1).map(|at| self.code[at].1);
        end.filter(|end| address < *end).unwrap_or(u64::MAX)
    }

    /// Address range of the executable segment that contains `address`; empty if there is none.
    pub(crate) fn code_around(&self, address: u64) -> Range<u64> {
        let segment = self.segment(address).filter(|segment| segment.executable);
        segment.map_or(0..0, |segment| segment.address.0..segment.address.0 + segment.memory_size)
    }

    /// Whether `address` lies in a writable segment.
    pub(crate) fn is_writable(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|segment| segment.writable)
    }

    /// Whether `address` lies in a segment that is not writable.
    pub(crate) fn is_constant(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|segment| !segment.writable)
    }

    /// Returns the file's bytes from `address` to the end of its segment, at most `most`.
    pub(crate) fn tail(&self, address: u64, most: u64) -> &'d [u8] {
        let bytes = self.segment(address).and_then(|segment| {
            let skip = address - segment.address.0;
            let left = segment.file_size.checked_sub(skip)?;
            slice(self.data, segment.file_offset.checked_add(skip)?, left.min(most))
        });
        bytes.unwrap_or(&[])
    }

    /// Returns exactly `size` bytes at `address`.
    pub(crate) fn bytes(&self, address: u64, size: u64) -> Option<&'d [u8]> {
        let bytes = self.tail(address, size);
        (bytes.len() as u64 == size).then_some(bytes)
    }
}

fn file_header(data: &[u8]) -> Result<&FileHeader64<Le>, Error> {
    if data.get(..4) != Some(b"\x7fELF") {
        return Err(Error::NotElf);
    }
    match data.get(4) {
        Some(1) => return Err(Error::Bits32),
        Some(2) => {}
        _ => return Err(corrupt("the file header")),
    }
    let (header, _) = pod::from_bytes::<FileHeader64<Le>>(data).map_err(|()| corrupt("the file header"))?;
    let big = data.get(5) == Some(&2);
    let swap = |value: u16| if big { value.swap_bytes() } else { value };
    let machine = swap(header.e_machine.get(Le).0);
    if machine != elf::EM_X86_64.0 {
        return Err(Error::Machine { machine: machine_name(machine) });
    }
    if big {
        return Err(corrupt("x86-64 with big-endian data"));
    }
    let what = match header.e_type.get(Le) {
        elf::ET_EXEC | elf::ET_DYN => return Ok(header),
        elf::ET_REL => "a relocatable object file".to_owned(),
        elf::ET_CORE => "a core dump".to_owned(),
        other => format!("an ELF file of type {}", other.0),
    };
    Err(Error::NotLoadable { what })
}

fn machine_name(machine: u16) -> String {
    let name = match elf::Machine(machine) {
        elf::EM_386 => "i386",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "arm",
        elf::EM_RISCV => "riscv",
        elf::EM_PPC64 => "ppc64",
        elf::EM_S390 => "s390x",
        elf::EM_MIPS => "mips",
        elf::EM_SPARCV9 => "sparc64",
        elf::EM_LOONGARCH => "loongarch",
        elf::EM_BPF => "bpf",
        _ => return format!("machine {machine}"),
    };
    name.to_owned()
}

fn segments(
    data: &[u8],
    headers: &[ProgramHeader64<Le>],
    complaints: &mut Vec<String>,
) -> Result<Vec<Segment>, Error> {
    let mut all = Vec::new();
    for header in headers.iter().filter(|header| header.p_type.get(Le) == elf::PT_LOAD) {
        let (offset, size) = (header.p_offset.get(Le), header.p_filesz.get(Le));
        if slice(data, offset, size).is_none() {
            return Err(corrupt(format!("a segment at offset {offset:#x} goes beyond the end of the file")));
        }
        let (address, memory) = (header.p_vaddr.get(Le), header.p_memsz.get(Le));
        if memory < size || address.checked_add(memory).is_none() {
            return Err(corrupt(format!("the segment at {address:#x} has impossible sizes")));
        }
        let flags = header.p_flags.get(Le).0;
        all.push(Segment {
            address: Svma(address),
            file_offset: offset,
            file_size: size,
            memory_size: memory,
            executable: flags & elf::PF_X.0 != 0,
            writable: flags & elf::PF_W.0 != 0,
        });
    }
    all.sort_by_key(|segment| segment.address);
    let mut end = 0;
    all.retain(|segment| {
        let good = segment.address.0 >= end;
        if good {
            end = segment.address.0 + segment.memory_size;
        } else {
            complaints.push(format!("the segment at {:#x} overlaps another", segment.address.0));
        }
        good
    });
    Ok(all)
}

fn sections<'d>(data: &'d [u8], header: &FileHeader64<Le>) -> Result<Vec<Section<'d>>, String> {
    let offset = header.e_shoff.get(Le);
    if offset == 0 {
        return Err("no section headers".to_owned());
    }
    let broken = || "broken section headers".to_owned();
    if usize::from(header.e_shentsize.get(Le)) != size_of::<SectionHeader64<Le>>() {
        return Err(broken());
    }
    let table = usize::try_from(offset).ok().and_then(|at| data.get(at..)).ok_or_else(broken)?;
    // With more than 0xff00 sections, the real numbers are in section 0.
    let (first, _) = pod::from_bytes::<SectionHeader64<Le>>(table).map_err(|()| broken())?;
    let count = match header.e_shnum.get(Le) {
        0 => usize::try_from(first.sh_size.get(Le)).map_err(|_| broken())?,
        count => usize::from(count),
    };
    let names = match header.e_shstrndx.get(Le).0 {
        0xffff => first.sh_link.get(Le) as usize,
        index => usize::from(index),
    };
    let (headers, _) = pod::slice_from_bytes::<SectionHeader64<Le>>(table, count).map_err(|()| broken())?;
    let names = headers
        .get(names)
        .and_then(|names| slice(data, names.sh_offset.get(Le), names.sh_size.get(Le)))
        .ok_or_else(broken)?;
    let section = |header: &SectionHeader64<Le>| Section {
        name: string(names, header.sh_name.get(Le), 64).unwrap_or(b""),
        kind: header.sh_type.get(Le),
        flags: header.sh_flags.get(Le).0,
        address: header.sh_addr.get(Le),
        offset: header.sh_offset.get(Le),
        size: header.sh_size.get(Le),
        link: header.sh_link.get(Le),
    };
    Ok(headers.iter().map(section).collect())
}

/// Returns the zero-terminated string at `offset` of a string table, if it has at most `longest`
/// bytes. A hostile table may have no zeros, and searching for them would take quadratic time.
pub(crate) fn string(table: &[u8], offset: u32, longest: usize) -> Option<&[u8]> {
    let tail = table.get(usize::try_from(offset).ok()?..)?;
    let tail = tail.get(..=longest).unwrap_or(tail);
    tail.get(..tail.iter().position(|&byte| byte == 0)?)
}
