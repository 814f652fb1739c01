//! Runs of NOPs that compilers leave for tracers, and the sites that they permit.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use crate::address::Svma;
use crate::elf::image::Image;
use crate::elf::plt::ENDBR64;
use crate::reason::Reason;
use crate::site::{JUMP, SiteForm};

/// The one-byte NOP.
const NOP: u8 = 0x90;

/// Returns the address behind an `endbr64` at `address`, or `address` where there is none.
pub(crate) fn skip_endbr(image: &Image<'_>, address: u64) -> u64 {
    match image.bytes(address, 4) {
        Some(bytes) if bytes == ENDBR64 => address.wrapping_add(4),
        _ => address,
    }
}

/// Lengths of the NOP instructions at the beginning of `code`.
fn lengths(mut code: &[u8]) -> impl Iterator<Item = usize> + '_ {
    std::iter::from_fn(move || {
        let length = match code.first()? {
            // gcc leaves five of these in every function; they need no decoder.
            &NOP => 1,
            _ => {
                let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
                (instruction.mnemonic() == Mnemonic::Nop).then(|| instruction.len())?
            }
        };
        code = code.get(length..)?;
        Some(length)
    })
}

/// Whether `code` consists of whole NOP instructions.
pub(crate) fn all(code: &[u8]) -> bool {
    run(code) == code.len()
}

/// Number of bytes of `code`, a run of NOPs, behind its last NOP with an arbitrary five-byte
/// operand: `nopw 0x0(%rax,%rax,1)`, with or without prefixes.
pub(crate) fn behind_operand(code: &[u8]) -> Option<usize> {
    const OPERAND: usize = 5;
    let (mut at, mut found) = (0, None);
    for length in lengths(code) {
        let nop = code.get(at..at + length)?;
        at += length;
        if nop.iter().copied().rev().skip(OPERAND).take(3).eq([0x84, 0x1F, 0x0F]) {
            found = Some(code.len() - at);
        }
    }
    found.filter(|_| at == code.len())
}

/// Number of bytes of NOPs at the beginning of `code`.
pub(crate) fn run(code: &[u8]) -> usize {
    lengths(code).sum()
}

/// Formats bytes as a disassembler prints them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Returns the site of a function that has a record (address `record`) in
/// `__patchable_function_entries`, or why it has none.
///
/// `end` bounds the function's code.
pub(crate) fn patchable(image: &Image<'_>, function: u64, end: u64, record: u64) -> Result<SiteForm, Reason> {
    let at = skip_endbr(image, function);
    let code = image.tail(at, end.saturating_sub(at).min(JUMP + 15));
    // gcc leaves these in every function.
    if code.starts_with(&[NOP; JUMP as usize]) {
        return Ok(SiteForm::Entry { at: Svma(at), old: vec![NOP; JUMP as usize] });
    }
    // The NOPs must have room for a jump, and the body resumes on the instruction boundary behind
    // them.
    let (mut total, mut short_jump_fits) = (0, false);
    for length in lengths(code).take(JUMP as usize) {
        total += length;
        short_jump_fits |= total == 2;
        if total as u64 >= JUMP {
            let old = code.get(..total).unwrap_or(code).to_vec();
            return Ok(SiteForm::Entry { at: Svma(at), old });
        }
    }
    // The caller has checked that `record` lies at the function's entry, or in front of it with
    // only NOPs between.
    let room = function.saturating_sub(record);
    let prefix = function.checked_sub(JUMP).filter(|_| room >= JUMP);
    let found = prefix.and_then(|prefix| Some((prefix, image.bytes(prefix, JUMP)?)));
    match (found, code.get(..2)) {
        (Some((prefix, old)), Some(entry)) if short_jump_fits => Ok(SiteForm::Prefix {
            prefix: Svma(prefix),
            prefix_old: old.to_vec(),
            entry: Svma(at),
            entry_old: entry.to_vec(),
        }),
        _ if total == 0 && room > 0 => Err(Reason::NopsInFront { room }),
        _ if total == 0 => {
            let found = hex(code.get(..code.len().min(5)).unwrap_or(code));
            Err(Reason::NoNops { at, found })
        }
        (Some(_), _) => Err(Reason::NopsMisplaced { total }),
        _ if room > 0 => Err(Reason::FewNopsInFront { room, total }),
        _ => Err(Reason::FewNops { total }),
    }
}
