//! Python functions: describes them in the trace, and enables and disables them.
//!
//! The agent writes them into a [table](calltap_abi::python) in shared memory when they are called
//! first. They are described in the trace in front of the events that are read next: an event of a
//! function is written after its entry in the table.

use crate::shm::Shared;
use calltap_abi::python::arguments::kind as agent_kind;
use calltap_abi::python::{Entry, NAME, NO_SITE, TEXT, Table, phase, state, wanted};
use calltap_abi::stub;
use calltap_names::printable;
use calltap_trace::{Captured, Future, FutureValues, Record, Site, SiteId, Value, ValueForm, object_kind};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

// A trace has the agent's numbers.
const _: () = assert!(
    agent_kind::FALSE == object_kind::FALSE
        && agent_kind::TRUE == object_kind::TRUE
        && agent_kind::INTEGER == object_kind::INTEGER
        && agent_kind::FLOAT == object_kind::FLOAT
        && agent_kind::TEXT == object_kind::TEXT
        && agent_kind::WORD == object_kind::WORD
);

/// Kind of the sites of Python functions.
const KIND: &str = "python";
/// Path of the module to which they belong in a trace.
pub const MODULE: &str = "[python]";

/// The functions that were not described yet.
pub(crate) struct Introductions<'a> {
    shared: &'a Shared,
    /// Number of entries that were looked at.
    seen: usize,
    /// Entries that were being filled in.
    filling: Vec<usize>,
    /// Entries that had no site, as the filter did not select them.
    unselected: Vec<usize>,
    /// The filter at that time; `None`: it was being changed.
    selection: Option<(u32, u64)>,
}

impl<'a> Introductions<'a> {
    /// Creates a list in which no function was described.
    pub(crate) fn new(shared: &'a Shared) -> Introductions<'a> {
        let (filling, unselected) = (Vec::new(), Vec::new());
        Introductions { shared, seen: 0, filling, unselected, selection: None }
    }

    /// Returns the record that describes new functions.
    pub(crate) fn describe_new(&mut self) -> Option<Record> {
        let table = self.shared.python()?;
        let selection = table.header.selection.load(Acquire);
        let is_settled = selection & phase::MASK == phase::SETTLED;
        let selection = is_settled.then(|| (selection, table.header.late.load(Acquire)));
        let is_as_before = selection.is_some() && selection == self.selection;
        let taken = table.taken();
        if taken.len() == self.seen && self.filling.is_empty() && is_as_before {
            return None;
        }
        self.selection = selection;
        let mut new = std::mem::take(&mut self.filling);
        if !is_as_before {
            new.append(&mut self.unselected);
        }
        new.extend(self.seen..taken.len());
        self.seen = taken.len();
        let mut sites = Vec::new();
        for (index, entry) in new.into_iter().filter_map(|index| Some((index, taken.get(index)?))) {
            if entry.state.load(Acquire) == state::FILLING {
                self.filling.push(index);
            } else if entry.site.load(Acquire) == NO_SITE {
                self.unselected.push(index);
            } else {
                sites.push(describe(table, entry));
            }
        }
        (!sites.is_empty()).then_some(Record::Sites { sites })
    }
}

/// Returns name, file and line of an entry.
fn texts(entry: &Entry) -> (String, String) {
    let bytes: Vec<u8> = entry.text.iter().map(|byte| byte.load(Relaxed)).collect();
    let name = (entry.name.load(Relaxed) as usize).min(NAME);
    let file = (entry.file.load(Relaxed) as usize).min(TEXT - name);
    let text = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes)).into_owned();
    let file = text(&bytes[name..name + file]);
    let name = text(&bytes[..name]);
    // The module-level code of a module that was not imported may lack a name.
    let stem = || Path::new(&file).file_stem().map_or_else(|| "?".into(), |stem| stem.to_string_lossy());
    let name = if name.is_empty() || name.starts_with('<') { format!("{}.{name}", stem()) } else { name };
    (name, format!("{file}:{}", entry.line.load(Relaxed)))
}

