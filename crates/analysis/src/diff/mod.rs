//! Compares two sides, each of one recording or several: which functions, or call paths, differ,
//! and whether they differ beyond the noise ([`noise`], [`evidence`]).
//!
//! Recordings whose times are not comparable, as their clocks differ or are counters, are compared
//! by call counts alone.

mod by_function;
mod by_path;
mod condition;
pub mod evidence;
pub(crate) mod functions;
mod json;
mod measure;
pub mod noise;
mod numbers;
mod outcome;
mod rule;
mod text;

pub use condition::Condition;
pub use measure::Measure;
pub use noise::Verdict;
pub use outcome::{Finding, Holds, Outcome};

use crate::error::Error;
use crate::head::disabled;
use crate::head::head;
use crate::names::Names;
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::tree::Totals;
use calltap_names::{ShortNames, Word, selects};
use calltap_trace::ClockKind;
use evidence::Mean;
use functions::Function;
use numbers::Numbers;
use rule::Rule;
use std::cmp::Reverse;

/// Scope and presentation of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether call paths are compared, not functions.
    pub by_path: bool,
    /// Columns of the text, in this order; empty: total, self, calls, p50 and p99 (by path without
    /// percentiles).
    pub columns: Vec<Measure>,
    /// The measure whose largest differences come first.
    pub sort: Measure,
    /// Whether rows that do not differ beyond the noise are shown too.
    pub all: bool,
    /// Shows only functions whose names match one of these; empty: all.
    pub filter: Vec<Word>,
    /// Maximum number of rows.
    pub limit: Option<usize>,
    /// Times that differ by a smaller share count as equal.
    pub min_change: f64,
    /// Conditions to try.
    pub conditions: Vec<Condition>,
    /// Whether linker names are kept.
    pub linker_names: bool,
    /// Whether names in the table are shortened to what distinguishes them.
    pub short_names: bool,
    /// Characters of a line of text: if names do not fit, default columns are left out.
    pub width: Option<usize>,
    /// Maximum number of call paths kept in memory for each recording; 0: a million for each side.
    pub max_paths: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            by_path: false,
            columns: Vec::new(),
            sort: Measure::Total,
            all: false,
            filter: Vec::new(),
            limit: None,
            min_change: 0.05,
            conditions: Vec::new(),
            linker_names: false,
            short_names: false,
            width: None,
            max_paths: 0,
        }
    }
}

