//! Flame graphs as SVG: computes the boxes and their texts.

use super::svg::{Box, Picture};
use crate::labels::{command, node_name};
use crate::options::Options;
use calltap_analysis::boxes::{BoxPosition, places, widths};
use calltap_analysis::paths::{By, NodeOff, Paths};
use calltap_analysis::units::{count, counted, duration, percent};
use calltap_analysis::{Error, Names, Progress, Source, Totals, left_out};
use std::io::Write;

/// Boxes narrower than this share of the picture are left out.
const MIN_SHARE: f64 = 1.0 / 12_000.0;

/// Writes a flame graph as one self-contained SVG: callers below, callees above, widths by the time
/// that [`Options::by`] selects, or by calls if nothing was timed. A click zooms, and functions can
/// be searched for.
pub fn flamegraph(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (paths, totals) = crate::options::call_paths(source, options, progress)?;
    let names = Names::new(source.meta(), options.linker_names);
    let children = paths.children();
    let (widths, timed) = widths(source, &paths, options.by);
    let whole = widths[0].max(1);
    let mut boxes = Vec::new();
    for BoxPosition { node, left, level } in places(&children, &widths, 0, MIN_SHARE) {
        let width = widths[node as usize];
        let share = width as f64 / whole as f64;
        let amount = if timed { times(source, &paths, node, options.by) } else { counted(width, "call") };
        let name = node_name(paths.of(node), &names);
        let title = format!("{name}: {amount}, {:.2} %", percent(width, whole));
        boxes.push(Box { left: left as f64 / whole as f64, width: share, level, name, title });
    }
    let lost = calltap_analysis::head::Lost::of(source, &totals);
    let mut note = format!("{}, {}", counted(totals.calls, "call"), counted(totals.threads, "thread"));
    if lost.entries + lost.exits > 0 {
        note += &format!("; LOST {} and {}", counted(lost.entries, "call"), counted(lost.exits, "return"));
    }
    for line in left_out::sentences(source) {
        note += &format!("; {line}");
    }
    if options.by != By::Wall {
        note = format!("{} time; {note}", options.by.name());
    }
    let unknown = paths.off(0).filter(|_| timed).map_or(0, |off| source.duration_ns(off.total.unknown));
    if unknown > 0 {
        note += &format!("; of {} it is not known whether threads ran", duration(unknown));
    }
    if paths.merged > 0 {
        let (limits, merged) = (paths.limits_met(), count(paths.merged));
        note += &format!("; {limits}: {merged} calls are part of their callers");
    }
    Picture { heading: command(source), note, boxes }.write(out)?;
    Ok(totals)
}

/// Formats the times of a box: `16.507 ms (12 ns self), 1 call; cpu 12.000 us, runnable 0 ns,
/// blocked 16.495 ms`.
fn times(source: &dyn Source, paths: &Paths, node: u32, by: By) -> String {
    let (total, own) = paths.times(node, by);
    let time = |ticks| duration(source.duration_ns(ticks));
    let mut text = time(total);
    let numbers = &paths.nodes[node as usize];
    if node != 0 {
        text += &format!(" ({} self), {}", time(own), counted(numbers.calls, "call"));
    }
    if let Some(NodeOff { total: off, .. }) = paths.off(node) {
        let part = |by: By| format!("{} {}", by.name(), time(by.of(numbers.total, &off)));
        text += &format!("; {}", By::ALL.iter().skip(1).map(|by| part(*by)).collect::<Vec<_>>().join(", "));
        if off.unknown > 0 {
            text += &format!(", unknown {}", time(off.unknown));
        }
    }
    text
}
