//! Chrome's JSON trace events (chrome://tracing, ui.perfetto.dev, Speedscope).

use crate::labels::{command, off_parts, pid_tid};
use crate::options::Options;
use calltap_analysis::bytes::{drain, push_micros};
use calltap_analysis::futures::Span;
use calltap_analysis::states::{State, states};
use calltap_analysis::values::{self, FormattedValue};
use calltap_analysis::{
    Call, Ending, Enter, Error, Names, Progress, Source, Totals, Visitor, disabled, future_spans, incidents,
    run_in_file_order, threads_with_events,
};
use calltap_trace::{Incident, RunState, SiteId, ThreadId};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::io::{self, Write};

/// Writes JSON trace events: a begin and an end per call, instants for losses and for calls without
/// duration. Times are microseconds of CLOCK_MONOTONIC with three decimals; a counter clock's ticks
/// count as nanoseconds.
pub fn chrome(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let names = Names::new(source.meta(), options.linker_names);
    let mut exporter = Exporter {
        source,
        names,
        out,
        buffer: b"{\"traceEvents\":[\n".to_vec(),
        quoted: vec![OnceCell::new(); source.meta().sites.len() + 1],
        places: vec![OnceCell::new(); source.meta().threads.len()],
        first: true,
        values: Vec::new(),
    };
    exporter.metadata();
    let totals = run_in_file_order(source, &mut exporter, progress)?;
    for span in future_spans(source) {
        exporter.future(&span);
        drain(&mut exporter.buffer, exporter.out, false)?;
    }
    for thread in threads_with_events(source) {
        exporter.states(thread)?;
        exporter.incidents(thread)?;
    }
    let clock = source.meta().session.as_ref().map(|session| session.clock);
    let mut other = json!({ "command": command(source), "clock": clock });
    let disabled = disabled::functions(source.meta(), &exporter.names);
    if !disabled.is_empty() {
        other["disabled_by_limit"] = disabled.into();
    }
    write!(exporter.buffer, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{other}}}\n")?;
    drain(&mut exporter.buffer, exporter.out, true)?;
    Ok(totals)
}

struct Exporter<'a> {
    source: &'a dyn Source,
    names: Names<'a>,
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    /// JSON strings of the functions' names, by site.
    quoted: Vec<OnceCell<String>>,
    /// `"pid":1,"tid":2` by thread.
    places: Vec<OnceCell<String>>,
    first: bool,
    /// Values captured with the next event.
    values: Vec<FormattedValue>,
}

impl Visitor for Exporter<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.values = values::show(self.source, site, returns, bytes, &mut |_| None);
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        self.named(thread, enter.ticks, enter.site, b"\"B\"");
        self.arguments();
        self.buffer.push(b'}');
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        self.separate();
        self.buffer.extend_from_slice(b"{\"ph\":\"E\"");
        self.at(thread, call.end);
        let mut args = match call.ending {
            Ending::Returned => values::object(&std::mem::take(&mut self.values)),
            Ending::Tail => json!({}),
            cut => json!({ "end": cut.name() }),
        };
        if let Some(args) = args.as_object_mut() {
            args.extend(off_parts(self.source, call).map(|(name, ns)| (name.to_owned(), ns.into())));
        }
        if args.as_object().is_some_and(|args| !args.is_empty()) {
            self.buffer.extend_from_slice(format!(",\"args\":{args}").as_bytes());
        }
        self.buffer.push(b'}');
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        self.named(thread, enter.ticks, enter.site, b"\"i\",\"s\":\"t\"");
        self.arguments();
        self.buffer.push(b'}');
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, entries: u32, exits: u32) {
        self.separate();
        self.buffer.extend_from_slice(b"{\"name\":\"LOST\",\"ph\":\"i\",\"s\":\"t\"");
        self.at(thread, ticks);
        let args = format!(",\"args\":{{\"entries\":{entries},\"exits\":{exits}}}}}");
        self.buffer.extend_from_slice(args.as_bytes());
    }

    fn batch_end(&mut self) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }

    fn thread_end(&mut self, _: ThreadId) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }
}

