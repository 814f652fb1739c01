//! Both traces by call path. Recursion makes new paths: all times of a path are of calls that do not contain each other.

use super::functions::Functions;
use super::numbers::{Numbers, Squares, Times};
use super::{Diff, Options, Row};
use crate::paths::{self, NODES, Of, Paths};
use crate::{Call, Error, Source, Totals};
use calltap_trace::SiteId;
use std::collections::{BTreeSet, HashMap};

/// Of the calls by one path.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    total: Squares,
    own: Squares,
    max: u64,
}

pub(super) fn collect(
    sources: [&dyn Source; 2],
    options: &Options,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<Diff, Error> {
    let limit = if options.max_paths == 0 { NODES } else { options.max_paths };
    let mut read = |side: usize| read(sources[side], limit, &mut |done| progress(side, done));
    let trees = [read(0)?, read(1)?];
    let sites = [0, 1].map(|side: usize| {
        let paths = &trees[side].0;
        let sites = (0..paths.nodes.len() as u32).filter_map(|node| match paths.of(node) {
            Of::Site(site) => Some(site),
            _ => None,
        });
        sites.collect::<BTreeSet<SiteId>>().into_iter().collect::<Vec<SiteId>>()
    });
    let functions = Functions::new(sources, [&sites[0], &sites[1]], options.linker_names);
    let mut tree = vec![(0, u32::MAX)];
    let mut index: HashMap<(u32, u32), u32> = HashMap::new();
    let mut sums: [Vec<Sums>; 2] = Default::default();
    let merged = [trees[0].0.merged, trees[1].0.merged];
    let mut totals: [Totals; 2] = Default::default();
    for (side, (paths, of_nodes, total)) in trees.into_iter().enumerate() {
        totals[side] = total;
        let mut places = vec![0u32; paths.nodes.len()];
        for (node, numbers) in paths.nodes.iter().enumerate().skip(1) {
            let Of::Site(site) = paths.of(node as u32) else { continue };
            let Some(function) = functions.of(side, site) else { continue };
            let parent = places[numbers.parent as usize];
            let place = *index.entry((parent, function)).or_insert_with(|| {
                tree.push((parent, function));
                tree.len() as u32 - 1
            });
            places[node] = place;
            if sums[side].len() < tree.len() {
                sums[side].resize(tree.len(), Sums::default());
            }
            let of_node = of_nodes.get(node).copied().unwrap_or_default();
            let sum = &mut sums[side][place as usize];
            sum.calls += numbers.calls;
            sum.total.add(&of_node.total);
            sum.own.add(&of_node.own);
            sum.max = sum.max.max(of_node.max);
        }
    }
    let numbers = |side: usize, place: usize| {
        sums[side].get(place).map_or_else(Numbers::default, |sums| numbers_of(sources[side], sums))
    };
    let rows = tree.iter().enumerate().skip(1).map(|(place, &(_, function))| Row {
        function,
        path: Some(place as u32),
        sides: [numbers(0, place), numbers(1, place)],
    });
    let rows = rows.collect();
    Ok(Diff { tree, merged, ..Diff::new(options, functions.list, rows, totals) })
}

fn read(
    source: &dyn Source,
    limit: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(Paths, Vec<Sums>, Totals), Error> {
    let mut sums: Vec<Sums> = Vec::new();
    let each = |node: u32, call: &Call| {
        let node = node as usize;
        if sums.len() <= node {
            sums.resize(node + 1, Sums::default());
        }
        sums[node].total.record(call.total);
        sums[node].own.record(call.self_ticks);
        sums[node].max = sums[node].max.max(call.total);
    };
    let (paths, totals) = paths::collect_each(source, limit, false, each, Some(progress))?;
    Ok((paths, sums, totals))
}

fn numbers_of(source: &dyn Source, sums: &Sums) -> Numbers {
    let timed = sums.total.count > 0 && source.has_time();
    let times = timed.then(|| Times {
        total: sums.total.sample(source),
        own: sums.own.sample(source),
        every: sums.total.sample(source),
        max_ns: source.duration_ns(sums.max),
        percentiles: None,
    });
    Numbers { calls: sums.calls, times }
}
