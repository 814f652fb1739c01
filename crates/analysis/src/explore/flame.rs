//! The visible boxes of a flame graph.

use super::{Explorer, Function};
use crate::boxes::{BoxPosition, places, widths};
use crate::off::Off;
use crate::paths::{By, Children, Of, Paths};
use crate::sources::source::Source;
use calltap_trace::SiteId;

/// A box of a flame graph.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Box {
    /// The node, which can be passed as the root of another flame graph.
    pub node: u32,
    /// The function; `None` for the whole.
    pub site: Option<SiteId>,
    /// Left end, as a share of the whole width.
    pub left: f64,
    /// Width, as a share of the whole width.
    pub width: f64,
    /// Number of boxes below it.
    pub level: u32,
    /// Number of calls.
    pub calls: u64,
    /// The requested time of its calls, nanoseconds; without times, its calls and all calls above
    /// it.
    pub weight: u64,
    /// The part of `weight` that is not in boxes above.
    pub own: u64,
    /// Total time of the calls, whichever time `weight` is, nanoseconds.
    pub total: u64,
    /// Off-CPU part of `total`; `None` if context switches were not recorded.
    pub off: Option<Off>,
}

/// A flame graph, or the part above one box.
#[derive(Clone, Debug)]
pub struct Flame {
    /// The boxes, callers before callees.
    pub boxes: Vec<Box>,
    /// Nodes below the lowest box, outermost first.
    pub below: Vec<(u32, Option<SiteId>)>,
    /// Whether weights are times.
    pub timed: bool,
    /// Number of calls that count for their callers, as there are too many paths.
    pub merged: u64,
    /// Part of the lowest box's time in which the threads' states are unknown, nanoseconds.
    pub unknown: u64,
}

impl<S: Source> Explorer<S> {
    /// Returns the flame graph above a box (0: all), without boxes narrower than the share
    /// `narrowest` of it.
    pub fn flame(&self, root: u32, by: By, narrowest: f64) -> Flame {
        let root = if (root as usize) < self.paths.nodes.len() { root } else { 0 };
        self.boxes(&self.paths, &self.children, root, by, narrowest)
    }

    /// Returns a flame graph of what a function calls, merged over all its callers; with `callers`,
    /// of its callers, innermost first.
    pub fn flame_of(&self, function: &Function, callers: bool, by: By, narrowest: f64) -> Option<Flame> {
        self.flame_of_paths(&self.paths, function.site, callers, by, narrowest)
    }

    pub(super) fn boxes(
        &self,
        paths: &Paths,
        children: &Children,
        root: u32,
        by: By,
        narrowest: f64,
    ) -> Flame {
        let (widths, timed) = widths(&self.source, paths, by);
        let whole = widths[root as usize].max(1) as f64;
        let site = |node| match paths.of(node) {
            Of::Site(site) => Some(self.known(site)),
            _ => None,
        };
        let unit = |ticks| if timed { self.source.duration_ns(ticks) } else { ticks };
        let boxed = |place: BoxPosition| {
            let (numbers, width) = (&paths.nodes[place.node as usize], widths[place.node as usize]);
            let above = children.of(place.node).iter().map(|child| widths[*child as usize]);
            let above = above.fold(0, u64::saturating_add);
            Box {
                node: place.node,
                site: site(place.node),
                left: place.left as f64 / whole,
                width: width as f64 / whole,
                level: place.level,
                calls: numbers.calls,
                weight: unit(width),
                own: unit(width.saturating_sub(above)),
                off: paths.off(place.node).filter(|_| timed).map(|off| off.total.map(unit)),
                total: unit(numbers.total),
            }
        };
        let boxes = places(children, &widths, root, narrowest).into_iter().map(boxed).collect();
        let mut below = Vec::new();
        let mut at = root;
        while at != 0 {
            at = paths.nodes[at as usize].parent;
            below.push((at, site(at)));
        }
        below.reverse();
        let unknown = paths.off(root).map_or(0, |off| unit(off.total.unknown));
        Flame { boxes, below, timed, merged: paths.merged, unknown }
    }
}
