//! Turns the sums of functions into the rows of a report.

use super::{Column, Options, PERMILLES, Report, Row, Times};
use crate::colours::Colours;
use crate::error::Error;
use crate::head::{facts, head};
use crate::histogram::Histograms;
use crate::incidents::{self, Incidents};
use crate::names::Names;
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::sums::{self, Extra, Sum};
use calltap_trace::{SiteId, ThreadId};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

pub(super) fn collect(
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, Error> {
    if options.sort.permille().is_some() || options.columns.iter().any(|column| column.permille().is_some()) {
        let histograms = Histograms::new(source.meta().sites.len() + 1);
        collect_with(source, options, histograms, progress, |counts| {
            Some(PERMILLES.map(|p| counts.permille(p)))
        })
    } else {
        collect_with(source, options, (), progress, |_| None)
    }
}

fn collect_with<E: Extra>(
    source: &dyn Source,
    options: &Options,
    extra: E,
    progress: Progress<'_>,
    percentiles: fn(&E::Of) -> Option<[u64; 4]>,
) -> Result<Report, Error> {
    let (sums, totals) = sums::collect(source, options.by_thread, extra, progress)?;
    let names = if options.short_names { Names::short } else { Names::new };
    let names = names(source.meta(), options.linker_names);
    let functions = same_functions(source, &names);
    let disabled: HashSet<usize> =
        source.meta().disabled_by_limit.iter().map(|function| functions[function.site.0 as usize]).collect();
    let merged = merged::<E>(source, options, &names, &functions, sums);
    let incident_counts = count_incidents(source, options, &functions)?;
    let mut rows: Vec<(ThreadId, Row)> = merged
        .into_iter()
        .map(|sum| {
            let row = Row {
                function: names.function(sum.site).to_owned(),
                module: names.module(sum.site).to_owned(),
                thread: options.by_thread.then(|| (names.comm(sum.thread).to_owned(), names.tid(sum.thread))),
                source: options.source_line.and_then(|line| line(source.meta(), sum.site)),
                calls: sum.stats.calls + sum.marks,
                disabled_by_limit: disabled.contains(&functions[sum.site.0 as usize]),
                incidents: incident_counts.as_ref().map(|(all, none)| {
                    let key = (sum.thread, functions[sum.site.0 as usize]);
                    all.get(&key).copied().unwrap_or(*none)
                }),
                times: times(source, &sum, percentiles(&sum.extra)),
            };
            (sum.thread, row)
        })
        .collect();
    rows.sort_by(|(thread_a, a), (thread_b, b)| thread_a.cmp(thread_b).then_with(|| order(a, b, options)));
    let cut = limit(&mut rows, options);
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    let (head, facts) = (head(source, &totals), facts::of_view(source, &names, &totals));
    let (timed, by_thread, switched) = (source.has_time(), options.by_thread, source.has_switches());
    let (columns, sort, lines) = (options.all_columns(), options.sort, options.source_line.is_some());
    let chosen = !options.columns.is_empty();
    let colours = if options.colour { Colours::new(source.meta()) } else { Colours::default() };
    Ok(Report {
        rows,
        totals,
        cut,
        head,
        facts,
        timed,
        by_thread,
        lines,
        switched,
        columns,
        chosen,
        colours,
        width: options.width,
        sort,
    })
}

/// Incidents by thread, if threads are told apart, and function; and the counts of all others.
type IncidentCounts = (HashMap<(ThreadId, usize), Incidents>, Incidents);

/// Counts incidents by function; `None` if their numbers are unknown.
fn count_incidents(
    source: &dyn Source,
    options: &Options,
    functions: &[usize],
) -> Result<Option<IncidentCounts>, Error> {
    let Some(has_signals) = incidents::recorded(source) else { return Ok(None) };
    let none = Incidents::none(has_signals);
    let mut sums = HashMap::new();
    for ((thread, site), count) in incidents::by_function(source, has_signals)? {
        let thread = if options.by_thread { thread } else { ThreadId(0) };
        *sums.entry((thread, functions[site.0 as usize])).or_insert(none) += count;
    }
    Ok(Some((sums, none)))
}

/// Returns the shown sums, one for each function (and thread); `functions` maps sites to functions.
pub(crate) fn merged<E: Extra>(
    source: &dyn Source,
    options: &Options,
    names: &Names<'_>,
    functions: &[usize],
    sums: Vec<Sum<E::Of>>,
) -> Vec<Sum<E::Of>> {
    let shown = shown(source, options, names);
    let mut index = HashMap::new();
    let mut merged: Vec<Sum<E::Of>> = Vec::new();
    for sum in sums {
        let at = sum.site.0 as usize;
        if !shown[at] {
            continue;
        }
        let at = *index.entry((sum.thread, functions[at])).or_insert(merged.len());
        match merged.get_mut(at) {
            Some(before) => before.add::<E>(&sum),
            None => merged.push(sum),
        }
    }
    merged
}

/// Returns a number per site, equal for the sites of one function in several processes, or in a
/// module that was loaded twice.
pub(crate) fn same_functions(source: &dyn Source, names: &Names<'_>) -> Vec<usize> {
    let mut known = HashMap::new();
    (0..=source.meta().sites.len())
        .map(|at| {
            let site = SiteId(at as u32);
            let address = source.meta().sites.get(at).map(|site| site.address);
            *known.entry((address, names.linker(site), names.module_path(site))).or_insert(at)
        })
        .collect()
}

/// Returns for each site whether it passes the filter.
fn shown(source: &dyn Source, options: &Options, names: &Names<'_>) -> Vec<bool> {
    (0..=source.meta().sites.len() as u32)
        .map(SiteId)
        .map(|site| options.filter.is_empty() || names.selects(site, &options.filter))
        .collect()
}

pub(crate) fn times<T>(source: &dyn Source, sum: &Sum<T>, percentiles: Option<[u64; 4]>) -> Option<Times> {
    let stats = &sum.stats;
    if stats.calls == 0 || !source.has_time() {
        return None;
    }
    let ns = |ticks| source.duration_ns(ticks);
    let ns_per_tick = ns(1 << 32) as f64 / (1u64 << 32) as f64;
    Some(Times {
        total_ns: ns(stats.outermost),
        self_ns: ns(stats.own),
        avg_ns: ns(stats.sum) / stats.calls,
        min_ns: ns(stats.min),
        max_ns: ns(stats.max),
        stdev_ns: (stats.deviation() * ns_per_tick).round() as u64,
        off_ns: sum.offs.map(|off| [off.outermost, off.own].map(|off| off.map(ns))),
        // The middle of a bucket can lie beyond the only call in it.
        percentiles_ns: percentiles.map(|all| all.map(|ticks| ns(ticks.clamp(stats.min, stats.max)))),
    })
}

fn order(a: &Row, b: &Row, options: &Options) -> Ordering {
    let number = |row: &Row| match options.sort {
        Column::Calls | Column::Function | Column::Module => row.calls,
        column => column.number(row).unwrap_or(0),
    };
    let by_name = || a.function.cmp(&b.function).then_with(|| a.module.cmp(&b.module));
    let first = match options.sort {
        Column::Function => by_name(),
        Column::Module => a.module.cmp(&b.module),
        _ => number(b).cmp(&number(a)),
    };
    let first = if options.reverse { first.reverse() } else { first };
    first.then_with(|| b.calls.cmp(&a.calls)).then_with(by_name)
}

/// Keeps the first rows, of each thread if threads are told apart; returns how many were dropped.
fn limit(rows: &mut Vec<(ThreadId, Row)>, options: &Options) -> u64 {
    let Some(limit) = options.limit else { return 0 };
    let before = rows.len();
    let (mut current, mut kept) = (None, 0);
    rows.retain(|(thread, _)| {
        if current != Some(*thread) {
            (current, kept) = (Some(*thread), 0);
        }
        kept += 1;
        kept <= limit
    });
    (before - rows.len()) as u64
}
