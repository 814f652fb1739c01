//! Both traces by function.

use super::functions::Functions;
use super::numbers::{self, Numbers, Spread, Spreads};
use super::{Diff, Options, Row};
use crate::sums::{self, Extra, Sum};
use crate::{Error, Source};
use calltap_trace::SiteId;
use std::collections::HashMap;

pub(super) fn collect(
    sources: [&dyn Source; 2],
    options: &Options,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<Diff, Error> {
    let mut read = |side: usize| {
        let spreads = Spreads::new(sources[side].meta().sites.len() + 1);
        sums::collect(sources[side], false, spreads, Some(&mut |done| progress(side, done)))
    };
    let (a, b) = (read(0)?, read(1)?);
    let sites = |sums: &[Sum<Spread>]| sums.iter().map(|sum| sum.site).collect::<Vec<SiteId>>();
    let functions = Functions::new(sources, [&sites(&a.0), &sites(&b.0)], options.linker_names);
    let mut rows: Vec<Row> = (0..functions.list.len() as u32)
        .map(|function| Row { function, path: None, sides: Default::default() })
        .collect();
    let totals = [a.1, b.1];
    for (side, sums) in [a.0, b.0].into_iter().enumerate() {
        for (function, sum) in merged(&functions, side, sums) {
            rows[function as usize].sides[side] = numbers_of(sources[side], &sum);
        }
    }
    Ok(Diff::new(options, functions.list, rows, totals))
}

fn numbers_of(source: &dyn Source, sum: &Sum<Spread>) -> Numbers {
    numbers::of_function(source, &sum.stats, sum.marks, &sum.extra)
}

/// Sites that are one function, together.
fn merged(functions: &Functions, side: usize, sums: Vec<Sum<Spread>>) -> HashMap<u32, Sum<Spread>> {
    let mut merged: HashMap<u32, Sum<Spread>> = HashMap::new();
    for sum in sums {
        let Some(function) = functions.of(side, sum.site) else { continue };
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