/// Returns the values that come with calls of a function: those that identify a coroutine, and the
/// chosen arguments.
fn values_of(table: &Table, entry: &Entry, name: &str) -> Option<Arc<Captured>> {
    let value = |name: &str, form| Value { name: name.to_owned(), form };
    let mut captured = Captured::default();
    if table.identifies(entry) {
        captured.arguments.push(value("coroutine", ValueForm::Hex(8)));
        captured.arguments.push(value("flags", ValueForm::Unsigned(1)));
        captured.results.push(value("state", ValueForm::Unsigned(1)));
        captured.future = Some(Future { values: FutureValues::Coroutine, name: Some(name.to_owned()) });
    }
    let length = (entry.names_length.load(Relaxed) as usize).min(entry.names.len());
    let names: Vec<u8> = entry.names[..length].iter().map(|byte| byte.load(Relaxed)).collect();
    let names = String::from_utf8_lossy(&names);
    let names = names.split(',').take(entry.arguments.load(Relaxed) as usize);
    captured.arguments.extend(names.map(|name| value(&printable(name), ValueForm::Object)));
    (!captured.arguments.is_empty()).then(|| Arc::new(captured))
}

fn describe(table: &Table, entry: &Entry) -> Site {
    let (name, place) = texts(entry);
    let captured = values_of(table, entry, &name);
    Site {
        id: SiteId(entry.site.load(Relaxed).min(stub::COUNT as u32 - 1)),
        module: table.header.module.load(Relaxed),
        // The site has no address; its line tells it from others of its name.
        address: entry.line.load(Relaxed).into(),
        size: 0,
        name,
        aliases: vec![place],
        kind: KIND.to_owned(),
        tracers: table.header.tracers.load(Relaxed),
        captured,
    }
}

impl Shared {
    /// Selects the Python functions that these patterns match for tracing, from now on, and
    /// `coroutines` if so; sites from `first_site` on are free. `InvalidInput`: the patterns are
    /// too long.
    pub fn select_python(&self, patterns: &[String], coroutines: bool, first_site: u32) -> io::Result<()> {
        let table = self.provide_python(first_site)?;
        table.header.coroutines.store(coroutines.into(), Release);
        let text: String = patterns.iter().flat_map(|pattern| [pattern, "\n"]).collect();
        if !table.select(text.as_bytes()) {
            let most = calltap_abi::python::FILTER;
            let why = format!("the patterns of --python have more than {most} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.control().python.store(wanted::NOW, Release);
        Ok(())
    }

    /// Sets the rules for arguments of Python functions, from their next calls on. `InvalidInput`:
    /// they are too long.
    pub fn read_python(&self, rules: &[String]) -> io::Result<()> {
        let text: String = rules.iter().flat_map(|rule| [rule, "\n"]).collect();
        if self.python().is_none_or(|table| table.set_rules(text.as_bytes())) {
            return Ok(());
        }
        let most = calltap_abi::python::arguments::RULES;
        let why = format!("the words of -A about Python functions have more than {most} bytes");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// Stops tracing of Python functions, and leaves interpreters alone.
    pub fn leave_python(&self) {
        if let Some(table) = self.python() {
            self.control().python.store(wanted::NO_MORE, Release);
            table.select(b"!*\n");
        }
    }

    /// Disables or enables functions by their sites. Returns the names of those that changed.
    pub fn switch_python(&self, sites: &HashSet<u32>, off: bool) -> HashMap<u32, String> {
        let (from, to) = if off { (state::ON, state::OFF) } else { (state::OFF, state::ON) };
        let entries = self.python().map(Table::taken).unwrap_or_default();
        let named = entries.iter().filter(|entry| sites.contains(&entry.site.load(Relaxed)));
        // A function that is not selected has neither state, and no number.
        let changed = named.filter(|entry| entry.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok());
        changed.map(|entry| (entry.site.load(Relaxed), texts(entry).0)).collect()
    }

    /// Pauses or resumes recording of Python functions.
    pub fn pause_python(&self, paused: bool) {
        if let Some(table) = self.python() {
            table.pause(paused);
        }
    }

    /// Returns the sites of functions whose calls are recorded.
    pub fn python_sites_on(&self) -> impl Iterator<Item = u32> {
        let paused = self.python().is_some_and(Table::is_paused);
        self.python_sites_of(move |entry| {
            !paused && entry.state.load(Relaxed) == state::ON && !entry.is_retired()
        })
    }

    /// Returns the sites of functions whose calls were ever recorded.
    pub fn python_sites(&self) -> impl Iterator<Item = u32> {
        self.python_sites_of(|entry| entry.state.load(Relaxed) != state::FILLING)
    }

    fn python_sites_of(&self, is_of_them: impl Fn(&Entry) -> bool) -> impl Iterator<Item = u32> {
        let entries = self.python().map(Table::taken).unwrap_or_default();
        let of_them = entries.iter().filter(move |entry| is_of_them(entry));
        of_them.map(|entry| entry.site.load(Relaxed)).filter(|site| *site != NO_SITE)
    }

    /// Returns notes for the user on Python functions that were not traced.
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
