//! `trace.dat` of trace-cmd, which KernelShark reads too: events in pages of the kernel's ring
//! buffer.
//!
//! The head comes first and contains the positions of all streams and all symbols. So the events
//! are read twice, first to count pages and to find the functions and callers. Memory grows with
//! the symbols only.

mod addresses;
mod head;
mod lanes;
mod text;

use crate::labels::pid_tid;
use crate::options::Options;
use addresses::Addresses;
use calltap_analysis::bytes::drain;
use calltap_analysis::run_threads;
use calltap_analysis::states::{SAYS_LEFT, SAYS_RUNNING, SAYS_UNKNOWN};
use calltap_analysis::{Call, Ending, Enter, Error, Names, Progress, Source, Stretch, Totals, Visitor};
use calltap_ringbuffer::{Stream, record};
use calltap_trace::{KernelLog, RunState, ThreadId, Waking};
use head::Head;
use lanes::Lanes;
use std::io::{self, Write};

/// Maximum number of streams: readers number them with 16 bits.
const STREAMS: usize = i16::MAX as usize;

/// Maximum depth in the file: readers indent by depth without a limit, so that the lines of a
/// recursion of a hundred thousand calls would be that long.
const MAX_DEPTH: u32 = 500;

/// Writes a trace.dat. Calls recorded by the function tracer are `function` events, those of the
/// function_graph tracer `funcgraph_entry` and `funcgraph_exit`; a call recorded by both is two
/// events. Where a thread did not run, its stream's processor has `sched_switch` events to no
/// thread and back, with state S or R, and between them a `sched_waking` event where the trace has
/// the wakeup. A call that had not returned at the end has no exit. Where events were lost, readers
/// report how many are missing. Returns without a recorded entry are left out: a reader would match
/// a return with a preceding entry of the same function.
pub fn trace_dat(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    mut progress: Progress<'_>,
) -> Result<Totals, Error> {
    let meta = source.meta();
    let lanes = Lanes::new(source);
    if lanes.count > STREAMS {
        let threads = lanes.count;
        let why = format!("{threads} threads at a time are more than a trace.dat can have ({STREAMS})");
        return Err(Error::Write(io::Error::other(why)));
    }
    let names = Names::new(meta, options.linker_names);
    let mut exporter = Exporter {
        source,
        names: &names,
        lanes: &lanes,
        addresses: Addresses::new(meta, &names),
        stream: Stream::new(),
        pages: Vec::new(),
        page: 0,
        last: 0,
        unknown: None,
        off: None,
        begun: false,
        wakings: None,
        to: None,
    };
    exporter.last = exporter.start();
    let all = source.event_count();
    let half = |progress: &mut Progress<'_>, exporter: &mut Exporter<'_>, before: u64| {
        let mut told = |events: u64| {
            if let Some(progress) = progress {
                progress((before + events) / 2);
            }
        };
        run_threads(source, &lanes.order, exporter, Some(&mut told))
    };
    half(&mut progress, &mut exporter, 0)?;
    let mut pages = std::mem::take(&mut exporter.pages);
    let counted = pages.clone();
    if pages.is_empty() {
        // A file needs at least one stream.
        pages.push(0);
    }
    let head = Head {
        kallsyms: exporter.addresses.kallsyms(),
        cmdlines: text::cmdlines(meta),
        clocks: text::clocks(source.has_time()),
        system: text::system(meta),
        writer: text::writer(meta),
        pages,
    };
    out.write_all(&head.bytes(options.version))?;
    exporter.to = Some((Vec::new(), out));
    let totals = half(&mut progress, &mut exporter, all)?;
    if exporter.pages != counted {
        return Err(Error::Write(io::Error::other("the recording changed while it was read")));
    }
    exporter.write(true)?;
    Ok(totals)
}

struct Exporter<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    lanes: &'a Lanes,
    addresses: Addresses<'a>,
    stream: Stream,
    /// Number of pages of every finished stream.
    pages: Vec<u64>,
    /// Number of pages of the current stream.
    page: u64,
    /// Time of the newest event of the thread.
    last: u64,
    /// End of the time in which the thread's state is unknown, in ticks, and whether that was
    /// written.
    unknown: Option<(u64, bool)>,
    /// The last interval off the processor, until the switch back is written: a blocked interval
    /// and the runnable one behind it follow each other without a switch.
    off: Option<(ThreadId, Stretch)>,
    /// Whether an event of the thread was written.
    begun: bool,
    /// Wakeups of the thread, once they were read.
    wakings: Option<KernelLog<Waking>>,
    /// Output of the second pass.
    to: Option<(Vec<u8>, &'a mut dyn Write)>,
}

