//! Predicts the next event of a thread from its previous ones; encoder and decoder run it in step.
//!
//! Both sides hold the same call stack and the same table of guesses and feed them the same
//! symbols, so only the correctness of a guess has to be stored. Stack and table serve for guesses
//! only: the stack is a ring that overflows and underflows without harm.

use super::symbol::{CALL, EXIT, EXIT_ONE, EXIT_TOP, Symbol, aux_of, kind_of, site_of};

/// The token of a symbol that was not predicted. The others: 0, the symbol seen last in this
/// context; 1, the one before; [`TOP_RETURNED`].
pub(crate) const SPELT: u8 = 3;
/// The token of a return of the top frame, if neither guess was right.
pub(crate) const TOP_RETURNED: u8 = 2;

/// Number of events for which a chunk has a small table: there may be thousands of threads with few
/// events.
pub(crate) const SMALL_EVENTS: usize = 256;
pub(crate) const SMALL_SLOTS: usize = 1 << 6;
pub(crate) const FULL_SLOTS: usize = 1 << 12;
const STACK: usize = 256;

/// Call stack and guesses of one chunk.
#[derive(Default)]
pub(crate) struct Tables {
    slots: Vec<[Symbol; 2]>,
    stack: Option<Box<[u32; STACK]>>,
    place: Context,
}

/// Depth of the stack, and the context of the next symbol.
#[derive(Clone, Copy, Default)]
struct Context {
    depth: usize,
    newest: u64,
    older: u64,
}

/// [`Tables`] of `SLOTS` slots in use. The state that changes with every event is in registers, as
/// long as all of this is inlined.
pub(crate) struct Predictor<'a, const SLOTS: usize> {
    slots: &'a mut [[Symbol; 2]; SLOTS],
    stack: &'a mut [u32; STACK],
    home: &'a mut Context,
    place: Context,
}

impl Tables {
    /// Sets the state with which every chunk starts.
    pub(crate) fn start(&mut self) {
        self.resize(SMALL_SLOTS);
        self.stack.get_or_insert_with(|| Box::new([0; STACK])).fill(0);
        self.place = Context::default();
    }

    /// Forgets the guesses after [`SMALL_EVENTS`] events, and makes room for more of them.
    pub(crate) fn widen(&mut self) {
        self.resize(FULL_SLOTS);
    }

    fn resize(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, [0; 2]);
    }

    /// Returns a predictor for a run of events: with [`SMALL_SLOTS`] after [`Self::start`], with
    /// [`FULL_SLOTS`] after [`Self::widen`].
    pub(crate) fn predictor<const SLOTS: usize>(&mut self) -> Predictor<'_, SLOTS> {
        let Self { slots, stack, place } = self;
        let slots = slots.as_mut_slice().try_into().expect("tables have been made");
        let stack = stack.get_or_insert_with(|| Box::new([0; STACK]));
        Predictor { slots, stack, place: *place, home: place }
    }

    /// Removes frames that end by a symbol that is not learnt.
    pub(crate) fn close(&mut self, frames: u32) {
        self.place.close(frames);
    }
}

impl Context {
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
    /// Returns the function on top of the stack.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        self.stack[self.place.depth % STACK]
    }

    /// Returns the guesses of the present context.
    #[inline(always)]
    fn slot(&mut self) -> &mut [Symbol; 2] {
        let context = self.place.newest.wrapping_add(self.place.older);
        &mut self.slots[(context >> (64 - SLOTS.ilog2())) as usize]
    }

    /// Encoder: returns the token for `symbol`, which becomes the newer guess of this context.
    /// `top_returned`: it is [`EXIT_TOP`].
    #[inline(always)]
    pub(crate) fn say(&mut self, symbol: Symbol, top_returned: bool) -> u8 {
        let slot = self.slot();
        let [first, second] = *slot;
        let not_first = symbol != first;
        *slot = [symbol, if not_first { first } else { second }];
        // The token is computed by sums, as branches would be mispredicted.
        let not_second = not_first & (symbol != second);
        let spelt = not_second & !top_returned;
        u8::from(not_first) + u8::from(not_second) + u8::from(spelt)
    }

    /// Decoder: returns the symbol for `token`, which is not [`SPELT`].
    #[inline(always)]
    pub(crate) fn hear(&mut self, token: u8) -> Symbol {
        let slot = self.slot();
        let [first, second] = *slot;
        let symbol = if token == 0 { first } else { second };
        let symbol = if token == TOP_RETURNED { EXIT_TOP } else { symbol };
        *slot = [symbol, if symbol != first { first } else { second }];
        symbol
    }

    /// Decoder: learns a symbol that was spelt out.
    #[inline(always)]
    pub(crate) fn learn(&mut self, symbol: Symbol) -> Symbol {
        self.say(symbol, false);
        symbol
    }

    /// Applies `symbol`, an `ENTRY` of `site` or the return of one frame. It has no branch, as the
    /// processor cannot predict which of the two comes. The site that a return leaves above the top
    /// is overwritten before it becomes the top.
    #[inline(always)]
    pub(crate) fn step(&mut self, symbol: Symbol, site: u32, returns: bool) {
        let above = self.place.depth.wrapping_add(1);
        self.stack[above % STACK] = site;
        self.place.depth = above.wrapping_sub(2 * usize::from(returns));
        self.advance(symbol, site);
    }

    /// Applies any other `symbol`.
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

    /// Removes frames that end by a symbol that is not learnt.
    #[inline(always)]
    pub(crate) fn close(&mut self, frames: u32) {
        self.place.close(frames);
    }

    /// Updates the context of the next symbol: the last two symbols, of equal weight, their order
    /// kept by the rotation.
    #[inline(always)]
    fn advance(&mut self, symbol: Symbol, site: u32) {
        self.place.older = self.place.newest.rotate_left(17);
        self.place.newest = (symbol | u64::from(site)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
