//! A row of the dataset, and rows by columns.

use crate::texts::{NONE, Texts};
use calltap_analysis::Ending;
use calltap_trace::{SiteId, ThreadId};

/// A call.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its thread.
    pub thread: ThreadId,
    /// None: these calls were lost.
    pub site: Option<SiteId>,
    /// The function below it.
    pub caller: Option<SiteId>,
    /// Nanoseconds since 1970; none with a counter clock.
    pub start: Option<i64>,
    /// In all, and its own; none if that is not known.
    pub times: Option<[u64; 2]>,
    /// What of it its thread ran, had no processor, slept, was held by calltap; none if that is not known.
    pub states: Option<[u64; 4]>,
    /// Page faults, major ones, moves to other processors and signals in the call itself; none where that is not known.
    pub incidents: [Option<u64>; 4],
    /// Frames below it.
    pub depth: u32,
    /// None: that is not known.
    pub ending: Option<Ending>,
    /// How many it stands for.
    pub calls: u32,
    /// What was read when it was entered,
    pub arguments: Option<Box<str>>,
    /// and when it returned: JSON objects.
    pub results: Option<Box<str>>,
}

/// The key of how it ends.
fn ending(row: &Row) -> u32 {
    match (row.site, row.ending) {
        (None, _) => 5,
        (_, Some(Ending::Returned)) => 0,
        (_, Some(Ending::Tail)) => 1,
        (_, Some(Ending::Left | Ending::Resumed)) => 2,
        (_, Some(Ending::Running | Ending::Detached)) => 3,
        (_, Some(Ending::Lost)) => 5,
        (_, Some(Ending::SwitchedOff)) => 6,
        (_, Some(Ending::ThreadEnded)) => 7,
        (_, Some(Ending::Outside)) => 8,
        (_, None) => 4,
    }
}

/// Which rows have a value.
#[derive(Default)]
pub struct Presence {
    /// By row.
    pub of: Vec<bool>,
    /// How many have none.
    pub nulls: usize,
}

impl Presence {
    /// The next row has a value, or not.
    pub fn push(&mut self, is_present: bool) {
        self.of.push(is_present);
        self.nulls += usize::from(!is_present);
    }

    fn clear(&mut self) {
        self.of.clear();
        self.nulls = 0;
    }
}

/// Rows that are encoded together, column by column: an encoder goes through no memory but its column's. Keys are those of [`Texts`]; a value that may be
/// absent is only in its column where it is present.
#[derive(Default)]
pub struct Group {
    /// Keys of threads,
    pub threads: Vec<u32>,
    /// of functions,
    pub sites: Vec<u32>,
    /// and of their callers, or [`NONE`].
    pub callers: Vec<u32>,
    /// Nanoseconds since 1970.
    pub start: (Presence, Vec<i64>),
    /// Which rows have times.
    pub timed: Presence,
    /// In all, and of their own.
    pub times: [Vec<i64>; 2],
    /// Which rows have times of what the thread did.
    pub switched: Presence,
    /// As [`Row::states`].
    pub states: [Vec<i64>; 4],
    /// As [`Row::incidents`].
    pub incidents: [(Presence, Vec<i64>); 4],
    /// Frames below.
    pub depths: Vec<i32>,
    /// Keys of how they end.
    pub endings: Vec<u32>,
    /// How many calls a row stands for.
    pub calls: Vec<i64>,
    /// Values, as JSON.
    pub arguments: (Presence, Vec<Box<str>>),
    /// Likewise.
    pub results: (Presence, Vec<Box<str>>),
}

impl Group {
    /// Rows in it.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row, texts: &Texts) {
        self.threads.push(texts.thread(row.thread));
        self.sites.push(row.site.map_or(texts.losses(), |site| texts.site(site)));
        self.callers.push(row.caller.map_or(NONE, |caller| texts.site(caller)));
        self.endings.push(ending(&row));
        self.depths.push(row.depth as i32);
        self.calls.push(row.calls.into());
        self.start.0.push(row.start.is_some());
        self.start.1.extend(row.start);
        self.timed.push(row.times.is_some());
        if let Some(times) = row.times {
            self.times.iter_mut().zip(times).for_each(|(column, time)| column.push(time as i64));
        }
        self.switched.push(row.states.is_some());
        if let Some(states) = row.states {
            self.states.iter_mut().zip(states).for_each(|(column, time)| column.push(time as i64));
        }
        for ((presence, column), count) in self.incidents.iter_mut().zip(row.incidents) {
            presence.push(count.is_some());
            column.extend(count.map(|count| count as i64));
        }
        self.arguments.0.push(row.arguments.is_some());
        self.arguments.1.extend(row.arguments);
        self.results.0.push(row.results.is_some());
        self.results.1.extend(row.results);
    }

    /// Empties it; its memory is used again.
    pub fn clear(&mut self) {
        let presences = [&mut self.start.0, &mut self.timed, &mut self.switched];
        presences.into_iter().chain([&mut self.arguments.0, &mut self.results.0]).for_each(Presence::clear);
        for (presence, column) in &mut self.incidents {
            presence.clear();
            column.clear();
        }
        let keys = [&mut self.threads, &mut self.sites, &mut self.callers, &mut self.endings];
        keys.into_iter().for_each(Vec::clear);
        self.depths.clear();
        let times = self.times.iter_mut().chain(&mut self.states);
        times.chain([&mut self.start.1, &mut self.calls]).for_each(Vec::clear);
        self.arguments.1.clear();
        self.results.1.clear();
    }
}
