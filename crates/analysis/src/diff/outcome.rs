//! What became of a condition, and how that is told.

use super::evidence::LEAST_RECORDINGS;
use super::{Measure, Verdict};
use crate::units::{count, duration, one_line};

/// A condition, tried.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As it was given.
    pub condition: String,
    /// It holds of what is larger, not of what is smaller.
    pub(super) is_upper: bool,
    /// The functions of which it holds in the means of the recordings.
    pub holds_of: Vec<Holds>,
    /// What the recordings prove.
    pub finding: Finding,
}

/// What recordings prove of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It holds of a function.
    Holds,
    /// It is not proven to hold of any.
    HoldsNot,
    /// There are so many recordings of A and B, which is too few to tell.
    TooFewRecordings([usize; 2]),
}

impl Finding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Finding::Holds => "holds",
            Finding::HoldsNot => "holds_not",
            Finding::TooFewRecordings(_) => "not_enough_evidence",
        }
    }
}

/// A function of which a condition holds in the means.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Its name.
    pub function: String,
    /// What was compared.
    pub measure: Measure,
    /// In A and in B: calls, or nanoseconds; the means of the recordings.
    pub values: [u64; 2],
    /// Whether they differ beyond the noise.
    pub verdict: Option<Verdict>,
    /// It holds with the whole confidence interval.
    pub proven: bool,
    /// By how much B may be off where it is compared with its bound; None with too few recordings to say.
    pub margin: Option<u64>,
}

impl Outcome {
    /// One sentence for each of the first few functions of which it is proven to hold.
    pub fn sentences(&self) -> Vec<String> {
        const SHOWN: usize = 10;
        let proven: Vec<&Holds> = self.holds_of.iter().filter(|holds| holds.proven).collect();
        let mut sentences: Vec<String> =
            proven.iter().take(SHOWN).map(|holds| self.sentence(holds)).collect();
        if proven.len() > SHOWN {
            let more = proven.len() - SHOWN;
            sentences.push(format!("{}: and of {more} more functions", self.condition));
        }
        sentences
    }

    /// What is not certain: the means meet the condition, and their confidence intervals do not.
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
        format!("{}: {function} has {} in A, {} in B{compared}", self.condition, form(a), form(b))
    }

    /// Why it could not be tried, if there are too few recordings.
    pub fn lack(&self) -> Option<String> {
        let Finding::TooFewRecordings([a, b]) = self.finding else { return None };
        Some(format!(
            "{}: not enough evidence: {LEAST_RECORDINGS} recordings a side are needed, A has {a} and B has {b}",
            self.condition
        ))
    }
}
