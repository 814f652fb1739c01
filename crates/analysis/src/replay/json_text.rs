//! Formats events as JSON objects, one per line, for scripts. docs/reference/exports.md describes
//! them.

use super::waits::{Kind, Wait};
use super::{Closed, Effect, SourceLine};
use crate::head::forked_processes;
use crate::names::Names;
use crate::sources::part::Part;
use crate::sources::source::Source;
use crate::symbols::Symbols;
use crate::tree::{Ending, Enter, Totals};
use crate::values;
use crate::{incidents, limited};
use calltap_trace::{RunState, SiteId, ThreadId};
use serde_json::{Map, Value, json};

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

type Object = Map<String, Value>;

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
        let head = json!({
            "calltap_replay": VERSION,
            "event": "begin",
            "part": self.source.part(),
            "forked_without_callers": forked_processes(self.source),
            "limited": limited::of_trace(self.source.meta(), self.names),
        });
        push(buffer, &head);
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
                object.insert("entries".to_owned(), (*entries).into());
                object.insert("exits".to_owned(), (*exits).into());
            }
            Effect::Orphan { site, depth } => self.function(&mut object, *site, *depth),
        }
        push(buffer, &object.into());
    }

    /// Writes the object of an interval in which a thread does not run, or of an incident.
    pub(super) fn wait(&self, buffer: &mut Vec<u8>, thread: ThreadId, wait: &Wait) {
        let mut object = match &wait.kind {
            Kind::Off(state, to) => {
                let mut object = self.event("off", thread, wait.from);
                let state = match state {
                    RunState::Unknown => "unknown",
                    RunState::Tracing => "tracing",
                    state => state.name(),
                };
                object.insert("state".to_owned(), state.into());
                object.insert("duration_ns".to_owned(), self.duration(to - wait.from));
                object
            }
            Kind::Incident(what) => {
                let mut object = self.event(&what.name().replace(' ', "_"), thread, wait.from);
                let fields = incidents::fields(what).into_iter();
                object.extend(fields.map(|(key, value)| (key.to_owned(), value.into())));
                object
            }
        };
        object.insert("depth".to_owned(), wait.depth.into());
        push(buffer, &object.into());
    }

    /// Writes the last object: counts of the whole replay.
    pub(super) fn totals(&self, buffer: &mut Vec<u8>, totals: &Totals) {
        let end = json!({
            "event": "finish",
            "events": totals.events,
            "cut_by_part": totals.outside,
            "unfinished": totals.unfinished,
            "unreadable": totals.damaged,
            "first_unreadable": totals.first_damage,
        });
        push(buffer, &end);
    }

    /// Makes the object of an event, with its time and its thread.
    fn event(&self, name: &str, thread: ThreadId, ticks: u64) -> Object {
        let ns = self.source.has_time().then(|| self.source.to_ns(ticks));
        let since = ns.map(|ns| ns.saturating_sub(self.start));
        let epoch = ns.zip(self.apart).map(|(ns, apart)| ns.wrapping_add(apart));
        let mut object = Object::new();
        object.insert("event".to_owned(), name.into());
        object.insert("at_ns".to_owned(), since.into());
        object.insert("at_epoch_ns".to_owned(), epoch.into());
        if ns.is_none() {
            object.insert("number".to_owned(), ticks.into());
        }
        object.insert("thread".to_owned(), self.names.task(thread).into());
        object.insert("tid".to_owned(), self.names.tid(thread).into());
        object
    }

    fn function(&self, object: &mut Object, site: SiteId, depth: u32) {
        object.insert("depth".to_owned(), depth.into());
        object.insert("function".to_owned(), self.names.function(site).into());
        object.insert("module".to_owned(), self.names.module(site).into());
    }

    fn entered(&mut self, object: &mut Object, thread: ThreadId, enter: &Enter, captured: &[u8]) {
        self.function(object, enter.site, enter.depth);
        if enter.is_rest {
            object.insert("resumed".to_owned(), true.into());
        }
        if enter.parent != 0 {
            let caller = self.symbols.caller(thread, enter.ticks, enter.parent);
            object.insert("caller".to_owned(), caller.into());
        }
        self.values(object, "arguments", (thread, enter.ticks), enter.site, captured);
        if let Some(of) = self.source_line {
            object.insert("line".to_owned(), of(self.source.meta(), enter.site).into());
        }
    }

    fn closed(&self, object: &mut Object, thread: ThreadId, call: &Closed, captured: &[u8]) {
        self.function(object, call.site, call.depth);
        let is_cut = call.ending.is_cut();
        let known = |ticks| if is_cut { Value::Null } else { self.duration(ticks) };
        object.insert("duration_ns".to_owned(), known(call.total));
        object.insert("self_ns".to_owned(), known(call.self_ticks));
        object.insert("end".to_owned(), call.ending.name().into());
        if call.ending == Ending::Returned {
            self.values(object, "results", (thread, call.end), call.site, captured);
        }
    }

    fn values(
        &self,
        object: &mut Object,
        key: &str,
        (thread, ticks): (ThreadId, u64),
        site: SiteId,
        captured: &[u8],
    ) {
        let mut code = |address| self.symbols.code(thread, ticks, address);
        let shown = values::show(self.source, site, key == "results", captured, &mut code);
        if !shown.is_empty() {
            object.insert(key.to_owned(), values::object(&shown));
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
