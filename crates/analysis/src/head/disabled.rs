//! Functions that the recorder disabled to keep within `--max-overhead`; every view reports them
//! first.

use crate::names::Names;
use crate::units::{count, counted, first_names};
use calltap_names::demangle;
use calltap_trace::{Meta, SiteId};
use std::collections::HashSet;

/// Key in JSON: a list of names in a head, `true` in the row of a function.
pub const KEY: &str = "disabled_by_limit";

/// Returns one sentence about the functions of a trace that were disabled while recording, if there
/// are any.
pub(crate) fn of_trace(meta: &Meta, names: &Names<'_>) -> Option<String> {
    sentence(functions(meta, names), Some(meta.sites.len()))
}

/// Returns the functions of a trace that were disabled while recording.
pub fn sites(meta: &Meta) -> HashSet<SiteId> {
    meta.disabled_by_limit.iter().map(|disabled| disabled.site).collect()
}

/// Returns a number of a function as a table shows it: a function that was disabled while recording
/// has `>`, as its number is a lower bound.
pub fn at_least(is_disabled: bool, number: String) -> String {
    if is_disabled { format!(">{number}") } else { number }
}

/// Returns the names of the functions of a trace that were disabled while recording, each once.
pub fn functions(meta: &Meta, names: &Names<'_>) -> Vec<String> {
    let mut known: HashSet<SiteId> = HashSet::new();
    let sites =
        meta.disabled_by_limit.iter().map(|disabled| disabled.site).filter(|site| known.insert(*site));
    sites.map(|site| names.function(site).to_owned()).collect()
}

/// Returns a function's name with its rate when it was disabled: `leaf: 12,300,000 events/s`.
pub fn with_rate(name: &str, events_per_s: f64) -> String {
    format!("{}: {} events/s", demangle(name), count(events_per_s as u64))
}

/// Returns one sentence about disabled functions with these names, if there are any. `all` is the
/// number of traced functions, where it is known.
pub fn sentence(names: Vec<String>, all: Option<usize>) -> Option<String> {
    let disabled = names.len();
    if disabled == 0 {
        return None;
    }
    let shown = first_names(&names);
    let be = if disabled == 1 { "was" } else { "were" };
    let functions = match all {
        Some(all) => format!("{} of {}", count(disabled as u64), counted(all as u64, "function")),
        None => counted(disabled as u64, "function"),
    };
    Some(format!(
        "{functions} {be} disabled by --max-overhead ({shown}): calls are missing, and callers' times include them; '--max-overhead none' keeps all",
    ))
}
