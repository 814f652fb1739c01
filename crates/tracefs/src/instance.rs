//! An instance: a tracer with its filters, options and buffer. The top directory itself is the
//! first instance.
//!
//! It has the settings that its files show and change. [`Ingest`](crate::ingest::Ingest) passes the
//! calls to it that its settings select, and it writes them into its ring, which readers read.

use crate::clocks::{CLOCKS, Clock, Stretch, When};
use crate::control::{PROFILE, TRACE, has};
use crate::errors::ErrorLog;
use crate::options::{Flag, Options};
use crate::reader::Pipe;
use crate::ring::{Payload, Record, Ring, SUBBUF};
use crate::stack::Level;
use crate::symbols::Symbols;
use crate::text::Format;
use crate::trigger::{Command, Triggers};
use calltap_names::{GlobSet, Word};
use calltap_selection::{Listed, Selection, TracerSelection};
use calltap_trace::TracerKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Size of a processor's buffer once it is in use, in kilobytes.
const BUFFER_KB: u64 = 1408;
/// Minimum number of sub-buffers.
const FEWEST: u64 = 2;

const OVERWRITE: Flag = Flag::named("overwrite");
pub(crate) const STACK_TRACE: Flag = Flag::named("func_stack_trace");
const NO_REPEATS: Flag = Flag::named("func-no-repeats");

/// The snapshot buffer.
#[derive(Debug)]
pub(crate) enum Snapshot {
    /// There is no memory for it.
    Freed,
    /// The buffer with its records.
    Allocated(Ring),
}

/// The names of the functions in `set_graph_function` or `set_graph_notrace`.
pub(crate) type Functions = BTreeSet<String>;

/// An instance of the tracing directory.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Number that is never reused.
    pub id: u32,
    /// Name of its directory; empty for the first instance.
    pub name: String,
    /// The tracers with their filters.
    pub words: Selection,
    /// `tracing_on`.
    pub is_on: bool,
    /// `trace_options`.
    pub options: Options,
    /// The buffer of records.
    pub ring: Ring,
    /// The snapshot buffer.
    pub snapshot: Snapshot,
    /// Number of sub-buffers of each processor; `None` before the first use.
    subbufs: Option<u64>,
    /// `buffer_subbuf_size_kb`: kilobytes of a sub-buffer.
    pub subbuf_kb: u64,
    /// `buffer_percent`.
    pub percent: u64,
    /// Index into [`CLOCKS`].
    pub clock: usize,
    /// Time of the instance's clock when the buffer was last cleared.
    pub start: u64,
    stretch: Stretch,
    counter: u64,
    /// `error_log`.
    pub errors: ErrorLog,
    /// Text that the trigger `dump` has written.
    pub dumped: String,
    /// `tracing_cpumask`. All events are on processor 0, as the agent does not record the
    /// processor.
    pub mask: u64,
    /// `tracing_thresh`, microseconds.
    pub threshold_us: u64,
    /// `set_ftrace_pid` and `set_ftrace_notrace_pid`: threads.
    pub pids: [BTreeSet<u32>; 2],
    /// `max_graph_depth`.
    pub max_depth: u32,
    /// `set_graph_function` and `set_graph_notrace`.
    pub graph: [Functions; 2],
    /// The triggers of functions.
    pub triggers: Triggers,
    /// Whether `trace_pipe` is open for reading.
    pub piped: bool,
    /// Number of open files `trace_pipe_raw` and `snapshot_raw`.
    pub raw_pipes: u32,
    /// Number of readers of `trace` while the option `pause-on-trace` is on.
    pub paused: u32,
    /// Number of open files.
    pub open: u32,
    processors: u64,
}

impl Instance {
    /// Returns a new instance.
    pub(crate) fn new(id: u32, name: &str, options: Options, processors: usize) -> Instance {
        let tracer =
            TracerSelection { name: TRACE.into(), kind: None, filter: Vec::new(), notrace: Vec::new() };
        let processors = processors as u64;
        let mut instance = Instance {
            id,
            name: name.to_owned(),
            words: Selection { tracers: vec![tracer], ..Selection::default() },
            is_on: true,
            options,
            ring: Ring::new(0),
            snapshot: Snapshot::Freed,
            subbufs: None,
            subbuf_kb: 4,
            percent: 50,
            clock: 0,
            start: 0,
            stretch: Stretch::default(),
            counter: 0,
            errors: ErrorLog::default(),
            dumped: String::new(),
            mask: u64::MAX >> (64 - processors.clamp(1, 64)),
            threshold_us: 0,
            pids: [BTreeSet::new(), BTreeSet::new()],
            max_depth: 0,
            graph: [Functions::new(), Functions::new()],
            triggers: Triggers::default(),
            piped: false,
            raw_pipes: 0,
            paused: 0,
            open: 0,
            processors,
        };
        instance.ring.resize(FEWEST * SUBBUF);
        if id != 0 {
            instance.expand();
        }
        instance
    }

    /// Whether this is the instance of the top directory.
    pub(crate) fn is_top(&self) -> bool {
        self.id == 0
    }

