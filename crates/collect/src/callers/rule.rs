//! How a frame is undone: a row of unwinding information, kept in the form in which it is applied to thousands of stacks.

use calltap_process::unwind::{Bytes, Description};
use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian,
    Location, Register, RegisterRule, UnwindExpression, UnwindTableRow, Value, X86_64,
};

/// A loop in an expression ends here.
const STEPS: u32 = 1000;

/// The registers that frames are found by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Where it stands.
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

/// How the frame of an address is undone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Nothing has called it.
    Outermost,
    /// Nothing is known of it.
    Unknown,
    /// By what was saved.
    Saved {
        /// The frame's address.
        cfa: Cfa,
        /// The return address.
        rip: Place,
        /// The caller's frame pointer.
        rbp: Place,
        /// The kernel has built the frame: what is below was interrupted.
        signal: bool,
    },
}

/// Where the frame is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cfa {
    /// So far from the stack pointer.
    Rsp(i64),
    /// So far from the frame pointer.
    Rbp(i64),
    /// Where an expression says.
    Expression(Code),
}

/// Where a register of the caller is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// It is what it was.
    Same,
    /// It is lost.
    Lost,
    /// It is saved so far from the frame's address.
    At(i64),
    /// It is the frame's address, and so much.
    Is(i64),
    /// It is saved where an expression says.
    AtExpression(Code),
    /// It is what an expression says.
    IsExpression(Code),
}

/// An expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    bytes: Box<[u8]>,
    encoding: Encoding,
}

/// A frame, undone.
pub enum Undone {
    /// The registers in the caller; true: it was interrupted there, and has called nothing.
    Caller(Registers, bool),
    /// There is no caller.
    Outermost,
    /// It is not known.
    Unknown,
}

impl Rule {
    /// That of a function that has set up its frame pointer.
    pub const FRAME_POINTER: Rule =
        Rule::Saved { cfa: Cfa::Rbp(16), rip: Place::At(-8), rbp: Place::At(-16), signal: false };

    /// That of a row.
    pub fn of(frames: &EhFrame<Bytes<'_>>, found: &Description<'_>, row: &UnwindTableRow<usize>) -> Rule {
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
            None | Some(RegisterRule::SameValue) => Place::Same,
            Some(RegisterRule::Offset(offset)) => Place::At(offset),
            Some(RegisterRule::ValOffset(offset)) => Place::Is(offset),
            Some(RegisterRule::Expression(expression)) => {
                code(&expression).map_or(Place::Lost, Place::AtExpression)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                code(&expression).map_or(Place::Lost, Place::IsExpression)
            }
            Some(_) => Place::Lost,
        };
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Rule::Outermost;
        }
        let (rip, rbp, signal) = (place(X86_64::RA), place(X86_64::RBP), found.is_signal_trampoline());
        cfa.map_or(Rule::Unknown, |cfa| Rule::Saved { cfa, rip, rbp, signal })
    }

    /// Undoes a frame. `read` knows the words of the stack.
    pub fn apply(&self, registers: Registers, read: &impl Fn(u64) -> Option<u64>) -> Undone {
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
                    // A stack grows downwards, but a signal handler may have one of its own.
                    (*signal || cfa > registers.rsp).then_some(Registers { rip, rsp: cfa, rbp })
                };
                caller().map_or(Undone::Unknown, |caller| Undone::Caller(caller, *signal))
            }
        }
    }
}

impl Place {
    fn value(
        &self,
        cfa: u64,
        own: Option<u64>,
        registers: Registers,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        match self {
            Place::Same => own,
            Place::Lost => None,
            Place::At(offset) => read(cfa.wrapping_add_signed(*offset)),
            Place::Is(offset) => Some(cfa.wrapping_add_signed(*offset)),
            Place::AtExpression(code) => read(code.evaluate(Some(cfa), registers, read)?),
            Place::IsExpression(code) => code.evaluate(Some(cfa), registers, read),
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