/// The thread that runs where the program's does not.
const NO_TASK: (u32, &str) = (0, "swapper");

impl Visitor for Exporter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.begin(thread, enter.ticks);
        self.note_running(thread, enter.ticks);
        if enter.is_rest {
            // The entry is where the call began: a second entry would be a second call.
            let (name, depth) = (self.names.function(enter.site), enter.depth);
            let text = format!("{name} is open again at depth {depth}: the thread is back on its stack\n");
            let record = record::print(self.tid(thread), self.addresses.own(), &text);
            return self.put(self.source.to_ns(enter.ticks), &record);
        }
        if enter.parent != 0 {
            self.mark(thread, enter);
        }
        let function = self.addresses.function(enter.site);
        let record = record::graph_entry(self.tid(thread), function, enter.depth.min(MAX_DEPTH));
        self.put(self.source.to_ns(enter.ticks), &record);
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        // An exit has a duration here, so a call that may still be open gets none. A call that
        // ended at an unknown time gets one at the last time when it is known to have run, behind a
        // text: trace-cmd would match a later return of the same function with it.
        self.note_running(thread, call.end);
        let is_left = matches!(call.ending, Ending::Left | Ending::SwitchedOff);
        if is_left {
            self.print(thread, call.end, SAYS_LEFT);
        }
        if !call.ending.is_cut() || is_left {
            let function = self.addresses.function(call.site);
            let (start, end) = (self.source.to_ns(call.start), self.source.to_ns(call.end));
            let depth = call.depth.min(MAX_DEPTH);
            self.put(end, &record::graph_exit(self.tid(thread), function, depth, start, end));
        }
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let function = self.addresses.function(enter.site);
        let parent = self.addresses.caller(thread, enter.ticks, enter.parent);
        let record = record::function(self.tid(thread), function, parent);
        self.put(self.source.to_ns(enter.ticks), &record);
    }

    fn off(&mut self, thread: ThreadId, stretch: &Stretch) {
        let sleeps = match stretch.state {
            // The kernel's event has no state for a thread held by calltap.
            RunState::Blocked | RunState::Tracing => true,
            RunState::Runnable => false,
            RunState::Unknown => return self.note_unknown(thread, stretch),
            RunState::Running => return,
        };
        let is_woken = stretch.state == RunState::Runnable
            && self
                .off
                .take_if(|(_, wait)| wait.state == RunState::Blocked && wait.to == stretch.from)
                .is_some();
        let from = self.source.to_ns(stretch.from);
        if is_woken {
            self.waking(thread, stretch.from);
        } else {
            self.note_running(thread, stretch.from);
            // From here on the switch events show the thread's state.
            self.unknown = None;
            self.put(from, &record::sched_switch(self.task(thread), sleeps, NO_TASK));
        }
        self.off = Some((thread, *stretch));
        // The switch back shows that the thread runs, before its first call too.
        self.begun = true;
    }

    fn lost(&mut self, _: ThreadId, ticks: u64, entries: u32, exits: u32) {
        self.end_off();
        // The recorder does not know the time of a loss in a thread without other events.
        self.last = self.source.to_ns(ticks).max(self.start());
        self.stream.miss(u64::from(entries) + u64::from(exits));
    }

    fn unreadable(&mut self, _: ThreadId, events: u64) {
        self.end_off();
        self.stream.miss(events);
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.write(false)
    }

    fn thread_end(&mut self, thread: ThreadId) -> io::Result<()> {
        self.end_off();
        if self.stream.owes_missed() {
            // Only an event can carry the number of events missing before it, and the next event
            // belongs to another thread.
            let last = record::print(
                self.tid(thread),
                self.addresses.own(),
                "the last events of this thread are missing\n",
            );
            self.put(self.last, &last);
        }
        if self.lanes.ends[thread.0 as usize] {
            let Self { stream, page, to, .. } = self;
            stream.finish(|full| take(full, page, to));
            self.pages.push(std::mem::take(&mut self.page));
            self.stream.restart();
        }
        self.last = self.start();
        (self.unknown, self.begun, self.wakings) = (None, false, None);
        self.write(false)
    }
}

