//! Functions that the recorder disabled to keep within `--max-overhead`: what every view has to say before anything else.

use crate::names::Names;
use crate::units::{count, counted, one_line};
use calltap_trace::{Meta, SiteId};
use std::collections::HashSet;

/// So many of them are named.
const NAMED: usize = 5;

/// One sentence about the functions of a trace that were disabled while it was recorded; none if there are none.
pub fn of_trace(meta: &Meta, names: &Names<'_>) -> Option<String> {
    sentence(functions(meta, names), meta.sites.len())
}

/// The functions of a trace that were disabled while it was recorded, each once.
pub fn functions(meta: &Meta, names: &Names<'_>) -> Vec<String> {
    let mut known: HashSet<SiteId> = HashSet::new();
    let sites = meta.limited.iter().map(|limited| limited.site).filter(|site| known.insert(*site));
    sites.map(|site| names.function(site).to_owned()).collect()
}

/// The same of functions with these names, of `all` that were traced.
pub fn sentence(mut names: Vec<String>, all: usize) -> Option<String> {
    let disabled = names.len();
    if disabled == 0 {
        return None;
    }
    names.truncate(NAMED);
    let mut shown = one_line(&names.join(", ")).into_owned();
    if disabled > NAMED {
        shown += &format!(" and {} more", count((disabled - NAMED) as u64));
    }
    let be = if disabled == 1 { "was" } else { "were" };
    Some(format!(
        "{} of {} {be} disabled by --max-overhead ({shown}): calls are missing, and callers' times include them; '--max-overhead none' keeps all",
        count(disabled as u64),
        counted(all as u64, "function"),
    ))
}
