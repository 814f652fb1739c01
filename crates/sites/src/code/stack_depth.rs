//! The return address in functions without unwinding information: hand-written ones, and those of
//! libraries built without it.
//!
//! Every path through the function is followed, with the depth of the stack. A proof that no
//! instruction touches the return address is as good as unwinding information; without one, calltap
//! must not replace the return address. Builtin functions of virtual machines, for example, move
//! theirs to make room for arguments.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Decoder, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::return_address::Slot;
use crate::code::decode::decoder;
use crate::elf::image::Image;
use crate::elf::plt;

/// Maximum number of instructions of one function that are followed.
const MAX_INSTRUCTIONS: usize = 1 << 14;

/// Use of a function's return address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// No instruction of the function touches it.
    Untouched,
    /// No instruction of the function touches it, but these jumps through a pointer pass it on to
    /// the code that they lead to.
    PassedOn(Vec<u64>),
    /// The instruction at this address touches it.
    Touched(u64),
    /// The position of the return address is unknown from the instruction at this address on.
    Lost(u64),
}

/// Follows the code between `start` and `end`. `is_start`: whether a function begins at an address;
/// this function may jump there with its return address on top of the stack.
pub(crate) fn follow(image: &Image<'_>, start: u64, end: u64, is_start: impl Fn(u64) -> bool) -> Finding {
    let code = image.tail(start, end.saturating_sub(start));
    let range = (start, start + code.len() as u64);
    let mut walk = Walk {
        decoder: decoder(code, start),
        factory: InstructionInfoFactory::new(),
        range,
        seen: BTreeMap::new(),
        open: Vec::new(),
        passed_on: BTreeSet::new(),
        lost: None,
    };
    walk.go_on(start, Stack { depth: 0, frame: None });
    for _ in 0..MAX_INSTRUCTIONS {
        let Some(at) = walk.open.pop() else {
            return match walk.lost {
                Some(at) => Finding::Lost(at),
                None if walk.passed_on.is_empty() => Finding::Untouched,
                None => Finding::PassedOn(walk.passed_on.into_iter().collect()),
            };
        };
        match walk.step(image, at, &is_start) {
            Ok(()) => {}
            Err(Trouble::Touched) => return Finding::Touched(at),
            Err(Trouble::Lost) => drop(walk.lost.get_or_insert(at)),
        }
    }
    Finding::Lost(start)
}

/// Distance of the return address above the stack pointer, in bytes, and above the frame pointer if
/// that is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stack {
    depth: i64,
    frame: Option<i64>,
}

enum Trouble {
    Touched,
    Lost,
}

struct Walk<'a> {
    decoder: Decoder<'a>,
    factory: InstructionInfoFactory,
    range: (u64, u64),
    /// State of the stack in front of each instruction.
    seen: BTreeMap<u64, Stack>,
    /// Instructions still to be followed.
    open: Vec<u64>,
    /// Jumps through pointers at which the stack is as at the entry.
    passed_on: BTreeSet<u64>,
    /// First instruction at which a path was lost. The other paths are still followed, as one of
    /// them may touch the return address.
    lost: Option<u64>,
}

