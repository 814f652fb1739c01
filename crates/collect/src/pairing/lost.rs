//! Open calls whose returns were lost.
//!
//! The hooks record a return only if its entry was recorded, so each lost return belongs to an open
//! call. On one stack a call ends after all calls that it made: as many of the newest open calls
//! have ended as returns were lost. A call that was entered by a jump returns together with the one
//! in whose place it is. Of nonlocal exits and jumps that were lost it is not known which calls
//! they ended: then all count as ended. Of several stacks it is not known on which these calls
//! were. On the outermost one, at most so many of its newest calls have ended; the calls on other
//! stacks count as ended, as the thread may have left these stacks.

use super::{OpenCalls, TAIL, place_of};

/// Number of lost returns after which all calls count as ended.
pub(crate) const ALL: u32 = u32::MAX;

impl OpenCalls {
    /// Ends the newest calls after the loss of so many returns of open calls. Returns the number of
    /// calls that have ended.
    pub(crate) fn end_lost(&mut self, returns: u32) -> u32 {
        // Events of the sparse clock may be read behind the mark of a loss.
        if returns == 0 || !self.placed {
            return 0;
        }
        let open = &self.frames[1..=self.depth];
        let is_one = open.iter().all(|open| self.is_on_own_stack(place_of(*open)));
        let outermost = if is_one { open.len() } else { self.suspended.outermost_stack(open) };
        // Either a frame is large, or the inner ones are on another stack.
        if returns != ALL && outermost < open.len() && self.suspended.is_one_stack() {
            return 0;
        }
        let mut kept = outermost;
        for _ in 0..returns {
            while kept > 0 && self.frames[kept] & TAIL != 0 {
                kept -= 1;
            }
            kept = kept.saturating_sub(1);
            if kept == 0 {
                break;
            }
        }
        let over = self.depth - kept;
        self.depth = kept;
        self.find_floor(place_of(self.frames[kept]));
        over as u32
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::pairing::{OpenCalls, SLOT, SLOTS};
    use calltap_abi::event::code;

    /// Checks which calls are open after the loss of so many returns.
    fn check_lost(calls: &str, returns: u32, expected: &str) {
        let mut open = OpenCalls::new(true);
        for call in calls.split_whitespace() {
            let (code, call) =
                call.strip_prefix('~').map_or((code::ENTRY, call), |call| (code::TAIL_ENTRY, call));
            let (name, at) = call.split_once('@').expect("f@N");
            let slot = (0x7fff_0000_0000 - 8 * at.parse::<u64>().expect("a number")) >> 3;
            open.pair_event(code, (slot & (SLOTS - 1)) << SLOT | u64::from(name.as_bytes()[0]), 0);
        }
        let before = open.depth;
        let over = open.end_lost(returns) as usize;
        assert_eq!(open.depth, before - over, "{calls}, {returns}");
        let names: String = open.sites().iter().map(|site| site.0 as u8 as char).collect();
        assert_eq!(names, expected, "{calls}, {returns}");
    }

    #[test]
    fn so_many_of_the_newest_calls_are_over_as_returns_were_lost() {
        check_lost("m@1 f@2 g@3", 0, "mfg");
        check_lost("m@1 f@2 g@3", 1, "mf");
        check_lost("m@1 f@2 g@3", 3, "");
        check_lost("m@1 f@2 g@3", 9, "");
        // A call that was entered by a jump is over with the one in whose place it is.
        check_lost("m@1 f@2 ~g@2 ~h@2", 1, "m");
        check_lost("m@1 f@2 ~g@2 h@3", 1, "mfg");
        check_lost("m@1 f@2 ~g@2 h@3", 2, "m");
        check_lost("m@1 f@2 ~g@2", 2, "");
        // Whether they are on two stacks is not known.
        check_lost("m@1 f@2 g@900000", 1, "mfg");
        check_lost("m@1 f@2 g@900000", ALL, "");
        // The thread has two stacks, and may have left the inner one.
        check_lost("m@1 c@900000 f@2 g@900001", 0, "mfcg");
        check_lost("m@1 c@900000 f@2 g@900001", 1, "m");
    }
}
