//! Formats events as JSON objects, one per line, for scripts. docs/reference/exports.md describes
//! them.

use super::waits::{Kind, Wait};
use super::{Closed, Effect, SourceLine};
use crate::head::facts;
use crate::incidents;
use crate::names::Names;
use crate::sources::part::Part;
use crate::sources::source::Source;
use crate::symbols::Symbols;
use crate::tree::{Ending, Enter, Totals};
use crate::values;
use calltap_trace::{RunState, SiteId, ThreadId};
use serde_json::{Value, json};

/// Version of the objects.
const VERSION: u32 = 1;

pub(super) struct JsonText<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    symbols: Symbols<'a>,
    source_line: Option<SourceLine>,
    /// Beginning of the trace on CLOCK_MONOTONIC.
    start: u64,
    /// Offset from CLOCK_MONOTONIC to CLOCK_REALTIME, modulo 2^64, if the trace has the time of
    /// day.
    apart: Option<u64>,
}

impl<'a> JsonText<'a> {
    pub(super) fn new(
        source: &'a dyn Source,
        names: &'a Names<'a>,
        source_line: Option<SourceLine>,
    ) -> JsonText<'a> {
        let session = source.meta().session.as_ref().filter(|session| session.start_realtime_ns != 0);
        let apart = session.map(|session| session.start_realtime_ns.wrapping_sub(session.start_monotonic_ns));
        let (symbols, start) = (Symbols::new(source.meta(), names), Part::beginning(source));
        JsonText { source, names, symbols, source_line, start, apart }
    }

    /// Writes the first object: properties of the whole replay.
    pub(super) fn header(&self, buffer: &mut Vec<u8>) {
        let mut head = facts::of_recording(self.source, self.names);
        head.insert("calltap_replay".to_owned(), VERSION.into());
        head.insert("event".to_owned(), "begin".into());
        push(buffer, &head.into());
    }

    /// Writes the object of an event.
    pub(super) fn line(
        &mut self,
        buffer: &mut Vec<u8>,
        thread: ThreadId,
        now: u64,
        effect: &Effect,
        captured: &[u8],
    ) {
        let name = match effect {
            Effect::Enter(_) => "entry",
            Effect::Close(_) => "exit",
            Effect::Mark(_) => "call",
            Effect::Lost { .. } => "lost",
            Effect::Orphan { .. } => "exit_without_entry",
        };
        let mut object = self.event(name, thread, now);
        match effect {
            Effect::Enter(enter) | Effect::Mark(enter) => self.entered(&mut object, thread, enter, captured),
            Effect::Close(call) => self.closed(&mut object, thread, call, captured),
            Effect::Lost { entries, exits } => {
                object["entries"] = (*entries).into();
                object["exits"] = (*exits).into();
            }
            Effect::Orphan { site, depth } => self.function(&mut object, *site, *depth),
        }
        push(buffer, &object);
    }

    /// Writes the object of an interval in which a thread does not run, or of an incident.
    pub(super) fn wait(&self, buffer: &mut Vec<u8>, thread: ThreadId, wait: &Wait) {
        let mut object = match &wait.kind {
            Kind::Off(state, to, waker) => {
                let mut object = self.event("off", thread, wait.from);
                let state = match state {
                    RunState::Unknown => "unknown",
                    RunState::Tracing => "tracing",
                    state => state.name(),
                };
                object["state"] = state.into();
                object["duration_ns"] = self.duration(to - wait.from);
                if let Some(waker) = waker {
                    object["woken_by"] = waker.json();
                }
                object
            }
            Kind::Incident(what) => {
                let mut object = self.event(&what.name().replace(' ', "_"), thread, wait.from);
                let fields = incidents::fields(what).into_iter();
                fields.for_each(|(key, value)| object[key] = value.into());
                object
            }
        };
        object["depth"] = wait.depth.into();
        push(buffer, &object);
    }

    /// Writes the last object: counts of the whole replay.
    pub(super) fn totals(&self, buffer: &mut Vec<u8>, totals: &Totals) {
        let mut end = facts::of_events(self.source, totals);
        end.insert("event".to_owned(), "finish".into());
        push(buffer, &end.into());
    }

    /// Makes the object of an event, with its time and its thread.
    fn event(&self, name: &str, thread: ThreadId, ticks: u64) -> Value {
        let ns = self.source.has_time().then(|| self.source.to_ns(ticks));
        let since = ns.map(|ns| ns.saturating_sub(self.start));
        let epoch = ns.zip(self.apart).map(|(ns, apart)| ns.wrapping_add(apart));
        let mut object = json!({
            "event": name,
            "at_ns": since,
            "at_epoch_ns": epoch,
            "thread": self.names.task(thread),
            "tid": self.names.tid(thread),
        });
        if ns.is_none() {
            object["number"] = ticks.into();
        }
        object
    }

    fn function(&self, object: &mut Value, site: SiteId, depth: u32) {
        object["depth"] = depth.into();
        object["function"] = self.names.function(site).into();
        object["module"] = self.names.module(site).into();
    }

    fn entered(&mut self, object: &mut Value, thread: ThreadId, enter: &Enter, captured: &[u8]) {
        self.function(object, enter.site, enter.depth);
        if enter.is_rest {
            object["resumed"] = true.into();
        }
        if enter.parent != 0 {
            let caller = self.symbols.caller(thread, enter.ticks, enter.parent);
            object["caller"] = caller.into();
        }
        self.values(object, "arguments", (thread, enter.ticks), enter.site, captured);
        if let Some(of) = self.source_line {
            object["line"] = of(self.source.meta(), enter.site).into();
        }
    }

    fn closed(&self, object: &mut Value, thread: ThreadId, call: &Closed, captured: &[u8]) {
        self.function(object, call.site, call.depth);
        let is_cut = call.ending.is_cut();
        let known = |ticks| if is_cut { Value::Null } else { self.duration(ticks) };
        object["duration_ns"] = known(call.total);
        object["self_ns"] = known(call.self_ticks);
        object["end"] = call.ending.name().into();
        if !is_cut {
            let own = if call.ending == Ending::Returned { captured } else { &[] };
            self.values(object, "results", (thread, call.end), call.site, own);
        }
    }

    fn values(
        &self,
        object: &mut Value,
        key: &str,
        (thread, ticks): (ThreadId, u64),
        site: SiteId,
        captured: &[u8],
    ) {
        let mut code = |address| self.symbols.code(thread, ticks, address);
        let shown = values::show(self.source, site, key == "results", captured, &mut code);
        if !shown.is_empty() {
            object[key] = values::object(&shown);
        }
    }

    /// Returns a number of ticks in nanoseconds; null if the clock does not measure time.
    fn duration(&self, ticks: u64) -> Value {
        self.source.has_time().then(|| self.source.duration_ns(ticks)).into()
    }
}

fn push(buffer: &mut Vec<u8>, object: &Value) {
    buffer.extend_from_slice(object.to_string().as_bytes());
    buffer.push(b'\n');
}
