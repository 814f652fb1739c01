//! What debugging information (DWARF) says of a function's parameters and result: names, types, and by the calling convention of x86-64 where they are.

mod cases;

pub use cases::Case;

use crate::Svma;
use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_bit_size, DW_AT_byte_size, DW_AT_calling_convention,
    DW_AT_count, DW_AT_data_member_location, DW_AT_encoding, DW_AT_name, DW_AT_specification, DW_AT_type,
    DW_AT_upper_bound, DwAt, DwTag, LittleEndian, Reader as _, UnitOffset,
};
use object::{Object, ObjectSection, ReadCache, ReadRef};
use std::fs::File;
use std::io;
use std::sync::Arc;

type Bytes = gimli::EndianArcSlice<LittleEndian>;
type Unit = gimli::Unit<Bytes>;
type Entry = gimli::DebuggingInformationEntry<Bytes>;

/// Types that refer to types are followed no further: a file may say anything.
const DEEPEST: usize = 32;
/// Structures without a name in structures, and bases of bases.
const NESTED: usize = 6;
/// Parts of a structure that are looked at to find its class.
const PARTS: u32 = 1000;
/// Bytes of a word of the calling convention.
const WORD: u64 = 8;

/// How a value is to be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A number with a sign, of so many bytes.
    Signed(u8),
    /// One without.
    Unsigned(u8),
    /// True or false.
    Bool,
    /// A character of one byte.
    Char,
    /// A floating-point number of so many bytes.
    Float(u8),
    /// An address.
    Pointer,
    /// The address of a text that ends with a 0.
    Text,
    /// A structure that begins with the address of a text and its length: Rust's `&str`.
    Slice,
    /// The address of such a structure: a C++ string.
    String,
    /// Something else of so many bytes.
    Other(u64),
}

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type {
    /// What it is.
    pub shape: Shape,
    /// Of a pointer: what it leads to; else itself.
    about: Option<Place>,
}

/// A description in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    unit: usize,
    offset: UnitOffset,
}

/// Where a parameter is when the function is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// In an integer register, by its place among those of arguments.
    Integer(u8),
    /// In this and the next integer register.
    Pair(u8),
    /// In a vector register.
    Vector(u8),
    /// On the stack, so many words above the return address.
    Stack(u8),
    /// Nowhere as a whole.
    Apart,
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub of: Type,
    /// Where it is.
    pub passed: Passed,
}

/// What a function takes and gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// In order.
    pub parameters: Vec<Parameter>,
    /// None: it returns nothing.
    pub result: Option<Type>,
    /// What it returns is in registers, and not where its caller has said.
    pub result_in_registers: bool,
}

/// The debugging information of a file.
#[derive(Debug)]
pub struct Types {
    dwarf: gimli::Dwarf<Bytes>,
    units: Vec<Unit>,
    /// Functions that have code, by address.
    functions: Vec<(Svma, Place)>,
}

/// What the words of an argument are made of.
#[derive(Clone, Copy, Default)]
struct Classes {
    integer: [bool; 2],
    any: [bool; 2],
    memory: bool,
    parts: u32,
}

impl Types {
    /// Reads it from an ELF file. None: it has none.
    pub fn read(file: &File) -> io::Result<Option<Types>> {
        Types::parse(&ReadCache::new(file))
    }

