//! Flame graphs: which boxes, where.

use super::svg::{Box, Picture};
use super::{Options, command, node_name};
use crate::paths::Paths;
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
    let timed = source.has_time() && paths.nodes[0].total > 0;
    let widths: Vec<u64> =
        if timed { paths.nodes.iter().map(|node| node.total).collect() } else { calls_below(&paths) };
    let whole = widths[0].max(1);
    let mut boxes = Vec::new();
    let mut pending = vec![(0u32, 0u64, 0u32)];
    while let Some((node, left, level)) = pending.pop() {
        let width = widths[node as usize];
        let share = width as f64 / whole as f64;
        if share < NARROWEST && node != 0 {
            continue;
        }
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
        let mut at = left;
        for &child in children.of(node) {
            pending.push((child, at, level + 1));
            at = at.saturating_add(widths[child as usize]);
        }
    }
    let lost = crate::head::Lost::of(source, &totals);
    let mut note = format!("{}, {}", counted(totals.calls, "call"), counted(totals.threads, "thread"));
    if lost.entries + lost.exits > 0 {
        note += &format!("; LOST {} and {}", counted(lost.entries, "call"), counted(lost.exits, "return"));
    }
    if paths.merged > 0 {
        note += &format!("; {} calls by further paths are part of their callers", count(paths.merged));
    }
    Picture { heading: command(source), note, boxes }.write(out)?;
    Ok(totals)
}

/// For each node its calls and those of everything below.
fn calls_below(paths: &Paths) -> Vec<u64> {
    let mut calls: Vec<u64> = paths.nodes.iter().map(|node| node.calls).collect();
    for at in (1..calls.len()).rev() {
        calls[paths.nodes[at].parent as usize] += calls[at];
    }
    calls
}