impl Walk<'_> {
    /// Joins the state of a path with the known state in front of an instruction.
    fn go_on(&mut self, at: u64, stack: Stack) {
        let known = self.seen.get(&at).copied();
        let both = match known {
            None => stack,
            Some(known) if known.depth != stack.depth => {
                self.lost.get_or_insert(at);
                return;
            }
            Some(known) => Stack { frame: known.frame.filter(|_| known.frame == stack.frame), ..known },
        };
        if known != Some(both) {
            self.seen.insert(at, both);
            self.open.push(at);
        }
    }

    fn step(&mut self, image: &Image<'_>, at: u64, is_start: &impl Fn(u64) -> bool) -> Result<(), Trouble> {
        let stack = *self.seen.get(&at).ok_or(Trouble::Lost)?;
        self.decoder.set_position((at - self.range.0) as usize).map_err(|_| Trouble::Lost)?;
        self.decoder.set_ip(at);
        if !self.decoder.can_decode() {
            return Err(Trouble::Lost);
        }
        let instruction = self.decoder.decode();
        let after = self.after(&instruction, stack)?;
        let depth = after.depth;
        let next = instruction.next_ip();
        let (start, end) = self.range;
        let target = match instruction.op0_kind() {
            OpKind::NearBranch64 => Some(instruction.near_branch_target()),
            _ => None,
        };
        let leaves = |target: u64| match depth == 0 && (is_start(target) || plt::is_stub(image, target)) {
            true => Ok(()),
            false => Err(Trouble::Lost),
        };
        match (instruction.flow_control(), target) {
            // User code cannot continue behind a `hlt`.
            _ if instruction.mnemonic() == Mnemonic::Hlt => {}
            (FlowControl::Next | FlowControl::Interrupt, _) => self.go_on(next, after),
            (FlowControl::Call, Some(target)) if target != start && (start..end).contains(&target) => {
                return Err(Trouble::Lost);
            }
            // A call at the end of a function does not return.
            (FlowControl::Call | FlowControl::IndirectCall, _) if next == end => {}
            (FlowControl::Call | FlowControl::IndirectCall, _) => self.go_on(next, after),
            (FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch, Some(target)) => {
                if instruction.flow_control() == FlowControl::ConditionalBranch {
                    self.go_on(next, after);
                }
                match (start..end).contains(&target) {
                    true => self.go_on(target, after),
                    false => leaves(target)?,
                }
            }
            (FlowControl::IndirectBranch, _) if depth == 0 => {
                if !instruction.is_ip_rel_memory_operand() {
                    self.passed_on.insert(at);
                }
            }
            (FlowControl::Return, _) if depth == 0 => {}
            (FlowControl::Exception, _) => {}
            _ => return Err(Trouble::Lost),
        }
        Ok(())
    }

    /// Returns the state of the stack behind an instruction.
    fn after(&mut self, instruction: &Instruction, stack: Stack) -> Result<Stack, Trouble> {
        let Stack { depth, frame } = stack;
        let slots = [(Register::RSP, Some(depth)), (Register::RBP, frame)];
        for (register, offset) in slots {
            let Some(slot) = offset.map(|offset| Slot { register, offset }) else { continue };
            if slot.is_used(instruction) {
                return Err(Trouble::Touched);
            }
            // This may also be the address behind a variable.
            if slot.is_taken(instruction) {
                return Err(Trouble::Lost);
            }
        }
        let operands = (instruction.op0_register(), instruction.op1_register());
        let immediate = || instruction.try_immediate(1).map(|value| value as i64).map_err(|_| Trouble::Lost);
        // Height of the return address above the base of the memory operand.
        let base = || match (instruction.memory_base(), instruction.memory_index()) {
            (Register::RSP, Register::None) => Some(depth),
            (Register::RBP, Register::None) => frame,
            _ => None,
        };
        let address = || Some(base()?.wrapping_sub(instruction.memory_displacement64() as i64));
        let after = match (instruction.mnemonic(), operands) {
            (Mnemonic::Leave, _) => Stack { depth: frame.ok_or(Trouble::Lost)?.wrapping_sub(8), frame: None },
            (Mnemonic::Mov, (Register::RSP, Register::RBP)) => {
                Stack { depth: frame.ok_or(Trouble::Lost)?, frame }
            }
            (Mnemonic::Mov, (Register::RBP, Register::RSP)) => Stack { depth, frame: Some(depth) },
            // The address of the return address escapes.
            (Mnemonic::Mov, (_, Register::RSP)) | (Mnemonic::Push, (Register::RSP, _)) if depth == 0 => {
                return Err(Trouble::Lost);
            }
            (Mnemonic::Lea, (Register::RSP, _)) => Stack { depth: address().ok_or(Trouble::Lost)?, frame },
            (Mnemonic::Lea, (Register::RBP, _)) => Stack { depth, frame: address() },
            (Mnemonic::Sub, (Register::RSP, _)) => Stack { depth: depth.wrapping_add(immediate()?), frame },
            (Mnemonic::Add, (Register::RSP, _)) => Stack { depth: depth.wrapping_sub(immediate()?), frame },
            _ => {
                let flow = instruction.flow_control();
                let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
                // A call leaves the stack as it was, and the state behind a return is not used.
                let stays = is_call || flow == FlowControl::Return;
                let moved = if stays { 0 } else { i64::from(instruction.stack_pointer_increment()) };
                let is_pushed =
                    instruction.is_stack_instruction() && instruction.mnemonic() != Mnemonic::Enter;
                if self.writes(instruction, Register::RSP) && !(is_pushed || is_call)
                    || instruction.mnemonic() == Mnemonic::Pop && operands.0 == Register::RSP
                {
                    return Err(Trouble::Lost);
                }
                let is_kept = is_call || !self.writes(instruction, Register::RBP);
                Stack { depth: depth.wrapping_sub(moved), frame: frame.filter(|_| is_kept) }
            }
        };
        if after.depth < 0 { Err(Trouble::Lost) } else { Ok(after) }
    }

    fn writes(&mut self, instruction: &Instruction, register: Register) -> bool {
        let info = self.factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead)
        })
    }
}
