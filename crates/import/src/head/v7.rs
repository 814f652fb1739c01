//! The head of a file of version 7: sections, located by a list of options.

use super::options::{self, Options, id};
use super::{Buffer, CpuPages, Parts};
use crate::bytes::{Bytes, Cursor};
use crate::compression::Compression;
use crate::error::Error;

/// Flag of a compressed section.
const COMPRESSED: u16 = 1;
/// Maximum number of chained lists of options.
const MAX_LISTS: usize = 100;
/// Size of an option that locates a section.
const POINTER: usize = 8;

struct Section<'f> {
    id: u16,
    is_compressed: bool,
    cursor: Cursor<'f>,
    size: u64,
}

fn section<'f>(file: &'f dyn Bytes, at: u64, what: &'static str) -> Result<Section<'f>, Error> {
    let mut cursor = Cursor::new(file, at, what)?;
    let (id, flags) = (cursor.u16()?, cursor.u16()?);
    // The index of its name in the strings.
    cursor.u32()?;
    let size = cursor.u64()?;
    Ok(Section { id, is_compressed: flags & COMPRESSED != 0, cursor, size })
}

impl Section<'_> {
    fn content(mut self, compression: Compression, what: &'static str) -> Result<Vec<u8>, Error> {
        match self.is_compressed {
            true => compression.piece(&mut self.cursor, what),
            false => self.cursor.take(self.size),
        }
    }
}

pub(super) fn read(
    file: &dyn Bytes,
    cursor: &mut Cursor<'_>,
    parts: &mut Parts,
) -> Result<(Options, Vec<Buffer>), Error> {
    let compression = Compression::named(&cursor.text()?)?;
    // The version of the algorithm, or of the library.
    cursor.text()?;
    let mut next = cursor.u64()?;
    let (mut options, mut buffers) = (Options::default(), Vec::new());
    let mut has_text = false;
    for _ in 0..MAX_LISTS {
        if next == 0 {
            return match buffers.is_empty() && has_text {
                true => Err(Error::Text),
                false => Ok((options, buffers)),
            };
        }
        let list = section(file, next, "a list of options")?;
        if list.id != id::DONE {
            return Err(Error::Damaged("no list of options is where one should be"));
        }
        let list = list.content(compression, "a list of options")?;
        let mut list = Cursor::new(&list, 0, "a list of options")?;
        next = loop {
            let (id, length) = (list.u16()?, list.u32()?);
            let value = list.take(length.into())?;
            let pointer = || -> Result<u64, Error> {
                let bytes = value.first_chunk::<POINTER>();
                bytes.map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Error::Damaged("an option is too short"))
            };
            match id {
                id::DONE => break pointer()?,
                id::BUFFER => buffers.push(buffer(file, value, compression)?),
                id::BUFFER_TEXT => has_text = true,
                id::HEADER_INFO | id::FTRACE_EVENTS | id::EVENT_FORMATS | id::KALLSYMS | id::CMDLINES => {
                    part(file, parts, id, pointer()?, compression)?;
                }
                _ => options.take(id, &value),
            }
        };
    }
    Err(Error::Damaged("its lists of options have no end"))
}

fn part(
    file: &dyn Bytes,
    parts: &mut Parts,
    id: u16,
    at: u64,
    compression: Compression,
) -> Result<(), Error> {
    if !parts.read.insert(id) {
        return Err(Error::Damaged("a section is there twice"));
    }
    let section = section(file, at, "a section")?;
    if section.id != id {
        return Err(Error::Damaged("a section is not where its option says"));
    }
    let content = section.content(compression, "a section")?;
    let cursor = &mut Cursor::new(&content, 0, "a section")?;
    match id {
        id::HEADER_INFO => parts.header_info(cursor),
        id::FTRACE_EVENTS => parts.ftrace_events(cursor),
        id::EVENT_FORMATS => parts.event_formats(cursor),
        id::KALLSYMS => parts.kallsyms(cursor),
        _ => parts.cmdlines(cursor),
    }
}

fn buffer(file: &dyn Bytes, value: Vec<u8>, compression: Compression) -> Result<Buffer, Error> {
    let mut cursor = Cursor::new(&value, 0, "the description of a buffer")?;
    let (offset, name, clock) = (cursor.u64()?, cursor.text()?, cursor.text()?);
    let (page_size, cpus) = (cursor.u32()?, cursor.u32()?);
    let is_compressed = section(file, offset, "a buffer")?.is_compressed;
    let compression = if is_compressed { compression } else { Compression::None };
    let mut places = Vec::new();
    for _ in 0..cpus {
        let (cpu, offset, size) = (cursor.u32()?, cursor.u64()?, cursor.u64()?);
        places.push(CpuPages { cpu, offset, size, compression });
    }
    Ok(Buffer { name, clock: options::clock(&clock).unwrap_or_default(), page_size, places })
}
