//! Functions that the recorder disabled to keep within `--max-overhead`; every view reports them
//! first.

use crate::names::Names;
use crate::units::{count, counted, one_line};
use calltap_trace::{Meta, SiteId};
use std::collections::HashSet;

/// Number of functions that are named.
const NAMED: usize = 5;

/// Returns one sentence about the functions of a trace that were disabled while recording, if there
/// are any.
pub fn of_trace(meta: &Meta, names: &Names<'_>) -> Option<String> {
    sentence(functions(meta, names), meta.sites.len())
}

/// Returns the functions of a trace that were disabled while recording, each once.
pub fn functions(meta: &Meta, names: &Names<'_>) -> Vec<String> {
    let mut known: HashSet<SiteId> = HashSet::new();
    let sites = meta.limited.iter().map(|limited| limited.site).filter(|site| known.insert(*site));
    sites.map(|site| names.function(site).to_owned()).collect()
}

/// Returns one sentence about disabled functions with these names, of `all` traced ones, if there
/// are any.
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
