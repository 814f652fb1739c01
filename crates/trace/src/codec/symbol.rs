//! Symbols: events without their times, each in one 64-bit word that the predictor can compare and
//! store.
//!
//! ```text
//!  63                          35 34   32 31                             0
//! +------------------------------+-------+--------------------------------+
//! |              aux             | kind  |              site              |
//! +------------------------------+-------+--------------------------------+
//! ```
//!
//! `aux` is the number of frames an exit closes, or the index of a caller's address in the chunk's
//! own list.

/// A symbol.
pub(crate) type Symbol = u64;

pub(crate) const ENTRY: u64 = 0;
pub(crate) const TAIL_ENTRY: u64 = 1;
pub(crate) const CALL: u64 = 2;
pub(crate) const ENTRY_FROM: u64 = 3;
pub(crate) const TAIL_ENTRY_FROM: u64 = 4;
pub(crate) const EXIT: u64 = 5;
pub(crate) const LOST: u64 = 6;
/// Number behind a [`LOST`] of no entries and no exits: nothing was lost.
pub(crate) const NOTHING_LOST: u64 = 0;
/// Number behind such a [`LOST`]: tracing of the site was disabled.
pub(crate) const SWITCHED_OFF: u64 = 1;
/// Least number behind such a [`LOST`] that counts frames which were left; the count is added to
/// it.
pub(crate) const FIRST_LEFT: u64 = 2;
/// Number behind such a [`LOST`], above all of those: the thread ended.
pub(crate) const THREAD_ENDED: u64 = FIRST_LEFT + (1 << 32);
/// Number behind such a [`LOST`]: a frame of the site is open again.
pub(crate) const RESUMED: u64 = THREAD_ENDED + 1;
/// Least number behind such a [`LOST`], above all of those, that counts frames which continue
/// outside of the recorded part; the count is added to it.
pub(crate) const FIRST_OUTSIDE: u64 = RESUMED + 1;
const TOP: u64 = 7;
/// Kind of a symbol that is spelt out as the one this caller last had; symbols of kind [`TOP`] are
/// never spelt out.
pub(crate) const USUAL: u64 = TOP;

/// The return of the top frame. It has no site, so that all functions share what is learnt of it.
pub(crate) const EXIT_TOP: Symbol = TOP << 32;

/// First value that does not fit `aux`.
pub(crate) const AUX_END: u64 = 1 << 29;

pub(crate) const fn symbol(site: u32, kind: u64, aux: u64) -> Symbol {
    site as u64 | kind << 32 | aux << 35
}

pub(crate) const fn site_of(symbol: Symbol) -> u32 {
    symbol as u32
}

pub(crate) const fn kind_of(symbol: Symbol) -> u64 {
    symbol >> 32 & 7
}

pub(crate) const fn aux_of(symbol: Symbol) -> u64 {
    symbol >> 35
}

/// The upper half of the symbol for the return of one frame of the named site.
pub(crate) const EXIT_ONE: u64 = EXIT | 1 << 3;

/// The return of one frame of the named site in the encoder, before it has chosen between
/// [`EXIT_TOP`] and [`EXIT_ONE`]. Its bit is in `aux`, which is 0 in other entries.
pub(crate) const RETURN: Symbol = 1 << 63;

/// Whether the symbol is an entry of either kind, or a [`RETURN`].
#[inline(always)]
pub(crate) const fn is_graph(symbol: Symbol) -> bool {
    symbol & !(RETURN | TAIL_ENTRY << 32 | u32::MAX as u64) == 0
}

/// Converts a [`RETURN`] to the symbol that names its site; others stay as they are.
#[inline(always)]
pub(crate) const fn plain(symbol: Symbol) -> Symbol {
    if is_graph(symbol) & (symbol >= RETURN) { symbol & !RETURN | EXIT_ONE << 32 } else { symbol }
}
