//! OpenTelemetry spans of chosen functions, as OTLP in JSON: an ExportTraceServiceRequest per line,
//! as in the collector's files.

use crate::labels::{off_parts, pid_tid};
use crate::options::Options;
use calltap_analysis::bytes::drain;
use calltap_analysis::incidents_of_calls::{COUNTS, IncidentsOfCalls, counts};
use calltap_analysis::values::{self, FormattedValue};
use calltap_analysis::{
    Call, Ending, Enter, Error, Names, Progress, Source, Totals, Visitor, disabled, run_by_thread,
};
use calltap_trace::{SiteId, ThreadId};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};

/// Maximum number of spans of a request.
const BATCH: usize = 512;
/// SPAN_KIND_INTERNAL.
const INTERNAL: u32 = 1;

/// Writes a span for every call of the chosen functions that has times. Its parent is the innermost
/// chosen call around it; an outermost call begins a trace. Ids depend on the recording only:
/// exporting it again gives the same ids.
///
/// If an argument holds the trace id of calls ([`Options::trace_id`]), all spans with the same
/// value are in one trace, in whatever threads they are: the first that begins is the parent of
/// those without a parent in their own thread.
pub fn otlp(
    source: &dyn Source,
    options: &Options,
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    let meta = source.meta();
    let names = Names::new(meta, options.linker_names);
    let is_chosen = |site: u32| names.selects(SiteId(site), &options.functions);
    let chosen = (0..meta.sites.len() as u32).map(is_chosen).collect();
    let session = meta.session.as_ref();
    let (realtime, monotonic) =
        session.map_or((0, 0), |session| (session.start_realtime_ns, session.start_monotonic_ns));
    let host = session.map_or("", |session| session.host.as_str());
    let seed = host.bytes().fold(realtime, |seed, byte| scatter(seed ^ u64::from(byte)));
    let mut exporter = Exporter {
        source,
        chosen,
        names,
        out,
        buffer: Vec::new(),
        open: Vec::new(),
        spans: Vec::new(),
        shift: realtime.wrapping_sub(monotonic),
        next: seed,
        trace_id: options.trace_id.as_deref(),
        values: Vec::new(),
        firsts: HashMap::new(),
        is_second_pass: options.trace_id.is_none(),
        incidents: IncidentsOfCalls::new(source),
    };
    if options.trace_id.is_some() {
        // Ids are assigned in the order of events, so that both passes give a span the same id.
        run_by_thread(source, &mut exporter, None)?;
        exporter.next = seed;
        exporter.is_second_pass = true;
        exporter.incidents = IncidentsOfCalls::new(source);
    }
    let totals = run_by_thread(source, &mut exporter, progress)?;
    drain(&mut exporter.buffer, exporter.out, true)?;
    Ok(totals)
}

/// Mixes the bits of a word; distinct words give distinct results (splitmix64).
fn scatter(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// An open call of a chosen function.
struct Open {
    depth: u32,
    trace: u128,
    span: u64,
    parent: Option<u64>,
    arguments: Vec<FormattedValue>,
}

struct Exporter<'a> {
    source: &'a dyn Source,
    /// Whether each site is chosen.
    chosen: Vec<bool>,
    names: Names<'a>,
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    open: Vec<Open>,
    spans: Vec<Value>,
    /// Offset from CLOCK_MONOTONIC to nanoseconds since 1970.
    shift: u64,
    next: u64,
    /// Name of the argument that holds the trace id.
    trace_id: Option<&'a str>,
    /// Values captured with the next event.
    values: Vec<FormattedValue>,
    /// Start and id of the first span of each trace that arguments name.
    firsts: HashMap<u128, (u64, u64)>,
    /// Whether this is the second pass, in which `firsts` is complete and spans are written.
    is_second_pass: bool,
    incidents: Option<IncidentsOfCalls<'a>>,
}

