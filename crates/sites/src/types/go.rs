//! Positions of arguments and results of Go functions: Go's ABIInternal for x86-64, from Go 1.17
//! on.

use super::location::{Location, VECTOR};
use super::{DieRef, Parameter, Passed, Shape, Signature, Type, Types, Unread, WORD};
use crate::address::Svma;
use gimli::{AttributeValue, DW_AT_encoding, DW_AT_name, DW_AT_type, DwAt};
use object::{Object, ObjectSymbol, ReadRef};

/// Registers for arguments, and as many for results: rax, rbx, rcx, rdi, rsi, r8, r9, r10, r11; and
/// xmm0 to xmm14.
const INTEGERS: usize = 9;
const VECTORS: usize = 15;
/// DWARF's numbers of the integer registers, in their order.
const GO_INTEGERS: [u16; INTEGERS] = [0, 3, 2, 5, 4, 8, 9, 10, 11];
/// DW_AT_go_kind: the kind of a type, by the numbers of Go's package reflect.
const GO_KIND: DwAt = DwAt(0x2900);
const GO_SLICE: u64 = 23;
const GO_STRING: u64 = 24;
/// Name of the parameter by which the instances of a generic function get their types.
const DICTIONARY: &str = ".dict";
/// Deepest nesting of structures.
const MAX_NESTING: usize = 16;
/// Maximum number of registers that one value may take.
const MAX_REGISTERS: usize = INTEGERS + VECTORS;

/// Returns the address of a Go program's types. Their names lie at offsets from it.
pub(super) fn types<'d>(object: &object::File<'d, impl ReadRef<'d>>) -> Option<Svma> {
    let mut symbols = object.symbols();
    symbols.find(|symbol| symbol.name() == Ok("runtime.types")).map(|symbol| Svma(symbol.address()))
}

/// A structure of the language itself.
enum Structure {
    String,
    Slice,
    Interface { has_methods: bool },
}

/// The next free registers.
#[derive(Clone, PartialEq, Eq, Default)]
struct Next {
    integers: usize,
    vectors: usize,
}

impl Types {
    /// Whether a unit is of Go.
    pub(super) fn is_go(&self, unit: usize) -> bool {
        self.language(unit) == Some(AttributeValue::Language(gimli::DW_LANG_Go))
    }

    /// Returns parameters and results of a Go function. Results are parameters, too, which the
    /// debugging information marks.
    ///
    /// Of a function that was inlined somewhere, the compiler does not describe parameters without
    /// a name, nor the dictionary of a generic function. The locations of the others then show that
    /// they are in other registers.
    pub(super) fn go_signature(&self, place: DieRef, address: u64) -> Option<Signature> {
        let origin = self.inherited_from(place).unwrap_or(place);
        let locations = self.go_locations(place, address);
        let mut is_other = self.is_generic_without_dictionary(place, origin);
        let (mut parameters, mut results) = (Vec::new(), Vec::new());
        let (mut into, mut out) = (Next::default(), Next::default());
        for child in self.children(origin, gimli::DW_TAG_formal_parameter) {
            let entry = self.entry(child)?;
            let name = entry.attr_value(DW_AT_name).and_then(|value| self.text(child.unit, value));
            let (unit, value) = self.inherited(child, DW_AT_type)?;
            let of = self.reference(unit, &value)?;
            let is_result =
                matches!(entry.attr_value(gimli::DW_AT_variable_parameter), Some(AttributeValue::Flag(true)));
            let (next, all) = if is_result { (&mut out, &mut results) } else { (&mut into, &mut parameters) };
            let first = next.clone();
            let (of, passed) = next.place(self, of);
            let is_in_registers = *next != first;
            let location = locations.iter().find(|(of, _)| *of == child).map(|(_, location)| *location);
            is_other |= !is_result
                && is_in_registers
                && matches!(location, Some(Location::Register(number)) if !first.begins_at(number));
            // The compiler's own parameter; the source's are numbered without it.
            if name.as_deref() != Some(DICTIONARY) {
                all.push(Parameter { name, of, passed });
            }
        }
        if is_other {
            parameters.iter_mut().for_each(|of| of.passed = Passed::Unread(Unread::Convention));
        }
        Some(Signature {
            parameters,
            takes_more: false,
            result: None,
            returned: None,
            go_results: Some(results),
        })
    }

    /// Returns the locations of a function's parameters at its entry, by their descriptions.
    fn go_locations(&self, function: DieRef, address: u64) -> Vec<(DieRef, Location)> {
        let described = |child: DieRef| {
            let location = self.location(child, address)?;
            Some((self.inherited_from(child).unwrap_or(child), location))
        };
        self.children(function, gimli::DW_TAG_formal_parameter).into_iter().filter_map(described).collect()
    }

