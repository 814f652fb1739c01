//! The compilers' lists of trace sites, and the function of each record.

use std::num::NonZeroU64;

use super::functions::is_whole;
use super::lookup::Lookup;
use crate::code::nops;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::function::Function;

/// Largest distance of a record in front of its function.
const MAX_PREFIX_LEN: u64 = 255;

/// Records of one function.
#[derive(Clone, Default)]
pub(crate) struct Records {
    /// From `__patchable_function_entries`: address of the first NOP, which may lie in front of the
    /// function.
    pub patchable: Option<NonZeroU64>,
    /// From `__mcount_loc`: address of the call or NOP.
    pub mcount: Option<NonZeroU64>,
}

/// Reads the records of each function, by its index in `functions`.
pub(crate) fn read(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    functions: &[Function],
    complaints: &mut Vec<String>,
) -> Vec<Records> {
    let mut records = vec![Records::default(); functions.len()];
    let mut lost = |name: &str, addresses: &[NonZeroU64]| {
        if let [first, ..] = addresses {
            let count = addresses.len();
            complaints.push(format!("records of {name} for no known function: {count}, first {first:#x}"));
        }
    };
    let mut known = Lookup::new(functions);
    let (name, mut strays) = ("__patchable_function_entries", Vec::new());
    for address in addresses(image, dynamic, name.as_bytes()) {
        let owner = patchable_owner(image, functions, &mut known, address.get());
        match owner.and_then(|index| records.get_mut(index)) {
            Some(records) => records.patchable = records.patchable.or(Some(address)),
            None => strays.push(address),
        }
    }
    lost(name, &strays);
    let (name, mut strays) = ("__mcount_loc", Vec::new());
    for address in addresses(image, dynamic, name.as_bytes()) {
        match mcount_owner(&mut known, address.get()).and_then(|index| records.get_mut(index)) {
            Some(records) => records.mcount = records.mcount.or(Some(address)),
            None => strays.push(address),
        }
    }
    lost(name, &strays);
    records
}

/// Returns the addresses in all sections of this name, sorted. Zeros, for functions that the linker
/// discarded, are left out.
fn addresses(image: &Image<'_>, dynamic: &Dynamic<'_>, name: &[u8]) -> Vec<NonZeroU64> {
    let mut all = Vec::new();
    // Sections of an intact file do not overlap, so all of them together fit the file.
    let mut budget = image.data.len() as u64 / 8;
    for section in image.sections.iter().filter(|section| section.name == name) {
        let count = (section.size / 8).min(budget);
        budget -= count;
        let pointers = dynamic.pointers(image, section.address, count);
        all.extend(pointers.flatten().filter_map(NonZeroU64::new));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn patchable_owner(
    image: &Image<'_>,
    functions: &[Function],
    known: &mut Lookup<'_>,
    record: u64,
) -> Option<usize> {
    let mut at = |address| {
        let (index, _) = known.at(address).filter(|(_, function)| is_whole(function))?;
        Some(index)
    };
    // At the function itself, or behind the `endbr64` of -fcf-protection.
    let behind = || record.checked_sub(4).filter(|&entry| nops::skip_endbr(image, entry) == record);
    if let Some(index) = at(record).or_else(|| at(behind()?)) {
        return Some(index);
    }
    let mut following = functions.iter().enumerate().skip(known.after(record)).take(8);
    let (index, function) = following.find(|(_, function)| is_whole(function))?;
    let length = function.address.0.checked_sub(record)?;
    let prefix = image.bytes(record, length.min(MAX_PREFIX_LEN + 1))?;
    (length <= MAX_PREFIX_LEN && nops::all(prefix)).then_some(index)
}

fn mcount_owner(known: &mut Lookup<'_>, record: u64) -> Option<usize> {
    let (index, function) = known.before(record).filter(|(_, function)| is_whole(function))?;
    (function.size == 0 || record - function.address.0 < function.size).then_some(index)
}
