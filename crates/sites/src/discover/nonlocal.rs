//! Functions through which a thread leaves calls that will not return: longjmp, and the unwinder's
//! `_Unwind_SetIP`, which personality routines call for the frame where a landing pad begins.
//!
//! Their first argument points to an object with the stack pointer of the frame in which the thread
//! will continue. Its place in the object is read from the code that uses it: that of `__longjmp`,
//! which the C library's longjmp calls, and that of `_Unwind_GetCFA`. A C library or an unwinder
//! whose code has another form is left alone.
//!
//! The GNU C library has further functions like `__longjmp`, mostly without symbols: one ends the
//! unwinding of a thread that is cancelled or exits, one belongs to `__longjmp_chk`. All are found
//! by their code among the functions of the file that defines longjmp, and count beside longjmp
//! itself, as some of them may be functions that cannot be traced.

use crate::address::Svma;
use crate::code::decode::decoder;
use crate::elf::image::Image;
use crate::elf::symbols::Symbol;
use crate::function::Function;
use crate::watch::{KeptPointer, NONLOCAL_EXITS, SET_IP, Watch, Watched};
use calltap_abi::nonlocal::{KEY_AT, ROTATED};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Function of the unwinder that returns the stack pointer of a frame, from the same object.
const GET_CFA: &[u8] = b"_Unwind_GetCFA";
/// Maximum number of bytes that are decoded of a function.
const MAX_DECODED: u64 = 512;

/// Finds the functions among a file's symbols and functions, in address order.
pub(crate) fn find(image: &Image<'_>, symbols: &[Symbol<'_>], functions: &[Function]) -> Vec<Watched> {
    let mut found = BTreeMap::new();
    let is_jump = |symbol: &Symbol<'_>| {
        NONLOCAL_EXITS.iter().any(|name| *name != SET_IP && name.as_bytes() == symbol.name)
    };
    let jumps = if symbols.iter().any(is_jump) { restoring(image, functions) } else { Vec::new() };
    for symbol in symbols {
        let Some(name) = NONLOCAL_EXITS.iter().find(|name| name.as_bytes() == symbol.name) else { continue };
        let watch = || match *name {
            SET_IP => {
                let getter = symbols.iter().find(|symbol| symbol.name == GET_CFA)?;
                returned_word(image, getter.address).map(Watch::Unwinding)
            }
            _ => restored_stack_pointer(image, symbol.address).map(Watch::NonlocalExit),
        };
        if let Entry::Vacant(place) = found.entry(symbol.address)
            && let Some(watch) = watch()
        {
            place.insert(Watched { address: Svma(symbol.address), watch });
        }
    }
    found.extend(jumps.into_iter().map(|exit| (exit.address.0, exit)));
    found.into_values().collect()
}

/// Returns the functions that begin to read an object at once and restore the stack pointer from
/// it, unmangled.
fn restoring(image: &Image<'_>, functions: &[Function]) -> Vec<Watched> {
    let exit = |function: &Function| {
        let address = function.address;
        let is_own = |code: &Instruction| function.size == 0 || code.ip() - address.0 < function.size;
        let code = || {
            let own = decode(image, address.0).take_while(is_own);
            own.filter(|code| code.mnemonic() != Mnemonic::Endbr64)
        };
        loaded(&code().next()?)?;
        let stack_pointer = restores_stack_pointer(code()).filter(|kept| kept.is_mangled)?;
        Some(Watched { address, watch: Watch::NonlocalExit(stack_pointer) })
    };
    functions.iter().filter_map(exit).collect()
}

/// Decodes a function's instructions up to the first one after which the next never executes.
fn decode(image: &Image<'_>, at: u64) -> impl Iterator<Item = Instruction> {
    let mut ended = false;
    let decoder = decoder(image.tail(at, MAX_DECODED), at);
    decoder.into_iter().take_while(move |instruction| {
        let flow = instruction.flow_control();
        let ends =
            matches!(flow, FlowControl::Return | FlowControl::IndirectBranch) || instruction.is_invalid();
        !std::mem::replace(&mut ended, ends)
    })
}

/// Returns the register that an instruction loads from the object in `rdi`, and the offset there.
fn loaded(instruction: &Instruction) -> Option<(Register, u16)> {
    let is_load = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_gpr64()
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RDI
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    let offset = u16::try_from(instruction.memory_displacement64()).ok()?;
    is_load.then_some((instruction.op0_register(), offset))
}

/// Returns the word of an object that a function returns, if it does nothing else.
fn returned_word(image: &Image<'_>, function: u64) -> Option<KeptPointer> {
    let mut code = decode(image, function).filter(|instruction| instruction.mnemonic() != Mnemonic::Endbr64);
    let (register, offset) = loaded(&code.next()?)?;
    let returns = code.next()?.mnemonic() == Mnemonic::Ret;
    (returns && register == Register::RAX).then_some(KeptPointer { offset, is_mangled: false })
}

/// Returns the place from which longjmp, or a function that it calls, restores the stack pointer.
fn restored_stack_pointer(image: &Image<'_>, function: u64) -> Option<KeptPointer> {
    let is_branch = |instruction: &Instruction| {
        matches!(instruction.flow_control(), FlowControl::Call | FlowControl::UnconditionalBranch)
            && instruction.op0_kind() == OpKind::NearBranch64
    };
    let called = || decode(image, function).filter(is_branch).map(|branch| branch.near_branch_target());
    let restores = |at: u64| restores_stack_pointer(decode(image, at));
    restores(function).or_else(|| called().filter(|at| image.is_code(*at)).find_map(restores))
}

/// Returns the place from which code restores the stack pointer: it moves there a word of the
/// object, as it is or unmangled.
fn restores_stack_pointer(code: impl Iterator<Item = Instruction>) -> Option<KeptPointer> {
    /// A word of the object in a register, and how much of its mangling is undone.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Undone {
        Nothing,
        Rotation,
        All,
    }
    let mut words: BTreeMap<Register, (u16, Undone)> = BTreeMap::new();
    for instruction in code {
        let register = instruction.op0_register();
        if let Some((register, offset)) = loaded(&instruction) {
            if register == Register::RSP {
                return Some(KeptPointer { offset, is_mangled: false });
            }
            words.insert(register, (offset, Undone::Nothing));
        } else if instruction.mnemonic() == Mnemonic::Mov && register == Register::RSP {
            let (offset, undone) = *words.get(&instruction.op1_register())?;
            let is_mangled = undone == Undone::All;
            return (undone != Undone::Rotation).then_some(KeptPointer { offset, is_mangled });
        } else if let Some((_, undone)) = words.get_mut(&register) {
            let is_key = instruction.segment_prefix() == Register::FS
                && instruction.memory_base() == Register::None
                && instruction.memory_displacement64() == KEY_AT;
            *undone = match (instruction.mnemonic(), *undone) {
                (Mnemonic::Ror, Undone::Nothing) if u32::from(instruction.immediate8()) == ROTATED => {
                    Undone::Rotation
                }
                (Mnemonic::Xor, Undone::Rotation) if is_key => Undone::All,
                (Mnemonic::Cmp | Mnemonic::Test, undone) => undone,
                _ => {
                    words.remove(&register);
                    continue;
                }
            };
        }
    }
    None
}
