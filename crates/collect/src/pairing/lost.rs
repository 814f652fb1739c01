//! Open calls whose returns were lost.
//!
//! The hooks try to record a return only if its entry was recorded, so a return that is counted as lost is of an open call. On one stack a call ends after all
//! that it made: wherever among the open calls those that returned were, as many of the newest are over.

use super::{OpenCalls, TAIL};

impl OpenCalls {
    /// So many returns of open calls were lost. Says how many of the newest calls that proves over; they are.
    pub(crate) fn end_lost(&mut self, returns: u32) -> u32 {
        // Events of the sparse clock may be read behind the mark of a loss.
        let open = &self.frames[1..=self.depth];
        if returns == 0
            || !self.placed
            || !self.aside.is_one_stack()
            || self.aside.newest_stack(open) < open.len()
        {
            return 0;
        }
        let mut over = self.depth.min(returns as usize);
        // A call that was entered by a jump ends with the one in whose place it is.
        while over < self.depth && self.frames[self.depth + 1 - over] & TAIL != 0 {
            over += 1;
        }
        self.depth -= over;
        over as u32
    }
}
