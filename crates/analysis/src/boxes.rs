//! Widths and positions of the boxes of a flame graph.

use crate::paths::{By, Children, Paths};
use crate::sources::source::Source;

/// Returns the width of every node's box, and whether widths are times; without times they are
/// calls.
pub fn widths(source: &dyn Source, paths: &Paths, by: By) -> (Vec<u64>, bool) {
    let timed = source.has_time() && paths.nodes[0].total > 0;
    let time = |node| paths.times(node, by).0;
    let widths =
        if timed { (0..paths.nodes.len() as u32).map(time).collect() } else { widths_by_calls(paths) };
    (widths, timed)
}

/// The position of a node's box.
pub struct BoxPosition {
    /// The node.
    pub node: u32,
    /// Distance from the left end of the lowest box, in the unit of the widths.
    pub left: u64,
    /// Number of boxes below it.
    pub level: u32,
}

/// Returns the boxes above `root`, callers before callees, without boxes narrower than the share
/// `narrowest` of the lowest one.
pub fn places(children: &Children, widths: &[u64], root: u32, narrowest: f64) -> Vec<BoxPosition> {
    let whole = widths[root as usize].max(1);
    let mut places = Vec::new();
    let mut pending = vec![BoxPosition { node: root, left: 0, level: 0 }];
    while let Some(place) = pending.pop() {
        let share = widths[place.node as usize] as f64 / whole as f64;
        if share < narrowest && place.node != root {
            continue;
        }
        let mut left = place.left;
        for &node in children.of(place.node) {
            pending.push(BoxPosition { node, left, level: place.level + 1 });
            left = left.saturating_add(widths[node as usize]);
        }
        places.push(place);
    }
    places
}

/// Returns the calls of each node together with those of all nodes below it.
pub(crate) fn widths_by_calls(paths: &Paths) -> Vec<u64> {
    let mut calls: Vec<u64> = paths.nodes.iter().map(|node| node.calls).collect();
    for at in (1..calls.len()).rev() {
        calls[paths.nodes[at].parent as usize] += calls[at];
    }
    calls
}