impl Exporter<'_> {
    /// Time at which the recording began.
    fn start(&self) -> u64 {
        let session = self.source.meta().session.as_ref().filter(|_| self.source.has_time());
        session.map_or(0, |session| session.start_monotonic_ns)
    }

    fn tid(&self, thread: ThreadId) -> u32 {
        pid_tid(self.source, thread).1
    }

    /// Writes that the thread's state is unknown, as the kernel has no event for that; not before
    /// its first event, where nothing is known anyway.
    fn note_unknown(&mut self, thread: ThreadId, stretch: &Stretch) {
        let before = self.unknown.filter(|(until, _)| *until == stretch.from);
        let is_written = before.is_some_and(|(_, is_written)| is_written);
        let is_first = stretch.from == 0 || before.is_some_and(|(_, is_written)| !is_written);
        if !is_written && !is_first {
            self.print(thread, stretch.from, SAYS_UNKNOWN);
        }
        self.unknown = Some((stretch.to, !is_first));
    }

    /// Writes that the thread runs, if an event shows it after a time of unknown state.
    fn note_running(&mut self, thread: ThreadId, ticks: u64) {
        if let Some((until, true)) = self.unknown.filter(|(until, _)| *until < ticks) {
            self.print(thread, until, SAYS_RUNNING);
            self.unknown = None;
        }
    }

    fn print(&mut self, thread: ThreadId, ticks: u64, text: &str) {
        let record = record::print(self.tid(thread), self.addresses.own(), text);
        self.put(self.source.to_ns(ticks), &record);
    }

    fn task(&self, thread: ThreadId) -> (u32, &'_ str) {
        let comm = self.source.meta().threads.get(thread.0 as usize).map_or("", |thread| &thread.comm);
        (self.tid(thread), comm)
    }

    /// Writes that a thread runs at its first event, if its states are known.
    fn begin(&mut self, thread: ThreadId, ticks: u64) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        // If they cannot be read, they are unknown.
        let switches = self.source.switches(thread).ok().flatten().unwrap_or_default();
        let before = switches.partition_point(|switch| switch.at <= ticks);
        let switch = before.checked_sub(1).and_then(|before| switches.get(before));
        if switch.is_some_and(|switch| switch.to == RunState::Running) {
            let record = record::sched_switch(NO_TASK, false, self.task(thread));
            self.put(self.source.to_ns(ticks), &record);
        }
    }

    /// Writes the wakeup of a thread.
    fn waking(&mut self, thread: ThreadId, ticks: u64) {
        // If they cannot be read, the waker is unknown.
        let read = || self.source.wakings(thread).unwrap_or_default();
        let entries = &self.wakings.get_or_insert_with(read).entries;
        let found = entries.binary_search_by_key(&ticks, |waking| waking.at).ok();
        let waking = found.and_then(|index| entries.get(index));
        let (waker, interrupt) = waking.map_or((0, false), |waking| (waking.tid, waking.interrupt));
        let processor = self.pages.len() as u32;
        let record = record::sched_waking(waker, interrupt, self.task(thread), processor);
        self.put_now(self.source.to_ns(ticks), &record);
    }

    /// Writes that the thread runs again.
    fn end_off(&mut self) {
        if let Some((thread, stretch)) = self.off.take() {
            let record = record::sched_switch(NO_TASK, false, self.task(thread));
            self.put_now(self.source.to_ns(stretch.to), &record);
        }
    }

    fn put(&mut self, time: u64, record: &[u8]) {
        self.end_off();
        self.put_now(time, record);
    }

    fn put_now(&mut self, time: u64, record: &[u8]) {
        self.last = time;
        let Self { stream, page, to, .. } = self;
        stream.push(time, record, |full| take(full, page, to));
    }

    fn write(&mut self, everything: bool) -> io::Result<()> {
        match &mut self.to {
            Some((buffer, out)) => drain(buffer, *out, everything),
            None => Ok(()),
        }
    }
}

/// Counts a full page, and in the second pass appends it to the output.
fn take(full: &calltap_ringbuffer::Page, pages: &mut u64, to: &mut Option<(Vec<u8>, &mut dyn Write)>) {
    *pages += 1;
    if let Some((buffer, _)) = to {
        buffer.extend_from_slice(full);
    }
}