    /// Whether a function is an instance of a generic one, and its dictionary, a parameter, is not
    /// described.
    fn is_generic_without_dictionary(&self, function: DieRef, origin: DieRef) -> bool {
        let name = self.inherited(function, DW_AT_name).and_then(|(unit, value)| self.text(unit, value));
        let named = |child: &DieRef| {
            let value = self.entry(*child)?.attr_value(DW_AT_name)?;
            self.text(child.unit, value)
        };
        let parameters = self.children(origin, gimli::DW_TAG_formal_parameter);
        name.is_some_and(|name| name.contains('['))
            && !parameters.iter().filter_map(named).any(|name| name == DICTIONARY)
    }

    /// Adds whether each register that a value takes is an integer register. Returns `None` if a
    /// value of the type is never in registers.
    fn go_registers(&self, place: DieRef, depth: usize, into: &mut Vec<bool>) -> Option<()> {
        let place = self.plain(place)?;
        let entry = self.entry(place)?;
        if depth > MAX_NESTING || into.len() > MAX_REGISTERS {
            return None;
        }
        match entry.tag() {
            gimli::DW_TAG_base_type => match entry.attr_value(DW_AT_encoding)? {
                AttributeValue::Encoding(gimli::DW_ATE_float) => into.push(false),
                AttributeValue::Encoding(gimli::DW_ATE_complex_float) => into.extend([false, false]),
                _ => into.push(true),
            },
            gimli::DW_TAG_structure_type => {
                for member in self.children(place, gimli::DW_TAG_member) {
                    let (unit, value) = self.inherited(member, DW_AT_type)?;
                    self.go_registers(self.reference(unit, &value)?, depth + 1, into)?;
                }
            }
            gimli::DW_TAG_array_type => match self.length(place)? {
                0 => {}
                1 => {
                    let element = self.reference(place.unit, &entry.attr_value(DW_AT_type)?)?;
                    self.go_registers(element, depth + 1, into)?;
                }
                _ => return None,
            },
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_subroutine_type => into.push(true),
            _ => return None,
        }
        Some(())
    }

    /// Returns which of the language's own structures a type is, whatever name the program has
    /// given to it.
    fn go_structure(&self, place: DieRef) -> Option<Structure> {
        let place = self.plain(place)?;
        let entry = self.entry(place).filter(|entry| entry.tag() == gimli::DW_TAG_structure_type)?;
        match entry.attr_value(GO_KIND).and_then(|kind| kind.udata_value()) {
            Some(GO_STRING) => return Some(Structure::String),
            Some(GO_SLICE) => return Some(Structure::Slice),
            _ => {}
        }
        match self.text(place.unit, entry.attr_value(DW_AT_name)?)?.as_str() {
            "runtime.iface" => Some(Structure::Interface { has_methods: true }),
            "runtime.eface" => Some(Structure::Interface { has_methods: false }),
            _ => None,
        }
    }
}

impl Next {
    /// Whether a register, by DWARF's number, is the next one for integers or for vectors.
    fn begins_at(&self, register: u16) -> bool {
        let integer = GO_INTEGERS.get(self.integers).copied();
        integer == Some(register) || VECTOR + self.vectors as u16 == register
    }

    /// Assigns a value its position. A slice is read as its length, and an interface as its type;
    /// without a table of symbols, as the address of the type's description, which is 0 for nil.
    fn place(&mut self, types: &Types, of: DieRef) -> (Type, Passed) {
        let whole = types.type_of(of);
        let mut registers = Vec::new();
        let fits = types.go_registers(of, 0, &mut registers);
        let integers = registers.iter().filter(|integer| **integer).count();
        let vectors = registers.len() - integers;
        let has_room = self.integers + integers <= INTEGERS && self.vectors + vectors <= VECTORS;
        if fits.is_none() || !has_room {
            return (whole, Passed::Unread(Unread::GoStack));
        }
        let (integer, vector) = (self.integers as u8, self.vectors as u8);
        self.integers += integers;
        self.vectors += vectors;
        let of_shape = |shape| Type { shape, about: None };
        match (types.go_structure(of), &registers[..]) {
            (_, []) => (whole, Passed::Unread(Unread::Empty)),
            (Some(Structure::String), [true, true]) => (of_shape(Shape::Slice), Passed::Pair(integer)),
            (Some(Structure::Interface { has_methods }), [true, true]) => match types.go_types {
                Some(types) => (of_shape(Shape::Interface { has_methods, types }), Passed::Pair(integer)),
                None => (of_shape(Shape::Pointer), Passed::Integer(integer)),
            },
            (Some(Structure::Slice), [true, true, true]) => {
                (of_shape(Shape::Signed(WORD as u8)), Passed::Integer(integer + 1))
            }
            (_, [true]) => (whole, Passed::Integer(integer)),
            (_, [false]) => (whole, Passed::Vector(vector)),
            _ => (whole, Passed::Unread(Unread::Apart)),
        }
    }
}
