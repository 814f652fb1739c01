//! What happens next, guessed from what happened just before: the part encoder and decoder run in step.
//!
//! Both sides hold the same call stack and the same table of guesses and feed them the same symbols, so only
//! the correctness of a guess has to be stored. Neither is ever trusted for more than a guess: the stack is a
//! ring that overflows and underflows without harm.

use super::symbol::{CALL, ENTRY, EXIT, EXIT_ONE, EXIT_TOP, Symbol, aux_of, kind_of, site_of};

/// The token of a symbol nobody guessed. The others: 0, the symbol seen last in this context; 1, the one before;
/// 2, neither, but the top frame returned.
pub(crate) const SPELT: u8 = 3;

/// Events a chunk starts with on a small table: threads that live for two events come by the thousands.
pub(crate) const SMALL_EVENTS: usize = 256;
const SMALL_SLOTS: u32 = 6;
const FULL_SLOTS: u32 = 12;
const STACK: usize = 256;

/// Call stack and guesses of one chunk.
#[derive(Default)]
pub(crate) struct Tables {
    slots: Vec<[Symbol; 2]>,
    stack: Option<Box<[u32; STACK]>>,
    place: Place,
}

#[derive(Clone, Copy, Default)]
struct Place {
    depth: usize,
    newest: u64,
    older: u64,
}

/// [`Tables`] at work: what changes with every event is in registers, as long as all of this is inlined.
pub(crate) struct Predictor<'a> {
    slots: &'a mut [[Symbol; 2]],
    stack: &'a mut [u32; STACK],
    home: &'a mut Place,
    place: Place,
    shift: u32,
}

impl Tables {
    /// The state every chunk starts with.
    pub(crate) fn start(&mut self) {
        self.resize(SMALL_SLOTS);
        self.stack.get_or_insert_with(|| Box::new([0; STACK])).fill(0);
        self.place = Place::default();
    }

    /// After [`SMALL_EVENTS`] events: forget the guesses, make room for more of them.
    pub(crate) fn widen(&mut self) {
        self.resize(FULL_SLOTS);
    }

    fn resize(&mut self, bits: u32) {
        self.slots.clear();
        self.slots.resize(1 << bits, [0; 2]);
    }

    /// For a run of events; after [`Self::start`].
    pub(crate) fn predictor(&mut self) -> Predictor<'_> {
        let Self { slots, stack, place } = self;
        let shift = slots.len().leading_zeros() + 1;
        let stack = stack.get_or_insert_with(|| Box::new([0; STACK]));
        Predictor { slots, stack, place: *place, home: place, shift }
    }
}

impl Drop for Predictor<'_> {
    fn drop(&mut self) {
        *self.home = self.place;
    }
}

impl Predictor<'_> {
    /// The function on top of the stack.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        self.stack[self.place.depth % STACK]
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut [Symbol; 2] {
        &mut self.slots[(self.place.newest.wrapping_add(self.place.older) >> self.shift) as usize]
    }

    /// Encoder: how to say `symbol` here; it is then the newer guess of this context.
    #[inline(always)]
    pub(crate) fn say(&mut self, symbol: Symbol) -> u8 {
        let slot = self.slot();
        let [first, second] = *slot;
        let not_first = symbol != first;
        *slot = [symbol, if not_first { first } else { second }];
        // The token, by sums instead of branches that would be mispredicted.
        let not_second = not_first & (symbol != second);
        let not_return = not_second & (symbol != EXIT_TOP);
        u8::from(not_first) + u8::from(not_second) + u8::from(not_return)
    }

    /// Decoder: the symbol `token` means here. Not for [`SPELT`].
    #[inline(always)]
    pub(crate) fn hear(&mut self, token: u8) -> Symbol {
        let slot = self.slot();
        let [first, second] = *slot;
        let symbol = if token == 0 { first } else { second };
        let symbol = if token == 2 { EXIT_TOP } else { symbol };
        *slot = [symbol, if symbol != first { first } else { second }];
        symbol
    }

    /// Decoder: a spelt `symbol`.
    #[inline(always)]
    pub(crate) fn learn(&mut self, symbol: Symbol) -> Symbol {
        self.say(symbol);
        symbol
    }

    /// `symbol` happened, an [`ENTRY`] of `site` or the return of one frame. Without a branch: which of the two
    /// it is, is just what the processor cannot guess either. What a return leaves above the top is overwritten
    /// before it is the top.
    #[inline(always)]
    pub(crate) fn step(&mut self, symbol: Symbol, site: u32, returns: bool) {
        let above = self.place.depth.wrapping_add(1);
        self.stack[above % STACK] = site;
        self.place.depth = above.wrapping_sub(2 * usize::from(returns));
        self.advance(symbol, site);
    }

    /// Any other `symbol` happened.
    #[inline(always)]
    pub(crate) fn step_other(&mut self, symbol: Symbol) {
        let site = site_of(symbol);
        match kind_of(symbol) {
            CALL => self.advance(symbol, site),
            EXIT if symbol >> 32 != EXIT_ONE => {
                self.close(aux_of(symbol) as u32);
                self.advance(symbol, site);
            }
            kind => self.step(symbol, site, kind == EXIT),
        }
    }

    /// Frames end by a symbol that is not learnt.
    #[inline(always)]
    pub(crate) fn close(&mut self, frames: u32) {
        self.place.depth = self.place.depth.wrapping_sub(frames as usize);
    }

    /// The context of the next symbol: the last two, of equal weight, the order kept by the rotation.
    #[inline(always)]
    fn advance(&mut self, symbol: Symbol, site: u32) {
        self.place.older = self.place.newest.rotate_left(17);
        self.place.newest = (symbol | u64::from(site)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// One of the two kinds [`Predictor::step`] is for.
#[inline(always)]
pub(crate) fn is_graph(symbol: Symbol) -> bool {
    let upper = symbol >> 32;
    upper == ENTRY || upper == EXIT_ONE
}
