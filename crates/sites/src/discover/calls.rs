//! Calls of the profiling functions `mcount` and `__fentry__`: recorded in `__mcount_loc`, or found
//! by decoding.

use std::collections::HashMap;

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use crate::address::Svma;
use crate::binary::ProfilingFunction;
use crate::code::decode::instructions;
use crate::code::nops::{hex, skip_endbr};
use crate::code::prologue::Prologue;
use crate::elf::dynamic::Dynamic;
use crate::elf::image::Image;
use crate::elf::plt;
use crate::elf::symbols::Symbol;
use crate::reason::Reason;
use crate::site::{SiteForm, SiteKind};

/// Bytes of a function that are searched for the call: rustc saves all argument registers before
/// it.
const SEARCHED: u64 = 256;

/// Length of `__fentry__`.
const MAX_NAME_LEN: usize = 10;

/// The ways this binary can reach the profiling functions.
#[derive(Default)]
pub(crate) struct ProfilingFunctions {
    /// Addresses of the profiling functions that the binary defines.
    addresses: HashMap<u64, ProfilingFunction>,
    /// Words of the GOT that the loader fills with their addresses.
    slots: HashMap<u64, ProfilingFunction>,
}

impl ProfilingFunctions {
    /// Looks up the profiling functions among the symbols and the imports.
    pub(crate) fn find(dynamic: &Dynamic<'_>, symbols: &[Symbol<'_>]) -> Self {
        let defined = symbols
            .iter()
            .filter_map(|symbol| Some((symbol.address, ProfilingFunction::named(symbol.name)?)));
        let imported = dynamic
            .imports(MAX_NAME_LEN)
            .filter_map(|(slot, name)| Some((slot, ProfilingFunction::named(name)?)));
        ProfilingFunctions { addresses: defined.collect(), slots: imported.collect() }
    }

    /// Whether no function of this binary can have such a call.
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.slots.is_empty()
    }

    fn through(&self, image: &Image<'_>, dynamic: &Dynamic<'_>, slot: u64) -> Option<ProfilingFunction> {
        let bound = || self.addresses.get(&dynamic.pointer_at(image, slot)?);
        self.slots.get(&slot).or_else(bound).copied()
    }

    fn called(
        &self,
        image: &Image<'_>,
        dynamic: &Dynamic<'_>,
        call: &Instruction,
    ) -> Option<ProfilingFunction> {
        if call.is_call_near_indirect() {
            let relative = call.memory_base() == Register::RIP && call.memory_index() == Register::None;
            return relative.then(|| self.through(image, dynamic, call.ip_rel_memory_address())).flatten();
        }
        let target = call.is_call_near().then(|| call.near_branch_target())?;
        let stub = || self.through(image, dynamic, plt::slot(image, target)?);
        self.addresses.get(&target).copied().or_else(stub)
    }
}

/// Returns the call or NOP at the beginning of `code`, if it is one that profiling compilers and
/// linkers emit.
fn known(code: &[u8]) -> Option<&[u8]> {
    let length = match code {
        [0xe8, ..] | [0x0f, 0x1f, 0x44, 0, 0, ..] => 5,
        [0xff, 0x15, ..] | [0x67, 0xe8, ..] | [0x66, 0x0f, 0x1f, 0x44, 0, 0, ..] => 6,
        _ => return None,
    };
    code.get(..length)
}

/// Returns the address of the call behind the NOP with which a linker (mold) fills up a call that
/// it has made direct; else `at`.
fn behind_nop(image: &Image<'_>, at: u64) -> u64 {
    if image.bytes(at, 2) == Some(&[0x90, 0xe8]) { at + 1 } else { at }
}

fn form(
    image: &Image<'_>,
    at: u64,
    end: u64,
    place: impl FnOnce(Svma, Vec<u8>) -> SiteForm,
) -> Result<SiteForm, Reason> {
    let at = behind_nop(image, at);
    let code = image.tail(at, end.saturating_sub(at).min(6));
    match known(code) {
        Some(old) => Ok(place(Svma(at), old.to_vec())),
        None => Err(Reason::NoCall { at, found: hex(code) }),
    }
}

/// Returns the site of a function with a record in `__mcount_loc`, or why it has none.
pub(crate) fn recorded(image: &Image<'_>, function: u64, end: u64, record: u64) -> Result<SiteForm, Reason> {
    if record == function || record == skip_endbr(image, function) {
        return form(image, record, end, |at, old| SiteForm::Entry { at, old });
    }
    let length = record.saturating_sub(function);
    let mut prologue = Prologue::new();
    if length <= SEARCHED {
        for instruction in decode(image, function, length) {
            prologue.step(&instruction);
        }
    }
    let site = form(image, record, end, |at, old| SiteForm::AfterPrologue { at, old })?;
    if prologue.frame_is_set() { Ok(site) } else { Err(Reason::NoFrame) }
}

/// A function's kind of site, and its site or why it has none.
pub(crate) type Candidate = (SiteKind, Result<SiteForm, Reason>);

/// Returns the site of a function whose first call is one of a profiling function.
pub(crate) fn plain(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    profiling: &ProfilingFunctions,
    function: u64,
    end: u64,
) -> Option<Candidate> {
    let entry = skip_endbr(image, function);
    let mut prologue = Prologue::new();
    for instruction in decode(image, function, end.saturating_sub(function).min(SEARCHED)) {
        if instruction.mnemonic() == Mnemonic::Call {
            let profiling_function = profiling.called(image, dynamic, &instruction)?;
            return Some(site(image, profiling_function, instruction.ip(), entry, end, &prologue));
        }
        let leaves = !matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
        );
        if leaves {
            return None;
        }
        prologue.step(&instruction);
    }
    None
}

fn site(
    image: &Image<'_>,
    profiling_function: ProfilingFunction,
    at: u64,
    entry: u64,
    end: u64,
    prologue: &Prologue,
) -> Candidate {
    match profiling_function {
        ProfilingFunction::Fentry if at == entry || at == behind_nop(image, entry) => {
            (SiteKind::Fentry, form(image, at, end, |at, old| SiteForm::Entry { at, old }))
        }
        ProfilingFunction::Fentry => (SiteKind::Fentry, Err(Reason::FentryElsewhere { entry, at })),
        ProfilingFunction::Mcount if prologue.frame_is_set() => {
            (SiteKind::Mcount, form(image, at, end, |at, old| SiteForm::AfterPrologue { at, old }))
        }
        ProfilingFunction::Mcount => (SiteKind::Mcount, Err(Reason::NoFrame)),
    }
}

/// Decodes `length` bytes from `address`, up to the first invalid instruction.
fn decode<'d>(image: &Image<'d>, address: u64, length: u64) -> impl Iterator<Item = Instruction> + use<'d> {
    instructions(image.tail(address, length), address)
}
