//! Calls that a recording left out on purpose; every view reports them first.

use super::{disabled, untraceable};
use crate::names::Names;
use crate::sources::part::Part;
use crate::sources::source::Source;
use crate::units::{duration, first_names, one_line};
use calltap_names::demangle;
use calltap_trace::{Busy, Kept, SlowRule};
use std::collections::BTreeMap;

/// Key in JSON: a list of sentences.
pub const KEY: &str = "left_out";

/// Returns a sentence for each reason for which calls of a trace are missing on purpose: functions
/// disabled by the overhead limit, rules for slow calls, conditions, which calls were to be kept,
/// functions that were not traced from the beginning, and functions that cannot be traced.
pub fn sentences(source: &dyn Source) -> Vec<String> {
    let meta = source.meta();
    let disabled = disabled::of_trace(meta, &Names::new(meta, false));
    disabled.into_iter().chain(by_rules(source)).collect()
}

/// Returns the sentences except that about disabled functions.
pub fn by_rules(source: &dyn Source) -> Vec<String> {
    by_choice(source).into_iter().chain(untraceable::sentence(source.meta())).collect()
}

/// Returns the sentences except those about disabled and untraceable functions.
pub(crate) fn by_choice(source: &dyn Source) -> Vec<String> {
    let meta = source.meta();
    let since = |ticks| source.to_ns(ticks).saturating_sub(Part::beginning(source));
    let kept = meta.kept.iter().map(|kept| kept_calls(kept, since));
    let kept: Vec<String> = kept.collect();
    let rules = slow_calls(&meta.slow).into_iter().chain(conditions(&meta.conditions)).chain(kept);
    rules.chain(busy(&meta.busy, since)).collect()
}

/// Returns the sentences as lines of a head.
pub fn lines(source: &dyn Source) -> String {
    sentences(source).iter().map(|line| format!("# {line}\n")).collect()
}

/// Returns a sentence about the functions that were never traced, one about those that were traced
/// later than the others, and the same for functions to be watched. `since` converts ticks to
/// nanoseconds since the beginning.
fn busy(busy: &[Busy], since: impl Fn(u64) -> u64) -> impl Iterator<Item = String> {
    const WHY: &str = "a thread may have been inside the code that the jumps overwrite";
    let (mut traced, mut watched) = (BTreeMap::new(), BTreeMap::new());
    for busy in busy {
        let newest = if busy.watched { &mut watched } else { &mut traced };
        newest.extend(busy.functions.iter().map(|function| (function, busy.until)));
    }
    let named = |newest: &BTreeMap<&String, Option<u64>>, is_late: bool| {
        let found = newest.iter().filter(|(_, until)| until.is_some() == is_late);
        found.map(|(name, _)| demangle(name)).collect::<Vec<String>>()
    };
    let last = |newest: &BTreeMap<&String, Option<u64>>| {
        duration(newest.values().flatten().max().map_or(0, |until| since(*until)))
    };
    let (never, late) = (named(&traced, false), named(&traced, true));
    let be = if never.len() == 1 { "was" } else { "were" };
    let never = (!never.is_empty()).then(|| format!("{} {be} not traced: {WHY}", first_names(&never)));
    let late = (!late.is_empty())
        .then(|| format!("before {}, calls of {} are missing: {WHY}", last(&traced), first_names(&late)));
    let unwatched = |before: &str, names: &[String]| {
        format!(
            "{before}exceptions and longjmp may have left calls that are shown as open, with later calls beneath them: \
             {} {} not watched, as {WHY}",
            first_names(names),
            if names.len() == 1 { "was" } else { "were" },
        )
    };
    let (blind, soon) = (named(&watched, false), named(&watched, true));
    let blind = (!blind.is_empty()).then(|| unwatched("", &blind));
    let soon = (!soon.is_empty()).then(|| unwatched(&format!("before {}, ", last(&watched)), &soon));
    [never, late, blind, soon].into_iter().flatten()
}

fn slow_calls(rules: &[SlowRule]) -> Option<String> {
    let rules = rules.iter().map(|rule| format!("{} longer than {}", rule.function, duration(rule.ns)));
    let rules = one_line(&rules.collect::<Vec<_>>().join(", ")).into_owned();
    (!rules.is_empty())
        .then(|| format!("the recording kept only calls of {rules}, and what these called (--slow)"))
}

fn conditions(conditions: &[String]) -> Option<String> {
    let all = one_line(&conditions.join(", ")).into_owned();
    (!all.is_empty()).then(|| {
        format!("the recording left out calls for which the condition of their function did not hold: {all} (--if)")
    })
}

/// Returns a sentence about the kept calls. `since` converts ticks to nanoseconds since the
/// beginning.
pub(crate) fn kept_calls(kept: &Kept, since: impl Fn(u64) -> u64) -> String {
    let from = kept.from.map(|from| format!("from {} on ", duration(since(from)))).unwrap_or_default();
    match &kept.calls {
        None => format!("{from}the recording kept all calls"),
        Some(calls) => format!(
            "{from}the recording kept only calls {}: other calls are missing, and callers' times include them",
            one_line(calls)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_were_traced_late_or_never_are_named() {
        let busy_of = |functions: &[&str], until| Busy {
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            until,
            watched: false,
        };
        let said = |all: &[Busy]| busy(all, |ticks| ticks * 1_000_000).collect::<Vec<String>>();
        let why = "a thread may have been inside the code that the jumps overwrite";
        assert_eq!(said(&[]), [""; 0]);
        assert_eq!(
            said(&[busy_of(&["a", "b"], None), busy_of(&["c"], Some(5))]),
            [
                format!("a, b were not traced: {why}"),
                format!("before 5.000 ms, calls of c are missing: {why}")
            ]
        );
        // Another selection has enabled it.
        let later = said(&[busy_of(&["a"], None), busy_of(&["a"], Some(7))]);
        assert_eq!(later, [format!("before 7.000 ms, calls of a are missing: {why}")]);
        let watched = |until| Busy { watched: true, ..busy_of(&["longjmp"], until) };
        let may_be_open = "exceptions and longjmp may have left calls that are shown as open, with later calls beneath them";
        let blind = format!("{may_be_open}: longjmp was not watched, as {why}");
        assert_eq!(said(&[watched(None)]), std::slice::from_ref(&blind));
        assert_eq!(said(&[watched(None), watched(Some(5))]), [format!("before 5.000 ms, {blind}")]);
    }
}