/// The recordings of both sides.
pub(crate) type Sources<'a> = [&'a [&'a dyn Source]; 2];

/// A function, or a call path, in the recordings of both sides.
#[derive(Clone, Debug)]
struct Row {
    function: u32,
    /// Index in the tree of paths.
    path: Option<u32>,
    sides: [Vec<Numbers>; 2],
}

impl Row {
    fn verdict(&self, measure: Measure, rule: Rule) -> Option<Verdict> {
        noise::judge(measure, &self.sides[0], &self.sides[1], rule)
    }

    /// Returns the mean over the recordings of a side; `None` if calls have no times.
    fn mean(&self, side: usize, measure: Measure) -> Option<Mean> {
        Mean::of(&self.sides[side], measure)
    }

    fn values(&self, measure: Measure) -> [Option<u64>; 2] {
        [0, 1].map(|side| self.mean(side, measure).map(|mean| mean.rounded()))
    }

    /// Returns the absolute difference between both sides.
    fn change(&self, measure: Measure) -> Option<u64> {
        let [a, b] = self.values(measure);
        Some(a?.abs_diff(b?))
    }
}

/// A finished comparison.
pub struct Diff {
    options: Options,
    /// All rows that pass the filter, the largest difference first.
    rows: Vec<Row>,
    functions: Vec<Function>,
    /// Parent and function of each path; the first is the root.
    tree: Vec<(u32, u32)>,
    /// Number of calls of each side that count for their callers, as there were too many paths.
    merged: [u64; 2],
    timed: bool,
    /// Whether all recordings have context switches.
    states: bool,
    restriction: Option<String>,
    /// Outcomes of the conditions, in their order.
    pub outcomes: Vec<Outcome>,
    /// The recordings of each side.
    sides: [Vec<Recording>; 2],
}

/// Facts about one of the recordings.
struct Recording {
    name: String,
    head: String,
    totals: Totals,
    lost: u64,
    /// Functions that were disabled by the overhead limit.
    disabled_by_limit: Vec<String>,
    clock: Option<ClockKind>,
}

/// Compares the recordings of B with those of A. Each source comes with its display name.
pub fn collect(
    sides: [&[(&str, &dyn Source)]; 2],
    options: &Options,
    mut progress: Progress<'_>,
) -> Result<Diff, Error> {
    let of_side = |side: &[(&str, _)]| side.iter().map(|(_, source)| *source).collect();
    let [a, b]: [Vec<&dyn Source>; 2] = sides.map(of_side);
    let sources: Sources<'_> = [&a, &b];
    let mut tell = |done: u64| crate::sources::drive::tell(&mut progress, done);
    let mut diff = if options.by_path {
        by_path::collect(sources, options, &mut tell)?
    } else {
        by_function::collect(sources, options, &mut tell)?
    };
    for (recordings, side) in diff.sides.iter_mut().zip(sides) {
        for (recording, (name, source)) in recordings.iter_mut().zip(side) {
            recording.name = (*name).to_owned();
            recording.lost = crate::head::Lost::of(*source, &recording.totals).entries;
            let names = Names::new(source.meta(), options.linker_names);
            recording.disabled_by_limit = disabled::functions(source.meta(), &names);
            recording.clock = clock(*source);
            recording.head = head(*source, &recording.totals);
        }
    }
    diff.states = sources.into_iter().flatten().all(|source| source.has_switches());
    diff.restrict(restriction(sources));
    if options.by_path && !options.conditions.is_empty() {
        // Conditions apply to functions.
        let mut by_function = by_function::collect(sources, options, &mut |_| {})?;
        for (recordings, side) in by_function.sides.iter_mut().zip(sources) {
            recordings.iter_mut().zip(side).for_each(|(recording, source)| recording.clock = clock(*source));
        }
        by_function.restrict(restriction(sources));
        diff.outcomes = by_function.outcomes(sources)?;
    } else {
        diff.outcomes = diff.outcomes(sources)?;
    }
    diff.sort_and_filter();
    diff.shorten_names();
    Ok(diff)
}

fn passes(function: &Function, options: &Options) -> bool {
    options.filter.is_empty() || {
        let names = function.names();
        selects(&options.filter, |word| word.matches(&names))
    }
}

impl Diff {
    fn new(options: &Options, functions: Vec<Function>, rows: Vec<Row>, totals: [Vec<Totals>; 2]) -> Self {
        let recording = |totals| Recording {
            name: String::new(),
            head: String::new(),
            totals,
            lost: 0,
            disabled_by_limit: Vec::new(),
            clock: None,
        };
        Self {
            options: options.clone(),
            rows,
            functions,
            tree: Vec::new(),
            merged: [0; 2],
            timed: true,
            states: false,
            restriction: None,
            outcomes: Vec::new(),
            sides: totals.map(|side| side.into_iter().map(recording).collect()),
        }
    }

    /// Removes the times if they cannot be compared, for the reason `why`.
    fn restrict(&mut self, why: Option<String>) {
        if why.is_some() {
            let all = self.rows.iter_mut().flat_map(|row| row.sides.iter_mut().flatten());
            all.for_each(|numbers| numbers.times = None);
        }
        (self.timed, self.restriction) = (why.is_none(), why);
    }

    fn outcomes(&self, sources: Sources<'_>) -> Result<Vec<Outcome>, Error> {
        let name = |row: &Row| self.functions[row.function as usize].name.clone();
        condition::try_all(sources, &self.rows, &name, self.restriction(), self.rule(), &self.options)
    }

    fn sort_and_filter(&mut self) {
        let sort = if self.timed { self.options.sort } else { Measure::Calls };
        let (functions, options) = (&self.functions, &self.options);
        self.rows.retain(|row| passes(&functions[row.function as usize], options));
        self.rows.sort_by_cached_key(|row| {
            let function = &functions[row.function as usize];
            (Reverse(row.change(sort)), function.name.clone(), function.module.clone(), row.path)
        });
    }

    fn shorten_names(&mut self) {
        if !self.options.short_names || self.options.linker_names {
            return;
        }
        let short: ShortNames = self.functions.iter().map(|function| function.name.as_str()).collect();
        self.functions.iter_mut().for_each(|function| function.name = short.of(&function.name));
    }

    /// Whether any shown row differs beyond the noise.
    pub fn differs(&self) -> bool {
        self.rows.iter().any(|row| self.is_beyond(row))
    }

    /// The reason why only call counts are compared, if so.
    pub fn restriction(&self) -> Option<&str> {
        self.restriction.as_deref()
    }

    fn rule(&self) -> Rule {
        let coarse = self.sides.iter().flatten().any(|recording| recording.clock == Some(ClockKind::Coarse));
        let step_ns = if coarse { 2_000_000 } else { rule::STEP_NS };
        let states = if self.states { Measure::STATES.len() } else { 0 };
        let comparisons = self.rows.len() * (self.columns().len() + states);
        Rule { min_change: self.options.min_change, step_ns, comparisons }
    }

    /// Whether each side has one recording, so that noise is estimated from the calls within it.
    fn is_of_single_recordings(&self) -> bool {
        self.sides.iter().all(|side| side.len() == 1)
    }

    fn columns(&self) -> Vec<Measure> {
        let mut columns = match &self.options.columns[..] {
            [] if self.options.by_path => vec![Measure::Total, Measure::SelfTime, Measure::Calls],
            [] => vec![Measure::Total, Measure::SelfTime, Measure::Calls, Measure::P50, Measure::P99],
            columns => columns.to_vec(),
        };
        columns.retain(|measure| !measure.is_time() || self.timed);
        if columns.is_empty() {
            columns.push(Measure::Calls);
        }
        columns
    }

    fn is_beyond(&self, row: &Row) -> bool {
        let differs = |measure: &Measure| row.verdict(*measure, self.rule()).is_some_and(Verdict::differs);
        self.columns().iter().any(differs)
    }

    /// Returns the names of the functions on a path, outermost first.
    fn path(&self, mut node: u32) -> Vec<&str> {
        let mut names = Vec::new();
        while node != 0 {
            let (parent, function) = self.tree[node as usize];
            names.push(self.functions[function as usize].name.as_str());
            node = parent;
        }
        names.reverse();
        names
    }
}

fn clock(source: &dyn Source) -> Option<ClockKind> {
    source.meta().session.as_ref().map(|session| session.clock)
}

/// Returns the reason why the times of these recordings cannot be compared.
fn restriction(sources: Sources<'_>) -> Option<String> {
    for (side, letter) in sources.into_iter().zip(["A", "B"]) {
        if side.iter().any(|source| !source.has_time()) {
            return Some(format!("{letter} has no times (its clock is counter): only calls are compared"));
        }
    }
    let name = |clock: ClockKind| format!("{clock:?}").to_lowercase();
    let clocks = |side: &[&dyn Source]| side.iter().filter_map(|source| clock(*source)).collect::<Vec<_>>();
    let [a, b] = sources.map(clocks);
    let first = *a.first().or(b.first())?;
    match a.iter().chain(&b).find(|clock| **clock != first) {
        Some(other) if b.iter().all(|clock| clock == other) => Some(format!(
            "the clock of A is {}, that of B is {}: only calls are compared",
            name(first),
            name(*other)
        )),
        Some(other) => Some(format!(
            "recordings have different clocks, {} and {}: only calls are compared",
            name(first),
            name(*other)
        )),
        None => None,
    }
}
