//! Conditions under which a comparison fails: `total(f)>1.1x`. A condition on times needs several
//! recordings: it holds if the whole confidence interval lies beyond its bound.

use super::evidence::{self, ERROR_RATE, MIN_RECORDINGS, Mean};
use super::outcome::{Finding, Holds, Outcome};
use super::rule::Rule;
use super::{Measure, Options, Row, Sources};
use crate::error::{Error, NotOneOf};
use crate::names::Names;
use crate::sources::source::Source;
use calltap_names::{Word, nearest_names};
use calltap_trace::SiteId;
use std::str::FromStr;

const FORM: &str = "expected as in 'total(f)>1.1x', 'p99(f)>5ms' or 'calls(f)>=1000'";

/// A condition on one function, or on each function that a glob matches.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    text: String,
    measure: Measure,
    function: String,
    comparison: Comparison,
    bound: Bound,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    More,
    AtLeast,
    Less,
    AtMost,
}

/// The bound that B is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    /// A multiple of A.
    Ratio(f64),
    /// Nanoseconds, or a number of calls.
    Number(f64),
}

impl Condition {
    /// Returns the bound for B, given A.
    fn bound(&self, a: f64) -> f64 {
        match self.bound {
            Bound::Ratio(ratio) => ratio * a,
            Bound::Number(number) => number,
        }
    }

    fn is_met(&self, a: f64, b: f64) -> bool {
        let bound = self.bound(a);
        match self.comparison {
            Comparison::More => b > bound,
            Comparison::AtLeast => b >= bound,
            Comparison::Less => b < bound,
            Comparison::AtMost => b <= bound,
        }
    }

    /// Returns the end of the confidence interval of B that is nearer to the bound.
    fn nearer(&self, b: f64, margin: f64) -> f64 {
        match self.comparison {
            Comparison::More | Comparison::AtLeast => b - margin,
            Comparison::Less | Comparison::AtMost => b + margin,
        }
    }

    /// Returns the error margin of B relative to its bound at this error rate; `None` with too few
    /// recordings.
    fn margin(&self, a: &Mean, b: &Mean, error: f64, rule: Rule) -> Option<f64> {
        let ratio = if let Bound::Ratio(ratio) = self.bound { ratio } else { 0.0 };
        let compared: &[&Mean] = if ratio > 0.0 { &[a, b] } else { &[b] };
        let few = |side: &&&Mean| side.recordings < MIN_RECORDINGS;
        // Equal call counts in all recordings need no test.
        let exact = !self.measure.is_time() && compared.iter().all(|side| side.is_constant());
        if !exact && compared.iter().any(|side| few(&side)) {
            return None;
        }
        let margin = evidence::margin(self.measure, a, b, ratio, error)?;
        Some(if self.measure.is_percentile() { margin.max(rule.step_ns as f64) } else { margin })
    }

    /// Whether there are too few recordings to try the condition.
    fn lacks(&self, recordings: [usize; 2]) -> bool {
        let [a, b] = recordings.map(|number| number < MIN_RECORDINGS);
        b || (a && matches!(self.bound, Bound::Ratio(_)))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("'{text}': {what}; {FORM}");
        let (measure, rest) = text.split_once('(').ok_or_else(|| wrong("no function in parentheses"))?;
        let measure: Measure =
            measure.trim().parse().map_err(|error: NotOneOf| format!("'{text}': {error}"))?;
        // A name may contain parentheses and `>`; the text after the last parenthesis cannot.
        let (function, rest) = rest.rsplit_once(')').ok_or_else(|| wrong("no function in parentheses"))?;
        if function.trim().is_empty() {
            return Err(wrong("no function in parentheses"));
        }
        let rest = rest.trim();
        let forms = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            (">", Comparison::More),
            ("<", Comparison::Less),
        ];
        let found = forms.iter().find_map(|(sign, form)| Some((*form, rest.strip_prefix(sign)?)));
        let (comparison, bound) = found.ok_or_else(|| wrong("no >, >=, < or <= behind the function"))?;
        let bound = bound_of(measure, bound.trim()).map_err(|what| wrong(&what))?;
        if measure == Measure::Max && matches!(bound, Bound::Ratio(_)) {
            return Err(format!(
                "'{text}': a maximum is a single call, and proves no change: use p99, or a time as the bound"
            ));
        }
        Ok(Self { text: text.to_owned(), measure, function: function.trim().to_owned(), comparison, bound })
    }
}

fn bound_of(measure: Measure, text: &str) -> Result<Bound, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: f64 = digits.parse().map_err(|_| format!("'{text}' is not a number"))?;
    let factor = match (unit.trim(), measure.is_time()) {
        ("x", _) => return Ok(Bound::Ratio(number)),
        ("", false) => 1.0,
        ("ns", true) => 1.0,
        ("us", true) => 1e3,
        ("ms", true) => 1e6,
        ("s", true) => 1e9,
        (_, true) => return Err(format!("'{text}' is neither a ratio (1.1x) nor a time (ns, us, ms, s)")),
        (_, false) => return Err(format!("'{text}' is neither a ratio (1.1x) nor a number of calls")),
    };
    Ok(Bound::Number(number * factor))
}

