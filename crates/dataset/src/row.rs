//! A row of the dataset, and groups of rows by column.

use crate::runs::Runs;
use crate::texts::{NONE, Texts};
use calltap_analysis::Ending;
use calltap_trace::{SiteId, ThreadId};

/// A row: a call, or several lost ones.
#[derive(Debug)]
pub(crate) struct Row {
    /// Values that are mostly those of the row before.
    pub common: Common,
    /// The called function; `None`: the calls were lost.
    pub site: Option<SiteId>,
    /// The function of the frame right below.
    pub caller: Option<SiteId>,
    /// Start in nanoseconds since 1970, if [`Common::has_start`].
    pub start: i64,
    /// Total and own time, if [`Common::is_timed`].
    pub times: [u64; 2],
    /// Time in which the thread ran, if [`Common::off`] is known.
    pub cpu: u64,
    /// Number of frames below it.
    pub depth: u32,
    /// Arguments as a JSON object.
    pub arguments: Option<Box<str>>,
    /// Results as a JSON object.
    pub results: Option<Box<str>>,
}

/// Values of a row that are mostly those of the row before: a thread makes calls one after the
/// other, nearly all of them return, and few are interrupted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Common {
    /// The thread that made the call.
    pub thread: ThreadId,
    /// How the call ended, if known.
    pub ending: Option<Ending>,
    /// Whether calls were lost.
    pub is_lost: bool,
    /// Number of calls that the row stands for.
    pub calls: u32,
    /// Whether the start is known; it is not with a counter clock.
    pub has_start: bool,
    /// Whether total and own time are known.
    pub is_timed: bool,
    /// Times in which the thread had no processor, slept, and was held by calltap, if known.
    pub off: Option<[u64; 3]>,
    /// Page faults, major ones, migrations and signals in the call itself, if known.
    pub incidents: [Option<u64>; 4],
    /// Whether there are arguments.
    pub has_arguments: bool,
    /// Whether there are results.
    pub has_results: bool,
}

impl Common {
    /// Returns the key of the ending.
    pub(crate) fn ending(&self) -> u32 {
        match (self.is_lost, self.ending) {
            (true, _) => 5,
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
}

/// Whether each row of a column has a value.
#[derive(Default)]
pub(crate) struct Presence {
    /// Whether the row has a value, by row.
    pub of: Runs<bool>,
    /// Number of rows without a value.
    pub nulls: usize,
}

impl Presence {
    /// Appends rows with or without a value.
    pub(crate) fn add(&mut self, are_present: bool, rows: usize) {
        self.of.add(are_present, rows);
        self.nulls += if are_present { 0 } else { rows };
    }
}

/// Rows that are encoded together, stored by column, so that an encoder reads only its column's
/// memory. Keys are those of [`Texts`]; optional values are stored only for the rows that have
/// them.
#[derive(Default)]
pub(crate) struct Group {
    /// The values that rows mostly share.
    common: Runs<Common>,
    /// Keys of functions.
    pub sites: Runs<u32>,
    /// Keys of callers, or [`NONE`].
    pub callers: Runs<u32>,
    /// Starts in nanoseconds since 1970.
    pub start: Vec<i64>,
    /// Total times, and own times.
    pub times: [Vec<i64>; 2],
    /// Times in which threads ran.
    pub cpu: Vec<i64>,
    /// Numbers of frames below.
    pub depths: Runs<i32>,
    /// Arguments, as JSON.
    pub arguments: Vec<Box<str>>,
    /// Results, as JSON.
    pub results: Vec<Box<str>>,
}

impl Group {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.sites.rows()
    }

    /// Adds a row, and takes its texts.
    #[inline]
    pub(crate) fn push(&mut self, row: &mut Row, texts: &Texts) {
        self.common.push(row.common);
        self.sites.push(row.site.map_or(texts.losses(), |site| texts.site(site)));
        self.callers.push(row.caller.map_or(NONE, |caller| texts.site(caller)));
        self.depths.push(row.depth as i32);
        if row.common.has_start {
            self.start.push(row.start);
        }
        if row.common.is_timed {
            self.times.iter_mut().zip(row.times).for_each(|(column, time)| column.push(time as i64));
        }
        if row.common.off.is_some() {
            self.cpu.push(row.cpu as i64);
        }
        self.arguments.extend(row.arguments.take());
        self.results.extend(row.results.take());
    }

    /// Returns the values of a column that rows mostly share.
    pub(crate) fn column<T: Copy + PartialEq>(&self, of: impl Fn(&Common) -> T) -> Runs<T> {
        let mut column = Runs::default();
        self.common.iter().for_each(|(common, rows)| column.add(of(&common), rows));
        column
    }

    /// Returns which rows have a value of a column.
    pub(crate) fn presence(&self, of: impl Fn(&Common) -> bool) -> Presence {
        let mut presence = Presence::default();
        self.common.iter().for_each(|(common, rows)| presence.add(of(&common), rows));
        presence
    }

    /// Empties the group and keeps its memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.common.clear();
        self.sites.clear();
        self.callers.clear();
        self.depths.clear();
        self.times.iter_mut().chain([&mut self.start, &mut self.cpu]).for_each(Vec::clear);
        self.arguments.clear();
        self.results.clear();
    }
}
