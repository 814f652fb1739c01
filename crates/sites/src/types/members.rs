//! Members of global objects by their addresses, as the source names them.

use super::{Bytes, DieRef, MAX_REFERENCES, Types, Unit};
use crate::address::Svma;
use gimli::{
    AttributeValue, DW_AT_bit_size, DW_AT_declaration, DW_AT_location, DW_AT_name, DW_AT_type, Expression,
    Operation,
};

/// Names of Rust's types for synchronization and of the cells in them. Their members are the
/// library's own, except those in [`INNER`].
const RUSTS_OWN: [&str; 11] = [
    "Mutex",
    "RwLock",
    "Condvar",
    "Once",
    "OnceLock",
    "LazyLock",
    "ReentrantLock",
    "UnsafeCell",
    "MaybeUninit",
    "ManuallyDrop",
    "MaybeDangling",
];
/// Name of the union in a `LazyLock`. Programs have structures of this name.
const LAZY: &str = "Data";
/// Names of the members of those types that hold the program's value.
const INNER: [&str; 3] = ["data", "value", "__0"];

/// The suffix of an object's name, as far as its members are found.
#[derive(Default)]
struct Suffix {
    text: String,
    /// Bytes from the beginning of the part that the text names.
    position: u64,
    /// Whether a member was passed since that has no name of the program's.
    is_hidden: bool,
    /// Offset in the innermost type that was reached.
    rest: u64,
}

impl Suffix {
    /// Passes a member without a name.
    fn pass(&mut self, position: u64, is_reserved: bool) {
        self.position += position;
        self.is_hidden |= is_reserved;
    }

    /// Adds the position of the present part, if no name tells it: an object of a library may have
    /// several of the program's.
    fn add_position(&mut self) {
        if std::mem::take(&mut self.is_hidden) && self.position > 0 {
            self.text += &format!("+{}", self.position);
        }
        self.position = 0;
    }

    fn add(&mut self, name: &str) {
        self.add_position();
        self.text += name;
    }
}

impl Types {
    /// Returns the member at an offset of the global object that begins at an address, as a suffix
    /// of the object's name: `.lock`, `[3].lock`; empty for the object as a whole. `None` if the
    /// object, or what is at the offset, is not described.
    ///
    /// Members that belong to a library's implementation are passed without a name: C and C++
    /// reserve such names, as `_M_elems` of a `std::array`. If nothing behind them has a name, the
    /// suffix is the offset in the object that has them, as `+40` of the second part of a
    /// `std::tuple`; a `pthread_mutex_t` counts as a whole. Which member of a union is used is not
    /// known, so all are named: `.number|lock`.
    ///
    /// The second value is the offset in the part that the suffix names.
    pub fn member_suffix(&self, object: Svma, offset: u64) -> Option<(String, u64)> {
        let variable = self.variable(object)?;
        let (unit, value) = self.inherited(variable, DW_AT_type)?;
        let mut suffix = Suffix::default();
        self.add_member(self.reference(unit, &value)?, offset, 0, &mut suffix)?;
        let offset = suffix.rest + if suffix.is_hidden { 0 } else { suffix.position };
        suffix.add_position();
        Some((suffix.text, offset))
    }

