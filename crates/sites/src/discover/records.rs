//! The compilers' own lists of trace sites, and which function each record means.

use super::dynamic::Dynamic;
use super::functions::is_whole;
use super::image::Image;
use super::nops;
use crate::Function;

/// How far in front of a function its record may point.
const LONGEST_PREFIX: u64 = 255;

/// What the lists say about one function.
#[derive(Clone, Default)]
pub(super) struct Records {
    /// From `__patchable_function_entries`: its first NOP, which may lie in front of the function.
    pub patchable: Option<u64>,
    /// From `__mcount_loc`: the call or NOP.
    pub mcount: Option<u64>,
}

/// The records of each function of `functions`, by its index there.
pub(super) fn read(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    functions: &[Function],
    complaints: &mut Vec<String>,
) -> Vec<Records> {
    let mut records = vec![Records::default(); functions.len()];
    let mut lost = |name: &str, addresses: &[u64]| {
        if let [first, ..] = addresses {
            let count = addresses.len();
            complaints.push(format!("records of {name} for no known function: {count}, first {first:#x}"));
        }
    };
    let (name, mut strays) = ("__patchable_function_entries", Vec::new());
    for address in addresses(image, dynamic, name.as_bytes()) {
        match patchable_owner(image, functions, address).and_then(|index| records.get_mut(index)) {
            Some(records) => records.patchable = records.patchable.or(Some(address)),
            None => strays.push(address),
        }
    }
    lost(name, &strays);
    let (name, mut strays) = ("__mcount_loc", Vec::new());
    for address in addresses(image, dynamic, name.as_bytes()) {
        match mcount_owner(functions, address).and_then(|index| records.get_mut(index)) {
            Some(records) => records.mcount = records.mcount.or(Some(address)),
            None => strays.push(address),
        }
    }
    lost(name, &strays);
    records
}

/// The addresses in all sections of that name, sorted; zeros are functions the linker threw away.
fn addresses(image: &Image<'_>, dynamic: &Dynamic<'_>, name: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    // Honest sections do not overlap, so all of them together fit the file.
    let mut budget = image.data.len() as u64 / 8;
    for section in image.sections.iter().filter(|section| section.name == name) {
        let count = (section.size / 8).min(budget);
        budget -= count;
        let words = (0..count).map_while(|index| section.address.checked_add(index * 8));
        all.extend(words.filter_map(|at| dynamic.pointer_at(image, at)).filter(|&address| address != 0));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn patchable_owner(image: &Image<'_>, functions: &[Function], record: u64) -> Option<usize> {
    let whole = |index: &usize| functions.get(*index).is_some_and(is_whole);
    let at = |address: u64| functions.binary_search_by_key(&address, |function| function.address.0);
    if let Some(index) = at(record).ok().filter(whole) {
        return Some(index);
    }
    // Behind the endbr64 of -fcf-protection.
    let behind = record.checked_sub(4).filter(|&entry| nops::skip_endbr(image, entry) == record);
    if let Some(index) = behind.and_then(|entry| at(entry).ok()).filter(whole) {
        return Some(index);
    }
    let next = functions.partition_point(|function| function.address.0 <= record);
    let index = (next..functions.len()).take(8).find(whole)?;
    let length = functions.get(index)?.address.0.checked_sub(record)?;
    let prefix = image.bytes(record, length.min(LONGEST_PREFIX + 1))?;
    (length <= LONGEST_PREFIX && nops::all(prefix)).then_some(index)
}

fn mcount_owner(functions: &[Function], record: u64) -> Option<usize> {
    let after = functions.partition_point(|function| function.address.0 <= record);
    let index = after.checked_sub(1)?;
    let function = functions.get(index).filter(|function| is_whole(function))?;
    (function.size == 0 || record - function.address.0 < function.size).then_some(index)
}
