//! Profiling functions that a file defines, and the beginnings of functions that call one.

use iced_x86::FlowControl;

use crate::address::Svma;
use crate::binary::{Profiler, ProfilingFunction};
use crate::code::decode::instructions;
use crate::code::nops::skip_endbr;
use crate::code::prologue;
use crate::code::prologue::Prologue;
use crate::elf::image::Image;
use crate::elf::plt;
use crate::elf::symbols::Symbol;
use crate::reason::NoJump;
use crate::site::JUMP;

/// Maximum number of bytes of a profiling function that are decoded.
const MAX_DECODED: u64 = 4096;

/// Returns the profiling functions among the symbols, one per address.
pub(crate) fn defined(image: &Image<'_>, symbols: &[Symbol<'_>]) -> Vec<Profiler> {
    let mut found: Vec<Profiler> = Vec::new();
    for (n, symbol) in symbols.iter().enumerate() {
        let Some(function) = ProfilingFunction::named(symbol.name) else { continue };
        if found.iter().any(|known| known.address.0 == symbol.address) {
            continue;
        }
        let next = symbols[n..].iter().map(|other| other.address).find(|address| *address > symbol.address);
        let next = next.unwrap_or(u64::MAX);
        let name = calltap_names::printable_bytes(symbol.name);
        let place = place(image, symbol, next);
        found.push(Profiler { function, name, address: Svma(symbol.address), place });
    }
    found
}

fn place(image: &Image<'_>, symbol: &Symbol<'_>, next: u64) -> Result<(Svma, [u8; JUMP as usize]), NoJump> {
    let at = skip_endbr(image, symbol.address);
    let bytes = image.bytes(at, JUMP).and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.filter(|_| next.checked_sub(at).is_some_and(|room| room >= JUMP));
    let Some(bytes) = bytes else { return Err(NoJump::NoRoom { at }) };
    // A thread further on in the function must not return into the bytes of the jump.
    let end = if symbol.size == 0 { next } else { symbol.address.saturating_add(symbol.size) };
    let code = image.tail(at, end.saturating_sub(at).min(MAX_DECODED));
    let comes_back = instructions(code, at).any(|instruction| {
        let branches = !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Return);
        branches && (at + 1..at + JUMP).contains(&instruction.near_branch_target())
    });
    if comes_back { Err(NoJump::BranchesInto { at }) } else { Ok((Svma(at), bytes)) }
}

/// Finds the beginning of a function without a symbol from the bytes in front of its call, which is
/// at `at`.
pub fn beginning(before: &[u8], at: Svma, profiling_function: ProfilingFunction) -> Option<Svma> {
    let address = |rest: &[u8]| Svma(at.0 - (before.len() - rest.len()) as u64);
    let behind_endbr = |start: usize| match before.get(..start)?.strip_suffix(&plt::ENDBR64) {
        Some(rest) => Some(address(rest)),
        None => Some(address(&before[..start])),
    };
    match profiling_function {
        ProfilingFunction::Fentry => behind_endbr(before.len()),
        ProfilingFunction::Mcount => {
            let starts = (0..before.len()).rev().filter(|start| prologue::begins(&before[*start..]));
            let mut leads = starts.filter(|start| {
                let mut prologue = Prologue::new();
                let code = &before[*start..];
                let mut end = 0;
                for instruction in instructions(code, 0) {
                    prologue.step(&instruction);
                    end = instruction.next_ip();
                }
                end == code.len() as u64 && prologue.frame_is_set()
            });
            behind_endbr(leads.next()?)
        }
    }
}
