//! Follows a prologue to decide whether `8(%rbp)` holds the caller's return address.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// Effect of the instructions so far on the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// The stack pointer still points at the return address.
    #[default]
    Untouched,
    /// `push %rbp` was the first to move it.
    Pushed,
    /// `mov %rsp,%rbp` followed that push.
    Set,
    /// Another instruction changed rsp or rbp: behind a realigned stack, only a copy of the return
    /// address is above the frame.
    Lost,
}

/// Whether these bytes begin with `push %rbp; mov %rsp,%rbp`.
pub(crate) fn begins(code: &[u8]) -> bool {
    matches!(code, [0x55, 0x48, 0x89, 0xE5, ..] | [0x55, 0x48, 0x8B, 0xEC, ..])
}

/// State of a prologue, fed with a function's instructions from the first one on.
pub(crate) struct Prologue {
    state: State,
    factory: InstructionInfoFactory,
}

impl Prologue {
    /// Creates the state before the first instruction.
    pub(crate) fn new() -> Self {
        Prologue { state: State::default(), factory: InstructionInfoFactory::new() }
    }

    /// Follows the next instruction.
    pub(crate) fn step(&mut self, instruction: &Instruction) {
        let registers = (instruction.op0_register(), instruction.op1_register());
        let is = |mnemonic, operands| instruction.mnemonic() == mnemonic && registers == operands;
        let factory = &mut self.factory;
        self.state = match self.state {
            State::Lost => State::Lost,
            State::Untouched if is(Mnemonic::Push, (Register::RBP, Register::None)) => State::Pushed,
            State::Pushed if is(Mnemonic::Mov, (Register::RBP, Register::RSP)) => State::Set,
            State::Untouched | State::Pushed
                if writes(factory, instruction, &[Register::RSP, Register::RBP]) =>
            {
                State::Lost
            }
            State::Set if writes(factory, instruction, &[Register::RBP]) => State::Lost,
            state => state,
        };
    }

    /// Whether the frame pointer leads to the return address.
    pub(crate) fn frame_is_set(&self) -> bool {
        self.state == State::Set
    }
}

/// Whether an instruction writes one of `registers`, or a part of one.
fn writes(factory: &mut InstructionInfoFactory, instruction: &Instruction, registers: &[Register]) -> bool {
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| registers.contains(&used.register().full_register()) && writes(used.access()))
}
