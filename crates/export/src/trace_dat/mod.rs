//! `trace.dat` of trace-cmd, which KernelShark reads, too: events in pages of the kernel's ring buffer.
//!
//! The head says where every stream is and which symbols there are, and comes first: so the events are gone through
//! twice, first to count pages and to see which functions and callers there are. Memory is that of the symbols.

mod addresses;
mod head;
mod lanes;
mod text;

use crate::labels::pid_tid;
use crate::options::Options;
use addresses::Addresses;
use calltap_analysis::bytes::drain;
use calltap_analysis::run_threads;
use calltap_analysis::states::{SAYS_RUNNING, SAYS_UNKNOWN};
use calltap_analysis::{Call, Ending, Enter, Error, Names, Progress, Source, Stretch, Totals, Visitor};
use calltap_ringbuffer::{Stream, record};
use calltap_trace::{RunState, ThreadId};
use head::Head;
use lanes::Lanes;
use std::io::{self, Write};

/// Readers number streams with 16 bits.
const STREAMS: usize = i16::MAX as usize;

/// Readers indent by depth, without a limit: of a recursion of a hundred thousand calls every line would be as long.
const DEEPEST: u32 = 500;

/// Writes a trace.dat. What the function tracer saw are `function` events, what the function_graph tracer saw
/// `funcgraph_entry` and `funcgraph_exit`; a call that both saw is two events. When a thread did not run, its stream's processor has
/// `sched_switch` events to no thread and back, with state S or R. A call that had not returned at the
/// end has no exit. Where events were lost, readers say how many are missing. Returns whose entries are not known are
/// left out: a reader takes the return behind an entry of the same function for its own.
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
        // A file without streams is none.
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
    /// Of every stream that is complete.
    pages: Vec<u64>,
    /// Of the stream at hand.
    page: u64,
    /// Time of the newest event of the thread.
    last: u64,
    /// Until then it is not known whether the thread ran, and whether that was said; ticks.
    unknown: Option<(u64, bool)>,
    /// The second time: where pages go.
    to: Option<(Vec<u8>, &'a mut dyn Write)>,
}

impl Visitor for Exporter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.know(thread, enter.ticks);
        if enter.is_rest {
            // The entry is where the call began: a second one would be a second call.
            let (name, depth) = (self.names.function(enter.site), enter.depth);
            let text = format!("{name} is open again at depth {depth}: the thread is back on its stack\n");
            let record = record::print(self.tid(thread), self.addresses.own(), &text);
            return self.put(self.source.to_ns(enter.ticks), &record);
        }
        if enter.parent != 0 {
            self.mark(thread, enter);
        }
        let function = self.addresses.function(enter.site);
        let record = record::graph_entry(self.tid(thread), function, enter.depth.min(DEEPEST));
        self.put(self.source.to_ns(enter.ticks), &record);
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        // An exit has a duration here, so a call that may be open still gets none. One that has ended, at an unknown moment, gets one at the last moment when it is
        // known to have run: trace-cmd would take a later return of the same function for its own.
        self.know(thread, call.end);
        if !call.ending.is_cut() || matches!(call.ending, Ending::Left | Ending::SwitchedOff) {
            let function = self.addresses.function(call.site);
            let (start, end) = (self.source.to_ns(call.start), self.source.to_ns(call.end));
            let depth = call.depth.min(DEEPEST);
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
            // The kernel's event has no word for who kept it.
            RunState::Blocked | RunState::Tracing => true,
            RunState::Runnable => false,
            RunState::Unknown => return self.doubt(thread, stretch),
            RunState::Running => return,
        };
        self.know(thread, stretch.from);
        // The events say from here on what it does.
        self.unknown = None;
        let tid = self.tid(thread);
        let own = (
            tid,
            self.source.meta().threads.get(thread.0 as usize).map_or("", |thread| thread.comm.as_str()),
        );
        let none = (0, "swapper");
        self.put(self.source.to_ns(stretch.from), &record::sched_switch(own, sleeps, none));
        self.put(self.source.to_ns(stretch.to), &record::sched_switch(none, false, own));
    }

    fn lost(&mut self, _: ThreadId, ticks: u64, entries: u32, exits: u32) {
        // Of a thread that nothing else is known of, the recorder cannot tell when.
        self.last = self.source.to_ns(ticks).max(self.start());
        self.stream.miss(u64::from(entries) + u64::from(exits));
    }

    fn unreadable(&mut self, _: ThreadId, events: u64) {
        self.stream.miss(events);
    }

    fn batch_end(&mut self) -> io::Result<()> {
        self.write(false)
    }

    fn thread_end(&mut self, thread: ThreadId) -> io::Result<()> {
        if self.stream.owes_missed() {
            // Only an event can say that some are missing before it, and the next one is another thread's.
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
        self.unknown = None;
        self.write(false)
    }
}

impl Exporter<'_> {
    /// When the recording began.
    fn start(&self) -> u64 {
        let session = self.source.meta().session.as_ref().filter(|_| self.source.has_time());
        session.map_or(0, |session| session.start_monotonic_ns)
    }

    fn tid(&self, thread: ThreadId) -> u32 {
        pid_tid(self.source, thread).1
    }

    /// It is not known what the thread does. There is no event of the kernel's that says so; that nothing is known before its first event need not be said.
    fn doubt(&mut self, thread: ThreadId, stretch: &Stretch) {
        let before = self.unknown.filter(|(until, _)| *until == stretch.from);
        let is_said = before.is_some_and(|(_, is_said)| is_said);
        let is_first = stretch.from == 0 || before.is_some_and(|(_, is_said)| !is_said);
        if !is_said && !is_first {
            self.say(thread, stretch.from, SAYS_UNKNOWN);
        }
        self.unknown = Some((stretch.to, !is_first));
    }

    /// Something happens at this time: if what the thread did was not known, and is, it runs.
    fn know(&mut self, thread: ThreadId, ticks: u64) {
        if let Some((until, true)) = self.unknown.filter(|(until, _)| *until < ticks) {
            self.say(thread, until, SAYS_RUNNING);
            self.unknown = None;
        }
    }

    fn say(&mut self, thread: ThreadId, ticks: u64, text: &str) {
        let said = record::print(self.tid(thread), self.addresses.own(), text);
        self.put(self.source.to_ns(ticks), &said);
    }

    fn put(&mut self, time: u64, record: &[u8]) {
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

/// Counts a full page, and keeps it if it is to be written.
fn take(full: &calltap_ringbuffer::Page, pages: &mut u64, to: &mut Option<(Vec<u8>, &mut dyn Write)>) {
    *pages += 1;
    if let Some((buffer, _)) = to {
        buffer.extend_from_slice(full);
    }
}
