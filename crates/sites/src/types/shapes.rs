//! Shapes and sizes of types.

use super::{DieRef, MAX_REFERENCES, Shape, Type, Types, WORD};
use crate::address::Svma;
use gimli::{
    AttributeValue, DW_AT_byte_size, DW_AT_count, DW_AT_encoding, DW_AT_name, DW_AT_type, DW_AT_upper_bound,
};

impl Types {
    /// Strips typedefs and qualifiers from a type. A subrange has the values of its type.
    pub(super) fn plain(&self, mut place: DieRef) -> Option<DieRef> {
        for _ in 0..MAX_REFERENCES {
            let entry = self.entry(place)?;
            let is_passed_through = match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => true,
                gimli::DW_TAG_subrange_type => {
                    entry.attr_value(DW_AT_type).is_some() && entry.attr_value(DW_AT_byte_size).is_none()
                }
                _ => false,
            };
            if !is_passed_through {
                return Some(place);
            }
            place = self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?;
        }
        None
    }

    pub(super) fn size(&self, place: DieRef, depth: usize) -> Option<u64> {
        let place = self.plain(place)?;
        let entry = self.entry(place)?;
        if let Some(size) = entry.attr_value(DW_AT_byte_size).and_then(|value| value.udata_value()) {
            return Some(size);
        }
        match entry.tag() {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type
            | gimli::DW_TAG_unspecified_type => Some(WORD),
            gimli::DW_TAG_ptr_to_member_type => {
                let of = self.plain(self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?)?;
                let is_function = self.entry(of)?.tag() == gimli::DW_TAG_subroutine_type;
                Some(if is_function { 2 * WORD } else { WORD })
            }
            gimli::DW_TAG_array_type if depth < MAX_REFERENCES => {
                let element = self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?;
                Some(self.length(place)?.saturating_mul(self.size(element, depth + 1)?))
            }
            _ => None,
        }
    }

    /// Number of elements of an array.
    pub(super) fn length(&self, array: DieRef) -> Option<u64> {
        let ranges = self.children(array, gimli::DW_TAG_subrange_type).into_iter().map(|range| {
            let entry = self.entry(range)?;
            let number = |name| entry.attr_value(name).and_then(|value| value.udata_value());
            number(DW_AT_count).or_else(|| number(DW_AT_upper_bound)?.checked_add(1))
        });
        ranges.reduce(|all, range| all?.checked_mul(range?)).flatten()
    }

    pub(super) fn type_of(&self, place: DieRef) -> Type {
        let shape = self.shape(place).unwrap_or(Shape::Other(self.size(place, 0).unwrap_or(0)));
        let target = match shape {
            Shape::Pointer | Shape::Text | Shape::String => self.target_of(place),
            _ => Some(place),
        };
        Type { shape, about: target }
    }

    pub(super) fn target_of(&self, pointer: DieRef) -> Option<DieRef> {
        let pointer = self.plain(pointer)?;
        let value = self.entry(pointer)?.attr_value(DW_AT_type)?;
        self.plain(self.reference(pointer.unit, &value)?)
    }

    pub(super) fn shape(&self, place: DieRef) -> Option<Shape> {
        let place = self.plain(place)?;
        let entry = self.entry(place)?;
        let size = self.size(place, 0);
        match entry.tag() {
            gimli::DW_TAG_base_type => {
                let AttributeValue::Encoding(encoding) = entry.attr_value(DW_AT_encoding)? else {
                    return None;
                };
                let size = u8::try_from(size?).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
                let name = entry.attr_value(DW_AT_name).and_then(|value| self.text(place.unit, value));
                // Bits beyond the width are undefined, and compilers do not all describe the width.
                if name.as_deref().is_some_and(|name| name.contains("_BitInt")) {
                    return None;
                }
                Some(match encoding {
                    gimli::DW_ATE_boolean if size == 1 => Shape::Bool,
                    gimli::DW_ATE_float => Shape::Float(Some(size).filter(|size| *size >= 4)?),
                    gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char if size == 1 => {
                        match (name.as_deref(), encoding) {
                            (Some("char"), _) => {
                                Shape::Char { signed: encoding == gimli::DW_ATE_signed_char }
                            }
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
                let of = entry.attr_value(DW_AT_type).and_then(|value| self.reference(place.unit, &value));
                match of.and_then(|of| self.shape(of)) {
                    Some(known @ (Shape::Signed(_) | Shape::Unsigned(_))) => Some(known),
                    _ if size < 8 => Some(Shape::Signed(size)),
                    _ => Some(Shape::Unsigned(size)),
                }
            }
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                let Some(target) = self.target_of(place) else { return Some(Shape::Pointer) };
                // The shape of a pointer's target is not computed for pointers to pointers, which
                // may form a cycle.
                let is_base = self.entry(target)?.tag() == gimli::DW_TAG_base_type;
                let is_pointer = entry.tag() == gimli::DW_TAG_pointer_type;
                if is_pointer && is_base && matches!(self.shape(target), Some(Shape::Char { .. })) {
                    return Some(Shape::Text);
                }
                Some(if self.is_string_class(target) { Shape::String } else { Shape::Pointer })
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type if size == Some(2 * WORD) => {
                let name = self.text(place.unit, entry.attr_value(DW_AT_name)?)?;
                match is_of_char(&name, "basic_string_view") {
                    true => self.view(place),
                    false => (name == "&str" || name == "&mut str").then_some(Shape::Slice),
                }
            }
            _ => None,
        }
    }

    /// Whether the compiler has changed the arguments of the function at an address, as LLVM tells:
    /// they are not as its description says.
    pub fn is_altered(&self, address: Svma) -> bool {
        self.altered.binary_search(&address).is_ok()
    }

    /// Returns the shape of a `std::string_view`.
    fn view(&self, place: DieRef) -> Option<Shape> {
        let place_of = |member| self.place_of(place, member);
        match (place_of("_M_len"), place_of("_M_str"), place_of("__data_")) {
            (Some(0), Some(WORD), _) => Some(Shape::View),
            // libc++ has the address first.
            (None, None, Some(0)) => Some(Shape::Slice),
            _ => None,
        }
    }

    /// Whether a type is libstdc++'s `std::string`, or that of another class of characters.
    fn is_string_class(&self, place: DieRef) -> bool {
        let name = self.entry(place).and_then(|entry| entry.attr_value(DW_AT_name));
        let name = name.and_then(|value| self.text(place.unit, value));
        name.is_some_and(|name| is_of_char(&name, "basic_string"))
            && self.place_of(place, "_M_string_length") == Some(WORD)
    }

    /// Whether a value is libstdc++'s `std::string` itself, not its address.
    pub fn is_string(&self, of: Type) -> bool {
        matches!(of.shape, Shape::Other(_))
            && of.about.and_then(|of| self.plain(of)).is_some_and(|of| self.is_string_class(of))
    }
}

/// Whether the name of a class is that of a template's instance for `char`.
fn is_of_char(name: &str, template: &str) -> bool {
    let arguments = name.strip_prefix(template).and_then(|rest| rest.strip_prefix("<char"));
    arguments.is_some_and(|rest| rest.starts_with([',', '>']))
}
