//! Outcomes of conditions, and the sentences that report them.

use super::evidence::MIN_RECORDINGS;
use super::{Measure, Verdict};
use crate::units::{count, duration, one_line};

/// The outcome of a tried condition.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The user's text.
    pub condition: String,
    /// Whether the condition holds for values above the bound, not below it.
    pub(super) is_upper: bool,
    /// The functions for which it holds in the means of the recordings.
    pub holds_of: Vec<Holds>,
    /// The finding from all recordings.
    pub finding: Finding,
}

/// The finding about a condition from all recordings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The condition is proven to hold for a function.
    Holds,
    /// The condition is not proven to hold for any function.
    HoldsNot,
    /// There are too few recordings to decide: their numbers in A and B.
    TooFewRecordings([usize; 2]),
    /// Times differ beyond the noise, and the sides were not recorded in turn: the load of the
    /// machine may have changed in between.
    NotAlternated,
}

impl Finding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Finding::Holds => "holds",
            Finding::HoldsNot => "holds_not",
            Finding::TooFewRecordings(_) | Finding::NotAlternated => "not_enough_evidence",
        }
    }
}

/// A function for which a condition holds in the means.
#[derive(Clone, Debug)]
pub struct Holds {
    /// The function's name.
    pub function: String,
    /// The compared measure.
    pub measure: Measure,
    /// Means of the recordings of A and B, calls or nanoseconds.
    pub values: [u64; 2],
    /// Whether both sides differ beyond the noise.
    pub verdict: Option<Verdict>,
    /// Whether it holds for the whole confidence interval.
    pub proven: bool,
    /// Margin of error of B relative to its bound; `None` with too few recordings.
    pub margin: Option<u64>,
}

impl Outcome {
    /// Returns one sentence for each of the first few functions for which the condition is proven.
    pub fn sentences(&self) -> Vec<String> {
        const SHOWN: usize = 10;
        let is_told = |holds: &&Holds| holds.proven && self.finding == Finding::Holds;
        let proven: Vec<&Holds> = self.holds_of.iter().filter(is_told).collect();
        let mut sentences: Vec<String> =
            proven.iter().take(SHOWN).map(|holds| self.sentence(holds)).collect();
        if proven.len() > SHOWN {
            let more = proven.len() - SHOWN;
            sentences.push(format!("{}: and of {more} more functions", self.condition));
        }
        sentences
    }

    /// Returns a sentence if the means meet the condition but their confidence intervals do not.
    pub fn doubt(&self) -> Option<String> {
        let doubtful = |holds: &&Holds| !holds.proven && self.finding == Finding::HoldsNot;
        let mut doubtful = self.holds_of.iter().filter(doubtful);
        let first = self.sentence(doubtful.next()?);
        let more = match doubtful.count() {
            0 => String::new(),
            more => format!(", nor of {more} more functions"),
        };
        Some(format!("{first}: not proven{more}; more recordings may tell"))
    }

    fn sentence(&self, holds: &Holds) -> String {
        format!("{}: {}", self.condition, self.found(holds))
    }

    /// Returns the numbers of a function for which the condition holds.
    fn found(&self, holds: &Holds) -> String {
        let form = |value: u64| if holds.measure.is_time() { duration(value) } else { count(value) };
        let [a, b] = holds.values;
        let ratio = |b: u64| format!("{:.2}x", b as f64 / a as f64);
        let end = holds.margin.filter(|margin| *margin > 0).map(|margin| {
            if self.is_upper { ("at least", b.saturating_sub(margin)) } else { ("at most", b + margin) }
        });
        let compared = match end {
            Some((end, b_end)) if a > 0 => format!(" ({}, {end} {})", ratio(b), ratio(b_end)),
            Some((end, b_end)) => format!(" ({end} {})", form(b_end)),
            None if a > 0 => format!(" ({})", ratio(b)),
            None => String::new(),
        };
        let function = one_line(&holds.function);
        format!("{function} has {} in A, {} in B{compared}", form(a), form(b))
    }

    /// Whether more recordings are needed to try the condition.
    pub fn has_too_few_recordings(&self) -> bool {
        matches!(self.finding, Finding::TooFewRecordings(_))
    }

    /// Returns a sentence if the recordings keep the condition from being decided.
    pub fn lack(&self) -> Option<String> {
        let why = match self.finding {
            Finding::Holds | Finding::HoldsNot => return None,
            Finding::TooFewRecordings([a, b]) => {
                format!("{MIN_RECORDINGS} recordings a side are needed, A has {a} and B has {b}")
            }
            Finding::NotAlternated => {
                let proven = self.holds_of.iter().find(|holds| holds.proven);
                let found = proven.map(|holds| self.found(holds)).unwrap_or_default();
                format!(
                    "{found}, and a load of the machine that changed in between looks the same: record A and B in \
                     turn, in two blocks each or more: --repeat {MIN_RECORDINGS} -o A.1, then -o B.1, -o A.2, -o B.2"
                )
            }
        };
        Some(format!("{}: not enough evidence: {why}", self.condition))
    }
}