    /// Gives the buffer its default size, at the first use.
    pub(crate) fn expand(&mut self) {
        if self.subbufs.is_none() {
            self.set_kb(BUFFER_KB);
        }
    }

    /// Sets the size of a processor's buffer. One ring has the size of the buffers of all
    /// processors.
    pub(crate) fn set_kb(&mut self, kb: u64) {
        let subbufs = (kb.saturating_mul(1024)).div_ceil(SUBBUF).max(FEWEST);
        self.subbufs = Some(subbufs);
        self.ring.resize(subbufs.saturating_mul(SUBBUF).saturating_mul(self.processors));
    }

    /// Returns the contents of `buffer_size_kb`, or of `buffer_total_size_kb`.
    pub(crate) fn kb(&self, total: bool) -> String {
        let factor = if total { self.processors } else { 1 };
        match self.subbufs {
            Some(subbufs) => format!("{}\n", subbufs * SUBBUF * factor / 1024),
            None => format!("{} (expanded: {})\n", FEWEST * SUBBUF / 1024 * factor, BUFFER_KB * factor),
        }
    }

    /// Returns the kind of the current tracer.
    pub(crate) fn tracer(&self) -> Option<TracerKind> {
        self.words.tracers.iter().find(|tracer| tracer.name == TRACE).and_then(|tracer| tracer.kind)
    }

