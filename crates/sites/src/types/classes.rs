//! Classes of values in the System V psABI for x86-64, section 3.2.3, and in the Itanium C++ ABI.

use super::{DieRef, MAX_REFERENCES, Shape, Type, Types, WORD};
use gimli::{
    AttributeValue, DW_AT_GNU_vector, DW_AT_alignment, DW_AT_artificial, DW_AT_bit_size,
    DW_AT_calling_convention, DW_AT_data_bit_offset, DW_AT_declaration, DW_AT_defaulted, DW_AT_deleted,
    DW_AT_encoding, DW_AT_external, DW_AT_name, DW_AT_type, DW_AT_virtuality,
};

const NOT_VIRTUAL: AttributeValue<super::Bytes> = AttributeValue::Virtuality(gimli::DW_VIRTUALITY_none);
/// Maximum number of parts of a structure that are classified.
const PARTS: u32 = 1000;
/// Eightbytes of the largest value that a register holds.
const WORDS: usize = 8;

/// The class of an eightbyte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Class {
    #[default]
    No,
    Integer,
    Sse,
    SseUp,
    X87,
    X87Up,
    ComplexX87,
    Memory,
}

impl Class {
    /// Merges the classes of two values that share an eightbyte.
    fn merge(self, other: Class) -> Class {
        use Class::*;
        match (self, other) {
            (one, other) if one == other => one,
            (No, one) | (one, No) => one,
            (Memory, _) | (_, Memory) => Memory,
            (Integer, _) | (_, Integer) => Integer,
            (X87 | X87Up | ComplexX87, _) | (_, X87 | X87Up | ComplexX87) => Memory,
            _ => Sse,
        }
    }
}

/// Classification of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    pub(super) words: [Class; WORDS],
    /// Whether it is passed in memory.
    pub(super) memory: bool,
    /// Whether its address is passed, as it is not trivial for the purposes of calls.
    pub(super) by_reference: bool,
    /// Whether compilers, or their flags, differ in how it is passed.
    pub(super) unknown: bool,
    /// Whether it is one integer of 128 bits.
    pub(super) wide: bool,
    /// Whether this is the type of nullptr.
    pub(super) null: bool,
    pub(super) align: u64,
    parts: u32,
}

impl Default for Classes {
    fn default() -> Classes {
        Classes {
            words: [Class::No; WORDS],
            memory: false,
            by_reference: false,
            unknown: false,
            wide: false,
            null: false,
            align: 1,
            parts: 0,
        }
    }
}

impl Classes {
    fn of(class: Class) -> Classes {
        let mut classes = Classes { align: WORD, ..Classes::default() };
        classes.words[0] = class;
        classes
    }

    /// Whether Rust passes a value by rules of its own: pairs of numbers in two registers, others
    /// as a number or by address. Which one is not described.
    pub(super) fn is_rusts_own(&self, of: Type) -> bool {
        matches!(of.shape, Shape::Other(1..=16)) && !self.by_reference && !self.memory
    }

    /// Makes a value of a word, of which the location alone tells how it is passed, an integer.
    pub(super) fn become_integer(&mut self, of: Type) {
        if (1..=WORD).contains(&of.shape.size()) {
            *self = Classes::of(Class::Integer);
        }
    }

    fn merge(&mut self, word: u64, class: Class) {
        match self.words.get_mut(word as usize) {
            Some(own) => *own = own.merge(class),
            None => self.memory = true,
        }
    }

    /// Merges a scalar at an offset, with one class for each of its eightbytes.
    fn scalar(&mut self, offset: u64, align: u64, classes: &[Class]) {
        self.align = self.align.max(align);
        // A structure with unaligned fields is passed in memory.
        self.memory |= !offset.is_multiple_of(align);
        for (word, class) in (offset / WORD..).zip(classes) {
            self.merge(word, *class);
        }
    }

    /// Applies the rules for a whole value of this size, after all its parts were merged.
    /// `is_scalar`: it is no structure or union.
    fn complete(mut self, size: u64, is_scalar: bool) -> Classes {
        use Class::*;
        let count = usize::try_from(size.div_ceil(WORD)).unwrap_or(WORDS).clamp(1, WORDS);
        // Padding is of no class, and not a part of a vector.
        let is_sse_alone = self.words[0] == Sse && self.words[1..count].iter().all(|word| *word == SseUp);
        self.memory |= self.words.contains(&Memory) || size > 2 * WORD && !is_sse_alone && !is_scalar;
        for n in 0..WORDS {
            let before = n.checked_sub(1).map(|before| self.words[before]);
            match self.words[n] {
                X87Up if before != Some(X87) => self.memory = true,
                SseUp if !matches!(before, Some(Sse | SseUp)) => self.words[n] = Sse,
                _ => {}
            }
        }
        self
    }

