//! The open calls of a thread, and the calls that an entry or a return ends.
//!
//! The kernel records how many calls were open below each one. An entry therefore proves that all
//! calls at its depth or above have ended, even if their returns are not recorded.

use calltap_trace::SiteId;

/// Depth from which on calltap's own files have the same depth for all calls.
const MAX_DEPTH: u32 = 500;
/// Maximum number of open calls searched for the one that returns.
const SEARCH_LIMIT: usize = 4096;

struct Frame {
    site: SiteId,
    /// Number of calls below it; `None` for system calls.
    depth: Option<u32>,
}

/// Open calls, outermost first.
#[derive(Default)]
pub(crate) struct Frames(Vec<Frame>);

impl Frames {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the innermost open call.
    pub(crate) fn innermost(&self) -> Option<SiteId> {
        self.0.last().map(|frame| frame.site)
    }

    /// Enters a function below `depth` others. Returns how many calls ended before.
    pub(crate) fn enter(&mut self, site: SiteId, depth: u32) -> u32 {
        let is_over = |frame: &&Frame| depth < MAX_DEPTH && frame.depth.is_some_and(|own| own >= depth);
        let over = self.0.iter().rev().take_while(is_over).count();
        self.0.truncate(self.0.len() - over);
        self.0.push(Frame { site, depth: Some(depth) });
        over as u32
    }

    /// Enters a system call, before which the thread was outside of the kernel. Returns how many
    /// calls ended before.
    pub(crate) fn enter_kernel(&mut self, site: SiteId) -> u32 {
        let over = self.0.len();
        self.0.clear();
        self.0.push(Frame { site, depth: None });
        over as u32
    }

    /// Returns from a function, or from a system call, which has no depth. Returns how many calls
    /// that ends: 0 if the entry is unknown.
    pub(crate) fn exit(&mut self, site: SiteId, depth: Option<u32>) -> u32 {
        let newest_first = self.0.iter().rev().take(SEARCH_LIMIT);
        let mut newest_first = newest_first.map(|frame| frame.site == site && frame.depth == depth);
        let Some(above) = newest_first.position(|is_it| is_it) else { return 0 };
        self.0.truncate(self.0.len() - above - 1);
        above as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_ends_its_call_and_those_above_and_an_entry_those_of_its_depth() {
        let mut frames = Frames::default();
        let [f, g, h] = [SiteId(1), SiteId(2), SiteId(3)];
        assert_eq!([frames.enter(f, 0), frames.enter(g, 1), frames.enter(h, 2)], [0, 0, 0]);
        assert_eq!(frames.exit(g, Some(1)), 2, "h has no return");
        assert_eq!(frames.exit(g, Some(1)), 0);
        assert_eq!(frames.enter(g, 3), 0, "levels between are filtered out");
        assert_eq!(frames.exit(g, Some(2)), 0, "another call of it");
        assert_eq!(frames.enter(h, 0), 2, "f and g have no returns");
        assert_eq!((frames.exit(h, Some(0)), frames.is_empty()), (1, true));
    }

    #[test]
    fn functions_lie_in_system_calls() {
        let mut frames = Frames::default();
        let [read, vfs_read] = [SiteId(1), SiteId(2)];
        assert_eq!(
            [frames.enter_kernel(read), frames.enter(vfs_read, 0), frames.enter(vfs_read, 0)],
            [0, 0, 1]
        );
        assert_eq!(frames.exit(read, None), 2);
        assert_eq!([frames.enter_kernel(read), frames.enter_kernel(read)], [0, 1]);
    }

    #[test]
    fn the_deepest_calls_of_own_files_have_one_depth() {
        let mut frames = Frames::default();
        let f = SiteId(1);
        let ended: u32 = (0..600).map(|depth: u32| frames.enter(f, depth.min(500))).sum();
        assert_eq!((ended, frames.exit(f, Some(500)), frames.exit(f, Some(499))), (0, 1, 100));
    }
}
