//! Gathers records into [`Meta`]: every id that is used gets an entry, whatever the file contains.

use crate::kernel_records::Address;
use crate::meta::{Loss, Meta, Module, Process, Record, Session, Site, SiteId, Thread, ThreadId};
use crate::survey::Complaints;
use calltap_names::printable;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of missing entries of one kind that are made up; ids beyond count as nonsense.
const MADE_UP: usize = 1 << 18;

/// Name of an entry without a record.
const UNKNOWN: &str = "?";

/// Entries by id, some of which may never be described.
struct Table<T> {
    /// Entries by id.
    rows: Vec<Option<T>>,
    /// Number of rows without an entry.
    missing: usize,
}

impl<T> Table<T> {
    const fn new() -> Self {
        Self { rows: Vec::new(), missing: 0 }
    }

    /// Makes `id` valid, unless that would take too many empty rows. Returns its row.
    fn reach(&mut self, id: u32) -> Option<&mut Option<T>> {
        let id = id as usize;
        let new = (id + 1).saturating_sub(self.rows.len());
        if new > MADE_UP - self.missing {
            return None;
        }
        self.missing += new;
        if new > 0 {
            self.rows.resize_with(id + 1, || None);
        }
        Some(&mut self.rows[id])
    }

    /// Sets an entry; returns whether its id is valid.
    fn put(&mut self, id: u32, row: T) -> bool {
        let Some(place) = self.reach(id) else { return false };
        let fresh = place.replace(row).is_none();
        self.missing -= usize::from(fresh);
        true
    }

    /// Returns all entries, with made-up ones in empty rows.
    fn fill(self, what: &str, complaints: &mut Complaints, make: impl Fn(u32) -> T) -> Vec<T> {
        if self.missing > 0 {
            complaints.add(format!("{} {what} are used but not described", self.missing));
        }
        (0..).zip(self.rows).map(|(id, row)| row.unwrap_or_else(|| make(id))).collect()
    }
}

/// Beginning of a [`Record::Sites`] as this crate writes it.
const SITES: &[u8] = br#"{"record":"sites","#;

/// The rest of such a record.
#[derive(Deserialize)]
struct Sites {
    sites: Vec<Site>,
}

/// Parses a record.
///
/// Nearly all data of a large program are sites. Parsed like any record, they would become trees of
/// values first, as the field with the record's kind could come last.
fn parse(line: &[u8]) -> serde_json::Result<Record> {
    if line.starts_with(SITES)
        && let Ok(Sites { sites }) = serde_json::from_slice(line)
    {
        return Ok(Record::Sites { sites });
    }
    serde_json::from_slice(line)
}

/// Makes all text of a record printable, so that it has no effect on a terminal, wherever it is
/// shown.
fn make_printable(record: &mut Record) {
    let one = |text: &mut String| {
        if let Cow::Owned(shown) = printable(text) {
            *text = shown;
        }
    };
    match record {
        Record::Session(session) => {
            let Session { calltap, command, host, kernel, cpu, clock_note, conditions, .. } = session;
            command
                .iter_mut()
                .chain(clock_note)
                .chain(conditions)
                .chain([calltap, host, kernel, cpu])
                .for_each(one);
        }
        Record::Process(process) => one(&mut process.comm),
        Record::Thread(thread) => one(&mut thread.comm),
        Record::Module(module) => {
            one(&mut module.path);
            let named = module.untraceable.named.iter_mut();
            named.for_each(|not| [&mut not.name, &mut not.code, &mut not.reason].into_iter().for_each(one));
        }
        Record::Sites { sites } => {
            let names = |site: &mut Site| {
                site.aliases.iter_mut().chain([&mut site.name, &mut site.kind]).for_each(one);
            };
            sites.iter_mut().for_each(names);
        }
        Record::Note { text } | Record::KernelFunctions { functions: text } => one(text),
        Record::Scheduling(scheduling) => scheduling.refused.iter_mut().for_each(one),
        Record::KernelEvents(events) => events.refused.iter_mut().for_each(one),
        Record::Addresses { addresses } => addresses.iter_mut().for_each(|address| {
            address.name.iter_mut().chain([&mut address.place]).for_each(one);
        }),
        Record::Conditions { conditions } => conditions.iter_mut().for_each(one),
        Record::Kept(kept) => kept.calls.iter_mut().for_each(one),
        Record::Busy(busy) => busy.functions.iter_mut().for_each(one),
        Record::End(end) => one(&mut end.status),
        _ => {}
    }
}

