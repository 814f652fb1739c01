//! The functions of a Go program in its runtime's table (`runtime.pclntab`). Stripping does not
//! remove it, as the program needs it for tracebacks.
//!
//! Three layouts are read: of Go 1.16 (and 1.17), 1.18 (and 1.19), and 1.20 (and later). All begin
//! with a number that identifies the layout, and a header of words. A list of addresses follows,
//! each with the position of a record, which has the position of the function's name. Go's own
//! `debug/gosym` reads the same. The beginning of the text is in the header; from Go 1.26 on, in
//! `runtime.moduledata`.

use super::dynamic::Dynamic;
use super::image::{Image, string};
use super::pcdata::{self, Facts, Places};

/// A function of the table.
pub(crate) struct Entry<'d> {
    pub address: u64,
    /// Bytes up to the next function, padding included.
    pub size: u64,
    pub name: &'d [u8],
    /// Whether Go's compiler has made it. Assembly and C code have no map of local variables.
    pub is_compiled: bool,
    /// Other facts of it; None in the oldest layout.
    pub facts: Option<Facts<'d>>,
}

/// Names of the table's section: in programs at a fixed address, and in others.
const SECTIONS: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
/// First word of the layout in which addresses are words (1.16).
const WORDS: u32 = 0xFFFF_FFFA;
/// First words of the layouts in which addresses are distances from the beginning of the text
/// (1.18, 1.20).
const DISTANCES: [u32; 2] = [0xFFFF_FFF0, 0xFFFF_FFF1];
/// Bytes behind that word: no padding, instructions of any length, words of eight bytes.
const MACHINE: [u8; 4] = [0, 0, 1, 8];
const WORD: u64 = 8;
/// Section of `runtime.moduledata` since Go 1.26.
const MODULE: &[u8] = b".go.module";
/// Length of the longest name that is read.
const MAX_NAME_LEN: usize = 1 << 16;
/// Maximum number of possible beginnings of a table that are tried.
const TRIED: usize = 16;
/// Maximum number of functions of a table. A table with any damage is not used.
const MAX_FUNCTIONS: u64 = 1 << 24;

/// Returns all functions of the table, in address order; none if the file has no readable table.
pub(crate) fn functions<'d>(image: &Image<'d>, dynamic: &Dynamic<'d>) -> Vec<Entry<'d>> {
    let known = SECTIONS.iter().filter_map(|name| image.section(name)).map(|section| section.address);
    // An external linker may have merged the table into a larger section.
    let searched = || image.segments.iter().flat_map(|segment| find(image, segment.address.0)).take(TRIED);
    let mut places = known.chain(std::iter::once_with(searched).flatten());
    places.find_map(|at| Table { image, dynamic, at }.functions()).unwrap_or_default()
}

/// Addresses in a segment at which a table may begin.
fn find<'a>(image: &'a Image<'_>, start: u64) -> impl Iterator<Item = u64> + 'a {
    let words = image.tail(start, u64::MAX).chunks_exact(WORD as usize).enumerate();
    let begins = |word: &[u8]| word[4..] == MACHINE && layout(word).is_some();
    words.filter(move |(_, word)| begins(word)).map(move |(n, _)| start + n as u64 * WORD)
}

fn layout(word: &[u8]) -> Option<Layout> {
    match u32::from_le_bytes(word.get(..4)?.try_into().ok()?) {
        WORDS => Some(Layout { distances: false, names: 3, list: 7, facts: None }),
        magic if DISTANCES.contains(&magic) => {
            Some(Layout { distances: true, names: 4, list: 8, facts: Places::of(magic) })
        }
        _ => None,
    }
}

/// Positions of the header's fields, in words behind its first.
struct Layout {
    distances: bool,
    names: u64,
    list: u64,
    facts: Option<Places>,
}

struct Table<'a, 'd> {
    image: &'a Image<'d>,
    dynamic: &'a Dynamic<'d>,
    at: u64,
}

