//! Two sides, compared, each of one recording or several: which functions, or call paths, differ, and whether beyond the noise
//! ([`noise`], [`evidence`]).
//!
//! Recordings whose times cannot be compared, of different clocks or of a counter, are compared by numbers of calls alone.

mod by_function;
mod by_path;
mod condition;
pub mod evidence;
mod functions;
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
use crate::head::head;
use crate::limited;
use crate::names::Names;
use crate::sources::drive::Progress;
use crate::sources::source::Source;
use crate::tree::Totals;
use calltap_names::{FunctionNames, ShortNames, Word};
use calltap_trace::ClockKind;
use evidence::Mean;
use functions::Function;
use numbers::Numbers;
use rule::Rule;
use std::cmp::Reverse;

/// What to compare, and what to show.
#[derive(Clone, Debug)]
pub struct Options {
    /// By call path, not by function.
    pub by_path: bool,
    /// What text shows, in this order; empty for total, self, calls, p50 and p99 (not by path).
    pub columns: Vec<Measure>,
    /// The largest differences of this first.
    pub sort: Measure,
    /// Also what does not differ beyond the noise.
    pub all: bool,
    /// Only functions matching one of these by name; empty = all.
    pub filter: Vec<Word>,
    /// At most so many rows.
    pub limit: Option<usize>,
    /// Times that differ by a smaller share are the same.
    pub min_change: f64,
    /// Conditions to try.
    pub conditions: Vec<Condition>,
    /// Keep linker names.
    pub linker_names: bool,
    /// Names in the table are shortened to what tells them apart.
    pub short_names: bool,
    /// Characters of a line of text: where names have no room in it, columns are left out that were not asked for.
    pub width: Option<usize>,
    /// Different call paths kept in memory of each recording, 0 = a million by side.
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
type Sources<'a> = [&'a [&'a dyn Source]; 2];

/// A function, or a path, in the recordings of both sides.
#[derive(Clone, Debug)]
struct Row {
    function: u32,
    /// Its place in the tree of paths.
    path: Option<u32>,
    sides: [Vec<Numbers>; 2],
}

impl Row {
    fn verdict(&self, measure: Measure, rule: Rule) -> Option<Verdict> {
        noise::judge(measure, &self.sides[0], &self.sides[1], rule)
    }

    /// The mean of the recordings of a side; None if a call has no time.
    fn mean(&self, side: usize, measure: Measure) -> Option<Mean> {
        Mean::of(&self.sides[side], measure)
    }

    fn values(&self, measure: Measure) -> [Option<u64>; 2] {
        [0, 1].map(|side| self.mean(side, measure).map(|mean| mean.rounded()))
    }

    /// How much more or less it is.
    fn change(&self, measure: Measure) -> Option<u64> {
        let [a, b] = self.values(measure);
        Some(a?.abs_diff(b?))
    }
}

/// A finished comparison.
pub struct Diff {
    options: Options,
    /// All that pass the filter, the largest difference first.
    rows: Vec<Row>,
    functions: Vec<Function>,
    /// Parent and function of each path; the first is the root.
    tree: Vec<(u32, u32)>,
    /// Calls that were merged into their callers as there were too many paths, in each side.
    merged: [u64; 2],
    timed: bool,
    /// Context switches were recorded in all recordings.
    states: bool,
    restriction: Option<String>,
    /// What became of the conditions, in their order.
    pub outcomes: Vec<Outcome>,
    /// The recordings of each side.
    sides: [Vec<Recording>; 2],
}

/// What is said of one of the recordings.
struct Recording {
    name: String,
    head: String,
    totals: Totals,
    lost: u64,
    /// Functions that were disabled by the overhead limit.
    limited: Vec<String>,
    clock: Option<ClockKind>,
}

/// Compares the recordings of B with those of A. The sources come with the names that the reader knows them by.
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
            recording.limited = limited::functions(source.meta(), &names);
            recording.clock = clock(*source);
            recording.head = head(*source, &recording.totals);
        }
    }
    diff.states = sources.into_iter().flatten().all(|source| source.has_switches());
    diff.restrict(restriction(sources));
    if options.by_path && !options.conditions.is_empty() {
        // Conditions are on functions.
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
        let names = FunctionNames::new([function.name.as_str()], Some(&function.module));
        options.filter.iter().any(|word| word.matches(&names))
    }
}

impl Diff {
    fn new(options: &Options, functions: Vec<Function>, rows: Vec<Row>, totals: [Vec<Totals>; 2]) -> Self {
        let recording = |totals| Recording {
            name: String::new(),
            head: String::new(),
            totals,
            lost: 0,
            limited: Vec::new(),
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

    /// Leaves the times alone if they cannot be compared.
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

    /// Does anything differ beyond the noise, in what is shown?
    pub fn differs(&self) -> bool {
        self.rows.iter().any(|row| self.is_beyond(row))
    }

    /// Why only numbers of calls are compared, if so.
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

    /// Has each side one recording? Then only the calls within them tell what is noise.
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

    /// The functions from the outermost to this one.
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

/// Why the times of these recordings cannot be compared.
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