    /// Returns the name of the current tracer.
    pub(crate) fn tracer_name(&self) -> &'static str {
        match self.tracer() {
            Some(TracerKind::Function) => "function",
            Some(TracerKind::FunctionGraph) => "function_graph",
            Some(TracerKind::Profile) | None => "nop",
        }
    }

    /// Takes over the tracers that are already registered in the process.
    pub(crate) fn adopt(&mut self, words: Selection) {
        self.is_on = !words.paused;
        let own = std::mem::replace(&mut self.words, Selection { paused: false, ..words });
        if !has_trace(&self.words) {
            self.words.tracers.extend(own.tracers);
        }
        if self.tracer().is_some() {
            self.expand();
        }
    }

    /// Copies the sets of the first tracer to all others.
    pub(crate) fn share_sets(&mut self) {
        let first = self.words.tracers.iter().find(|tracer| tracer.name == TRACE).cloned();
        let Some(TracerSelection { filter, notrace, .. }) = first else { return };
        for tracer in &mut self.words.tracers {
            (tracer.filter, tracer.notrace) = (filter.clone(), notrace.clone());
        }
        self.words.default = Some(TRACE.into());
    }

    /// Returns the format of the records.
    pub(crate) fn format(&self) -> Format {
        Format {
            tracer: self.tracer_name(),
            options: self.options.clone(),
            threshold_ns: self.threshold_us.saturating_mul(1000),
            processors: self.processors as usize,
            in_ns: self.clock().in_ns(),
            start: self.start,
        }
    }

    /// Returns the clock.
    pub(crate) fn clock(&self) -> Clock {
        CLOCKS[self.clock].1
    }

    /// Sets the stretch of time in which the next records happened.
    pub(crate) fn reach(&mut self, stretch: Stretch) {
        self.stretch = stretch;
    }

    /// Returns the time of the instance's clock at the end of the present stretch.
    pub(crate) fn now(&self) -> u64 {
        let to = &self.stretch.to;
        match self.clock() {
            Clock::Counter => self.counter,
            clock => self.stretch.time(clock, When { ns: to.monotonic_ns, ticks: None }),
        }
    }

    /// Clears the buffer.
    pub(crate) fn clear(&mut self) {
        self.ring.clear();
        self.start = self.now();
    }

    /// Returns the tracers to register in the process.
    pub(crate) fn tracers(&self) -> Vec<TracerSelection> {
        let place = if self.is_top() { String::new() } else { format!("{}/", self.name) };
        // Without any tracer, the session's default would be registered.
        let is_default = |tracer: &TracerSelection| self.is_top() && tracer.name == TRACE;
        let registered =
            self.words.tracers.iter().filter(|tracer| tracer.kind.is_some() || is_default(tracer));
        let mut tracers: Vec<TracerSelection> = registered
            .map(|tracer| TracerSelection { name: format!("{place}{}", tracer.name), ..tracer.clone() })
            .collect();
        if !self.triggers.all().is_empty() {
            let filter = self.triggers.all().iter().map(|trigger| Word::exactly(&trigger.function)).collect();
            let (name, kind) = (format!("{place}triggers"), Some(TracerKind::Function));
            tracers.push(TracerSelection { name, kind, filter, notrace: Vec::new() });
        }
        tracers
    }

    /// Whether the instance records stacks.
    pub(crate) fn wants_stacks(&self) -> bool {
        let by_trigger = || self.triggers.all().iter().any(|trigger| trigger.command == Command::StackTrace);
        self.tracer() == Some(TracerKind::Function) && self.options.has(STACK_TRACE) || by_trigger()
    }

    /// Returns the sets of a tracer, if it is registered.
    pub(crate) fn sets(&self, name: &str) -> Option<(GlobSet, GlobSet)> {
        let tracer = self.words.tracers.iter().find(|tracer| tracer.name == name && tracer.kind.is_some())?;
        Some((GlobSet::new(&tracer.filter), GlobSet::new(&tracer.notrace)))
    }

    /// Whether the profile tracer is registered.
    pub(crate) fn profiles(&self) -> bool {
        self.words.tracers.iter().any(|tracer| tracer.kind == Some(TracerKind::Profile))
    }

    /// Returns a function that counts a function's users: tracer, profiler, triggers by command.
    pub(crate) fn users<'a>(&'a self) -> impl Fn(&Listed) -> usize + 'a {
        let sets: Vec<(GlobSet, GlobSet)> =
            [TRACE, PROFILE].into_iter().filter_map(|name| self.sets(name)).collect();
        move |function| {
            let traces = sets.iter().filter(|sets| wants(sets, function)).count();
            let mut kinds = Vec::new();
            for trigger in self.triggers.all().iter().filter(|trigger| trigger.function == function.function)
            {
                let kind = (trigger.command, trigger.count.is_some());
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            traces + kinds.len()
        }
    }

    /// Whether calls of a thread are recorded.
    pub(crate) fn lists(&self, tid: u32) -> bool {
        let [only, never] = &self.pids;
        (only.is_empty() || only.contains(&tid)) && !never.contains(&tid)
    }

    /// Adds a record to the buffer, if the instance is on.
    pub(crate) fn record(&mut self, when: When, tid: u32, payload: Payload) {
        if !self.is_on || self.paused > 0 || self.mask & 1 == 0 {
            return;
        }
        let clock = self.clock();
        if clock == Clock::Counter {
            self.counter += 1;
        }
        let time = if clock == Clock::Counter { self.counter } else { self.stretch.time(clock, when) };
        let record = Record { time, tid, payload };
        if let Payload::Function { site, parent } = record.payload
            && self.options.has(NO_REPEATS)
            && self.count_repetition(&record, site, parent)
        {
            return;
        }
        self.ring.push(record, self.options.has(OVERWRITE));
    }

    /// Whether a record repeats the thread's last one, with the same function and caller; if so,
    /// the repetition is counted there.
    fn count_repetition(&mut self, record: &Record, site: u32, parent: u64) -> bool {
        let tid = record.tid;
        let Some(last) = self.ring.last_mut().filter(|last| last.tid == tid) else { return false };
        match &mut last.payload {
            Payload::Repeats { site: of, parent: from, count, last } if (*of, *from) == (site, parent) => {
                *count += 1;
                *last = record.time;
                true
            }
            Payload::Function { site: of, parent: from } if (*of, *from) == (site, parent) => {
                let payload = Payload::Repeats { site, parent, count: 1, last: record.time };
                self.ring.push(Record { payload, ..record.clone() }, self.options.has(OVERWRITE));
                true
            }
            _ => false,
        }
    }

    /// Moves the records to the snapshot buffer, whose old records are discarded.
    pub(crate) fn take_snapshot(&mut self) {
        self.snapshot = Snapshot::Allocated(self.ring.put_aside());
    }

    /// Changes the clock, and clears the buffers: times before and after the change could not be
    /// compared.
    pub(crate) fn set_clock(&mut self, clock: usize) {
        self.clock = clock;
        self.clear();
        if let Snapshot::Allocated(ring) = &mut self.snapshot {
            ring.clear();
        }
    }

    /// Executes the triggers of a function that was called.
    pub(crate) fn trigger(
        &mut self,
        when: When,
        tid: u32,
        site: u32,
        symbols: &Symbols,
        stack: &dyn Fn() -> Arc<[Level]>,
    ) {
        let Some(function) = symbols.site(site).map(|traced| traced.name.as_str()) else { return };
        let Instance { triggers, is_on, .. } = self;
        let mut due = Vec::new();
        for trigger in triggers.all_mut().iter_mut().filter(|trigger| trigger.function == function) {
            if trigger.command.applies(*is_on) && trigger.fires() {
                *is_on = trigger.command.leaves(*is_on);
                due.push(trigger.command);
            }
        }
        for command in due {
            match command {
                Command::StackTrace => self.record(when, tid, Payload::Stack(stack())),
                Command::Snapshot => self.take_snapshot(),
                Command::Dump | Command::CpuDump => self.dump(symbols),
                Command::TraceOn | Command::TraceOff | Command::Depth(_) => {}
            }
        }
    }

    /// Moves the buffer's records as text to the file `dump`, which stands for the kernel's
    /// console.
    fn dump(&mut self, symbols: &Symbols) {
        let format = self.format();
        self.dumped = Pipe::default().all(&mut self.ring, &format, symbols);
    }
}

fn has_trace(words: &Selection) -> bool {
    words.tracers.iter().any(|tracer| tracer.name == TRACE)
}

/// Whether a function is in the filter and not in the notrace set.
pub(crate) fn wants((filter, notrace): &(GlobSet, GlobSet), function: &Listed) -> bool {
    (filter.is_empty() || has(filter, function)) && !has(notrace, function)
}
