//! Cases of Rust's enums, and the numbers that distinguish them.

use super::{DieRef, Type, Types};
use gimli::{
    DW_AT_byte_size, DW_AT_data_member_location, DW_AT_discr, DW_AT_discr_value, DW_AT_name, DW_AT_type,
};

/// A number in an enum that identifies one of its cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Offset of the number from the enum's beginning.
    pub offset: u64,
    /// Bytes of the number.
    pub size: u8,
    /// Value that the number is compared with.
    pub value: u64,
    /// Whether the number equals the value in that case; otherwise it differs from it.
    pub equal: bool,
}

impl Types {
    /// Returns the number that distinguishes a case of an enum from all others.
    pub fn case(&self, of: Type, name: &str) -> Option<Case> {
        let place = self.plain(of.about?)?;
        let part = *self.children(place, gimli::DW_TAG_variant_part).first()?;
        let number = self.reference(part.unit, &self.entry(part)?.attr_value(DW_AT_discr)?)?;
        let entry = self.entry(number)?;
        let offset = entry.attr_value(DW_AT_data_member_location)?.udata_value()?;
        let kind = self.plain(self.reference(number.unit, &entry.attr_value(DW_AT_type)?)?)?;
        let size = self.entry(kind)?.attr_value(DW_AT_byte_size)?.udata_value()?;
        let size = u8::try_from(size).ok().filter(|size| [1, 2, 4, 8].contains(size))?;
        let cases = self.children(part, gimli::DW_TAG_variant);
        let (wanted, others): (Vec<DieRef>, Vec<DieRef>) =
            cases.into_iter().partition(|case| self.is_case(*case, name));
        let value = |case: &DieRef| {
            let value = self.entry(*case)?.attr_value(DW_AT_discr_value)?;
            let value = value.udata_value().or_else(|| value.sdata_value().map(|value| value as u64))?;
            Some(value & u64::MAX >> (64 - 8 * u32::from(size)))
        };
        let [wanted] = wanted[..] else { return None };
        // A case without a number of its own has any number that no other case has.
        match (value(&wanted), &others[..]) {
            (Some(value), _) => Some(Case { offset, size, value, equal: true }),
            (None, [other]) => Some(Case { offset, size, value: value(other)?, equal: false }),
            _ => None,
        }
    }

    fn is_case(&self, case: DieRef, name: &str) -> bool {
        let named = |member: DieRef| {
            let found = self.entry(member)?.attr_value(DW_AT_name)?;
            Some(self.text(member.unit, found)? == name)
        };
        self.children(case, gimli::DW_TAG_member).into_iter().any(|member| named(member) == Some(true))
    }
}