impl Exporter<'_> {
    /// Returns a new id, which is not 0.
    fn id(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        scatter(self.next).max(1)
    }

    /// Returns the trace that arguments name: their value if it has the form of an id, else a hash
    /// of its text.
    fn trace_of(&self, arguments: &[FormattedValue]) -> Option<u128> {
        let name = self.trace_id?;
        let text = match &arguments.iter().find(|value| value.name == name)?.json {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let id = if text.len() == 32 { u128::from_str_radix(&text, 16).ok() } else { None };
        let half = |seed: u64| text.bytes().fold(seed, |id, byte| scatter(id ^ u64::from(byte)));
        id.filter(|id| *id != 0).or_else(|| Some(u128::from(half(1)) << 64 | u128::from(half(2))))
    }

    fn at(&self, ticks: u64) -> String {
        self.source.to_ns(ticks).wrapping_add(self.shift).to_string()
    }

    fn is_chosen(&self, site: SiteId) -> bool {
        self.chosen.get(site.0 as usize).is_some_and(|chosen| *chosen)
    }

    /// Writes the pending spans as a request.
    fn request(&mut self, thread: ThreadId) {
        if self.spans.is_empty() {
            return;
        }
        let meta = self.source.meta();
        let process = meta.threads.get(thread.0 as usize).map(|thread| thread.process as usize);
        let process = process.and_then(|process| meta.processes.get(process));
        let host = meta.session.as_ref().map_or("", |session| session.host.as_str());
        let name = process.map_or("", |process| process.comm.as_str());
        let mut attributes = vec![
            text("service.name", name),
            text("host.name", host),
            number("process.pid", u64::from(pid_tid(self.source, thread).0)),
        ];
        let disabled = disabled::functions(meta, &self.names);
        if !disabled.is_empty() {
            let values: Vec<Value> = disabled.iter().map(|name| json!({ "stringValue": name })).collect();
            attributes
                .push(json!({ "key": "calltap.disabled_by_limit", "value": { "arrayValue": { "values": values } } }));
        }
        let spans = std::mem::take(&mut self.spans);
        let scope = json!({ "name": "calltap", "version": env!("CARGO_PKG_VERSION") });
        let request = json!({ "resourceSpans": [{
            "resource": { "attributes": attributes },
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }] });
        self.buffer.extend_from_slice(request.to_string().as_bytes());
        self.buffer.push(b'\n');
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Makes an integer attribute. JSON parsers may round 64-bit numbers, so OTLP encodes integers as
/// texts.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// Makes an attribute of a captured value.
fn attribute(key: &str, value: &Value, shown: &str) -> Value {
    match value {
        Value::Bool(truth) => json!({ "key": key, "value": { "boolValue": truth } }),
        Value::Number(number) if number.is_i64() => {
            json!({ "key": key, "value": { "intValue": number.to_string() } })
        }
        Value::Number(number) if number.is_f64() => json!({ "key": key, "value": { "doubleValue": number } }),
        Value::String(value) => text(key, value),
        _ => text(key, shown),
    }
}

impl Visitor for Exporter<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.values = values::show(self.source, site, returns, bytes, &mut |_| None);
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if let Some(incidents) = &mut self.incidents {
            incidents.enter(thread, enter.ticks, enter.depth);
        }
        let arguments = std::mem::take(&mut self.values);
        if !self.is_chosen(enter.site) || !self.source.has_time() {
            return;
        }
        let (span, own) = (self.id(), u128::from(self.id()) << 64 | u128::from(self.id()));
        let above = self.open.last().map(|parent| (parent.trace, parent.span));
        let named = self.trace_of(&arguments);
        let trace = named.or(above.map(|(trace, _)| trace)).unwrap_or(own);
        if named.is_some() {
            let first = self.firsts.entry(trace).or_insert((enter.ticks, span));
            *first = (*first).min((enter.ticks, span));
        }
        let in_thread = above.filter(|(above, _)| *above == trace).map(|(_, span)| span);
        let first = || self.firsts.get(&trace).map(|(_, first)| *first).filter(|first| *first != span);
        let parent = in_thread.or_else(first);
        self.open.push(Open { depth: enter.depth, trace, span, parent, arguments });
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        let incidents = self.incidents.as_mut();
        let happened = incidents.and_then(|incidents| incidents.close(thread, call.end, call.depth));
        // A call too deep for the engine closes without having been opened.
        let chosen = self.is_chosen(call.site);
        let results = match call.ending {
            Ending::Returned => std::mem::take(&mut self.values),
            _ => Vec::new(),
        };
        let Some(own) = self.open.pop_if(|open| chosen && open.depth == call.depth) else { return };
        if !self.is_second_pass {
            return;
        }
        let mut attributes = vec![
            text("code.function.name", self.names.function(call.site)),
            text("calltap.module", self.names.module(call.site)),
            number("thread.id", u64::from(self.names.tid(thread))),
            text("thread.name", self.names.comm(thread)),
        ];
        match call.ending {
            Ending::Returned | Ending::Tail => {}
            cut => attributes.push(text("calltap.ending", cut.name())),
        }
        attributes
            .extend(off_parts(self.source, call).map(|(name, ns)| number(&format!("calltap.{name}"), ns)));
        if let Some(cpu) = call.off.cpu(call.total).filter(|_| self.source.has_switches()) {
            attributes.push(number("calltap.cpu_ns", self.source.duration_ns(cpu)));
        }
        let happened = COUNTS.iter().zip(counts(happened));
        let happened = happened.filter_map(|(name, count)| Some((name, count.filter(|count| *count > 0)?)));
        attributes.extend(happened.map(|(name, count)| number(&format!("calltap.{name}"), count)));
        for FormattedValue { name, json, text: shown } in own.arguments.iter().chain(&results) {
            attributes.push(attribute(&format!("calltap.value.{name}"), json, shown));
        }
        let function = self.names.function(call.site);
        // A coroutine that goes on is no further call, for those who count spans by name.
        let name = match call.ending {
            Ending::Resumed => format!("{function} (resumed)"),
            _ => function.to_owned(),
        };
        let mut span = json!({
            "traceId": format!("{:032x}", own.trace),
            "spanId": format!("{:016x}", own.span),
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": self.at(call.start),
            "endTimeUnixNano": self.at(call.end),
            "attributes": attributes,
        });
        if let Some(parent) = own.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        self.spans.push(span);
        if self.spans.len() >= BATCH {
            self.request(thread);
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        drain(&mut self.buffer, self.out, false)
    }

    fn thread_end(&mut self, thread: ThreadId) -> io::Result<()> {
        self.open.clear();
        self.request(thread);
        drain(&mut self.buffer, self.out, false)
    }
}
