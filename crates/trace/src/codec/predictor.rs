//! What happens next, guessed from what happened just before: the part encoder and decoder run in step.
//!
//! Both sides hold the same call stack and the same table of guesses and feed them the same symbols, so only
//! the correctness of a guess has to be stored. Neither is ever trusted for more than a guess: the stack is a
//! ring that overflows and underflows without harm.

use super::symbol::{CALL, EXIT, EXIT_ONE, EXIT_TOP, Symbol, aux_of, kind_of, site_of};

/// The token of a symbol that was not predicted. The others: 0, the symbol seen last in this context; 1, the one before;
/// [`TOP_RETURNED`].
pub(crate) const SPELT: u8 = 3;
/// Neither, but the top frame returned.
pub(crate) const TOP_RETURNED: u8 = 2;

/// Events a chunk starts with on a small table: threads that live for two events come by the thousands.
pub(crate) const SMALL_EVENTS: usize = 256;
pub(crate) const SMALL_SLOTS: usize = 1 << 6;
pub(crate) const FULL_SLOTS: usize = 1 << 12;
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

/// [`Tables`] of so many slots at work: what changes with every event is in registers, as long as all of this is inlined.
pub(crate) struct Predictor<'a, const SLOTS: usize> {
    slots: &'a mut [[Symbol; 2]; SLOTS],
    stack: &'a mut [u32; STACK],
    home: &'a mut Place,
    place: Place,
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

    fn resize(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, [0; 2]);
    }

    /// For a run of events: after [`Self::start`] with [`SMALL_SLOTS`], after [`Self::widen`] with [`FULL_SLOTS`].
    pub(crate) fn predictor<const SLOTS: usize>(&mut self) -> Predictor<'_, SLOTS> {
        let Self { slots, stack, place } = self;
        let slots = slots.as_mut_slice().try_into().expect("tables have been made");
        let stack = stack.get_or_insert_with(|| Box::new([0; STACK]));
        Predictor { slots, stack, place: *place, home: place }
    }

    /// Frames end by a symbol that is not learnt.
    pub(crate) fn close(&mut self, frames: u32) {
        self.place.close(frames);
    }
}

impl Place {
    fn close(&mut self, frames: u32) {
        self.depth = self.depth.wrapping_sub(frames as usize);
    }
}

impl<const SLOTS: usize> Drop for Predictor<'_, SLOTS> {
    fn drop(&mut self) {
        *self.home = self.place;
    }
}

impl<const SLOTS: usize> Predictor<'_, SLOTS> {
    /// The function on top of the stack.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        self.stack[self.place.depth % STACK]
    }

    #[inline(always)]
    fn slot(&mut self) -> &mut [Symbol; 2] {
        let context = self.place.newest.wrapping_add(self.place.older);
        &mut self.slots[(context >> (64 - SLOTS.ilog2())) as usize]
    }

    /// Encoder: how to say `symbol` here; it is then the newer guess of this context. `top_returned`: it is [`EXIT_TOP`].
    #[inline(always)]
    pub(crate) fn say(&mut self, symbol: Symbol, top_returned: bool) -> u8 {
        let slot = self.slot();
        let [first, second] = *slot;
        let not_first = symbol != first;
        *slot = [symbol, if not_first { first } else { second }];
        // The token, by sums instead of branches that would be mispredicted.
        let not_second = not_first & (symbol != second);
        let spelt = not_second & !top_returned;
        u8::from(not_first) + u8::from(not_second) + u8::from(spelt)
    }

    /// Decoder: the symbol `token` means here. Not for [`SPELT`].
    #[inline(always)]
    pub(crate) fn hear(&mut self, token: u8) -> Symbol {
        let slot = self.slot();
        let [first, second] = *slot;
        let symbol = if token == 0 { first } else { second };
        let symbol = if token == TOP_RETURNED { EXIT_TOP } else { symbol };
        *slot = [symbol, if symbol != first { first } else { second }];
        symbol
    }

    /// Decoder: a spelt `symbol`.
    #[inline(always)]
    pub(crate) fn learn(&mut self, symbol: Symbol) -> Symbol {
        self.say(symbol, false);
        symbol
    }

    /// `symbol` happened, an `ENTRY` of `site` or the return of one frame. Without a branch: which of the two
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
        self.place.close(frames);
    }

    /// The context of the next symbol: the last two, of equal weight, the order kept by the rotation.
    #[inline(always)]
    fn advance(&mut self, symbol: Symbol, site: u32) {
        self.place.older = self.place.newest.rotate_left(17);
        self.place.newest = (symbol | u64::from(site)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
