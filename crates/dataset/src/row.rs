//! A row of the dataset, and groups of rows by column.

use crate::texts::{NONE, Texts};
use calltap_analysis::Ending;
use calltap_trace::{SiteId, ThreadId};

/// A row: a call, or several lost ones.
#[derive(Clone, Debug)]
pub struct Row {
    /// The thread that made the call.
    pub thread: ThreadId,
    /// The called function; `None`: the calls were lost.
    pub site: Option<SiteId>,
    /// The function of the frame right below.
    pub caller: Option<SiteId>,
    /// Start in nanoseconds since 1970; `None` with a counter clock.
    pub start: Option<i64>,
    /// Total and own time, if known.
    pub times: Option<[u64; 2]>,
    /// Times in which the thread ran, had no processor, slept, and was held by calltap, if known.
    pub states: Option<[u64; 4]>,
    /// Page faults, major ones, migrations and signals in the call itself, if known.
    pub incidents: [Option<u64>; 4],
    /// Number of frames below it.
    pub depth: u32,
    /// How the call ended, if known.
    pub ending: Option<Ending>,
    /// Number of calls that the row stands for.
    pub calls: u32,
    /// Arguments as a JSON object.
    pub arguments: Option<Box<str>>,
    /// Results as a JSON object.
    pub results: Option<Box<str>>,
}

/// Returns the key of a row's ending.
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

/// Whether each row of a column has a value.
#[derive(Default)]
pub struct Presence {
    /// Whether the row has a value, by row.
    pub of: Vec<bool>,
    /// Number of rows without a value.
    pub nulls: usize,
}

impl Presence {
    /// Appends a row with or without a value.
    pub fn push(&mut self, is_present: bool) {
        self.of.push(is_present);
        self.nulls += usize::from(!is_present);
    }

    fn clear(&mut self) {
        self.of.clear();
        self.nulls = 0;
    }
}

/// Rows that are encoded together, stored by column, so that an encoder reads only its column's
/// memory. Keys are those of [`Texts`]; optional values are stored only for the rows that have
/// them.
#[derive(Default)]
pub struct Group {
    /// Keys of threads.
    pub threads: Vec<u32>,
    /// Keys of functions.
    pub sites: Vec<u32>,
    /// Keys of callers, or [`NONE`].
    pub callers: Vec<u32>,
    /// Starts in nanoseconds since 1970.
    pub start: (Presence, Vec<i64>),
    /// Whether each row has times.
    pub timed: Presence,
    /// Total times, and own times.
    pub times: [Vec<i64>; 2],
    /// Whether each row has times by thread state.
    pub switched: Presence,
    /// Times by thread state, as [`Row::states`].
    pub states: [Vec<i64>; 4],
    /// Incidents, as [`Row::incidents`].
    pub incidents: [(Presence, Vec<i64>); 4],
    /// Numbers of frames below.
    pub depths: Vec<i32>,
    /// Keys of endings.
    pub endings: Vec<u32>,
    /// Numbers of calls that rows stand for.
    pub calls: Vec<i64>,
    /// Arguments, as JSON.
    pub arguments: (Presence, Vec<Box<str>>),
    /// Results, as JSON.
    pub results: (Presence, Vec<Box<str>>),
}

impl Group {
    /// Number of rows.
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

    /// Empties the group and keeps its memory for reuse.
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
