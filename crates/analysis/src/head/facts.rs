//! Facts of the head of a text view, for JSON: what a view was made from and what is missing.

use super::{Lost, disabled, forked_processes, left_out};
use crate::names::Names;
use crate::sources::source::Source;
use crate::tree::Totals;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Returns what is known of the recording: which part of it is read, and what it left out.
pub(crate) fn of_recording(source: &dyn Source, names: &Names<'_>) -> Map<String, Value> {
    let meta = source.meta();
    object(json!({
        "part": source.part(),
        "clock": meta.session.as_ref().map(|session| session.clock),
        "forked_without_callers": forked_processes(source),
        "lost_switches": meta.scheduling.as_ref().map(|scheduling| scheduling.lost),
        "lost_kernel_records": meta.kernel_events.as_ref().map(|events| events.lost),
        disabled::KEY: disabled::functions(meta, names),
        left_out::KEY: left_out::by_rules(source),
    }))
}

/// Returns the counts of what was read.
pub(crate) fn of_events(source: &dyn Source, totals: &Totals) -> Map<String, Value> {
    let lost = Lost::of(source, totals);
    object(json!({
        "events": totals.events.saturating_sub(totals.marks),
        "marks": totals.marks,
        "threads": totals.threads,
        "calls": totals.calls,
        "lost_calls": lost.entries,
        "lost_returns": lost.exits,
        "unfinished": totals.unfinished,
        "left": totals.left,
        "thread_ended": totals.thread_ended,
        "cut": totals.cut,
        "cut_by_part": totals.outside,
        "returns_without_entry": totals.orphans,
        "too_deep": totals.too_deep,
        "unknown_events": totals.unknown_sites + totals.unknown_threads,
        "damaged_parts": totals.damaged,
        "first_damage": totals.first_damage,
        "complaints": source.complaints(),
    }))
}

/// Returns both.
pub(crate) fn of_view(source: &dyn Source, names: &Names<'_>, totals: &Totals) -> Map<String, Value> {
    let mut facts = of_recording(source, names);
    facts.extend(of_events(source, totals));
    facts
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// An object whose last member is a list with one element to a line. The elements are not kept.
pub(crate) struct List<'a> {
    out: &'a mut dyn Write,
    is_empty: bool,
}

impl<'a> List<'a> {
    /// Writes the beginning: the version of the format, the facts, and the key of the list.
    pub(crate) fn begin(
        out: &'a mut dyn Write,
        (version, key): (&str, &str),
        facts: &Map<String, Value>,
    ) -> io::Result<List<'a>> {
        writeln!(out, "{{\"{version}\":1,")?;
        facts.iter().try_for_each(|(key, value)| writeln!(out, "\"{key}\":{value},"))?;
        write!(out, "\"{key}\":[")?;
        Ok(List { out, is_empty: true })
    }

    /// Returns where the next element is to be written.
    pub(crate) fn next(&mut self) -> io::Result<&mut dyn Write> {
        self.out.write_all(if self.is_empty { b"\n" } else { b",\n" })?;
        self.is_empty = false;
        Ok(self.out)
    }

    /// Writes the end.
    pub(crate) fn end(self) -> io::Result<()> {
        writeln!(self.out, "{}]}}", if self.is_empty { "" } else { "\n" })
    }
}
