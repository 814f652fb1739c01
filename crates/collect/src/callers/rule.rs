//! The rule by which a frame is undone: a row of unwinding information, in a form that is applied
//! to thousands of stacks.

use calltap_process::unwind::{Bytes, Description};
use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian,
    Location, Register, RegisterRule, UnwindExpression, UnwindTableRow, Value, X86_64,
};

/// Steps after which the evaluation of an expression fails, as it may loop.
const STEPS: u32 = 1000;

/// The registers by which frames are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Registers {
    /// The instruction pointer.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer, where it is known.
    pub rbp: Option<u64>,
}

impl Registers {
    fn get(&self, register: Register) -> Option<u64> {
        match register {
            X86_64::RSP => Some(self.rsp),
            X86_64::RBP => self.rbp,
            X86_64::RA => Some(self.rip),
            _ => None,
        }
    }
}

/// The rule by which the frame of an address is undone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// The frame has no caller.
    Outermost,
    /// There is no information about the frame.
    Unknown,
    /// The caller's registers are computed or were saved.
    Saved {
        /// The frame's address.
        cfa: Cfa,
        /// The return address.
        rip: RegisterLocation,
        /// The caller's frame pointer.
        rbp: RegisterLocation,
        /// Whether the kernel has built the frame, so that the caller was interrupted.
        signal: bool,
    },
}

/// The address of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cfa {
    /// The stack pointer plus this offset.
    Rsp(i64),
    /// The frame pointer plus this offset.
    Rbp(i64),
    /// The value of an expression.
    Expression(Code),
}

/// The location of a register of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegisterLocation {
    /// The register is unchanged.
    Same,
    /// The register is lost.
    Lost,
    /// The register is saved this far from the frame's address.
    At(i64),
    /// The register is the frame's address plus this.
    Is(i64),
    /// The register is saved at the address that an expression gives.
    AtExpression(Code),
    /// The register is the value of an expression.
    IsExpression(Code),
}

/// A DWARF expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Code {
    bytes: Box<[u8]>,
    encoding: Encoding,
}

/// The outcome of undoing a frame.
pub(super) enum Undone {
    /// The registers in the caller; true: it was interrupted there, and has called nothing.
    Caller(Registers, bool),
    /// The frame has no caller.
    Outermost,
    /// The caller is not known.
    Unknown,
}

impl Rule {
    /// The rule of a function that has set up its frame pointer.
    pub(super) const FRAME_POINTER: Rule = Rule::Saved {
        cfa: Cfa::Rbp(16),
        rip: RegisterLocation::At(-8),
        rbp: RegisterLocation::At(-16),
        signal: false,
    };

    /// Converts a row of unwinding information.
    pub(super) fn of(
        frames: &EhFrame<Bytes<'_>>,
        found: &Description<'_>,
        row: &UnwindTableRow<usize>,
    ) -> Rule {
        let code = |expression: &UnwindExpression<usize>| {
            let bytes = expression.get(frames).ok()?.0.slice().into();
            Some(Code { bytes, encoding: found.cie().encoding() })
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Some(Cfa::Rsp(*offset)),
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Some(Cfa::Rbp(*offset)),
            CfaRule::RegisterAndOffset { .. } => None,
            CfaRule::Expression(expression) => code(expression).map(Cfa::Expression),
        };
        let place = |register| match row.register(register) {
            None | Some(RegisterRule::SameValue) => RegisterLocation::Same,
            Some(RegisterRule::Offset(offset)) => RegisterLocation::At(offset),
            Some(RegisterRule::ValOffset(offset)) => RegisterLocation::Is(offset),
            Some(RegisterRule::Expression(expression)) => {
                code(&expression).map_or(RegisterLocation::Lost, RegisterLocation::AtExpression)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                code(&expression).map_or(RegisterLocation::Lost, RegisterLocation::IsExpression)
            }
            Some(_) => RegisterLocation::Lost,
        };
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Rule::Outermost;
        }
        let (rip, rbp, signal) = (place(X86_64::RA), place(X86_64::RBP), found.is_signal_trampoline());
        cfa.map_or(Rule::Unknown, |cfa| Rule::Saved { cfa, rip, rbp, signal })
    }

    /// Undoes a frame. `read` returns words of the stack.
    pub(super) fn apply(&self, registers: Registers, read: &impl Fn(u64) -> Option<u64>) -> Undone {
        match self {
            Rule::Outermost => Undone::Outermost,
            Rule::Unknown => Undone::Unknown,
            Rule::Saved { cfa, rip, rbp, signal } => {
                let caller = || {
                    let cfa = match cfa {
                        Cfa::Rsp(offset) => registers.rsp.wrapping_add_signed(*offset),
                        Cfa::Rbp(offset) => registers.rbp?.wrapping_add_signed(*offset),
                        Cfa::Expression(code) => code.evaluate(None, registers, read)?,
                    };
                    let rip = rip.value(cfa, None, registers, read)?;
                    let rbp = rbp.value(cfa, registers.rbp, registers, read);
                    // A stack grows downwards, but a signal handler may have its own.
                    (*signal || cfa > registers.rsp).then_some(Registers { rip, rsp: cfa, rbp })
                };
                caller().map_or(Undone::Unknown, |caller| Undone::Caller(caller, *signal))
            }
        }
    }
}

impl RegisterLocation {
    fn value(
        &self,
        cfa: u64,
        own: Option<u64>,
        registers: Registers,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        match self {
            RegisterLocation::Same => own,
            RegisterLocation::Lost => None,
            RegisterLocation::At(offset) => read(cfa.wrapping_add_signed(*offset)),
            RegisterLocation::Is(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterLocation::AtExpression(code) => read(code.evaluate(Some(cfa), registers, read)?),
            RegisterLocation::IsExpression(code) => code.evaluate(Some(cfa), registers, read),
        }
    }
}

impl Code {
    fn evaluate(
        &self,
        first: Option<u64>,
        registers: Registers,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let expression = Expression(EndianSlice::new(&self.bytes, LittleEndian));
        let mut evaluation: Evaluation<Bytes<'_>> = expression.evaluation(self.encoding);
        evaluation.set_max_iterations(STEPS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(read(address)?)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(registers.get(register)?)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().first()?.location {
            Location::Address { address } => Some(address),
            Location::Value { value } => value.to_u64(u64::MAX).ok(),
            _ => None,
        }
    }
}