    pub(super) fn is_x87(&self) -> bool {
        matches!(self.words[0], Class::X87 | Class::ComplexX87)
    }

    /// The registers that it takes: for each, whether that is an integer register.
    pub(super) fn registers(&self) -> Vec<bool> {
        let takes = |class: &&Class| matches!(class, Class::Integer | Class::Sse);
        self.words.iter().filter(takes).map(|class| *class == Class::Integer).collect()
    }

    /// Merges words that hold integers.
    fn words(&mut self, offset: u64, size: u64) {
        let end = offset.saturating_add(size).div_ceil(WORD).min(WORDS as u64 + 1);
        (offset / WORD..end).for_each(|word| self.merge(word, Class::Integer));
        self.align = self.align.max(WORD);
    }

    fn integers(&mut self, offset: u64, size: u64) {
        let words = [Class::Integer; WORDS];
        let count = usize::try_from(size.div_ceil(WORD)).unwrap_or(WORDS).min(WORDS);
        self.scalar(offset, size.next_power_of_two().clamp(1, 16), &words[..count]);
    }

    fn vector(&mut self, offset: u64, size: u64) {
        use Class::*;
        match size {
            1 | 2 | 4 => self.integers(offset, size),
            8 => self.scalar(offset, 8, &[Sse]),
            16 => self.scalar(offset, 16, &[Sse, SseUp]),
            // Passed in a register only if the program was compiled for AVX.
            _ => self.unknown = true,
        }
    }
}

impl Types {
    /// Whether Rust passes a structure as C does: two words of a pointer with a length or a table,
    /// or a structure around a single number or pointer.
    pub(super) fn is_as_in_c(&self, of: Type) -> bool {
        let Some(place) = of.about.and_then(|place| self.plain(place)) else { return false };
        let name = self.entry(place).and_then(|entry| self.text(place.unit, entry.attr_value(DW_AT_name)?));
        let is_fat = |name: &str| {
            name.starts_with(['&', '*']) || ["Box<dyn ", "Box<["].iter().any(|part| name.starts_with(part))
        };
        name.is_some_and(|name| is_fat(&name)) || self.is_single(place, 0)
    }

    /// Whether a type is a number or a pointer, or a structure around one.
    fn is_single(&self, place: DieRef, depth: usize) -> bool {
        let entry = self.plain(place).and_then(|place| Some((place, self.entry(place)?)));
        let Some((place, entry)) = entry.filter(|_| depth < MAX_REFERENCES) else { return false };
        match entry.tag() {
            gimli::DW_TAG_base_type | gimli::DW_TAG_pointer_type | gimli::DW_TAG_enumeration_type => true,
            gimli::DW_TAG_structure_type => {
                let members = self.children(place, gimli::DW_TAG_member).into_iter().filter_map(|member| {
                    let (unit, value) = self.inherited(member, DW_AT_type)?;
                    self.reference(unit, &value).filter(|of| self.size(*of, 0) != Some(0))
                });
                let members: Vec<DieRef> = members.collect();
                self.children(place, gimli::DW_TAG_variant_part).is_empty()
                    && matches!(&members[..], [only] if self.is_single(*only, depth + 1))
            }
            _ => false,
        }
    }

    /// Classifies a value of a type.
    pub(super) fn classes_of(&self, of: Type) -> Classes {
        let whole = |place| {
            let mut classes = Classes::default();
            self.classify(place, 0, &mut classes, 0);
            let entry = self.plain(place).and_then(|place| self.entry(place));
            let tag = entry.map(|entry| entry.tag());
            let is_scalar = tag == Some(gimli::DW_TAG_base_type);
            classes.unknown |= self.size(place, 0).is_none();
            classes.null = tag == Some(gimli::DW_TAG_unspecified_type);
            classes.wide = is_scalar && classes.align == 16 && classes.words[1] == Class::Integer;
            classes.complete(self.size(place, 0).unwrap_or(0), is_scalar)
        };
        match of.shape {
            Shape::Float(_) => Classes::of(Class::Sse),
            Shape::Slice | Shape::View => {
                let mut classes = Classes::of(Class::Integer);
                classes.words[1] = Class::Integer;
                classes
            }
            Shape::Other(_) => of.about.map_or(Classes { unknown: true, ..Classes::default() }, whole),
            _ => Classes::of(Class::Integer),
        }
    }

