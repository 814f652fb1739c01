//! Parameters and results of functions from debugging information (DWARF): names, types, and
//! positions by the calling convention of x86-64.

mod cases;
mod classes;
mod go;
mod location;
mod members;
mod passing;
mod shapes;
mod source;

pub use cases::Case;
use location::Location;
use passing::Next;
pub use passing::{Passed, Unread};
pub use source::SourceLine;

use crate::address::Svma;
use crate::load::{MAX_READ, Parts};
use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_bit_size, DW_AT_calling_convention,
    DW_AT_data_member_location, DW_AT_name, DW_AT_specification, DW_AT_type, DwAt, DwTag, LittleEndian,
    Reader as _, UnitOffset,
};
use object::{Object, ObjectSection, ReadCache, ReadRef};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;

type Bytes = gimli::EndianArcSlice<LittleEndian>;
type Unit = gimli::Unit<Bytes>;
type Entry = gimli::DebuggingInformationEntry<Bytes>;

/// Maximum number of references between types that are followed, as a file may hold any.
const MAX_REFERENCES: usize = 32;
/// Deepest nesting of unnamed structures, and of base classes.
const NESTED: usize = 6;
/// Maximum number of ranges of one function.
const PIECES: usize = 64;
/// Bytes of a word of the calling convention.
const WORD: u64 = 8;

/// Interpretation of a value's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A signed number of this many bytes.
    Signed(u8),
    /// An unsigned number of this many bytes.
    Unsigned(u8),
    /// A truth value.
    Bool,
    /// A character of one byte.
    Char {
        /// Whether it counts as a signed number.
        signed: bool,
    },
    /// A floating-point number of this many bytes.
    Float(u8),
    /// An address.
    Pointer,
    /// The address of a text that ends with a zero.
    Text,
    /// A structure that begins with the address of a text and its length: Rust's `&str`.
    Slice,
    /// The address of a C++ string, which begins with the address of a text and its length.
    String,
    /// A structure of the length of a text and its address: libstdc++'s `std::string_view`.
    View,
    /// An interface of Go: its type, and its value.
    Interface {
        /// Whether the first word is the address of a table of methods, and not of the type.
        has_methods: bool,
        /// Address of the file's types (`runtime.types`).
        types: Svma,
    },
    /// Another value of this many bytes.
    Other(u64),
}

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type {
    /// Interpretation of a value.
    pub shape: Shape,
    /// For a pointer, the type that it points to; else this type.
    about: Option<DieRef>,
}

/// Position of an entry of the debugging information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DieRef {
    unit: usize,
    offset: UnitOffset,
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Name, if it has one.
    pub name: Option<String>,
    /// Type.
    pub of: Type,
    /// Register or stack position.
    pub passed: Passed,
}

/// Parameters and result of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Whether it may get further arguments: `...`, or no prototype.
    pub takes_more: bool,
    /// Type of the result; None if there is none.
    pub result: Option<Type>,
    /// Position of the result when the function returns.
    pub returned: Option<Passed>,
    /// Results of a Go function, whose arguments and results are in Go's registers; None of other
    /// functions.
    pub go_results: Option<Vec<Parameter>>,
}

/// The debugging information of a file.
#[derive(Debug)]
pub struct Types {
    dwarf: gimli::Dwarf<Bytes>,
    units: Vec<Unit>,
    /// Whether each unit describes types. One without has only line tables and names of functions
    /// (`-g1`, `-gline-tables-only`), or only functions without parameters and results.
    has_types: Vec<bool>,
    /// Functions that have code, by address.
    functions: Vec<(Svma, DieRef)>,
    /// Addresses of functions whose arguments the compiler has changed, in order.
    altered: Vec<Svma>,
    /// Address of the types of a Go program, which names them.
    go_types: Option<Svma>,
}

