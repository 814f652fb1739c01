//! Follows a prologue: does `8(%rbp)` hold the caller's return address?

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// What the instructions so far did to the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// The stack pointer still points at the return address.
    #[default]
    Untouched,
    /// `push %rbp` was the first to move it.
    Pushed,
    /// `mov %rsp,%rbp` followed.
    Set,
    /// Anything else happened: a realigned stack has only a copy of the return address above the frame.
    Lost,
}

/// Do these bytes begin with `push %rbp; mov %rsp,%rbp`?
pub(crate) fn begins(code: &[u8]) -> bool {
    matches!(code, [0x55, 0x48, 0x89, 0xE5, ..] | [0x55, 0x48, 0x8B, 0xEC, ..])
}

/// Fed with a function's instructions from its first one on.
pub(crate) struct Prologue {
    state: State,
    factory: InstructionInfoFactory,
}

impl Prologue {
    /// Before the first instruction.
    pub fn new() -> Self {
        Prologue { state: State::default(), factory: InstructionInfoFactory::new() }
    }

    /// Takes the next instruction.
    pub fn step(&mut self, instruction: &Instruction) {
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

    /// The frame pointer leads to the return address.
    pub fn frame_is_set(&self) -> bool {
        self.state == State::Set
    }
}

/// Changes one of `registers`, or a part of one.
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
