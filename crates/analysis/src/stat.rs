//! The sums of the profile tracer: calls and times of every function, without events.

use crate::bytes::push_csv;
use crate::columns;
use crate::error::NotOneOf;
use crate::head::facts::{self, List};
use crate::head::left_out;
use crate::names::Names;
use crate::report::Format;
use crate::sources::source::Source;
use crate::units::{count, counted, duration, one_line};
use calltap_names::{ModuleNames, Word, demangle, file_name, is_named, selects};
use calltap_trace::{Meta, Profile};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::str::FromStr;

/// Scope and form of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Column to sort by.
    pub sort: SortKey,
    /// Shows only functions matching one of these by demangled or linker name; empty: all.
    pub filter: Vec<Word>,
    /// Maximum number of rows.
    pub limit: Option<usize>,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether names are shortened to what distinguishes them.
    pub short_names: bool,
}

/// A column to sort by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SortKey {
    /// Number of calls.
    Calls,
    /// Time of all calls.
    #[default]
    Total,
    /// Mean time per call.
    Avg,
    /// Longest call.
    Max,
    /// Name.
    Function,
}

impl SortKey {
    /// The names that `from_str` parses.
    pub(crate) const NAMES: &[&str] = &["calls", "total", "avg", "max", "function"];
}

impl FromStr for SortKey {
    type Err = NotOneOf;

    fn from_str(name: &str) -> Result<Self, NotOneOf> {
        Ok(match name {
            "calls" => Self::Calls,
            "total" => Self::Total,
            "avg" => Self::Avg,
            "max" => Self::Max,
            "function" => Self::Function,
            _ => return Err(NotOneOf::new("column", name, Self::NAMES)),
        })
    }
}

/// The sums of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionSums {
    /// Linker symbol.
    pub function: String,
    /// Path of its file.
    pub module: String,
    /// Name of the symbolic link through which a program was started from the file.
    pub link: Option<String>,
    /// Sums over all processes and threads.
    pub profile: Profile,
}

/// Returns the rows of a trace.
pub fn rows(meta: &Meta) -> Vec<FunctionSums> {
    // A function has several sites if it was traced in different ways in turn.
    let mut rows: BTreeMap<(u32, u64), FunctionSums> = BTreeMap::new();
    for profile in &meta.profile {
        let Some(site) = meta.sites.get(profile.site.0 as usize) else { continue };
        let module = meta.modules.get(site.module as usize);
        let new = || FunctionSums {
            function: site.name.clone(),
            module: module.map(|module| module.path.clone()).unwrap_or_default(),
            link: module.and_then(|module| module.link.clone()),
            profile: Profile::default(),
        };
        rows.entry((site.module, site.address)).or_insert_with(new).profile.add(profile);
    }
    rows.into_values().collect()
}

/// A row in JSON, with the keys in this order.
#[derive(Serialize)]
struct Object<'a> {
    function: &'a str,
    module: &'a str,
    calls: u64,
    timed: u64,
    total_ns: u64,
    avg_ns: Option<u64>,
    max_ns: u64,
    stdev_ns: u64,
}

/// Facts about the trace that sums were read from; none about a running process.
#[derive(Default)]
pub struct Facts {
    head: String,
    facts: Map<String, Value>,
}

impl Facts {
    /// Returns what a trace left out, and which functions were disabled.
    pub fn of(source: &dyn Source) -> Facts {
        let names = Names::new(source.meta(), false);
        Facts { head: left_out::lines(source), facts: facts::of_recording(source, &names) }
    }
}

