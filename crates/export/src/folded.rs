//! Folded stacks: `main;f;g 1234`, one line per stack.

use crate::labels::node_name;
use crate::options::Options;
use calltap_analysis::paths::By;
use calltap_analysis::{Error, Names, Progress, Source, Totals};
use std::io::Write;

/// Writes a line per distinct stack with the nanoseconds spent in its innermost function itself, of
/// the time that [`Options::by`] selects, or with the number of calls if nothing was timed. In
/// names `;` becomes `:` and line breaks become blanks. Stacks beyond [`Options::max_paths`] count
/// for their callers. Time in which the threads' states are unknown is a stack of its own.
pub fn folded(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (paths, totals) = crate::options::call_paths(source, options, progress)?;
    let names = Names::new(source.meta(), options.linker_names);
    let children = paths.children();
    let timed = source.has_time() && paths.nodes[0].total > 0;
    let name = |node: u32| {
        node_name(paths.of(node), &names).replace(';', ":").replace(|c: char| c.is_control(), " ")
    };
    let mut stack = String::new();
    // Pending nodes, each with the length of its caller's stack.
    let mut pending: Vec<(u32, usize)> = Vec::new();
    let push = |node: u32, length: usize, pending: &mut Vec<(u32, usize)>| {
        let start = pending.len();
        pending.extend(children.of(node).iter().map(|&child| (child, length)));
        pending[start..].sort_by_cached_key(|&(child, _)| std::cmp::Reverse(name(child)));
    };
    push(0, 0, &mut pending);
    while let Some((node, length)) = pending.pop() {
        stack.truncate(length);
        if length > 0 {
            stack.push(';');
        }
        stack.push_str(&name(node));
        let numbers = &paths.nodes[node as usize];
        let weight = if timed { source.duration_ns(paths.times(node, options.by).1) } else { numbers.calls };
        if weight > 0 {
            writeln!(out, "{stack} {weight}")?;
        }
        push(node, stack.len(), &mut pending);
    }
    let unknown = paths.off(0).map_or(0, |off| source.duration_ns(off.total.unknown));
    if options.by != By::Wall && unknown > 0 {
        writeln!(out, "[not known whether it ran] {unknown}")?;
    }
    Ok(totals)
}