impl<'d> Table<'_, 'd> {
    fn functions(&self) -> Option<Vec<Entry<'d>>> {
        let image = self.image;
        let first = image.bytes(self.at, WORD)?;
        let layout = layout(first).filter(|_| first[4..] == MACHINE)?;
        let place = |word| self.at.checked_add(self.word(self.at + WORD * word)?);
        let count = self.word(self.at + WORD).filter(|count| *count <= MAX_FUNCTIONS)?;
        let names = image.tail(place(layout.names)?, u64::MAX);
        let list = place(layout.list)?;
        let values = image.tail(place(layout.list - 1)?, u64::MAX);
        let width = if layout.distances { 4 } else { WORD };
        let text = if layout.distances { self.text(half(image, list)?)? } else { 0 };
        let number = |at: u64| match layout.distances {
            true => Some(u64::from(half(image, at)?)),
            // In a position-independent program, the loader fills in the address.
            false => self.dynamic.pointer_at(image, at),
        };
        let address = |n: u64| Some(text.wrapping_add(number(list.checked_add(n * 2 * width)?)?));
        let entry = |n: u64| {
            let (start, end) = (address(n)?, address(n + 1)?);
            let record = match layout.distances {
                true => u64::from(half(image, list.checked_add((n * 2 + 1) * width)?)?),
                false => self.word(list.checked_add((n * 2 + 1) * width)?)?,
            };
            let record = list.checked_add(record)?;
            let name = string(names, half(image, record.checked_add(width)?)?, MAX_NAME_LEN)?;
            let facts = layout.facts.and_then(|places| places.read(image.tail(record, u64::MAX), values));
            let is_compiled = match layout.facts {
                Some(_) => facts.is_some_and(|facts| facts.is_compiled),
                None => self.has_locals(record).unwrap_or(false),
            };
            (start <= end && image.is_code(start)).then_some(Entry {
                address: start,
                size: end - start,
                name,
                is_compiled,
                facts,
            })
        };
        let mut entries: Vec<Entry<'d>> = (0..count).map(entry).collect::<Option<_>>()?;
        entries.sort_by_key(|entry| entry.address);
        entries.dedup_by_key(|entry| entry.address);
        // A damaged table may repeat one name, or one range of code, many times.
        let names: usize = entries.iter().map(|entry| entry.name.len()).sum();
        for n in 1..entries.len() {
            let next = entries[n].address;
            let entry = &mut entries[n - 1];
            entry.size = entry.size.min(next - entry.address);
        }
        (!entries.is_empty() && names <= image.data.len().saturating_mul(8)).then_some(entries)
    }

    /// Address where the Go code begins: in the header or, since Go 1.26, in the module that names
    /// this table. C code may precede it in the same section. `first`: distance of the first
    /// function from there.
    fn text(&self, first: u32) -> Option<u64> {
        const AT: u64 = 3;
        let (image, dynamic) = (self.image, self.dynamic);
        let in_header = dynamic.pointer_at(image, self.at + WORD * AT).filter(|text| *text != 0);
        in_header.or_else(|| {
            /// Words of the module: the address of its table, of its first function, and of its
            /// text.
            const TABLE: u64 = 0;
            const FUNCTIONS: u64 = 20;
            const TEXT: u64 = 22;
            let module = image.section(MODULE)?.address;
            let word = |n: u64| dynamic.pointer_at(image, module.checked_add(WORD * n)?);
            let text = word(TEXT)?;
            let agrees = word(TABLE)? == self.at && word(FUNCTIONS)? == text.checked_add(u64::from(first))?;
            agrees.then_some(text)
        })
    }

    /// Whether a function has a map of its local variables, in the oldest layout. The addresses of
    /// maps follow the positions of tables, and are aligned.
    fn has_locals(&self, record: u64) -> Option<bool> {
        // Positions in a record of the number of tables, the number of maps, and the first table.
        const TABLES: u64 = 32;
        const MAPS: u64 = 43;
        const FIRST: u64 = 44;
        let tables = half(self.image, record.checked_add(TABLES)?)?;
        let maps = usize::from(*self.image.bytes(record.checked_add(MAPS)?, 1)?.first()?);
        let first = record.checked_add(FIRST + 4 * u64::from(tables))?.next_multiple_of(WORD);
        let map = self.dynamic.pointer_at(self.image, first + WORD * pcdata::LOCALS as u64);
        Some(
            tables as usize <= pcdata::MAX_TABLES && maps > pcdata::LOCALS && map.is_some_and(|map| map != 0),
        )
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.image.bytes(at, WORD)?.try_into().ok().map(u64::from_le_bytes)
    }
}

fn half(image: &Image<'_>, at: u64) -> Option<u32> {
    image.bytes(at, 4)?.try_into().ok().map(u32::from_le_bytes)
}
