//! Call graphs: the whole program merged by path, or the callers and callees of functions.

pub(crate) mod function;
mod nodes;
mod table;

use crate::error::Error;
use crate::head::{facts, head_of_paths};
use crate::names::Names;
use crate::paths::{self, NODES, Of};
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::units::{counted, one_line};
use calltap_names::{Word, nearest_names};
use function::FunctionGraph;
use serde_json::{Map, Value};
use std::io::Write;
use table::Table;

/// Scope and form of the graph.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Shows callers and callees of the functions that match one of these (by demangled or linker
    /// name), as of one function; empty: the whole program.
    pub functions: Vec<Word>,
    /// Deepest level shown; 0: all.
    pub depth: u32,
    /// Hides paths that took less than this share of the time shown, percent.
    pub min_percent: f64,
    /// Whether threads are the level below the root.
    pub by_thread: bool,
    /// Maximum number of paths kept in memory, about 60 bytes each; 0: a million. Calls on further
    /// paths count as part of their caller, and the text says how many those are.
    pub max_paths: usize,
    /// Whether the graph is written as JSON.
    pub json: bool,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether names are shortened to what distinguishes them.
    pub short_names: bool,
    /// Whether names in text have the colours of their modules, for a terminal.
    pub colour: bool,
    /// Characters of a line: columns for which names leave no room are left out. None: no limit.
    pub width: Option<usize>,
}

/// Reads all events and writes the graph as text.
pub fn write(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let limit = if options.max_paths == 0 { NODES } else { options.max_paths };
    let by_thread = options.by_thread && options.functions.is_empty();
    let (paths, totals) = paths::collect(source, limit, by_thread, progress)?;
    let names = if options.short_names { Names::short } else { Names::new };
    let names = names(source.meta(), options.linker_names).coloured(options.colour);
    let mut table = Table::new(source, &names, options);
    if options.json {
        let facts = facts::of_view(source, &names, &totals);
        return write_json(source, &names, (&paths, &facts), options, out);
    }
    let mut text = head_of_paths(source, &totals).into_bytes();
    if paths.merged > 0 {
        let calls = counted(paths.merged, "call");
        writeln!(text, "# {}: {calls} shown as part of their callers", paths.limits_met())?;
    }
    match &options.functions[..] {
        [] => {
            let whole = paths.nodes[0].total;
            table.write(&paths, false, whole, &mut text)?;
        }
        words => {
            let found = find(&paths, &names, words)?;
            let calls = counted(found.calls, "call");
            let title = words.iter().map(Word::text).collect::<Vec<_>>().join(", ");
            let (title, call) = (one_line(&title), if words.len() == 1 { "it calls" } else { "they call" });
            writeln!(text, "# {title}: {calls}")?;
            writeln!(text, "\ncallers of {title}, innermost first:")?;
            table.write(&found.callers, true, found.total, &mut text)?;
            writeln!(text, "\n{title} and what {call}:")?;
            table.write(&found.callees, false, found.total, &mut text)?;
        }
    }
    if !table.left_out.is_empty() {
        let names: Vec<&str> = table.left_out.iter().map(|by| by.name()).collect();
        writeln!(text, "# no room for {} (--full-names)", names.join(", "))?;
    }
    if table.hidden > 0 {
        writeln!(
            text,
            "# {} not shown (below the depth or percentage asked for)",
            counted(table.hidden, "path")
        )?;
    }
    out.write_all(&text)?;
    Ok(())
}

/// Writes facts about the trace and one list of nodes; for a function its callers too, marked as
/// such.
fn write_json(
    source: &dyn Source,
    names: &Names<'_>,
    (paths, facts): (&paths::Paths, &Map<String, Value>),
    options: &Options,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut list = nodes::Nodes::new(source, names, options);
    match &options.functions[..] {
        [] => list.add(paths, None, paths.nodes[0].total),
        words => {
            let found = find(paths, names, words)?;
            list.add(&found.callers, Some("callers"), found.total);
            list.add(&found.callees, Some("callees"), found.total);
        }
    }
    list.write(facts, out)?;
    Ok(())
}

/// Returns the callers and callees of the functions that match.
fn find(paths: &paths::Paths, names: &Names<'_>, words: &[Word]) -> Result<FunctionGraph, Error> {
    let is_target = |node| matches!(paths.of(node), Of::Site(site) if names.selects(site, words));
    function::find(paths, is_target).ok_or_else(|| no_such_function(paths, names, &words[0]))
}

fn no_such_function(paths: &paths::Paths, names: &Names<'_>, glob: &Word) -> Error {
    let mut known: Vec<&str> = (0..paths.nodes.len() as u32)
        .filter_map(|node| match paths.of(node) {
            Of::Site(site) => Some(names.function(site)),
            _ => None,
        })
        .collect();
    known.sort_unstable();
    known.dedup();
    let near = nearest_names(glob.text(), known, 3).into_iter().map(str::to_owned).collect();
    Error::NoSuchFunction { wanted: glob.text().to_owned(), near }
}
