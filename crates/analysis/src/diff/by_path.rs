//! Compares the recordings of both sides by call path. Recursion makes new paths, so the calls of
//! one path never contain each other.

use super::functions::Functions;
use super::numbers::{Numbers, Squares, States, Times};
use super::{Diff, Options, Row, Sources};
use crate::error::Error;
use crate::paths::{self, NODES, Of, Paths};
use crate::sources::source::Source;
use crate::tree::{Call, Totals};
use calltap_trace::SiteId;
use std::collections::HashMap;

/// Sums of the calls on one path.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    total: Squares,
    own: Squares,
    states: States,
    max: u64,
}

/// The call paths of all recordings: parent and function of each path, and its sums by side and
/// recording.
struct Tree {
    nodes: Vec<(u32, u32)>,
    index: HashMap<(u32, u32), u32>,
    sums: [Vec<Vec<Sums>>; 2],
}

impl Tree {
    fn node(&mut self, parent: u32, function: u32) -> u32 {
        *self.index.entry((parent, function)).or_insert_with(|| {
            self.nodes.push((parent, function));
            self.nodes.len() as u32 - 1
        })
    }

    /// Adds the paths of one recording of a side.
    fn add(&mut self, side: usize, paths: &Paths, sums: &[Sums], of: &dyn Fn(SiteId) -> Option<u32>) {
        let mut places = vec![0u32; paths.nodes.len()];
        let mut here: Vec<Sums> = Vec::new();
        for (node, numbers) in paths.nodes.iter().enumerate().skip(1) {
            let Of::Site(site) = paths.of(node as u32) else { continue };
            let Some(function) = of(site) else { continue };
            let place = self.node(places[numbers.parent as usize], function);
            places[node] = place;
            if here.len() < self.nodes.len() {
                here.resize(self.nodes.len(), Sums::default());
            }
            let of_node = sums.get(node).copied().unwrap_or_default();
            let sum = &mut here[place as usize];
            sum.calls += numbers.calls;
            sum.total.add(&of_node.total);
            sum.own.add(&of_node.own);
            sum.states.add(&of_node.states);
            sum.max = sum.max.max(of_node.max);
        }
        self.sums[side].push(here);
    }

    fn numbers(&self, sources: Sources<'_>, side: usize, place: usize) -> Vec<Numbers> {
        let of_recording = |(sums, source): (&Vec<Sums>, &&dyn Source)| {
            sums.get(place).map_or_else(Numbers::default, |sums| numbers_of(*source, sums))
        };
        self.sums[side].iter().zip(sources[side]).map(of_recording).collect()
    }
}

pub(super) fn collect(
    sources: Sources<'_>,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Diff, Error> {
    // The limit of one recording is shared by all recordings of a side.
    let most = sources.iter().map(|side| side.len()).max().unwrap_or(1).max(1);
    let limit = if options.max_paths == 0 { NODES / most } else { options.max_paths };
    let mut totals = [Vec::new(), Vec::new()];
    let mut trees: [Vec<(Paths, Vec<Sums>)>; 2] = Default::default();
    let mut before = 0;
    for side in 0..2 {
        for source in sources[side] {
            let (paths, sums, total) = read(*source, limit, &mut |done| progress(before + done))?;
            trees[side].push((paths, sums));
            totals[side].push(total);
            before += source.event_count();
        }
    }
    let sites = [0, 1].map(|side: usize| trees[side].iter().map(|(paths, _)| paths.sites()).collect());
    let functions = Functions::new(sources, &sites, options.linker_names);
    let merged = [0, 1].map(|side: usize| trees[side].iter().map(|(paths, _)| paths.merged).sum());
    let mut tree = Tree { nodes: vec![(0, u32::MAX)], index: HashMap::new(), sums: [Vec::new(), Vec::new()] };
    for (side, recordings) in trees.into_iter().enumerate() {
        for (recording, (paths, sums)) in recordings.into_iter().enumerate() {
            tree.add(side, &paths, &sums, &|site| functions.of(side, recording, site));
        }
    }
    let rows = tree.nodes.iter().enumerate().skip(1).map(|(place, &(_, function))| Row {
        function,
        path: Some(place as u32),
        sides: [0, 1].map(|side: usize| tree.numbers(sources, side, place)),
    });
    let rows = rows.collect();
    Ok(Diff { tree: tree.nodes, merged, ..Diff::new(options, functions.list, rows, totals) })
}

fn read(
    source: &dyn Source,
    limit: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(Paths, Vec<Sums>, Totals), Error> {
    let mut sums: Vec<Sums> = Vec::new();
    let switched = source.has_switches();
    let each = |node: u32, call: &Call| {
        let node = node as usize;
        if sums.len() <= node {
            sums.resize(node + 1, Sums::default());
        }
        sums[node].total.record(call.total);
        sums[node].own.record(call.self_ticks);
        if switched {
            sums[node].states.record(call);
        }
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
        states: sums.states.samples(source),
        percentiles: None,
    });
    Numbers { calls: sums.calls, times }
}