    /// Finds the description of the variable at an address.
    fn variable(&self, object: Svma) -> Option<DieRef> {
        self.units.iter().enumerate().find_map(|(number, unit)| {
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                if entry.tag() == gimli::DW_TAG_variable
                    && let Some(AttributeValue::Exprloc(place)) = entry.attr_value(DW_AT_location)
                    && self.address_of(unit, place) == Some(object.0)
                {
                    return Some(DieRef { unit: number, offset: entry.offset() });
                }
            }
            None
        })
    }

    /// Returns the address that an expression consists of.
    fn address_of(&self, unit: &Unit, place: Expression<Bytes>) -> Option<u64> {
        let mut operations = place.operations(unit.encoding());
        let address = match operations.next().ok()?? {
            Operation::Address { address } => address,
            Operation::AddressIndex { index } => self.dwarf.address(unit, index).ok()?,
            _ => return None,
        };
        operations.next().ok()?.is_none().then_some(address)
    }

    /// Adds the member at an offset of a value to a suffix.
    fn add_member(&self, of: DieRef, offset: u64, depth: usize, suffix: &mut Suffix) -> Option<()> {
        let of = self.plain(of).filter(|_| depth < MAX_REFERENCES)?;
        let entry = self.entry(of)?;
        suffix.rest = offset;
        match entry.tag() {
            gimli::DW_TAG_array_type => {
                let element = self.reference(of.unit, &entry.attr_value(DW_AT_type)?)?;
                let size = self.size(element, 0).filter(|size| *size > 0)?;
                // An index of several dimensions is not computed.
                let ranges = self.children(of, gimli::DW_TAG_subrange_type);
                (ranges.len() == 1 && offset < self.length(of)?.checked_mul(size)?).then_some(())?;
                suffix.add(&format!("[{}]", offset / size));
                self.add_member(element, offset % size, depth + 1, suffix)
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let name = entry.attr_value(DW_AT_name).and_then(|value| self.text(of.unit, value));
                let is_union = entry.tag() == gimli::DW_TAG_union_type;
                let is_own = |name: String| {
                    let name = name.split('<').next().unwrap_or_default();
                    RUSTS_OWN.contains(&name) || is_union && name == LAZY
                };
                let mut parts = self.parts_at(of, offset);
                if self.is_rust(of.unit) && name.is_some_and(is_own) {
                    parts.retain(|part| part.name.as_deref().is_some_and(|name| INNER.contains(&name)));
                    return match &parts[..] {
                        [part] => self.pass_member(part, offset, false, depth, suffix),
                        _ => (offset < self.size(of, 0)?).then_some(()),
                    };
                }
                let names: Vec<&str> = parts.iter().filter_map(|part| part.name.as_deref()).collect();
                match &parts[..] {
                    [part] => match part.name.as_deref() {
                        None => self.pass_member(part, offset, false, depth, suffix),
                        Some(name) if is_reserved(name) => match tuple_field(name) {
                            Some(field) if self.is_rust(of.unit) => {
                                suffix.add(&format!(".{field}"));
                                self.add_member(part.kind, part.offset, depth + 1, suffix)
                            }
                            _ => self.pass_member(part, offset, true, depth, suffix),
                        },
                        Some(name) => {
                            suffix.add(&format!(".{name}"));
                            self.add_member(part.kind, part.offset, depth + 1, suffix)
                        }
                    },
                    // A union of a library, as pthread_mutex_t.
                    _ if names.iter().any(|name| is_reserved(name)) => Some(()),
                    _ => {
                        (names.len() > 1 && names.len() == parts.len()).then_some(())?;
                        suffix.add(&format!(".{}", names.join("|")));
                        Some(())
                    }
                }
            }
            // Part of a number, as the kernel waits at one half of a word.
            _ => (offset < self.size(of, 0)?).then_some(()),
        }
    }

    /// Goes on in a member that is not named.
    fn pass_member(
        &self,
        part: &Part,
        offset: u64,
        is_reserved: bool,
        depth: usize,
        suffix: &mut Suffix,
    ) -> Option<()> {
        suffix.pass(offset - part.offset, is_reserved);
        self.add_member(part.kind, part.offset, depth + 1, suffix)
    }

    /// Returns the members and base classes at an offset of a structure or union.
    fn parts_at(&self, of: DieRef, offset: u64) -> Vec<Part> {
        let mut parts: Vec<Part> = self.parts(of).filter_map(|place| self.part_at(place, offset)).collect();
        // Only one of the parts of a `std::optional` has members.
        if parts.len() > 1 && parts.iter().any(|part| !self.is_empty(part.kind)) {
            parts.retain(|part| !self.is_empty(part.kind));
        }
        parts
    }

    /// Whether a type is a structure without members.
    fn is_empty(&self, of: DieRef) -> bool {
        let Some(of) = self.plain(of) else { return false };
        let is_structure =
            self.entry(of).is_some_and(|entry| matches!(entry.tag(), gimli::DW_TAG_structure_type));
        is_structure && self.parts(of).next().is_none()
    }

    /// Returns the descriptions of the members and base classes of a structure or union.
    fn parts(&self, of: DieRef) -> impl Iterator<Item = DieRef> {
        let tags = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance];
        tags.into_iter().flat_map(move |tag| self.children(of, tag))
    }

    fn part_at(&self, place: DieRef, offset: u64) -> Option<Part> {
        let entry = self.entry(place)?;
        let (unit, value) = self.inherited(place, DW_AT_type)?;
        let kind = self.reference(unit, &value)?;
        let offset = offset.checked_sub(self.offset_of(place.unit, &entry)?)?;
        // A static member is an object of its own, and DWARF 4 declares it as a member.
        let is_other =
            [DW_AT_bit_size, DW_AT_declaration].iter().any(|name| entry.attr_value(*name).is_some());
        let name = entry.attr_value(DW_AT_name).and_then(|value| self.text(place.unit, value));
        (!is_other && offset < self.size(kind, 0)?).then_some(Part { name, kind, offset })
    }
}

/// A member or base class at an offset.
struct Part {
    /// Unnamed structures and base classes have none.
    name: Option<String>,
    kind: DieRef,
    /// The offset in it.
    offset: u64,
}

/// Whether C and C++ reserve a name for the implementation.
fn is_reserved(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next() == Some('_') && letters.next().is_some_and(|next| next == '_' || next.is_ascii_uppercase())
}

/// Returns the number of a field of Rust's tuples, as in `__0`.
fn tuple_field(name: &str) -> Option<&str> {
    name.strip_prefix("__")
        .filter(|field| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit()))
}
