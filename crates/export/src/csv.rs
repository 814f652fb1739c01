//! CSV with one line per call.

use crate::options::Options;
use calltap_analysis::bytes::{drain, push_csv, push_decimal};
use calltap_analysis::incidents::Incidents;
use calltap_analysis::incidents_of_calls::{COUNTS, IncidentsOfCalls, counts};
use calltap_analysis::{Call, Enter, Error, Names, Progress, Source, Totals, Visitor, run_by_thread};
use calltap_trace::{SiteId, ThreadId};
use std::io::{self, Write};

/// Writes a line per call, thread after thread, in the order in which calls end: `thread` (its
/// name), `tid`, `function`, `module`, `depth` (0 = outermost), `start_ns` (CLOCK_MONOTONIC),
/// `total_ns`, `self_ns`, `caller`; if context switches were recorded, also `cpu_ns`,
/// `runnable_ns`, `blocked_ns`, `tracing_ns`; and if incidents were recorded, `faults`,
/// `major_faults`, `migrations`, `signals` of the call itself; last `end`, the name of its
/// [ending](calltap_trace::Ending). Unknown fields (times of a counter clock, durations of a
/// `function` tracer) are empty.
pub fn csv(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let names = Names::new(source.meta(), options.linker_names);
    let mut buffer = b"thread,tid,function,module,depth,start_ns,total_ns,self_ns,caller".to_vec();
    let switched = source.has_switches() && source.has_time();
    buffer.extend_from_slice(if switched { b",cpu_ns,runnable_ns,blocked_ns,tracing_ns" } else { b"" });
    let incidents = IncidentsOfCalls::new(source);
    if incidents.is_some() {
        COUNTS.iter().for_each(|name| buffer.extend([b",", name.as_bytes()].concat()));
    }
    buffer.extend_from_slice(b",end\n");
    buffer.reserve(128 << 10);
    let mut exporter = Exporter { source, timed: source.has_time(), switched, incidents, names, out, buffer };
    let totals = run_by_thread(source, &mut exporter, progress)?;
    drain(&mut exporter.buffer, exporter.out, true)?;
    Ok(totals)
}

struct Exporter<'a> {
    source: &'a dyn Source,
    timed: bool,
    switched: bool,
    incidents: Option<IncidentsOfCalls<'a>>,
    names: Names<'a>,
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
}

impl Visitor for Exporter<'_> {
    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if let Some(incidents) = &mut self.incidents {
            incidents.enter(thread, enter.ticks, enter.depth);
        }
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        let incidents = self.incidents.as_mut();
        let happened = incidents.and_then(|incidents| incidents.close(thread, call.end, call.depth));
        if !call.ending.is_of_call() {
            return;
        }
        let durations = (!call.ending.is_cut()).then_some((call.total, call.self_ticks));
        self.line(thread, call.site, call.depth, call.start, durations, call.caller);
        let known = call.off.cpu(call.total).filter(|_| durations.is_some());
        self.states(known.map(|cpu| [cpu, call.off.runnable, call.off.blocked, call.off.tracing]));
        self.end(happened, call.ending.name());
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.line(thread, enter.site, enter.depth, enter.ticks, None, None);
        self.states(None);
        self.end(None, "");
    }

    fn batch_end(&mut self) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }
}

impl Exporter<'_> {
    fn line(
        &mut self,
        thread: ThreadId,
        site: SiteId,
        depth: u32,
        start: u64,
        durations: Option<(u64, u64)>,
        caller: Option<SiteId>,
    ) {
        let (source, names, buffer) = (self.source, &self.names, &mut self.buffer);
        push_csv(buffer, names.comm(thread));
        buffer.push(b',');
        push_decimal(buffer, u64::from(names.tid(thread)));
        buffer.push(b',');
        push_csv(buffer, names.function(site));
        buffer.push(b',');
        push_csv(buffer, names.module(site));
        buffer.push(b',');
        push_decimal(buffer, u64::from(depth));
        buffer.push(b',');
        if self.timed {
            push_decimal(buffer, source.to_ns(start));
        }
        buffer.push(b',');
        match durations.filter(|_| self.timed) {
            Some((total, own)) => {
                push_decimal(buffer, source.duration_ns(total));
                buffer.push(b',');
                push_decimal(buffer, source.duration_ns(own));
            }
            None => buffer.push(b','),
        }
        buffer.push(b',');
        if let Some(caller) = caller {
            push_csv(buffer, names.function(caller));
        }
    }

    /// Appends the thread's times in each state.
    fn states(&mut self, states: Option<[u64; 4]>) {
        for at in 0..if self.switched { 4 } else { 0 } {
            self.buffer.push(b',');
            if let Some(states) = states {
                push_decimal(&mut self.buffer, self.source.duration_ns(states[at]));
            }
        }
    }

    /// Appends the incidents in the call itself and how it ended, and ends the line.
    fn end(&mut self, happened: Option<Incidents>, ending: &str) {
        for count in counts(happened).into_iter().filter(|_| self.incidents.is_some()) {
            self.buffer.push(b',');
            if let Some(count) = count {
                push_decimal(&mut self.buffer, count);
            }
        }
        self.buffer.push(b',');
        self.buffer.extend_from_slice(ending.as_bytes());
        self.buffer.push(b'\n');
    }
}
