//! The stores of each step of a batch, in compact form: there are a hundred thousand sites.

use calltap_abi::isa::{Isa, X86_64};

/// Number of steps of a batch.
pub const STEPS: usize = 8;
/// The step that stores the first byte of the new instruction.
pub(crate) const LAST_BYTE: usize = 6;
/// The step that restores the file's bytes.
pub(crate) const RESTORE: usize = 7;
/// Bytes of a jump or call.
pub(crate) const JUMP: usize = X86_64::JUMP as usize;

/// `test eax, imm32`.
pub(crate) const TEST: u8 = 0xA9;
/// `jmp 3f`, over the other three bytes.
pub(crate) const JMP_3F: [u8; 2] = [0xEB, 3];
/// `int3`.
pub(crate) const INT3: u8 = 0xCC;

/// The instruction of a site while its bytes are changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transition {
    /// `test eax, imm32`, as long as the old instruction.
    #[default]
    Test,
    /// `jmp 3f`, by way of `test eax, imm32`.
    Jmp3f,
    /// A breakpoint; a signal handler in the program resumes behind the site.
    Int3,
}

/// The stores of a switch: first byte, operand, first byte.
#[derive(Clone, Copy, Debug)]
struct Switch {
    at: u16,
    /// First byte while the operand is written.
    during: u8,
    new: [u8; JUMP],
}

/// A store that only some sites need.
#[derive(Clone, Copy, Debug)]
struct Poke {
    at: u16,
    byte: u8,
}

/// Stores of some sites, by step.
#[derive(Clone, Default, Debug)]
pub struct Steps {
    switches: Vec<Switch>,
    /// Switches through `jmp 3f`.
    jumps: Vec<Switch>,
    /// Switches of exits, a step before the others: a thread that enters by an enabled site then
    /// also leaves by one.
    exits: Vec<Switch>,
    pokes: [Vec<Poke>; STEPS],
}

impl Steps {
    /// Creates a list with capacity for this many sites.
    pub(crate) fn with_capacity(sites: usize) -> Steps {
        Steps { switches: Vec::with_capacity(sites), ..Steps::default() }
    }

    /// Adds a switch of the five bytes at `at`.
    #[inline]
    pub(crate) fn switch(&mut self, at: u16, during: u8, new: [u8; JUMP]) {
        self.switches.push(Switch { at, during, new });
    }

    /// Adds a switch through `jmp 3f`.
    pub(crate) fn switch_by_jump(&mut self, at: u16, new: [u8; JUMP]) {
        self.jumps.push(Switch { at, during: TEST, new });
    }

    /// Adds a switch of an exit.
    pub(crate) fn switch_exit(&mut self, at: u16, during: u8, new: [u8; JUMP]) {
        self.exits.push(Switch { at, during, new });
    }

    /// Adds stores of any bytes in a step.
    pub(crate) fn put(&mut self, step: usize, at: u16, bytes: &[u8]) {
        self.pokes[step].extend(bytes.iter().zip(at..).map(|(byte, at)| Poke { at, byte: *byte }));
    }

    /// Whether a step has no stores.
    pub fn is_empty(&self, step: usize) -> bool {
        let switches = matches!(step, 1 | 5 | LAST_BYTE) && !self.switches.is_empty();
        let jumps = matches!(step, 1..=LAST_BYTE) && !self.jumps.is_empty();
        let exits = matches!(step, 1 | 4 | 5) && !self.exits.is_empty();
        self.pokes[step].is_empty() && !switches && !jumps && !exits
    }

    /// Passes each store of a step to `store`: its offset from the beginning of the site or span,
    /// and its bytes. The stores of a step may be done in any order, and torn.
    #[inline]
    pub fn each(&self, step: usize, mut store: impl FnMut(u16, &[u8])) {
        // Separate loops let the compiler know the lengths.
        let (switches, jumps, exits) = (&self.switches, &self.jumps, &self.exits);
        match step {
            1 => switches.iter().for_each(|switch| store(switch.at, &[switch.during])),
            5 => switches.iter().for_each(|switch| store(switch.at + 1, &switch.new[1..])),
            LAST_BYTE => switches.iter().for_each(|switch| store(switch.at, &switch.new[..1])),
            _ => {}
        }
        for exit in exits {
            match step {
                1 => store(exit.at, &[exit.during]),
                4 => store(exit.at + 1, &exit.new[1..]),
                5 => store(exit.at, &exit.new[..1]),
                _ => {}
            }
        }
        for jump in jumps {
            match step {
                1 => store(jump.at, &[jump.during]),
                2 => store(jump.at + 1, &JMP_3F[1..]),
                3 => store(jump.at, &JMP_3F[..1]),
                // A thread that still jumps skips these bytes; for a thread that does not, they are
                // an operand.
                4 => {
                    store(jump.at, &[jump.during]);
                    store(jump.at + 2, &jump.new[2..]);
                }
                5 => store(jump.at + 1, &jump.new[1..2]),
                LAST_BYTE => store(jump.at, &jump.new[..1]),
                _ => {}
            }
        }
        self.pokes[step].iter().for_each(|poke| store(poke.at, &[poke.byte]));
    }
}