impl Types {
    /// Reads the debugging information of an ELF file; None if it has none.
    pub fn read(file: &File) -> io::Result<Option<Types>> {
        let (cache, left) = (ReadCache::new(file), Cell::new(MAX_READ));
        Types::parse(Parts::new(&cache, &left))
    }

    /// Reads the debugging information of an ELF file in memory.
    pub fn parse<'d>(data: impl ReadRef<'d>) -> io::Result<Option<Types>> {
        let object = object::File::parse(data).map_err(io::Error::other)?;
        if object.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let mut left = MAX_READ;
        let section = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
            let data = object.section_by_name(id.name()).and_then(|section| {
                let packed = section.compressed_data().ok()?;
                left = left.checked_sub(packed.uncompressed_size)?;
                packed.decompress().ok()
            });
            Ok(Bytes::new(Arc::from(data.unwrap_or_default()), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).map_err(io::Error::other)?;
        let mut types = Types {
            dwarf,
            units: Vec::new(),
            has_types: Vec::new(),
            functions: Vec::new(),
            altered: Vec::new(),
            go_types: go::types(&object),
        };
        types.index().map_err(io::Error::other)?;
        Ok(Some(types))
    }

    fn index(&mut self) -> gimli::Result<()> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            // A broken unit does not affect the others.
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let number = self.units.len();
            let (mut entries, mut has_types) = (unit.entries(), false);
            while let Ok(Some(entry)) = entries.next_dfs() {
                has_types |= is_type(entry.tag());
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                // The linker sets the address of a discarded function to 0.
                let place = DieRef { unit: number, offset: entry.offset() };
                let begins = self.begins(&unit, entry).into_iter().filter(|address| *address != 0);
                let altered = AttributeValue::CallingConvention(gimli::DW_CC_nocall);
                if entry.attr_value(DW_AT_calling_convention) == Some(altered) {
                    self.altered.extend(begins.map(Svma));
                } else {
                    self.functions.extend(begins.map(|address| (Svma(address), place)));
                }
            }
            self.units.push(unit);
            self.has_types.push(has_types);
        }
        self.functions.sort_by_key(|(address, _)| *address);
        self.altered.sort_unstable();
        Ok(())
    }

    /// Addresses where ranges of a function's code begin, cold parts included.
    fn begins(&self, unit: &Unit, entry: &Entry) -> Vec<u64> {
        let address = |value| self.dwarf.attr_address(unit, value).ok().flatten();
        if let Some(start) = entry.attr_value(gimli::DW_AT_low_pc).and_then(address) {
            return vec![start];
        }
        let ranges = entry.attr_value(gimli::DW_AT_ranges);
        let Some(mut ranges) = ranges.and_then(|value| self.dwarf.attr_ranges(unit, value).ok().flatten())
        else {
            return Vec::new();
        };
        let mut begins = Vec::new();
        while let Ok(Some(range)) = ranges.next()
            && begins.len() < PIECES
        {
            begins.push(range.begin);
        }
        begins
    }

    /// Addresses of all described functions.
    pub fn functions(&self) -> impl Iterator<Item = Svma> {
        self.functions.iter().map(|(address, _)| *address)
    }

    /// Name in the source of the function at an address, with template arguments.
    pub fn name(&self, address: Svma) -> Option<String> {
        let at = self.functions.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        let (unit, value) = self.inherited(self.functions[at].1, DW_AT_name)?;
        self.text(unit, value)
    }

    /// Parameters and result of the function at an address; `None` if they are not described.
    pub fn signature(&self, address: Svma) -> Option<Signature> {
        let at = self.functions.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        self.signature_of(self.functions[at].1, address.0)
    }

    fn signature_of(&self, place: DieRef, address: u64) -> Option<Signature> {
        if self.is_go(place.unit) {
            return self.go_signature(place, address);
        }
        if !self.is_described(place) {
            return None;
        }
        let result = match self.inherited(place, DW_AT_type) {
            Some((unit, value)) => Some(self.type_of(self.reference(unit, &value)?)),
            None => None,
        };
        let (rust, gcc) = (self.is_rust(place.unit), self.is_gcc(place.unit));
        let returned = result.map(|result| self.returned(result, rust));
        let mut next = Next::behind_result(returned);
        if rust && self.is_closure(place) {
            next.lose();
        }
        let is_unprototyped = self.is_unprototyped(place);
        let mut is_other = self.has_other_convention(place);
        let (mut is_shifted, mut parameters) = (false, Vec::new());
        for child in self.children(place, gimli::DW_TAG_formal_parameter) {
            let name = self.inherited(child, DW_AT_name).and_then(|(unit, value)| self.text(unit, value));
            let (unit, value) = self.inherited(child, DW_AT_type)?;
            let mut of = self.type_of(self.reference(unit, &value)?);
            if is_unprototyped && of.shape == Shape::Float(4) {
                of = Type { shape: Shape::Float(8), about: None };
            }
            let (mut classes, location) = (self.classes_of(of), self.location(child, address));
            // As Fortran passes all arguments that are not marked.
            classes.by_reference |= location.is_some_and(Location::is_address);
            classes.unknown |= rust && location.is_none() && classes.is_rusts_own(of) && !self.is_as_in_c(of);
            if classes.unknown && location.is_some_and(Location::is_integer_register) {
                classes.become_integer(of);
            }
            let mut passed = next.place(of, classes, rust, gcc);
            // LLVM may pass the value behind a reference instead: then the reference has no place,
            // and the value may have taken a register of another kind than an address.
            let has_place = !rust || self.has_place(child, address);
            is_shifted |= !has_place && of.shape == Shape::Pointer;
            if is_shifted && !has_place {
                passed = Passed::Unread(Unread::Unknown);
            }
            is_other |= location.is_some_and(|location| location.contradicts(passed));
            if !gcc && !self.is_placed(child) && !matches!(passed, Passed::Unread(_)) {
                passed = Passed::Unread(Unread::NoPlace);
            }
            parameters.push(Parameter { name, of, passed });
        }
        let mut returned = returned.map(|(passed, _)| passed);
        if is_other {
            let passed = parameters.iter_mut().map(|parameter| &mut parameter.passed);
            passed.chain(&mut returned).for_each(|passed| *passed = Passed::Unread(Unread::Convention));
        }
        let takes_more =
            is_unprototyped || !self.children(place, gimli::DW_TAG_unspecified_parameters).is_empty();
        Some(Signature { parameters, takes_more, result, returned, go_results: None })
    }

    /// Whether parameters and result of a function are described. Of a function that seems to have
    /// neither, in a unit without types, the debugging information tells nothing but its lines.
    fn is_described(&self, function: DieRef) -> bool {
        let has_types = |unit: usize| self.has_types.get(unit).copied().unwrap_or(false);
        has_types(function.unit)
            || self.inherited(function, DW_AT_name).is_some_and(|(unit, _)| has_types(unit))
            || self.inherited(function, DW_AT_type).is_some()
            || self.inherited(function, gimli::DW_AT_prototyped).is_some()
            || !self.children(function, gimli::DW_TAG_formal_parameter).is_empty()
    }

    /// Whether a function has another calling convention than that of C, as far as the debugging
    /// information tells.
    fn has_other_convention(&self, function: DieRef) -> bool {
        let convention = self.inherited(function, DW_AT_calling_convention).map(|(_, value)| value);
        convention.is_some_and(|value| value != AttributeValue::CallingConvention(gimli::DW_CC_normal))
    }

    /// Whether a function is a closure of Rust, whose captured variables are passed by an argument
    /// without a description.
    fn is_closure(&self, function: DieRef) -> bool {
        let name = self.inherited(function, DW_AT_name).and_then(|(unit, value)| self.text(unit, value));
        name.is_some_and(|name| name.starts_with("{closure") || name.starts_with("{{closure"))
    }

    /// Whether a function of C has no prototype: its arguments are promoted.
    fn is_unprototyped(&self, function: DieRef) -> bool {
        let is_c = self.language(function.unit).is_some_and(|language| {
            let all = [gimli::DW_LANG_C, gimli::DW_LANG_C89, gimli::DW_LANG_C99, gimli::DW_LANG_C11];
            all.map(AttributeValue::Language).contains(&language)
        });
        is_c && self.inherited(function, gimli::DW_AT_prototyped).is_none()
    }

    /// Finds a member of a structure, or of the structure that a pointer points to. Returns its
    /// offset and type.
    pub fn member(&self, of: Type, name: &str) -> Option<(u64, Type)> {
        self.member_at(of.about?, name, 0)
    }

    fn member_at(&self, place: DieRef, name: &str, depth: usize) -> Option<(u64, Type)> {
        let place = self.plain(place)?;
        for child in self.children(place, gimli::DW_TAG_member) {
            let entry = self.entry(child)?;
            let offset = self.offset_of(child.unit, &entry)?;
            let (unit, value) = self.inherited(child, DW_AT_type)?;
            let kind = self.reference(unit, &value)?;
            let named = entry.attr_value(DW_AT_name).and_then(|value| self.text(child.unit, value));
            match named {
                Some(found) if found == name => {
                    let is_part = entry.attr_value(DW_AT_bit_size).is_some();
                    return (!is_part).then(|| (offset, self.type_of(kind)));
                }
                // Members of an unnamed structure belong to the enclosing one.
                None if depth < NESTED => {
                    if let Some((more, found)) = self.member_at(kind, name, depth + 1) {
                        return Some((offset.saturating_add(more), found));
                    }
                }
                _ => {}
            }
        }
        let bases = self.children(place, gimli::DW_TAG_inheritance);
        bases.into_iter().filter(|_| depth < NESTED).find_map(|base| {
            let offset = self.offset_of(base.unit, &self.entry(base)?)?;
            let (unit, value) = self.inherited(base, DW_AT_type)?;
            let (more, found) = self.member_at(self.reference(unit, &value)?, name, depth + 1)?;
            Some((offset.saturating_add(more), found))
        })
    }

    /// Returns the offset of a structure's own member.
    fn place_of(&self, place: DieRef, name: &str) -> Option<u64> {
        let named = |child: &Entry| {
            let found = child.attr_value(DW_AT_name).and_then(|value| self.text(place.unit, value));
            found.as_deref() == Some(name)
        };
        let children = self.children(place, gimli::DW_TAG_member).into_iter();
        let found = children.filter_map(|child| self.entry(child)).find(named)?;
        self.offset_of(place.unit, &found)
    }

    /// Returns the offset of a member in its structure; 0 if it has none, as in a union. DWARF 2
    /// computes it from the structure's address.
    fn offset_of(&self, unit: usize, member: &Entry) -> Option<u64> {
        match member.attr_value(DW_AT_data_member_location) {
            None => Some(0),
            Some(AttributeValue::Exprloc(expression)) => {
                let mut operations = expression.operations(self.units.get(unit)?.encoding());
                match (operations.next().ok()??, operations.next().ok()?) {
                    (gimli::Operation::PlusConstant { value }, None) => Some(value),
                    _ => None,
                }
            }
            Some(value) => value.udata_value(),
        }
    }

    /// Names of the members of a structure, or of the structure that a pointer points to, for
    /// messages.
    pub fn members(&self, of: Type) -> Vec<String> {
        let Some(place) = of.about.and_then(|place| self.plain(place)) else { return Vec::new() };
        let name = |child: DieRef| self.text(child.unit, self.entry(child)?.attr_value(DW_AT_name)?);
        self.children(place, gimli::DW_TAG_member).into_iter().filter_map(name).collect()
    }

    /// Returns the type that a pointer points to.
    pub fn target(&self, of: Type) -> Option<Type> {
        matches!(of.shape, Shape::Pointer | Shape::Text | Shape::String)
            .then(|| Some(self.type_of(of.about?)))?
    }

    fn language(&self, unit: usize) -> Option<AttributeValue<Bytes>> {
        let offset = self.units[unit].header.root_offset();
        self.entry(DieRef { unit, offset })?.attr_value(gimli::DW_AT_language)
    }

    fn is_rust(&self, unit: usize) -> bool {
        self.language(unit) == Some(AttributeValue::Language(gimli::DW_LANG_Rust))
    }

    fn is_gcc(&self, unit: usize) -> bool {
        let root = self.units[unit].header.root_offset();
        let producer =
            self.entry(DieRef { unit, offset: root }).and_then(|root| root.attr_value(gimli::DW_AT_producer));
        producer.and_then(|value| self.text(unit, value)).is_some_and(|text| text.starts_with("GNU "))
    }

    fn entry(&self, place: DieRef) -> Option<Entry> {
        self.units.get(place.unit)?.entry(place.offset).ok()
    }

    fn children(&self, place: DieRef, tag: DwTag) -> Vec<DieRef> {
        let Some(unit) = self.units.get(place.unit) else { return Vec::new() };
        let Ok(mut tree) = unit.entries_tree(Some(place.offset)) else { return Vec::new() };
        let Ok(root) = tree.root() else { return Vec::new() };
        let (mut found, mut children) = (Vec::new(), root.children());
        while let Ok(Some(child)) = children.next() {
            if child.entry().tag() == tag {
                found.push(DieRef { unit: place.unit, offset: child.entry().offset() });
            }
        }
        found
    }

    /// Returns an attribute of an entry, or of the entry that it is an instance or a definition of.
    fn inherited(&self, mut place: DieRef, name: DwAt) -> Option<(usize, AttributeValue<Bytes>)> {
        for _ in 0..MAX_REFERENCES {
            let entry = self.entry(place)?;
            if let Some(value) = entry.attr_value(name) {
                return Some((place.unit, value));
            }
            let origin = [DW_AT_abstract_origin, DW_AT_specification];
            let value = origin.into_iter().find_map(|name| entry.attr_value(name))?;
            place = self.reference(place.unit, &value)?;
        }
        None
    }

    /// Returns the entry that an entry is an instance of.
    fn inherited_from(&self, place: DieRef) -> Option<DieRef> {
        let value = self.entry(place)?.attr_value(DW_AT_abstract_origin)?;
        self.reference(place.unit, &value)
    }

    fn reference(&self, unit: usize, value: &AttributeValue<Bytes>) -> Option<DieRef> {
        match value {
            AttributeValue::UnitRef(offset) => Some(DieRef { unit, offset: *offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let found = self.units.partition_point(|unit| {
                    unit.header.debug_info_offset().is_some_and(|start| start <= *offset)
                });
                let unit = found.checked_sub(1)?;
                Some(DieRef { unit, offset: offset.to_unit_offset(&self.units[unit].header)? })
            }
            _ => None,
        }
    }

    fn text(&self, unit: usize, value: AttributeValue<Bytes>) -> Option<String> {
        let text = self.dwarf.attr_string(self.units.get(unit)?, value).ok()?;
        Some(calltap_names::printable(&text.to_string_lossy().ok()?).into_owned())
    }
}

/// Whether an entry describes a type.
fn is_type(tag: DwTag) -> bool {
    let types = [
        gimli::DW_TAG_base_type,
        gimli::DW_TAG_pointer_type,
        gimli::DW_TAG_structure_type,
        gimli::DW_TAG_class_type,
        gimli::DW_TAG_union_type,
        gimli::DW_TAG_enumeration_type,
        gimli::DW_TAG_typedef,
    ];
    types.contains(&tag)
}
