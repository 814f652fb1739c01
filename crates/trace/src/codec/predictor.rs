//! What happens next, guessed from what happened just before: the part encoder and decoder run in step.
//!
//! Both sides hold the same call stack and the same table of guesses and feed them the same symbols, so only
//! the correctness of a guess has to be stored. Neither is ever trusted for more than a guess: the stack is a
//! ring that overflows and underflows without harm.

use super::symbol::{EXIT_TOP, Symbol};

/// Two symbols were seen last in this context: the newer one.
pub(crate) const FIRST: u8 = 0;
/// The older one.
pub(crate) const SECOND: u8 = 1;
/// Neither, but the top frame returned.
pub(crate) const RETURN: u8 = 2;
/// Neither: the symbol is spelt out.
pub(crate) const SPELT: u8 = 3;

/// Events a chunk starts with on small tables: threads that live for two events come by the thousands.
pub(crate) const SMALL_EVENTS: usize = 256;
const SMALL_SLOTS: u32 = 6;
const FULL_SLOTS: u32 = 12;
const STACK: usize = 256;

/// Call stack and guesses of one chunk.
#[derive(Default)]
pub(crate) struct Predictor {
    slots: Vec<[Symbol; 2]>,
    shift: u32,
    stack: Vec<u32>,
    depth: usize,
    newest: u64,
    older: u64,
}

impl Predictor {
    /// The state every chunk starts with.
    pub(crate) fn start(&mut self) {
        self.resize(SMALL_SLOTS);
        self.stack.clear();
        self.stack.resize(STACK, 0);
        (self.depth, self.newest, self.older) = (0, 0, 0);
    }

    /// After [`SMALL_EVENTS`] events: forget the guesses, make room for more of them.
    pub(crate) fn widen(&mut self) {
        self.resize(FULL_SLOTS);
    }

    fn resize(&mut self, bits: u32) {
        self.slots.clear();
        self.slots.resize(1 << bits, [0; 2]);
        self.shift = u64::BITS - bits;
    }

    /// The function on top of the stack.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        self.stack[self.depth % STACK]
    }

    #[inline(always)]
    pub(crate) fn open(&mut self, site: u32) {
        self.depth = self.depth.wrapping_add(1);
        self.stack[self.depth % STACK] = site;
    }

    #[inline(always)]
    pub(crate) fn close(&mut self, frames: u32) {
        self.depth = self.depth.wrapping_sub(frames as usize);
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut [Symbol; 2] {
        let context = self.newest.wrapping_add(self.older.rotate_left(17));
        &mut self.slots[(context.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize]
    }

    /// Encoder: how to say `symbol` here; it is then the newer guess of this context.
    #[inline(always)]
    pub(crate) fn say(&mut self, symbol: Symbol) -> u8 {
        let slot = self.slot();
        let [first, second] = *slot;
        let is_first = symbol == first;
        *slot = [symbol, if is_first { second } else { first }];
        let other = if symbol == EXIT_TOP { RETURN } else { SPELT };
        if is_first {
            FIRST
        } else if symbol == second {
            SECOND
        } else {
            other
        }
    }

    /// Decoder: the two guesses here.
    #[inline(always)]
    pub(crate) fn guesses(&mut self) -> [Symbol; 2] {
        *self.slot()
    }

    /// Decoder: `symbol` is what it was, where `guesses` were made.
    #[inline(always)]
    pub(crate) fn learn(&mut self, [first, second]: [Symbol; 2], symbol: Symbol) {
        *self.slot() = [symbol, if symbol == first { second } else { first }];
    }

    /// The context of the next symbol, after `symbol` of `site`.
    #[inline(always)]
    pub(crate) fn advance(&mut self, symbol: Symbol, site: u32) {
        self.older = self.newest;
        self.newest = (symbol | u64::from(site)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
}
