//! Calls that a recording left out on purpose; every view reports them first.

use super::disabled;
use crate::names::Names;
use crate::sources::part::Part;
use crate::sources::source::Source;
use crate::units::{duration, one_line};
use calltap_trace::{Kept, SlowRule};

/// Key in JSON: a list of sentences.
pub const KEY: &str = "left_out";

/// Returns a sentence for each reason for which calls of a trace are missing on purpose: functions
/// disabled by the overhead limit, rules for slow calls, conditions, and which calls were to be
/// kept.
pub fn sentences(source: &dyn Source) -> Vec<String> {
    let meta = source.meta();
    let disabled = disabled::of_trace(meta, &Names::new(meta, false));
    disabled.into_iter().chain(by_rules(source)).collect()
}

/// Returns the sentences except that about disabled functions.
pub fn by_rules(source: &dyn Source) -> Vec<String> {
    let meta = source.meta();
    let since = |ticks| source.to_ns(ticks).saturating_sub(Part::beginning(source));
    let kept = meta.kept.iter().map(|kept| kept_calls(kept, since));
    slow_calls(&meta.slow).into_iter().chain(conditions(&meta.conditions)).chain(kept).collect()
}

/// Returns the sentences as lines of a head.
pub fn lines(source: &dyn Source) -> String {
    sentences(source).iter().map(|line| format!("# {line}\n")).collect()
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