/// Sums up records.
pub(crate) struct Gather {
    meta: Meta,
    processes: Table<Process>,
    threads: Table<Thread>,
    modules: Table<Module>,
    sites: Table<Site>,
    loss: Vec<Loss>,
    /// Functions of the kernel that were to be added.
    of_kernel: Option<String>,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self {
            meta: Meta::default(),
            processes: Table::new(),
            threads: Table::new(),
            modules: Table::new(),
            sites: Table::new(),
            loss: Vec::new(),
            of_kernel: None,
        }
    }

    /// Adds the records of the chunk that starts at `offset`.
    pub(crate) fn lines(&mut self, lines: &[u8], offset: u64, complaints: &mut Complaints) {
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match parse(line) {
                Ok(record) => self.record(record, complaints),
                Err(error) => {
                    complaints.add(format!("a record in the chunk at byte {offset} is unreadable: {error}"))
                }
            }
        }
    }

    fn add_conditions(&mut self, conditions: &[String]) {
        for condition in conditions {
            if !self.meta.conditions.contains(condition) {
                self.meta.conditions.push(condition.clone());
            }
        }
    }

    /// Adds a record.
    fn record(&mut self, mut record: Record, complaints: &mut Complaints) {
        make_printable(&mut record);
        let placed = match record {
            Record::Process(process) => self.processes.put(process.id, process),
            Record::Thread(thread) => self.threads.put(thread.id.0, thread),
            Record::Module(module) => self.modules.put(module.id, module),
            Record::Sites { sites } => {
                // Not `all`, which would stop at the first bad one.
                sites.into_iter().fold(true, |good, site| self.sites.put(site.id.0, site) & good)
            }
            Record::DisabledByLimit { functions } => {
                // A damaged file must not take memory for many sites.
                let placed = functions.iter().all(|function| self.sites.reach(function.site.0).is_some());
                self.meta.disabled_by_limit.extend(functions.into_iter().filter(|_| placed));
                placed
            }
            other => {
                self.without_id(other);
                true
            }
        };
        if !placed {
            complaints.add("a record has an id far beyond all others and is not used".to_owned());
        }
    }

    /// Adds a record that needs no place in a table.
    fn without_id(&mut self, record: Record) {
        match record {
            Record::Session(session) => {
                self.add_conditions(&session.conditions);
                self.meta.session.get_or_insert(session);
            }
            Record::Clock(pair) => self.meta.clock.push(pair),
            Record::Loss(loss) => self.loss.push(loss),
            Record::Profile { rows } => self.meta.profile.extend(rows),
            Record::Conditions { conditions } => self.add_conditions(&conditions),
            Record::Slow { rules } => self.meta.slow.extend(rules),
            Record::Kept(kept) => self.meta.kept.push(kept),
            Record::Busy(busy) => self.meta.busy.push(busy),
            Record::Detaching(detaching) => self.meta.detaching.push(detaching),
            Record::Scheduling(scheduling) => self.meta.scheduling = Some(scheduling),
            Record::KernelEvents(events) => self.meta.kernel_events = Some(events),
            Record::KernelFunctions { functions } => self.of_kernel = Some(functions),
            Record::Addresses { addresses } => self.meta.addresses.extend(addresses),
            Record::Note { text } => self.meta.notes.push(text),
            Record::End(end) => self.meta.end = Some(end),
            Record::Process(_)
            | Record::Thread(_)
            | Record::Module(_)
            | Record::Sites { .. }
            | Record::DisabledByLimit { .. }
            | Record::Unknown => {}
        }
    }

    /// Notes that there are events of this thread, with sites up to `max_site`. Makes both ids
    /// valid if that is reasonable; returns whether it did.
    pub(crate) fn used(&mut self, thread: ThreadId, max_site: u32) -> bool {
        self.threads.reach(thread.0).is_some() && self.sites.reach(max_site).is_some()
    }

    /// Returns the sum. All ids in it are valid indices.
    pub(crate) fn finish(self, complaints: &mut Complaints) -> Meta {
        let Self { mut meta, mut processes, threads, mut modules, sites, mut loss, of_kernel } = self;
        if let Some(functions) = of_kernel.filter(|_| meta.end.is_none()) {
            complaints.add(format!(
                "functions of the kernel ({functions}) were recorded, and are missing: they are added when a recording ends"
            ));
        }
        meta.threads = threads.fill("threads", complaints, |id| Thread {
            id: ThreadId(id),
            process: 0,
            tid: 0,
            comm: UNKNOWN.to_owned(),
            goroutine: None,
            started: None,
        });
        meta.sites = sites.fill("sites", complaints, |id| Site {
            id: SiteId(id),
            module: 0,
            address: 0,
            size: 0,
            name: format!("{UNKNOWN}site{id}"),
            aliases: Vec::new(),
            kind: UNKNOWN.to_owned(),
            tracers: 0,
            captured: None,
        });
        for site in &mut meta.sites {
            if modules.reach(site.module).is_none() {
                complaints.add(format!("site {} is in module {}, which is nonsense", site.id.0, site.module));
                site.module = 0;
            }
        }
        meta.modules = modules.fill("modules", complaints, |id| Module::without_file(id, 0, UNKNOWN));
        let owners = meta.threads.iter_mut().map(|thread| &mut thread.process);
        for owner in owners.chain(meta.modules.iter_mut().map(|module| &mut module.process)) {
            if processes.reach(*owner).is_none() {
                complaints.add(format!("process {owner} is nonsense"));
                *owner = 0;
            }
        }
        meta.processes = processes.fill("processes", complaints, |id| Process::new(id, 0, UNKNOWN));
        let known = meta.processes.len();
        for process in &mut meta.processes {
            if process.parent.is_some_and(|parent| parent as usize >= known) {
                complaints.add(format!("process {} has a parent that is not described", process.id));
                process.parent = None;
            }
        }
        newest_of_threads(&mut loss, meta.threads.len(), complaints);
        meta.loss = loss;
        tell_apart(&mut meta.addresses);
        meta
    }
}

