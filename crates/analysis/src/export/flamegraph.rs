//! Flame graphs: which boxes, where.

use super::svg::{Box, Picture};
use super::{Options, command, node_name};
use crate::paths::{Children, Paths};
use crate::units::{count, counted, duration, percent};
use crate::{Error, Names, Progress, Source, Totals};
use std::io::Write;

/// Boxes narrower than this share of the picture are left out.
const NARROWEST: f64 = 1.0 / 12_000.0;

/// Writes a flame graph as one self-contained SVG: callers below, callees above, width by time (by calls when
/// nothing was timed). A click zooms, and functions can be searched for.
pub fn flamegraph(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (paths, totals) = super::call_paths(source, options, progress)?;
    let names = Names::new(source.meta(), options.linker_names);
    let children = paths.children();
    let (widths, timed) = widths(source, &paths);
    let whole = widths[0].max(1);
    let mut boxes = Vec::new();
    for Place { node, left, level } in places(&children, &widths, 0, NARROWEST) {
        let width = widths[node as usize];
        let share = width as f64 / whole as f64;
        let numbers = &paths.nodes[node as usize];
        let amount = match (timed, node) {
            (true, 0) => duration(source.duration_ns(width)),
            (true, _) => format!(
                "{} ({} self), {}",
                duration(source.duration_ns(width)),
                duration(source.duration_ns(numbers.own)),
                counted(numbers.calls, "call")
            ),
            (false, _) => counted(width, "call"),
        };
        let name = node_name(paths.of(node), &names);
        let title = format!("{name}: {amount}, {:.2} %", percent(width, whole));
        boxes.push(Box { left: left as f64 / whole as f64, width: share, level, name, title });
    }
    let lost = crate::head::Lost::of(source, &totals);
    let mut note = format!("{}, {}", counted(totals.calls, "call"), counted(totals.threads, "thread"));
    if lost.entries + lost.exits > 0 {
        note += &format!("; LOST {} and {}", counted(lost.entries, "call"), counted(lost.exits, "return"));
    }
    if paths.merged > 0 {
        let (limits, merged) = (paths.limits_met(), count(paths.merged));
        note += &format!("; {limits}: {merged} calls are part of their callers");
    }
    Picture { heading: command(source), note, boxes }.write(out)?;
    Ok(totals)
}

/// How wide the box of every node is: its time, or where there is none (false) its calls.
pub(crate) fn widths(source: &dyn Source, paths: &Paths) -> (Vec<u64>, bool) {
    let timed = source.has_time() && paths.nodes[0].total > 0;
    let widths = if timed { paths.nodes.iter().map(|node| node.total).collect() } else { calls_below(paths) };
    (widths, timed)
}

/// Where the box of a node is.
pub(crate) struct Place {
    pub(crate) node: u32,
    /// In the unit of the widths, from the left end of the lowest box.
    pub(crate) left: u64,
    /// Above the lowest.
    pub(crate) level: u32,
}

/// The boxes on top of `root`, but for those that are narrower than this share of it. Callers come before callees.
pub(crate) fn places(children: &Children, widths: &[u64], root: u32, narrowest: f64) -> Vec<Place> {
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