    /// The same of a file that is in memory.
    pub fn parse<'d>(data: impl ReadRef<'d>) -> io::Result<Option<Types>> {
        let object = object::File::parse(data).map_err(io::Error::other)?;
        if object.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let section = |id: gimli::SectionId| -> Result<Bytes, gimli::Error> {
            let data = object.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
            Ok(Bytes::new(Arc::from(data.unwrap_or_default()), LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).map_err(io::Error::other)?;
        let mut types = Types { dwarf, units: Vec::new(), functions: Vec::new() };
        types.index().map_err(io::Error::other)?;
        Ok(Some(types))
    }

    fn index(&mut self) -> gimli::Result<()> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            // (What one unit gets wrong, another may have right.)
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let number = self.units.len();
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let address = entry
                    .attr_value(gimli::DW_AT_low_pc)
                    .and_then(|value| self.dwarf.attr_address(&unit, value).ok().flatten());
                // (0: the linker has thrown it away.)
                if let Some(address) = address.filter(|address| *address != 0) {
                    self.functions.push((Svma(address), Place { unit: number, offset: entry.offset() }));
                }
            }
            self.units.push(unit);
        }
        self.functions.sort_by_key(|(address, _)| *address);
        Ok(())
    }

    /// The functions that it knows.
    pub fn functions(&self) -> impl Iterator<Item = Svma> {
        self.functions.iter().map(|(address, _)| *address)
    }

    /// The name in the source of the function at an address, with what it was made with.
    pub fn name(&self, address: Svma) -> Option<String> {
        let at = self.functions.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        let (unit, value) = self.inherited(self.functions[at].1, DW_AT_name)?;
        self.text(unit, value)
    }

    /// What is said of the function at an address.
    pub fn signature(&self, address: Svma) -> Option<Signature> {
        let at = self.functions.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        self.signature_of(self.functions[at].1)
    }

    fn signature_of(&self, place: Place) -> Option<Signature> {
        let result = match self.inherited(place, DW_AT_type) {
            Some((unit, value)) => Some(self.type_of(self.reference(unit, &value)?)),
            None => None,
        };
        let rust = self.is_rust(place.unit);
        let mut next = Next::default();
        let result_in_registers = result.is_none_or(|result| !self.is_in_memory(result));
        if !result_in_registers {
            next.integer = 1;
        }
        let mut parameters = Vec::new();
        for child in self.children(place, gimli::DW_TAG_formal_parameter) {
            let name = self.inherited(child, DW_AT_name).and_then(|(unit, value)| self.text(unit, value));
            let (unit, value) = self.inherited(child, DW_AT_type)?;
            let of = self.type_of(self.reference(unit, &value)?);
            let passed = next.place(of, self.classes_of(of), rust);
            parameters.push(Parameter { name, of, passed });
        }
        Some(Signature { parameters, result, result_in_registers })
    }

    /// A member of the structure that a pointer leads to, or of a structure: how far from its beginning, and its type.
    pub fn member(&self, of: Type, name: &str) -> Option<(u64, Type)> {
        self.member_at(of.about?, name, 0)
    }

    fn member_at(&self, place: Place, name: &str, depth: usize) -> Option<(u64, Type)> {
        let place = self.plain(place)?;
        for child in self.children(place, gimli::DW_TAG_member) {
            let entry = self.entry(child)?;
            let offset = entry.attr_value(DW_AT_data_member_location).and_then(|value| value.udata_value());
            let offset = offset.unwrap_or(0);
            let (unit, value) = self.inherited(child, DW_AT_type)?;
            let kind = self.reference(unit, &value)?;
            let named = entry.attr_value(DW_AT_name).and_then(|value| self.text(child.unit, value));
            match named {
                Some(found) if found == name => {
                    let is_part = entry.attr_value(DW_AT_bit_size).is_some();
                    return (!is_part).then(|| (offset, self.type_of(kind)));
                }
                // Members of a structure without a name are its owner's.
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
            let offset = self.entry(base)?.attr_value(DW_AT_data_member_location)?.udata_value()?;
            let (unit, value) = self.inherited(base, DW_AT_type)?;
            let (more, found) = self.member_at(self.reference(unit, &value)?, name, depth + 1)?;
            Some((offset.saturating_add(more), found))
        })
    }

    /// Where a member of that name is, of the structure itself.
    fn place_of(&self, place: Place, name: &str) -> Option<u64> {
        let named = |child: &Entry| {
            let found = child.attr_value(DW_AT_name).and_then(|value| self.text(place.unit, value));
            found.as_deref() == Some(name)
        };
        let children = self.children(place, gimli::DW_TAG_member).into_iter();
        let found = children.filter_map(|child| self.entry(child)).find(named)?;
        found.attr_value(DW_AT_data_member_location)?.udata_value()
    }

    /// The names of the members of what a pointer leads to, for messages.
    pub fn members(&self, of: Type) -> Vec<String> {
        let Some(place) = of.about.and_then(|place| self.plain(place)) else { return Vec::new() };
        let name = |child: Place| self.text(child.unit, self.entry(child)?.attr_value(DW_AT_name)?);
        self.children(place, gimli::DW_TAG_member).into_iter().filter_map(name).collect()
    }

    /// What a pointer leads to.
    pub fn target(&self, of: Type) -> Option<Type> {
        matches!(of.shape, Shape::Pointer | Shape::Text | Shape::String)
            .then(|| Some(self.type_of(of.about?)))?
    }

    fn is_rust(&self, unit: usize) -> bool {
        let root = self.units[unit].header.root_offset();
        let language =
            self.entry(Place { unit, offset: root }).and_then(|root| root.attr_value(gimli::DW_AT_language));
        language == Some(AttributeValue::Language(gimli::DW_LANG_Rust))
    }

    fn entry(&self, place: Place) -> Option<Entry> {
        self.units.get(place.unit)?.entry(place.offset).ok()
    }

    fn children(&self, place: Place, tag: DwTag) -> Vec<Place> {
        let Some(unit) = self.units.get(place.unit) else { return Vec::new() };
        let Ok(mut tree) = unit.entries_tree(Some(place.offset)) else { return Vec::new() };
        let Ok(root) = tree.root() else { return Vec::new() };
        let (mut found, mut children) = (Vec::new(), root.children());
        while let Ok(Some(child)) = children.next() {
            if child.entry().tag() == tag {
                found.push(Place { unit: place.unit, offset: child.entry().offset() });
            }
        }
        found
    }

    /// An attribute of it, or of what it is an instance or a definition of.
    fn inherited(&self, mut place: Place, name: DwAt) -> Option<(usize, AttributeValue<Bytes>)> {
        for _ in 0..DEEPEST {
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

    fn reference(&self, unit: usize, value: &AttributeValue<Bytes>) -> Option<Place> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Place { unit, offset: *offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let found = self.units.partition_point(|unit| {
                    unit.header.debug_info_offset().is_some_and(|start| start <= *offset)
                });
                let unit = found.checked_sub(1)?;
                Some(Place { unit, offset: offset.to_unit_offset(&self.units[unit].header)? })
            }
            _ => None,
        }
    }

    fn text(&self, unit: usize, value: AttributeValue<Bytes>) -> Option<String> {
        let text = self.dwarf.attr_string(self.units.get(unit)?, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    }

    /// Without its other names and qualifiers.
    fn plain(&self, mut place: Place) -> Option<Place> {
        for _ in 0..DEEPEST {
            let entry = self.entry(place)?;
            if ![
                gimli::DW_TAG_typedef,
                gimli::DW_TAG_const_type,
                gimli::DW_TAG_volatile_type,
                gimli::DW_TAG_restrict_type,
                gimli::DW_TAG_atomic_type,
            ]
            .contains(&entry.tag())
            {
                return Some(place);
            }
            place = self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?;
        }
        None
    }

    fn size(&self, place: Place, depth: usize) -> Option<u64> {
        let place = self.plain(place)?;
        let entry = self.entry(place)?;
        if let Some(size) = entry.attr_value(DW_AT_byte_size).and_then(|value| value.udata_value()) {
            return Some(size);
        }
        match entry.tag() {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Some(WORD),
            gimli::DW_TAG_array_type if depth < DEEPEST => {
                let element = self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?;
                Some(self.length(place)?.saturating_mul(self.size(element, depth + 1)?))
            }
            _ => None,
        }
    }

    /// Elements of an array.
    fn length(&self, array: Place) -> Option<u64> {
        let ranges = self.children(array, gimli::DW_TAG_subrange_type).into_iter().map(|range| {
            let entry = self.entry(range)?;
            let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
            number(DW_AT_count).or_else(|| number(DW_AT_upper_bound)?.checked_add(1))
        });
        ranges.reduce(|all, range| all?.checked_mul(range?)).flatten()
    }

    fn type_of(&self, place: Place) -> Type {
        let shape = self.shape(place).unwrap_or(Shape::Other(self.size(place, 0).unwrap_or(0)));
        let target = match shape {
            Shape::Pointer | Shape::Text | Shape::String => self.target_of(place),
            _ => Some(place),
        };
        Type { shape, about: target }
    }

    fn target_of(&self, pointer: Place) -> Option<Place> {
        let pointer = self.plain(pointer)?;
        let value = self.entry(pointer)?.attr_value(DW_AT_type)?;
        self.plain(self.reference(pointer.unit, &value)?)
    }

    fn shape(&self, place: Place) -> Option<Shape> {
        let place = self.plain(place)?;
        let entry = self.entry(place)?;
        let size = self.size(place, 0);
        match entry.tag() {
            gimli::DW_TAG_base_type => {
                let AttributeValue::Encoding(encoding) = entry.attr_value(DW_AT_encoding)? else {
                    return None;
                };
                let size = u8::try_from(size?).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
                Some(match encoding {
                    gimli::DW_ATE_boolean => Shape::Bool,
                    gimli::DW_ATE_float => Shape::Float(Some(size).filter(|size| *size >= 4)?),
                    gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char if size == 1 => {
                        let name =
                            entry.attr_value(DW_AT_name).and_then(|value| self.text(place.unit, value));
                        match (name.as_deref(), encoding) {
                            (Some("char"), _) => Shape::Char,
                            (_, gimli::DW_ATE_signed_char) => Shape::Signed(1),
                            _ => Shape::Unsigned(1),
                        }
                    }
                    gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => Shape::Signed(size),
                    gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => {
                        Shape::Unsigned(size)
                    }
                    _ => return None,
                })
            }
            gimli::DW_TAG_enumeration_type => {
                let size = u8::try_from(size?).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
                Some(if size < 8 { Shape::Signed(size) } else { Shape::Unsigned(size) })
            }
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                let Some(target) = self.target_of(place) else { return Some(Shape::Pointer) };
                // (Not the shape of what a pointer to a pointer leads to: there may be no end to that.)
                let is_base = self.entry(target)?.tag() == gimli::DW_TAG_base_type;
                let is_pointer = entry.tag() == gimli::DW_TAG_pointer_type;
                if is_pointer && is_base && self.shape(target) == Some(Shape::Char) {
                    return Some(Shape::Text);
                }
                let name = self
                    .entry(target)?
                    .attr_value(DW_AT_name)
                    .and_then(|value| self.text(target.unit, value));
                let is_string = name.is_some_and(|name| name.starts_with("basic_string<char"))
                    && self.place_of(target, "_M_string_length") == Some(WORD);
                Some(if is_string { Shape::String } else { Shape::Pointer })
            }
            gimli::DW_TAG_structure_type if size == Some(2 * WORD) => {
                let name = self.text(place.unit, entry.attr_value(DW_AT_name)?)?;
                (name == "&str" || name == "&mut str").then_some(Shape::Slice)
            }
            _ => None,
        }
    }

    /// The classes of what something of a type is made of.
    fn classes_of(&self, of: Type) -> Classes {
        let mut classes = Classes::default();
        match of.shape {
            Shape::Float(_) => classes.any[0] = true,
            Shape::Slice => classes = Classes { integer: [true; 2], any: [true; 2], ..classes },
            Shape::Other(_) => match of.about {
                Some(place) => self.classify(place, 0, &mut classes, 0),
                None => classes.memory = true,
            },
            _ => (classes.integer[0], classes.any[0]) = (true, true),
        }
        classes
    }

    fn classify(&self, place: Place, offset: u64, classes: &mut Classes, depth: usize) {
        let size = self.size(place, 0);
        classes.parts += 1;
        let ends = depth == DEEPEST || classes.parts > PARTS;
        let (Some(place), Some(size), false) = (self.plain(place), size, ends) else {
            classes.memory = true;
            return;
        };
        let Some(entry) = self.entry(place) else { return };
        if offset.saturating_add(size) > 2 * WORD {
            classes.memory = true;
            return;
        }
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                // What has a copy constructor of its own is passed by its address.
                let by_reference = AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference);
                classes.memory |= entry.attr_value(DW_AT_calling_convention) == Some(by_reference);
                if !self.children(place, gimli::DW_TAG_variant_part).is_empty() {
                    classes.note(offset, size, true); // (an enum of Rust's: what it holds is one or two words)
                }
                let parts = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance];
                for child in parts.into_iter().flat_map(|tag| self.children(place, tag)) {
                    let at = self.entry(child).and_then(|child| child.attr_value(DW_AT_data_member_location));
                    let at = at.and_then(|value| value.udata_value()).unwrap_or(0);
                    let kind = self.inherited(child, DW_AT_type);
                    match kind.and_then(|(unit, value)| self.reference(unit, &value)) {
                        Some(kind) => self.classify(kind, offset.saturating_add(at), classes, depth + 1),
                        None => classes.memory = true,
                    }
                }
            }
            gimli::DW_TAG_array_type => {
                let element =
                    entry.attr_value(DW_AT_type).and_then(|value| self.reference(place.unit, &value));
                let each = element.and_then(|element| self.size(element, 0)).filter(|each| *each > 0);
                let (Some(element), Some(each)) = (element, each) else { return };
                (0..size / each).for_each(|n| self.classify(element, offset + n * each, classes, depth + 1));
            }
            _ => classes.note(offset, size, !matches!(self.shape(place), Some(Shape::Float(_)))),
        }
    }

    /// Is it returned where the caller says?
    fn is_in_memory(&self, of: Type) -> bool {
        matches!(of.shape, Shape::Other(size) if size > 0) && self.classes_of(of).memory
    }
}