impl Exporter<'_> {
    fn metadata(&mut self) {
        let meta = self.source.meta();
        // Without a name from the recorder, readers have a better name than an empty one.
        for process in meta.processes.iter().filter(|process| !process.comm.is_empty()) {
            self.separate();
            let args = json!({ "name": process.comm });
            let event = json!({ "name": "process_name", "ph": "M", "pid": process.pid, "args": args });
            self.buffer.extend_from_slice(event.to_string().as_bytes());
        }
        for thread in meta.threads.iter().filter(|thread| !thread.comm.is_empty()) {
            self.separate();
            let (pid, tid) = pid_tid(self.source, thread.id);
            let args = json!({ "name": self.names.title(thread.id) });
            let event = json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args });
            self.buffer.extend_from_slice(event.to_string().as_bytes());
        }
    }

    fn arguments(&mut self) {
        if !self.values.is_empty() {
            let values = values::object(&std::mem::take(&mut self.values));
            self.buffer.extend_from_slice(format!(",\"args\":{values}").as_bytes());
        }
    }

    /// Writes a future as an asynchronous event, with its polls as nested events.
    fn future(&mut self, span: &Span) {
        let thread = span.threads.first().copied().unwrap_or_default();
        let mut event = |name: &str, phase: &str, ticks: u64, thread: ThreadId, arguments: Value| {
            self.separate();
            let id = format!("{:#x}", span.id);
            let event = json!({ "name": name, "cat": "future", "ph": phase, "id": id, "args": arguments })
                .to_string();
            self.buffer.extend_from_slice(event.strip_suffix('}').unwrap_or(&event).as_bytes());
            self.at(thread, ticks);
            self.buffer.push(b'}');
        };
        let address = format!("{:#x}", span.address);
        let task = span.task.map(|task| format!("{task:#x}"));
        event(&span.name, "b", span.start, thread, json!({ "address": address, "task": task }));
        for (start, end, thread) in &span.all_polls {
            event("poll", "b", *start, *thread, json!({}));
            event("poll", "e", *end, *thread, json!({}));
        }
        event(&span.name, "e", span.end, thread, json!({ "end": span.how.name(), "polls": span.polls }));
    }

    /// Writes the thread's states as asynchronous events, which need not nest in its calls.
    fn states(&mut self, thread: ThreadId) -> Result<(), Error> {
        let id = pid_tid(self.source, thread).1;
        for State { from, to, state } in states(self.source, thread)? {
            if state == RunState::Unknown {
                continue;
            }
            for (phase, ticks) in [("b", from), ("e", to)] {
                self.separate();
                let name = state.name();
                let event = format!(
                    "{{\"name\":\"{name}\",\"cat\":\"thread state\",\"ph\":\"{phase}\",\"id\":\"{id}\""
                );
                self.buffer.extend_from_slice(event.as_bytes());
                self.at(thread, ticks);
                self.buffer.push(b'}');
            }
            drain(&mut self.buffer, self.out, false)?;
        }
        Ok(())
    }

    /// Writes the thread's incidents as instants.
    fn incidents(&mut self, thread: ThreadId) -> Result<(), Error> {
        for Incident { at, what } in self.source.incidents(thread)?.entries {
            self.separate();
            let event = format!("{{\"name\":\"{}\",\"ph\":\"i\",\"s\":\"t\"", what.name());
            self.buffer.extend_from_slice(event.as_bytes());
            self.at(thread, at);
            let fields: serde_json::Map<String, Value> = incidents::fields(&what)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            self.buffer.extend_from_slice(format!(",\"args\":{}}}", Value::Object(fields)).as_bytes());
            drain(&mut self.buffer, self.out, false)?;
        }
        Ok(())
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.buffer.extend_from_slice(b",\n");
        }
    }

    #[inline]
    fn named(&mut self, thread: ThreadId, ticks: u64, site: SiteId, phase: &[u8]) {
        self.separate();
        self.buffer.extend_from_slice(b"{\"name\":");
        let names = &self.names;
        let quoted = self.quoted[site.0 as usize].get_or_init(|| json!(names.function(site)).to_string());
        self.buffer.extend_from_slice(quoted.as_bytes());
        self.buffer.extend_from_slice(b",\"ph\":");
        self.buffer.extend_from_slice(phase);
        self.at(thread, ticks);
    }

    #[inline]
    fn at(&mut self, thread: ThreadId, ticks: u64) {
        self.buffer.extend_from_slice(b",\"ts\":");
        push_micros(&mut self.buffer, self.source.to_ns(ticks));
        let source = self.source;
        let place = self.places[thread.0 as usize].get_or_init(|| {
            let (pid, tid) = pid_tid(source, thread);
            format!(",\"pid\":{pid},\"tid\":{tid}")
        });
        self.buffer.extend_from_slice(place.as_bytes());
    }
}
