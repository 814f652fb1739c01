//! Locations of parameters when a function is entered, as far as the debugging information tells
//! them: a check of the calling convention.

use super::passing::Passed;
use super::{DieRef, Types, Unit};
use gimli::{AttributeValue, DW_AT_const_value, DW_AT_location, Expression, Operation};

/// Location of a parameter when the function is entered, with DWARF's number of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location {
    /// In a register.
    Register(u16),
    /// In memory whose address is in this register.
    Address(u16),
    /// In memory whose address the function keeps in its frame.
    AddressInFrame,
}

/// DWARF's numbers of the integer registers for arguments, in order.
const INTEGERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
/// Largest distance of the first place of a parameter from the function's start: clang describes
/// parameters from the end of NOPs or a sled there on.
const SLED: u64 = 16;
/// DWARF's number of the first vector register.
pub(super) const VECTOR: u16 = 17;

impl Types {
    /// Returns the location of a parameter at the entry of its function.
    pub(super) fn location(&self, parameter: DieRef, entry: u64) -> Option<Location> {
        first(self.units.get(parameter.unit)?, self.expression(parameter, entry)?)
    }

    /// Whether a parameter has a place when its function is entered: in a register, or in the frame
    /// of a function that is not optimised.
    pub(super) fn has_place(&self, parameter: DieRef, entry: u64) -> bool {
        self.expression(parameter, entry).is_some()
    }

    /// Whether a parameter has a place somewhere in its function.
    pub(super) fn is_placed(&self, parameter: DieRef) -> bool {
        let entry = self.entry(parameter);
        entry.is_some_and(|entry| {
            entry.attr_value(DW_AT_location).or_else(|| entry.attr_value(DW_AT_const_value)).is_some()
        })
    }

    fn expression(&self, parameter: DieRef, entry: u64) -> Option<Expression<super::Bytes>> {
        let unit = self.units.get(parameter.unit)?;
        match self.entry(parameter)?.attr_value(DW_AT_location)? {
            AttributeValue::Exprloc(expression) => Some(expression),
            value => {
                let mut list = self.dwarf.attr_locations(unit, value).ok()??;
                let mut soon = None;
                while let Ok(Some(location)) = list.next() {
                    if (location.range.begin..location.range.end).contains(&entry) {
                        return Some(location.data);
                    }
                    let begins_soon = (entry..=entry.saturating_add(SLED)).contains(&location.range.begin);
                    soon = soon.or(begins_soon.then_some(location.data));
                }
                soon
            }
        }
    }
}

fn first(unit: &Unit, expression: Expression<super::Bytes>) -> Option<Location> {
    let mut operations = expression.operations(unit.encoding());
    let mut next = || operations.next().ok().flatten();
    match (next()?, next(), next()) {
        // The parts of a structure follow: the first one is in this register.
        (Operation::Register { register }, ..) => Some(Location::Register(register.0)),
        // The address in the stack pointer would be that of a variable in the frame.
        (Operation::RegisterOffset { register, offset: 0, .. }, None, _)
            if INTEGERS.contains(&register.0) =>
        {
            Some(Location::Address(register.0))
        }
        // With an offset behind it, the variable is a part of a frame elsewhere, as
        // AddressSanitizer's.
        (Operation::FrameOffset { .. }, Some(Operation::Deref { .. }), None) => {
            Some(Location::AddressInFrame)
        }
        _ => None,
    }
}

impl Location {
    /// Whether the parameter's address is passed.
    pub(super) fn is_address(self) -> bool {
        matches!(self, Location::Address(_) | Location::AddressInFrame)
    }

    /// Whether it is an integer register for arguments.
    pub(super) fn is_integer_register(self) -> bool {
        matches!(self, Location::Register(number) if INTEGERS.contains(&number))
    }

    /// Whether a position by the calling convention is another one than this.
    pub(super) fn contradicts(self, passed: Passed) -> bool {
        let integer = |n: u8| INTEGERS.get(usize::from(n)).copied();
        match (self, passed) {
            (Location::Register(register), Passed::Integer(n) | Passed::Pair(n)) => {
                integer(n) != Some(register)
            }
            (Location::Register(register), Passed::Vector(n)) => VECTOR + u16::from(n) != register,
            (Location::Register(_), Passed::Stack(_) | Passed::Address(_) | Passed::AddressOnStack(_)) => {
                true
            }
            (Location::Address(register), Passed::Address(n)) => integer(n) != Some(register),
            (Location::Address(_) | Location::AddressInFrame, Passed::Integer(_) | Passed::Vector(_)) => true,
            _ => false,
        }
    }
}