/// Tries all conditions on rows by function; `names` names a row's function. `why_not` says why
/// times cannot be compared.
pub(super) fn try_all(
    sources: Sources<'_>,
    rows: &[Row],
    names: &dyn Fn(&Row) -> String,
    why_not: Option<&str>,
    rule: Rule,
    options: &Options,
) -> Result<Vec<Outcome>, Error> {
    let functions_of = |condition: &Condition| {
        if let (Some(why), true) = (why_not, condition.measure.is_time()) {
            return Err(Error::Condition { condition: condition.text.clone(), why: why.to_owned() });
        }
        let matching = matching(sources, condition, options)?;
        Ok(rows.iter().filter(|row| matching.contains(&names(row))).collect::<Vec<&Row>>())
    };
    let tried: Vec<Vec<&Row>> = options.conditions.iter().map(functions_of).collect::<Result<_, Error>>()?;
    let comparisons = tried.iter().map(Vec::len).sum::<usize>();
    let error = ERROR_RATE / comparisons.max(1) as f64;
    let outcome = |(condition, rows): (&Condition, Vec<&Row>)| {
        let mut holds_of = Vec::new();
        for row in rows {
            let means = [0, 1].map(|side| row.mean(side, condition.measure));
            let [Some(a), Some(b)] = means else {
                let why = format!("the calls of '{}' were not timed", names(row));
                return Err(Error::Condition { condition: condition.text.clone(), why });
            };
            if !condition.is_met(a.mean, b.mean) {
                continue;
            }
            let margin = condition.margin(&a, &b, error, rule);
            let nearer = margin.map(|margin| condition.nearer(b.mean, margin));
            holds_of.push(Holds {
                function: names(row),
                measure: condition.measure,
                values: [a.rounded(), b.rounded()],
                verdict: row.verdict(condition.measure, rule),
                proven: nearer.is_some_and(|nearer| condition.is_met(a.mean, nearer)),
                margin: margin.map(|margin| margin.round() as u64),
            });
        }
        let recordings = sources.map(<[_]>::len);
        let finding = if holds_of.iter().any(|holds| holds.proven) {
            let needs_turns = condition.measure.is_time() && matches!(condition.bound, Bound::Ratio(_));
            if needs_turns && !are_in_turn(sources) { Finding::NotAlternated } else { Finding::Holds }
        } else if condition.lacks(recordings) && (condition.measure.is_time() || !holds_of.is_empty()) {
            Finding::TooFewRecordings(recordings)
        } else {
            Finding::HoldsNot
        };
        let is_upper = matches!(condition.comparison, Comparison::More | Comparison::AtLeast);
        Ok(Outcome { condition: condition.text.clone(), is_upper, holds_of, finding })
    };
    options.conditions.iter().zip(tried).map(outcome).collect()
}

/// Whether the recordings of both sides were made in turn, in two blocks each or more, or it is not
/// known when.
fn are_in_turn(sources: Sources<'_>) -> bool {
    let start =
        |source: &&dyn Source| source.meta().session.as_ref().map_or(0, |session| session.start_realtime_ns);
    let starts = |side: usize| sources[side].iter().map(move |source| (start(source), side));
    let mut all: Vec<(u64, usize)> = starts(0).chain(starts(1)).collect();
    all.sort_unstable();
    let is_known = all.iter().all(|(start, _)| *start > 0);
    !is_known || all.windows(2).filter(|pair| pair[0].1 != pair[1].1).count() >= 3
}

/// Returns the names of the functions that a condition is about, called or not.
fn matching(
    sources: Sources<'_>,
    condition: &Condition,
    options: &Options,
) -> Result<std::collections::HashSet<String>, Error> {
    let (mut all, mut exact, mut globbed) = (Vec::new(), Vec::new(), Vec::new());
    let glob = Word::new(&condition.function);
    for source in sources.into_iter().flatten() {
        let names = Names::new(source.meta(), options.linker_names);
        for site in (0..source.meta().sites.len() as u32).map(SiteId) {
            let (name, linker) = (names.function(site).to_owned(), names.linker(site));
            if name == condition.function || linker == condition.function {
                exact.push(name.clone());
            } else if names.is(site, &glob) {
                globbed.push(name.clone());
            }
            all.push(name);
        }
    }
    // A C++ name can look like a glob that does not match it: `operator*`, `f[abi:cxx11]`.
    let found = if exact.is_empty() { globbed } else { exact };
    if found.is_empty() {
        let near = nearest_names(&condition.function, all.iter().map(String::as_str), 6);
        let mut near: Vec<String> = near.into_iter().map(str::to_owned).collect();
        near.dedup();
        near.truncate(3);
        return Err(Error::NoSuchFunction { wanted: condition.function.clone(), near });
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed() {
        let parsed =
            |text: &str| text.parse::<Condition>().map(|c| (c.measure, c.function, c.comparison, c.bound));
        let good = |text: &str, measure, function: &str, comparison, bound| {
            assert_eq!(parsed(text), Ok((measure, function.to_owned(), comparison, bound)));
        };
        good("total(f)>1.1x", Measure::Total, "f", Comparison::More, Bound::Ratio(1.1));
        good(" p99.9( f ) >= 5 ms", Measure::P999, "f", Comparison::AtLeast, Bound::Number(5e6));
        good("calls(f*)<1000", Measure::Calls, "f*", Comparison::Less, Bound::Number(1000.0));
        let swap = "std::swap<int>(int&, int&)";
        good(&format!("self({swap})<=0.5x"), Measure::SelfTime, swap, Comparison::AtMost, Bound::Ratio(0.5));
        good(
            "avg(operator>(A, A))>10us",
            Measure::Avg,
            "operator>(A, A)",
            Comparison::More,
            Bound::Number(1e4),
        );
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for (text, says) in [
            ("total", "no function"),
            ("total()>1x", "no function"),
            ("total(f)", "behind the function"),
            ("total(f)=1x", "behind the function"),
            ("total(f)>", "not a number"),
            ("max(f)>1.1x", "a single call"),
            ("total(f)>5", "nor a time"),
            ("total(f)>-5ms", "not a number"),
            ("calls(f)>5ms", "nor a number of calls"),
            ("mean(f)>5ms", "p99.9"),
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }
}
