//! Comparison of events with the top frame, for
//! [`OpenCalls::pair_graph`](super::OpenCalls::pair_graph).

use super::{Frame, NEAR, SLOT, TAIL};
use calltap_abi::event::code;
use calltap_trace::GraphEnd;

/// How the events of one code are compared with the top frame: a row of a table, so that a loop
/// over entries and returns has one comparison for both.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// Bits to set in the event's frame before it is subtracted from the top frame.
    set: Frame,
    /// Value to add to the difference.
    add: Frame,
    /// Largest difference of an event that fits.
    most: Frame,
    /// Flag of the frame that the event opens.
    pub(super) flag: Frame,
    /// Change of the depth, modulo 2^32.
    pub(super) step: u32,
    /// End of a call that the event is.
    pub(super) end: GraphEnd,
}

impl Fit {
    /// Bits of a frame below its slot. No frame has all of them set.
    const LOW: Frame = (1 << SLOT) - 1;
    /// Row of the codes that are not in [`GRAPH`](super::GRAPH): no frame fits.
    const NONE: Fit = Fit { set: Fit::LOW, add: 0, most: 0, flag: 0, step: 0, end: GraphEnd::ENTRY };
    /// Table for events that have whole slots.
    pub(super) const PLACED: [Fit; 32] = Fit::table((NEAR << SLOT) - 1);
    /// Table for events without slots: every entry is called by the top frame.
    pub(super) const UNPLACED: [Fit; 32] = Fit::table(Frame::MAX);

    /// Returns the rows by code. The slot of an entry lies below the top frame's, at most `near`;
    /// that of an entry by a jump equals it; that of a nested entry does either. A return equals
    /// the frame itself.
    const fn table(near: Frame) -> [Fit; 32] {
        let mut table = [Fit::NONE; 32];
        let entry = Fit { set: Fit::LOW, add: 0, most: near, flag: 0, step: 1, end: GraphEnd::ENTRY };
        table[code::ENTRY as usize] = entry;
        table[code::NESTED_ENTRY as usize] = Fit { add: 1 << SLOT, ..entry };
        table[code::TAIL_ENTRY as usize] =
            Fit { add: 1 << SLOT, most: Fit::LOW, flag: TAIL, end: GraphEnd::TAIL_ENTRY, ..entry };
        table[code::EXIT as usize] =
            Fit { set: 0, add: 0, most: 0, flag: 0, step: u32::MAX, end: GraphEnd::RETURN };
        table
    }

    /// Whether an event's frame shows more than that the top frame calls or returns.
    #[inline(always)]
    pub(super) fn misfits(&self, top: Frame, frame: Frame) -> bool {
        top.wrapping_sub(frame | self.set).wrapping_add(self.add) > self.most
    }
}