/// Adds the address to the names of objects that have the same name in one process, as static
/// variables of several files.
fn tell_apart(addresses: &mut [Address]) {
    let last: BTreeMap<(u32, u64), &Address> =
        addresses.iter().map(|address| ((address.process, address.address), address)).collect();
    let mut objects: BTreeMap<(u32, &str), BTreeSet<u64>> = BTreeMap::new();
    for address in last.values() {
        if let Some(name) = &address.name {
            objects.entry((address.process, name)).or_default().insert(address.object());
        }
    }
    let several = objects.into_iter().filter(|(_, objects)| objects.len() > 1);
    let several: BTreeSet<(u32, String)> =
        several.map(|((process, name), _)| (process, name.to_owned())).collect();
    for address in addresses {
        let object = address.object();
        if let Some(name) = &mut address.name
            && several.contains(&(address.process, name.clone()))
        {
            *name += &format!(" at {object:#x}");
        }
    }
}

/// Keeps only the newest totals of each thread.
fn newest_of_threads(loss: &mut Vec<Loss>, threads: usize, complaints: &mut Complaints) {
    let count = loss.len();
    loss.retain(|loss| (loss.thread.0 as usize) < threads);
    if loss.len() < count {
        complaints.add(format!("{} totals are of threads that are not described", count - loss.len()));
    }
    // Sorting is stable, so the last of equal ones is the newest.
    loss.sort_by_key(|loss| loss.thread);
    loss.reverse();
    loss.dedup_by_key(|loss| loss.thread);
    loss.reverse();
}
