//! Inlined functions, from debugging information: where a function was inlined there is no call, so
//! nothing can be traced.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit,
    UnitOffset, constants,
};
use object::{CompressionFormat, LittleEndian as Le, Object as _, ObjectSection as _, read::elf::ElfFile64};

type Bytes<'d> = EndianSlice<'d, LittleEndian>;
type Entry<'d> = DebuggingInformationEntry<Bytes<'d>>;

/// A function that was inlined somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inlined {
    /// Linker symbol, or the name in the source if it has none.
    pub name: String,
    /// Number of places where it was inlined.
    pub places: u64,
    /// Whether a function of that name, which can be called, exists, too.
    pub remains: bool,
}

/// Bytes of the largest unpacked section.
const MAX_SECTION_SIZE: u64 = 1 << 30;
/// Maximum number of references that are followed to a name: instance, abstract instance,
/// declaration.
const MAX_STEPS: usize = 4;

/// Returns the functions of a file that were inlined, by name; None if it has no debugging
/// information.
pub fn inlined(data: &[u8]) -> Option<Vec<Inlined>> {
    let file = ElfFile64::<Le, _>::parse(data).ok()?;
    let sections = DwarfSections::load(|id| Ok::<_, ()>(section(&file, id.name()))).ok()?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut found = DescribedFunctions::default();
    let (mut units, mut any) = (dwarf.units(), false);
    while let Ok(Some(header)) = units.next() {
        // A broken unit does not affect the others.
        let Ok(unit) = dwarf.unit(header) else { continue };
        any = true;
        let _ = found.read(&dwarf, &unit);
    }
    any.then(|| found.by_name())
}

/// Returns the unpacked contents of a section; empty if it does not exist or cannot be unpacked.
fn section<'d>(file: &ElfFile64<'d, Le>, name: &str) -> Cow<'d, [u8]> {
    let read = || {
        let found = file.section_by_name(name)?.compressed_data().ok()?;
        if found.format == CompressionFormat::None {
            return Some(Cow::Borrowed(found.data));
        }
        let is_known = found.format == CompressionFormat::Zlib && found.uncompressed_size <= MAX_SECTION_SIZE;
        let mut unpacked = Vec::new();
        let mut from = flate2::read::ZlibDecoder::new(found.data).take(MAX_SECTION_SIZE);
        (is_known && from.read_to_end(&mut unpacked).is_ok()).then_some(Cow::Owned(unpacked))
    };
    read().unwrap_or_default()
}

/// Functions, by the offsets of their debugging entries.
#[derive(Default)]
struct DescribedFunctions {
    /// Name of the function, and the entry that it refers to.
    names: HashMap<usize, (Option<String>, Option<usize>)>,
    /// Number of times that it was inlined.
    places: HashMap<usize, u64>,
    /// Functions with code of their own.
    whole: HashSet<usize>,
}

impl DescribedFunctions {
    fn read(&mut self, dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>) -> gimli::Result<()> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            match entry.tag() {
                constants::DW_TAG_inlined_subroutine => {
                    if let Some(origin) = reference(unit, entry, constants::DW_AT_abstract_origin) {
                        *self.places.entry(origin).or_default() += 1;
                    }
                }
                constants::DW_TAG_subprogram => self.function(dwarf, unit, entry),
                _ => {}
            }
        }
        Ok(())
    }

    fn function(&mut self, dwarf: &Dwarf<Bytes<'_>>, unit: &Unit<Bytes<'_>>, entry: &Entry<'_>) {
        let Some(at) = global(unit, entry.offset()) else { return };
        let text = |name| {
            let value = dwarf.attr_string(unit, entry.attr_value(name)?).ok()?;
            Some(calltap_names::printable(&value.to_string_lossy()).into_owned())
        };
        let linkage = [constants::DW_AT_linkage_name, constants::DW_AT_MIPS_linkage_name];
        let name = linkage.into_iter().find_map(text).or_else(|| text(constants::DW_AT_name));
        let origin = [constants::DW_AT_abstract_origin, constants::DW_AT_specification];
        let origin = origin.into_iter().find_map(|name| reference(unit, entry, name));
        let has_code = [constants::DW_AT_low_pc, constants::DW_AT_ranges];
        if has_code.into_iter().any(|name| entry.attr_value(name).is_some()) {
            self.whole.extend(origin.into_iter().chain([at]));
        }
        self.names.insert(at, (name, origin));
    }

    fn name(&self, mut at: usize) -> Option<&str> {
        for _ in 0..MAX_STEPS {
            let (name, origin) = self.names.get(&at)?;
            // A definition outside of its class may have only the plain name, and its declaration
            // the linker symbol.
            let declared = origin.and_then(|origin| self.names.get(&origin)?.0.as_deref());
            if let Some(name) = declared.or(name.as_deref()) {
                return Some(name);
            }
            at = (*origin)?;
        }
        None
    }

    fn by_name(&self) -> Vec<Inlined> {
        let whole: HashSet<&str> = self.whole.iter().filter_map(|at| self.name(*at)).collect();
        let mut places: BTreeMap<&str, u64> = BTreeMap::new();
        for (at, count) in &self.places {
            if let Some(name) = self.name(*at) {
                *places.entry(name).or_default() += count;
            }
        }
        let named = |(name, places): (&str, u64)| Inlined {
            name: name.to_owned(),
            places,
            remains: whole.contains(name),
        };
        places.into_iter().map(named).collect()
    }
}

/// Returns the entry that an attribute refers to, as an offset into the whole section; None if it
/// is in another file.
fn reference(unit: &Unit<Bytes<'_>>, entry: &Entry<'_>, name: gimli::DwAt) -> Option<usize> {
    match entry.attr_value(name)? {
        AttributeValue::UnitRef(offset) => global(unit, offset),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

fn global(unit: &Unit<Bytes<'_>>, offset: UnitOffset) -> Option<usize> {
    Some(offset.to_debug_info_offset(&unit.header)?.0)
}