impl Classes {
    fn note(&mut self, offset: u64, size: u64, integer: bool) {
        for word in offset / WORD..offset.saturating_add(size).div_ceil(WORD).min(2) {
            self.any[word as usize] = true;
            self.integer[word as usize] |= integer;
        }
    }
}

/// The next free places for arguments.
#[derive(Default)]
struct Next {
    integer: u8,
    vector: u8,
    stack: u8,
}

impl Next {
    const INTEGERS: u8 = 6;
    const VECTORS: u8 = 8;

    /// Gives an argument its place.
    fn place(&mut self, of: Type, classes: Classes, rust: bool) -> Passed {
        let size = match of.shape {
            Shape::Other(size) => size,
            Shape::Slice => 2 * WORD,
            _ => WORD,
        };
        if size == 0 {
            return Passed::Apart;
        }
        if classes.memory && rust {
            return self.integer_or_stack(); // (Rust passes its address)
        }
        let words: Vec<bool> =
            (0..2).filter(|word| classes.any[*word]).map(|word| classes.integer[word]).collect();
        let integers = words.iter().filter(|integer| **integer).count() as u8;
        let vectors = words.len() as u8 - integers;
        let fits = self.integer + integers <= Next::INTEGERS && self.vector + vectors <= Next::VECTORS;
        if classes.memory || words.is_empty() || !fits {
            let at = self.stack.saturating_add(1);
            self.stack = self.stack.saturating_add(u8::try_from(size.div_ceil(WORD)).unwrap_or(u8::MAX));
            return if size <= WORD { Passed::Stack(at) } else { Passed::Apart };
        }
        let (integer, vector) = (self.integer, self.vector);
        self.integer += integers;
        self.vector += vectors;
        match words[..] {
            [true] => Passed::Integer(integer),
            [true, true] => Passed::Pair(integer),
            [false] => Passed::Vector(vector),
            _ => Passed::Apart,
        }
    }

    fn integer_or_stack(&mut self) -> Passed {
        if self.integer < Next::INTEGERS {
            self.integer += 1;
            return Passed::Integer(self.integer - 1);
        }
        self.stack = self.stack.saturating_add(1);
        Passed::Stack(self.stack)
    }
}
