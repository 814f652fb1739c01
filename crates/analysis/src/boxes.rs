//! The boxes of a flame graph: how wide, and where.

use crate::paths::{By, Children, Paths};
use crate::sources::source::Source;

/// How wide the box of every node is: its time, or where there is none (false) its calls.
pub fn widths(source: &dyn Source, paths: &Paths, by: By) -> (Vec<u64>, bool) {
    let timed = source.has_time() && paths.nodes[0].total > 0;
    let time = |node| paths.times(node, by).0;
    let widths = if timed { (0..paths.nodes.len() as u32).map(time).collect() } else { calls_below(paths) };
    (widths, timed)
}

/// Where the box of a node is.
pub struct Place {
    /// Which.
    pub node: u32,
    /// In the unit of the widths, from the left end of the lowest box.
    pub left: u64,
    /// Above the lowest.
    pub level: u32,
}

/// The boxes on top of `root`, but for those that are narrower than this share of it. Callers come before callees.
pub fn places(children: &Children, widths: &[u64], root: u32, narrowest: f64) -> Vec<Place> {
    let whole = widths[root as usize].max(1);
    let mut places = Vec::new();
    let mut pending = vec![Place { node: root, left: 0, level: 0 }];
    while let Some(place) = pending.pop() {
        let share = widths[place.node as usize] as f64 / whole as f64;
        if share < narrowest && place.node != root {
            continue;
        }
        let mut left = place.left;
        for &node in children.of(place.node) {
            pending.push(Place { node, left, level: place.level + 1 });
            left = left.saturating_add(widths[node as usize]);
        }
        places.push(place);
    }
    places
}

/// For each node its calls and those of everything below.
fn calls_below(paths: &Paths) -> Vec<u64> {
    let mut calls: Vec<u64> = paths.nodes.iter().map(|node| node.calls).collect();
    for at in (1..calls.len()).rev() {
        calls[paths.nodes[at].parent as usize] += calls[at];
    }
    calls
}
