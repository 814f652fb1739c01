//! Python functions: what the recorder describes of them, and switches off.
//!
//! The agent writes them into a [table](calltap_abi::python) in shared memory when they are called first. They are described in the trace in front of
//! the first events that were read later: an event of a function is written after its entry is.

use crate::shm::Shared;
use calltap_abi::python::{Entry, NAME, TEXT, Table, state};
use calltap_abi::stub;
use calltap_names::printable;
use calltap_trace::{Record, Site, SiteId};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// How sites of Python functions are called.
pub const KIND: &str = "python";
/// Path of the module that they belong to in a trace.
pub const MODULE: &str = "[python]";

/// The functions that were not described yet.
pub struct Introductions<'a> {
    shared: &'a Shared,
    /// Entries that were looked at.
    seen: usize,
    /// Those of them that were being filled in.
    filling: Vec<usize>,
}

impl<'a> Introductions<'a> {
    /// None was described.
    pub fn new(shared: &'a Shared) -> Introductions<'a> {
        Introductions { shared, seen: 0, filling: Vec::new() }
    }

    /// The record that describes those that came since.
    pub fn describe_new(&mut self) -> Option<Record> {
        let table = self.shared.python()?;
        let taken = table.taken();
        if taken.len() == self.seen && self.filling.is_empty() {
            return None;
        }
        let new = std::mem::take(&mut self.filling).into_iter().chain(self.seen..taken.len());
        self.seen = taken.len();
        let mut sites = Vec::new();
        for index in new {
            match taken.get(index).map(|entry| (entry, entry.state.load(Acquire))) {
                Some((_, state::FILLING)) => self.filling.push(index),
                Some((_, state::UNSELECTED)) | None => {}
                Some((entry, _)) => sites.push(describe(table, entry)),
            }
        }
        (!sites.is_empty()).then_some(Record::Sites { sites })
    }
}

/// Name, file and line of an entry.
fn texts(entry: &Entry) -> (String, String) {
    let bytes: Vec<u8> = entry.text.iter().map(|byte| byte.load(Relaxed)).collect();
    let name = (entry.name.load(Relaxed) as usize).min(NAME);
    let file = (entry.file.load(Relaxed) as usize).min(TEXT - name);
    let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes)).into_owned();
    let file = text(&bytes[name..name + file]);
    let name = text(&bytes[..name]);
    // The globals of code that was not made by an import may lack a name.
    let stem = || Path::new(&file).file_stem().map_or_else(|| "?".into(), |stem| stem.to_string_lossy());
    let name = if name.is_empty() || name.starts_with('<') { format!("{}.{name}", stem()) } else { name };
    (name, format!("{file}:{}", entry.line.load(Relaxed)))
}

fn describe(table: &Table, entry: &Entry) -> Site {
    let (name, place) = texts(entry);
    Site {
        id: SiteId(entry.site.load(Relaxed).min(stub::COUNT as u32 - 1)),
        module: table.header.module.load(Relaxed),
        // It has no address; its line tells it from others of its name.
        address: entry.line.load(Relaxed).into(),
        size: 0,
        name,
        aliases: vec![place],
        kind: KIND.to_owned(),
        tracers: table.header.tracers.load(Relaxed),
        captured: None,
    }
}

impl Shared {
    /// Switches functions off or on, by their sites. The names of those that were changed.
    pub fn switch_python(&self, sites: &HashSet<u32>, off: bool) -> HashMap<u32, String> {
        let (from, to) = if off { (state::ON, state::OFF) } else { (state::OFF, state::ON) };
        let entries = self.python().map(Table::taken).unwrap_or_default();
        let named = entries.iter().filter(|entry| sites.contains(&entry.site.load(Relaxed)));
        // What is not selected has neither state, and no number.
        let changed = named.filter(|entry| entry.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok());
        changed.map(|entry| (entry.site.load(Relaxed), texts(entry).0)).collect()
    }

    /// Has events of Python functions recorded, or not.
    pub fn pause_python(&self, paused: bool) {
        if let Some(table) = self.python() {
            table.header.paused.store(paused.into(), Release);
        }
    }

    /// The sites of functions whose calls are recorded,
    pub fn python_sites_on(&self) -> impl Iterator<Item = u32> {
        let paused = self.python().is_some_and(|table| table.header.paused.load(Relaxed) != 0);
        self.python_sites_of(if paused { &[] } else { &[state::ON] })
    }

    /// and of those whose calls ever were.
    pub fn python_sites(&self) -> impl Iterator<Item = u32> {
        self.python_sites_of(&[state::ON, state::OFF])
    }

    fn python_sites_of(&self, states: &'static [u32]) -> impl Iterator<Item = u32> {
        let entries = self.python().map(Table::taken).unwrap_or_default();
        let of_them = entries.iter().filter(|entry| states.contains(&entry.state.load(Relaxed)));
        of_them.map(|entry| entry.site.load(Relaxed))
    }

    /// What of Python was not traced, for people.
    pub fn python_trouble(&self) -> Vec<String> {
        let Some(Table { header, .. }) = self.python() else { return Vec::new() };
        let mut notes = Vec::new();
        let missed = header.missed.load(Relaxed);
        if missed > 0 {
            notes.push(format!(
                "{missed} calls of Python functions are missing: there is room for {} functions",
                calltap_abi::python::FUNCTIONS
            ));
        }
        if header.occupied.load(Relaxed) > 0 {
            let text = "Python functions of some threads are not traced: they have a profile function of their own (sys.setprofile, cProfile), or two tools of sys.monitoring";
            notes.push(text.to_owned());
        }
        if header.unknown.load(Relaxed) > 0 {
            let text = "Python functions of some threads are not traced: the interpreter's memory is not laid out as in its version of CPython";
            notes.push(text.to_owned());
        }
        if header.placed.load(Relaxed) > 0 {
            let text = "Python functions are not traced: the agent could not be loaded by the dynamic linker";
            notes.push(text.to_owned());
        }
        notes
    }
}
