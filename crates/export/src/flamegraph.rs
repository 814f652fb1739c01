//! Flame graphs: which boxes, where.

use super::svg::{Box, Picture};
use super::{Options, command, node_name};
use calltap_analysis::boxes::{Place, places, widths};
use calltap_analysis::units::{count, counted, duration, percent};
use calltap_analysis::{Error, Names, Progress, Source, Totals};
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
    let lost = calltap_analysis::head::Lost::of(source, &totals);
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
