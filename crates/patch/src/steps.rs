//! What is stored in each step of a batch, compact: there are a hundred thousand sites.

/// Steps of a batch.
pub const STEPS: usize = 5;
/// Bytes of a jump or call.
pub const JUMP: usize = 5;

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
    pokes: [Vec<Poke>; STEPS],
}

impl Steps {
    /// With room for the stores of so many sites.
    pub fn with_capacity(sites: usize) -> Steps {
        Steps { switches: Vec::with_capacity(sites), pokes: Default::default() }
    }

    /// A switch of the five bytes at `at`.
    #[inline]
    pub(crate) fn switch(&mut self, at: u16, during: u8, new: [u8; JUMP]) {
        self.switches.push(Switch { at, during, new });
    }

    /// Any bytes in any step.
    pub(crate) fn put(&mut self, step: usize, at: u16, bytes: &[u8]) {
        self.pokes[step].extend(bytes.iter().zip(at..).map(|(byte, at)| Poke { at, byte: *byte }));
    }

    /// Is nothing stored in a step?
    pub fn is_empty(&self, step: usize) -> bool {
        self.pokes[step].is_empty() && (self.switches.is_empty() || !(1..=3).contains(&step))
    }

    /// What is stored in a step, in any order, torn at will: places, from the beginning of the site or of the span that it is in, and bytes.
    #[inline]
    pub fn each(&self, step: usize, mut store: impl FnMut(u16, &[u8])) {
        // (A loop for each, so that the lengths are known in it.)
        let switches = &self.switches;
        match step {
            1 => switches.iter().for_each(|switch| store(switch.at, &[switch.during])),
            2 => switches.iter().for_each(|switch| store(switch.at + 1, &switch.new[1..])),
            3 => switches.iter().for_each(|switch| store(switch.at, &switch.new[..1])),
            _ => {}
        }
        self.pokes[step].iter().for_each(|poke| store(poke.at, &[poke.byte]));
    }
}
