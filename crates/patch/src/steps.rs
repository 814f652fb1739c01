//! What is stored in each step of a batch, compact: there are a hundred thousand sites.

use calltap_abi::isa::{Isa, X86_64};

/// Steps of a batch.
pub const STEPS: usize = 8;
/// The one in which a site gets the first byte of what it shall be,
pub(crate) const LAST_BYTE: usize = 6;
/// and the one in which what can be on gets the bytes of the file again.
pub(crate) const RESTORE: usize = 7;
/// Bytes of a jump or call.
pub const JUMP: usize = X86_64::JUMP as usize;

/// `test eax, imm32`.
pub(crate) const TEST: u8 = 0xA9;
/// `jmp 3f`: over the other three bytes.
pub(crate) const JMP_3F: [u8; 2] = [0xEB, 3];
/// `int3`.
pub(crate) const INT3: u8 = 0xCC;

/// The instruction that a site is while its bytes are being changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transition {
    /// `test eax, imm32`, as long as what was there.
    #[default]
    Test,
    /// `jmp 3f`, by way of `test eax, imm32`.
    Jmp3f,
    /// A breakpoint, behind which a signal handler in the program resumes.
    Int3,
}

/// The stores that every site needs when it is switched: its first byte, the operand, its first byte.
#[derive(Clone, Copy, Debug)]
struct Switch {
    at: u16,
    /// The first byte while the operand is written.
    during: u8,
    new: [u8; JUMP],
}

/// A store that only some sites need.
#[derive(Clone, Copy, Debug)]
struct Poke {
    at: u16,
    byte: u8,
}

/// The stores of some sites, by step.
#[derive(Clone, Default, Debug)]
pub struct Steps {
    switches: Vec<Switch>,
    /// Those that are `jmp 3f` meanwhile.
    jumps: Vec<Switch>,
    /// Those that are done a step before the others: a thread that comes in by a site that leads to a stub leaves by sites that do.
    exits: Vec<Switch>,
    pokes: [Vec<Poke>; STEPS],
}

impl Steps {
    /// With room for the stores of so many sites.
    pub fn with_capacity(sites: usize) -> Steps {
        Steps { switches: Vec::with_capacity(sites), ..Steps::default() }
    }

    /// A switch of the five bytes at `at`.
    #[inline]
    pub(crate) fn switch(&mut self, at: u16, during: u8, new: [u8; JUMP]) {
        self.switches.push(Switch { at, during, new });
    }

    /// The same through `jmp 3f`.
    pub(crate) fn switch_by_jump(&mut self, at: u16, new: [u8; JUMP]) {
        self.jumps.push(Switch { at, during: TEST, new });
    }

    /// A switch of where a function is left.
    pub(crate) fn switch_exit(&mut self, at: u16, during: u8, new: [u8; JUMP]) {
        self.exits.push(Switch { at, during, new });
    }

    /// Any bytes in any step.
    pub(crate) fn put(&mut self, step: usize, at: u16, bytes: &[u8]) {
        self.pokes[step].extend(bytes.iter().zip(at..).map(|(byte, at)| Poke { at, byte: *byte }));
    }

    /// Is nothing stored in a step?
    pub fn is_empty(&self, step: usize) -> bool {
        let switches = matches!(step, 1 | 5 | LAST_BYTE) && !self.switches.is_empty();
        let jumps = matches!(step, 1..=LAST_BYTE) && !self.jumps.is_empty();
        let exits = matches!(step, 1 | 4 | 5) && !self.exits.is_empty();
        self.pokes[step].is_empty() && !switches && !jumps && !exits
    }

    /// What is stored in a step, in any order, torn at will: places, from the beginning of the site or of the span that it is in, and bytes.
    #[inline]
    pub fn each(&self, step: usize, mut store: impl FnMut(u16, &[u8])) {
        // A loop for each, so that the lengths are known in it.
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
                // A thread that still jumps, jumps over what is written; one that does not, has it for an operand.
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
