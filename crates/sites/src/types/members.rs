//! Members of global objects by their addresses, as the source names them.

use super::{Bytes, DieRef, MAX_REFERENCES, Types, Unit};
use crate::address::Svma;
use gimli::{
    AttributeValue, DW_AT_bit_size, DW_AT_declaration, DW_AT_location, DW_AT_name, DW_AT_type, Expression,
    Operation,
};

/// Beginnings of the names of Rust's synchronization types, whose members are the library's own.
const RUSTS_OWN: [&str; 6] = ["Mutex", "RwLock", "Condvar", "Once", "LazyLock", "ReentrantLock"];

impl Types {
    /// Returns the member at an offset of the global object that begins at an address, as a suffix
    /// of the object's name: `.lock`, `[3].lock`; empty for the object as a whole. `None` if the
    /// object, or what is at the offset, is not described.
    ///
    /// A member that belongs to a library's implementation counts as the object that has it: C and
    /// C++ reserve such names, as `__data` of a `pthread_mutex_t`. Which member of a union is used
    /// is not known, so all are named: `.number|lock`.
    pub fn member_suffix(&self, object: Svma, offset: u64) -> Option<String> {
        let variable = self.variable(object)?;
        let (unit, value) = self.inherited(variable, DW_AT_type)?;
        let mut suffix = String::new();
        self.add_member(self.reference(unit, &value)?, offset, 0, &mut suffix)?;
        Some(suffix)
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
    fn add_member(&self, of: DieRef, offset: u64, depth: usize, suffix: &mut String) -> Option<()> {
        let of = self.plain(of).filter(|_| depth < MAX_REFERENCES)?;
        let entry = self.entry(of)?;
        match entry.tag() {
            gimli::DW_TAG_array_type => {
                let element = self.reference(of.unit, &entry.attr_value(DW_AT_type)?)?;
                let size = self.size(element, 0).filter(|size| *size > 0)?;
                // An index of several dimensions is not computed.
                let ranges = self.children(of, gimli::DW_TAG_subrange_type);
                (ranges.len() == 1 && offset < self.length(of)?.checked_mul(size)?).then_some(())?;
                *suffix += &format!("[{}]", offset / size);
                self.add_member(element, offset % size, depth + 1, suffix)
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let name = entry.attr_value(DW_AT_name).and_then(|value| self.text(of.unit, value));
                let is_own = |name: String| RUSTS_OWN.iter().any(|own| name.starts_with(own));
                if self.is_rust(of.unit) && name.is_some_and(is_own) {
                    return Some(());
                }
                let parts = self.parts_at(of, offset);
                let names: Vec<&str> = parts.iter().filter_map(|part| part.name.as_deref()).collect();
                if names.iter().any(|name| is_reserved(name)) {
                    return Some(());
                }
                if !names.is_empty() {
                    *suffix += &format!(".{}", names.join("|"));
                }
                match &parts[..] {
                    [part] => self.add_member(part.kind, part.offset, depth + 1, suffix),
                    _ => (names.len() > 1 && names.len() == parts.len()).then_some(()),
                }
            }
            // Part of a number, as the kernel waits at one half of a word.
            _ => (offset < self.size(of, 0)?).then_some(()),
        }
    }

    /// Returns the members and base classes at an offset of a structure or union.
    fn parts_at(&self, of: DieRef, offset: u64) -> Vec<Part> {
        let tags = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance];
        let all = tags.into_iter().flat_map(|tag| self.children(of, tag));
        all.filter_map(|place| self.part_at(place, offset)).collect()
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
