//! The head of a file: formats, symbols, names of tasks, the clock, and the positions of every
//! processor's pages.

mod options;
mod v6;
mod v7;

use crate::bytes::{Bytes, Cursor};
use crate::compression::Compression;
use crate::error::Error;
use calltap_ringbuffer::PageLayout;
pub(crate) use options::Options;
use std::collections::BTreeSet;

/// The first bytes of a file.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Maximum size of a page of a ring buffer.
const LARGEST_PAGE: u32 = 1 << 20;

/// The pages of one processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CpuPages {
    pub(crate) cpu: u32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) compression: Compression,
}

/// A buffer of the top directory or of an instance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Buffer {
    /// Name of the instance; empty for the top directory.
    pub(crate) name: String,
    /// Name of the clock.
    pub(crate) clock: String,
    pub(crate) page_size: u32,
    pub(crate) places: Vec<CpuPages>,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.iter().all(|place| place.size == 0)
    }
}

/// The head of a file.
pub(crate) struct Head {
    pub(crate) layout: PageLayout,
    /// The format texts of all events.
    pub(crate) formats: Vec<String>,
    pub(crate) kallsyms: Vec<u8>,
    pub(crate) cmdlines: Vec<u8>,
    pub(crate) options: Options,
    pub(crate) buffers: Vec<Buffer>,
}

/// The parts that both versions have in the same form.
#[derive(Default)]
struct Parts {
    layout: Option<PageLayout>,
    formats: Vec<String>,
    kallsyms: Vec<u8>,
    cmdlines: Vec<u8>,
    /// Numbers of the parts that were read, in version 7.
    read: BTreeSet<u16>,
}

impl Head {
    /// Reads the whole head.
    pub(crate) fn read(file: &dyn Bytes) -> Result<Head, Error> {
        let mut cursor = Cursor::new(file, 0, "its head")?;
        if cursor.take(MAGIC.len() as u64).map_err(|_| Error::Foreign)? != MAGIC {
            return Err(Error::Foreign);
        }
        let version = cursor.text()?;
        if !matches!(version.as_str(), "6" | "7") {
            return Err(Error::Version(calltap_names::printable(&version).into_owned()));
        }
        if cursor.u8()? != 0 {
            return Err(Error::BigEndian);
        }
        // The size of a long, which the formats make redundant.
        cursor.u8()?;
        let page_size = cursor.u32()?;
        let mut parts = Parts::default();
        let (options, mut buffers) = match version.as_str() {
            "6" => v6::read(&mut cursor, &mut parts, page_size)?,
            _ => v7::read(file, &mut cursor, &mut parts)?,
        };
        if buffers.iter().any(|buffer| buffer.page_size == 0 || buffer.page_size > LARGEST_PAGE) {
            return Err(Error::Damaged("its pages have no possible size"));
        }
        let size = file.size().map_err(Error::Read)?;
        let ends = |place: &CpuPages| place.offset.checked_add(place.size);
        if buffers
            .iter()
            .flat_map(|buffer| &buffer.places)
            .any(|place| ends(place).is_none_or(|end| end > size))
        {
            return Err(Error::Truncated("a processor's buffer"));
        }
        let places = buffers.iter().flat_map(|buffer| &buffer.places);
        if places.fold(0, |sum: u64, place| sum.saturating_add(place.size)) > size {
            return Err(Error::Damaged("its buffers overlap"));
        }
        buffers.retain(|buffer| !buffer.is_empty());
        let layout = parts.layout.ok_or(Error::Damaged("no description of its pages"))?;
        let Parts { formats, kallsyms, cmdlines, .. } = parts;
        Ok(Head { layout, formats, kallsyms, cmdlines, options, buffers })
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Parts {
    fn header_info(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the description of its pages");
        if cursor.text()? != "header_page" {
            return Err(Error::Damaged("no description of its pages"));
        }
        self.layout = PageLayout::parse(&lossy(&cursor.sized()?));
        if cursor.text()? != "header_event" {
            return Err(Error::Damaged("no description of its pages"));
        }
        // The format of event headers has not changed since 2009.
        cursor.sized()?;
        Ok(())
    }

    fn ftrace_events(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the list of event formats");
        for _ in 0..cursor.u32()? {
            self.formats.push(lossy(&cursor.sized()?));
        }
        Ok(())
    }

    fn event_formats(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the list of event formats");
        for _ in 0..cursor.u32()? {
            cursor.text()?;
            self.ftrace_events(cursor)?;
        }
        Ok(())
    }

    fn kallsyms(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the list of symbols");
        let length = cursor.u32()?;
        self.kallsyms = cursor.take(length.into())?;
        Ok(())
    }

    fn printk(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the list of printk formats");
        let length = cursor.u32()?;
        cursor.take(length.into()).map(drop)
    }

    fn cmdlines(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        cursor.part("the list of tasks");
        self.cmdlines = cursor.sized()?;
        Ok(())
    }
}