/// Writes the table of sums.
pub fn write(
    rows: Vec<FunctionSums>,
    of: &Facts,
    options: &Options,
    format: Format,
    out: &mut dyn Write,
) -> io::Result<()> {
    let wanted = |row: &FunctionSums| {
        let module = ModuleNames { file: &row.module, link: row.link.as_deref() };
        let matches = |word: &Word| is_named(word, [row.function.as_str()].into_iter(), Some(module));
        options.filter.is_empty() || selects(&options.filter, matches)
    };
    let mut rows: Vec<FunctionSums> = rows.into_iter().filter(wanted).collect();
    for row in &mut rows {
        if !options.linker_names {
            row.function = demangle(&row.function);
        }
        row.module = file_name(&row.module).to_owned();
    }
    if options.short_names && !options.linker_names {
        let short: calltap_names::ShortNames = rows.iter().map(|row| row.function.as_str()).collect();
        rows.iter_mut().for_each(|row| row.function = short.of(&row.function));
    }
    rows.sort_by(|a, b| a.function.cmp(&b.function).then_with(|| a.module.cmp(&b.module)));
    let key = |row: &FunctionSums| match options.sort {
        SortKey::Calls => row.profile.hits,
        SortKey::Total => row.profile.total_ns,
        SortKey::Avg => row.profile.average_ns().unwrap_or(0),
        SortKey::Max => row.profile.max_ns,
        SortKey::Function => 0,
    };
    rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
    let all = rows.len();
    rows.truncate(options.limit.unwrap_or(all));
    match format {
        Format::Text => {
            out.write_all(of.head.as_bytes())?;
            text(&rows, out)?;
            let cut = (all - rows.len()) as u64;
            if cut > 0 { writeln!(out, "# {} not shown", counted(cut, "function")) } else { Ok(()) }
        }
        Format::Csv => csv(&rows, out),
        Format::Json => json(&rows, &of.facts, out),
    }
}

fn stdev_ns(profile: &Profile) -> u64 {
    profile.variance_ns2().sqrt() as u64
}

fn text(rows: &[FunctionSums], out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|FunctionSums { function, module, profile, .. }| {
            // A call that was left otherwise than by a return, or entered by a jump, has no time:
            // sums of others are lower bounds.
            let time = |ns: u64| if profile.timed == 0 { "-".to_owned() } else { duration(ns) };
            let is_partial = profile.timed > 0 && profile.timed < profile.hits;
            let bound = |ns: u64| format!("{}{}", if is_partial { ">" } else { "" }, time(ns));
            vec![
                bound(profile.total_ns),
                count(profile.hits),
                time(profile.average_ns().unwrap_or(0)),
                bound(profile.max_ns),
                time(stdev_ns(profile)),
                one_line(module).into_owned(),
                one_line(function).into_owned(),
            ]
        })
        .collect();
    columns::write(out, &["TOTAL", "CALLS", "AVG", "MAX", "STDEV", "MODULE", "FUNCTION"], 5, &cells)
}

fn csv(rows: &[FunctionSums], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "function,module,calls,timed,total_ns,avg_ns,max_ns,stdev_ns")?;
    for FunctionSums { function, module, profile, .. } in rows {
        let mut line = Vec::new();
        push_csv(&mut line, function);
        line.push(b',');
        push_csv(&mut line, module);
        let average = profile.average_ns().map(|ns| ns.to_string()).unwrap_or_default();
        let Profile { hits, timed, total_ns, max_ns, .. } = profile;
        writeln!(line, ",{hits},{timed},{total_ns},{average},{max_ns},{}", stdev_ns(profile))?;
        out.write_all(&line)?;
    }
    Ok(())
}

fn json(rows: &[FunctionSums], facts: &Map<String, Value>, out: &mut dyn Write) -> io::Result<()> {
    let objects: Vec<Object<'_>> = rows
        .iter()
        .map(|FunctionSums { function, module, profile, .. }| Object {
            function,
            module,
            calls: profile.hits,
            timed: profile.timed,
            total_ns: profile.total_ns,
            avg_ns: profile.average_ns(),
            max_ns: profile.max_ns,
            stdev_ns: stdev_ns(profile),
        })
        .collect();
    let mut list = List::begin(out, ("calltap_stat", "functions"), facts)?;
    for object in &objects {
        serde_json::to_writer(list.next()?, object)?;
    }
    list.end()
}
