//! XRay sleds: NOPs that clang and rustc leave at a function's entry and exits, and the map that
//! lists them.

use std::collections::HashMap;

use crate::address::Svma;
use crate::code::nops::{self, hex, skip_endbr};
use crate::elf::image::Image;
use crate::function::{Exit, Function, Returns};
use crate::reason::Reason;
use crate::site::SiteForm;

/// Name of the map's section.
const MAP: &[u8] = b"xray_instr_map";
/// Bytes of a record, and the offsets of its fields.
const RECORD: usize = 32;
const FUNCTION_AT: usize = 8;
const KIND_AT: usize = 16;
const VERSION_AT: usize = 18;
/// In this version, addresses are distances from their own position; older compilers (LLVM 10)
/// wrote absolute addresses.
const VERSION: u8 = 2;
/// Bytes of a sled.
const SLED: u64 = 11;
/// Short jump over the rest of a sled.
const JUMP: [u8; 2] = [0xEB, 9];
const RET: u8 = 0xC3;
const NOP: u8 = 0x90;

/// Addresses of a function's sleds.
#[derive(Default)]
pub(crate) struct Sleds {
    entry: Option<u64>,
    /// Sleds in front of returns and of tail calls, in the order of the map.
    exits: Vec<u64>,
}

/// Reads the sleds of all functions, by their addresses.
pub(crate) fn read(
    image: &Image<'_>,
    functions: &[Function],
    complaints: &mut Vec<String>,
) -> HashMap<u64, Sleds> {
    let mut all: HashMap<u64, Sleds> = HashMap::new();
    let (mut others, mut strays) = (0, Vec::new());
    for section in image.sections.iter().filter(|section| section.name == MAP) {
        let records = image.section_data(section).unwrap_or_default().as_chunks::<RECORD>().0;
        for (n, record) in records.iter().enumerate() {
            if record[VERSION_AT] != VERSION {
                others += 1;
                continue;
            }
            let at = section.address.wrapping_add((n * RECORD) as u64);
            let address = |field: usize| {
                let distance = record[field..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                at.wrapping_add(field as u64).wrapping_add(distance)
            };
            let (sled, function) = (address(0), address(FUNCTION_AT));
            if functions.binary_search_by_key(&Svma(function), |function| function.address).is_err() {
                strays.push(function);
                continue;
            }
            let sleds = all.entry(function).or_default();
            match record[KIND_AT] {
                // Kind 3: an entry whose arguments are logged, too.
                0 | 3 => sleds.entry = Some(sled),
                1 | 2 => sleds.exits.push(sled),
                // The program's own events.
                _ => {}
            }
        }
    }
    if others > 0 {
        complaints.push(format!("records of xray_instr_map in another version than {VERSION}: {others}"));
    }
    if let [first, ..] = strays[..] {
        complaints.push(format!(
            "records of xray_instr_map for no known function: {}, first {first:#x}",
            strays.len()
        ));
    }
    all
}

/// Returns the site at the entry of a function, or why it has none.
pub(crate) fn entry(image: &Image<'_>, function: u64, sleds: &Sleds) -> Result<SiteForm, Reason> {
    let at = sleds.entry.ok_or(Reason::NoSled)?;
    let first = skip_endbr(image, function);
    // LLVM gives sleds even addresses; functions may have odd ones (-Os).
    let is_aligned = at == first.wrapping_add(1) && image.bytes(first, 1) == Some(&[NOP]);
    if at != function && at != first && !is_aligned {
        return Err(Reason::SledElsewhere { at });
    }
    Ok(SiteForm::Entry { at: Svma(at), old: jump(image, at)?.to_vec() })
}

/// Returns how a function's returns are seen.
pub(crate) fn returns(image: &Image<'_>, sleds: &Sleds) -> Returns {
    let exits: Result<_, Reason> = sleds.exits.iter().map(|at| exit(image, *at)).collect();
    match exits {
        Ok(elsewhere) => Returns::Exits { at_entry: Vec::new(), elsewhere, unrecorded_end: None },
        Err(reason) => Returns::Stub(Some(reason)),
    }
}

fn exit(image: &Image<'_>, at: u64) -> Result<Exit, Reason> {
    let bytes = image.bytes(at, SLED).ok_or(Reason::NoCode { at })?;
    if bytes[0] != RET {
        jump(image, at)?;
        return Err(Reason::SledTailCall { at });
    }
    if !nops::all(&bytes[1..]) {
        return Err(Reason::BrokenExitSled { at, found: hex(bytes) });
    }
    Ok(Exit { at: Svma(at), old: bytes.to_vec(), leaves: vec![0], is_sled: true, keeps_pop: false })
}

/// Returns the bytes of a sled that jumps over itself.
fn jump<'d>(image: &Image<'d>, at: u64) -> Result<&'d [u8], Reason> {
    let bytes = image.bytes(at, SLED).unwrap_or_default();
    let is_sled =
        bytes.split_at_checked(JUMP.len()).is_some_and(|(jump, rest)| jump == JUMP && nops::all(rest));
    if is_sled { Ok(bytes) } else { Err(Reason::BrokenSled { at, found: hex(bytes) }) }
}