    fn classify(&self, place: DieRef, offset: u64, classes: &mut Classes, depth: usize) {
        classes.parts += 1;
        let entry = self.plain(place).and_then(|place| Some((place, self.entry(place)?)));
        let (Some((place, entry)), false) = (entry, depth == MAX_REFERENCES || classes.parts > PARTS) else {
            classes.unknown = true;
            return;
        };
        let size = self.size(place, 0);
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let by_reference = AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference);
                let convention = entry.attr_value(DW_AT_calling_convention);
                classes.by_reference |= convention
                    .map_or_else(|| self.is_nontrivial(place), |convention| convention == by_reference);
                classes.unknown |= entry.attr_value(DW_AT_declaration).is_some();
                let align = entry.attr_value(DW_AT_alignment).and_then(|value| value.udata_value());
                classes.align = classes.align.max(align.unwrap_or(1));
                if !self.children(place, gimli::DW_TAG_variant_part).is_empty() {
                    // The cases of a Rust enum are not followed: it holds one or two words.
                    classes.words(offset, size.unwrap_or(WORD));
                }
                let parts = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance];
                let parts: Vec<DieRef> =
                    parts.into_iter().flat_map(|tag| self.children(place, tag)).collect();
                // gcc leaves out the members of some transparent unions, as of __SOCKADDR_ARG.
                let is_union = entry.tag() == gimli::DW_TAG_union_type;
                classes.unknown |= is_union && parts.is_empty() && size.is_some_and(|size| size > 1);
                for child in parts {
                    self.classify_member(child, offset, classes, depth);
                }
            }
            gimli::DW_TAG_array_type => {
                let element =
                    entry.attr_value(DW_AT_type).and_then(|value| self.reference(place.unit, &value));
                let each = element.and_then(|element| self.size(element, 0)).filter(|each| *each > 0);
                let (Some(element), Some(each), Some(size)) = (element, each, size) else {
                    // A flexible array member at the end of a structure: compilers differ.
                    classes.unknown |= size.is_none();
                    return;
                };
                if entry.attr_value(DW_AT_GNU_vector).is_some() {
                    return classes.vector(offset, size);
                }
                let count = (size / each).min(u64::from(PARTS) + 1);
                for n in 0..count {
                    self.classify(element, offset.saturating_add(n * each), classes, depth + 1);
                    if classes.parts > PARTS {
                        break;
                    }
                }
            }
            gimli::DW_TAG_base_type => self.classify_base(place, offset, size.unwrap_or(0), classes),
            gimli::DW_TAG_ptr_to_member_type if size == Some(2 * WORD) => classes.words(offset, 2 * WORD),
            gimli::DW_TAG_subroutine_type => classes.unknown = true,
            // A pointer, an enumeration, or the type of nullptr.
            _ => classes.integers(offset, size.unwrap_or(WORD)),
        }
    }

    /// Whether a class is nontrivial for the purposes of calls by its own declarations, as gcc does
    /// not record it. Members and bases that make it so are classified on their own.
    fn is_nontrivial(&self, class: DieRef) -> bool {
        let name = |place: DieRef| self.text(place.unit, self.entry(place)?.attr_value(DW_AT_name)?);
        let own = name(class).unwrap_or_default();
        let own = own.split('<').next().unwrap_or_default();
        let is_virtual = |place: &DieRef| {
            let entry = self.entry(*place);
            entry.is_some_and(|entry| {
                entry.attr_value(DW_AT_virtuality).is_some_and(|value| value != NOT_VIRTUAL)
            })
        };
        let is_provided = |function: &DieRef| {
            let Some(entry) = self.entry(*function) else { return false };
            let has = |attribute| entry.attr_value(attribute).is_some();
            let defaulted = entry.attr_value(DW_AT_defaulted).and_then(|value| value.udata_value());
            !has(DW_AT_artificial)
                && !has(DW_AT_deleted)
                && defaulted != Some(gimli::DW_DEFAULTED_in_class.0.into())
        };
        let copies = |function: &DieRef| {
            let parameters = self.children(*function, gimli::DW_TAG_formal_parameter);
            let of = |parameter: &DieRef| {
                let (unit, value) = self.inherited(*parameter, DW_AT_type)?;
                self.target_of(self.reference(unit, &value)?)
            };
            matches!(&parameters[..], [_, other] if of(other) == Some(class))
        };
        let ends_or_copies = |function: &DieRef| {
            let name = name(*function).unwrap_or_default();
            is_virtual(function)
                || is_provided(function) && (name.starts_with('~') || name == own && copies(function))
        };
        self.children(class, gimli::DW_TAG_subprogram).iter().any(ends_or_copies)
            || self.children(class, gimli::DW_TAG_inheritance).iter().any(is_virtual)
    }

    fn classify_member(&self, member: DieRef, offset: u64, classes: &mut Classes, depth: usize) {
        let Some(entry) = self.entry(member) else { return };
        // A static member is not part of any object.
        if entry.attr_value(DW_AT_external).is_some() || entry.attr_value(DW_AT_declaration).is_some() {
            return;
        }
        let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
        let Some(at) = self.offset_of(member.unit, &entry) else {
            classes.unknown = true;
            return;
        };
        if let Some(bits) = number(DW_AT_bit_size) {
            // DWARF 2 counts from the other end of the storage unit, which is no larger than an
            // eightbyte.
            let start = number(DW_AT_data_bit_offset).unwrap_or(at.saturating_mul(8));
            let first = offset.saturating_mul(8).saturating_add(start) / 64;
            let last = offset.saturating_mul(8).saturating_add(start).saturating_add(bits.max(1) - 1) / 64;
            (first..=last.min(first + 2)).for_each(|word| classes.merge(word, Class::Integer));
            return;
        }
        let kind = self.inherited(member, DW_AT_type);
        match kind.and_then(|(unit, value)| self.reference(unit, &value)) {
            Some(kind) => self.classify(kind, offset.saturating_add(at), classes, depth + 1),
            None => classes.unknown = true,
        }
    }

    fn classify_base(&self, place: DieRef, offset: u64, size: u64, classes: &mut Classes) {
        use Class::*;
        let entry = self.entry(place);
        let encoding = entry.as_ref().and_then(|entry| match entry.attr_value(DW_AT_encoding)? {
            AttributeValue::Encoding(encoding) => Some(encoding),
            _ => None,
        });
        let name = entry.and_then(|entry| self.text(place.unit, entry.attr_value(DW_AT_name)?));
        let name = name.unwrap_or_default();
        let is_binary128 = name.contains("128");
        /// gcc's number for complex integers.
        const COMPLEX_INTEGER: gimli::DwAte = gimli::DW_ATE_lo_user;
        match (encoding, size) {
            _ if name.contains("BitInt") && size > WORD => classes.unknown = true,
            (Some(gimli::DW_ATE_float), 2 | 4 | 8) => classes.scalar(offset, size, &[Sse]),
            (Some(gimli::DW_ATE_float), 16) if is_binary128 => classes.scalar(offset, 16, &[Sse, SseUp]),
            (Some(gimli::DW_ATE_float), 16) => classes.scalar(offset, 16, &[X87, X87Up]),
            (Some(gimli::DW_ATE_decimal_float), 4 | 8) => classes.scalar(offset, size, &[Sse]),
            (Some(gimli::DW_ATE_decimal_float), 16) => classes.scalar(offset, 16, &[Sse, SseUp]),
            (Some(gimli::DW_ATE_complex_float), 4 | 8 | 16) => {
                for part in [0, size / 2] {
                    classes.scalar(offset.saturating_add(part), size / 2, &[Sse]);
                }
            }
            (Some(gimli::DW_ATE_complex_float), 32) if is_binary128 => classes.memory = true,
            (Some(gimli::DW_ATE_complex_float), 32) => classes.scalar(offset, 16, &[ComplexX87]),
            (Some(COMPLEX_INTEGER), 2 | 4 | 8 | 16) => {
                [0, size / 2]
                    .into_iter()
                    .for_each(|part| classes.integers(offset.saturating_add(part), size / 2));
            }
            (Some(gimli::DW_ATE_float | gimli::DW_ATE_complex_float | COMPLEX_INTEGER) | None, _) => {
                classes.unknown = true;
            }
            (_, 1 | 2 | 4 | 8 | 16) => classes.integers(offset, size),
            _ => classes.unknown = true,
        }
    }
}
