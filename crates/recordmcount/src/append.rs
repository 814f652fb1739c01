//! Builds the new file: the old one, and behind it the lists and the changed sections.
//!
//! The compiler's own list is one section for the whole object. With functions of COMDAT groups
//! (templates, inline functions) such objects do not link as soon as two of them have the same
//! group: the list of the object whose group the linker discards refers to a missing section. Here
//! each group has its own list, which is discarded with it.
//!
//! The list is writable, unlike the compiler's: in position-independent programs the dynamic linker
//! writes the addresses, and a read-only list would cost relocations in the text segment, which
//! some linkers and systems refuse.

use std::collections::BTreeMap;

use crate::calls::Call;
use crate::edited::Edited;
use crate::error::Error;
use crate::format::u32s;
use crate::object_file::Object;
use crate::symbols;
use object::elf;

/// Returns the object with lists of these calls: one for each group, and one for all calls outside
/// of groups.
pub(crate) fn lists(object: &Object<'_>, calls: &[Call]) -> Result<Vec<u8>, Error> {
    let groups = groups(object);
    let mut lists: BTreeMap<Option<usize>, Vec<Call>> = BTreeMap::new();
    for call in calls {
        lists.entry(groups.get(&call.section).copied()).or_default().push(*call);
    }
    let mut edited = Edited::new(object);
    let symbols = symbols::of_sections(&mut edited, calls.iter().map(|call| call.section))?;
    let name = edited.add_name();
    for (group, calls) in lists {
        edited.add_list(name, group, &calls, &symbols)?;
    }
    edited.finish()
}

/// Returns the group of each section, both as section numbers.
fn groups(object: &Object<'_>) -> BTreeMap<usize, usize> {
    let members = |data| u32s(data).skip(1).map(|member| member as usize);
    let groups = object.of_type(elf::SHT_GROUP);
    groups.flat_map(|(group, section)| members(section.data).map(move |member| (member, group))).collect()
}
