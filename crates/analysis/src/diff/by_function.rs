//! Compares the recordings of both sides function by function.

use super::functions::Functions;
use super::numbers::{self, Numbers, Spread, Spreads};
use super::{Diff, Options, Row, Sources};
use crate::error::Error;
use crate::sources::source::Source;
use crate::sums::{self, Extra, Sum};
use calltap_trace::SiteId;
use std::collections::HashMap;

pub(super) fn collect(
    sources: Sources<'_>,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Diff, Error> {
    let mut totals = [Vec::new(), Vec::new()];
    let mut read: [Vec<Vec<Sum<Spread>>>; 2] = Default::default();
    let mut before = 0;
    for side in 0..2 {
        for source in sources[side] {
            let spreads = Spreads::new(source.meta().sites.len() + 1, source.has_switches());
            let tell = &mut |done| progress(before + done);
            let (sums, total) = sums::collect(*source, false, spreads, Some(tell))?;
            read[side].push(sums);
            totals[side].push(total);
            before += source.event_count();
        }
    }
    let sites = [0, 1].map(|side: usize| {
        let of_recording = |sums: &Vec<Sum<Spread>>| sums.iter().map(|sum| sum.site).collect();
        read[side].iter().map(of_recording).collect::<Vec<Vec<SiteId>>>()
    });
    let functions = Functions::new(sources, &sites, options.linker_names);
    let none = sources.map(|side| vec![Numbers::default(); side.len()]);
    let mut rows: Vec<Row> = (0..functions.list.len() as u32)
        .map(|function| Row { function, path: None, sides: none.clone() })
        .collect();
    for (side, recordings) in read.into_iter().enumerate() {
        for (recording, sums) in recordings.into_iter().enumerate() {
            let function_of = |site| functions.of(side, recording, site);
            for (function, sum) in merged(&function_of, sums) {
                let numbers = numbers_of(sources[side][recording], &sum);
                rows[function as usize].sides[side][recording] = numbers;
            }
        }
    }
    Ok(Diff::new(options, functions.list, rows, totals))
}

fn numbers_of(source: &dyn Source, sum: &Sum<Spread>) -> Numbers {
    numbers::of_function(source, &sum.stats, sum.marks, &sum.extra)
}

/// Merges the sums of all sites of each function.
fn merged(function_of: &dyn Fn(SiteId) -> Option<u32>, sums: Vec<Sum<Spread>>) -> HashMap<u32, Sum<Spread>> {
    let mut merged: HashMap<u32, Sum<Spread>> = HashMap::new();
    for sum in sums {
        let Some(function) = function_of(sum.site) else { continue };
        match merged.get_mut(&function) {
            Some(before) => {
                before.stats.add(&sum.stats);
                before.marks += sum.marks;
                Spreads::add(&mut before.extra, &sum.extra);
            }
            None => {
                merged.insert(function, sum);
            }
        }
    }
    merged
}
