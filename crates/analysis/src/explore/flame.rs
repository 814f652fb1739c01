//! Boxes of a flame graph, as far as they can be seen.

use super::{Explorer, Function};
use crate::boxes::{Place, places, widths};
use crate::off::Off;
use crate::paths::{By, Children, Of, Paths};
use crate::sources::source::Source;
use calltap_trace::SiteId;

/// One box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Box {
    /// By which it can be asked for as the lowest.
    pub node: u32,
    /// The function; none for the whole.
    pub site: Option<SiteId>,
    /// Its place, as a share of the whole width.
    pub left: f64,
    /// Its width, as such a share.
    pub width: f64,
    /// Boxes below it.
    pub level: u32,
    /// Calls.
    pub calls: u64,
    /// The time of them that was asked for, nanoseconds; where there is none, the calls of all that is above.
    pub weight: u64,
    /// Of it what is not in boxes above.
    pub own: u64,
    /// The time of the calls, whichever time the weight is,
    pub total: u64,
    /// and how much of that threads did not run; none where context switches were not recorded.
    pub off: Option<Off>,
}

/// A flame graph, or the part above one box.
#[derive(Clone, Debug)]
pub struct Flame {
    /// Callers come before callees.
    pub boxes: Vec<Box>,
    /// What is below the lowest box, outermost first.
    pub below: Vec<(u32, Option<SiteId>)>,
    /// Weights are time.
    pub timed: bool,
    /// Calls that are part of their callers because there are too many paths.
    pub merged: u64,
    /// Time of the lowest box of which it is not known whether threads ran, nanoseconds.
    pub unknown: u64,
}

impl<S: Source> Explorer<S> {
    /// The flame graph above a box (0 for all), without boxes that are narrower than this share of it.
    pub fn flame(&self, root: u32, by: By, narrowest: f64) -> Flame {
        let root = if (root as usize) < self.paths.nodes.len() { root } else { 0 };
        self.boxes(&self.paths, &self.children, root, by, narrowest)
    }

    /// What a function calls, from wherever it is called; with `callers`, its callers, innermost first.
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
        let boxed = |place: Place| {
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
