//! Metadata that answers need besides events: functions by site, threads, names of callers by
//! address, and the clock.

mod kept;
mod values;

use super::elapsed::Elapsed;
use super::entries_only::EntriesOnly;
use super::numbers::{Numbers, UNKNOWN, UNKNOWN_WORD};
use super::{By, EndedCall, Function};
use crate::futures::Role;
use crate::off::Off;
use crate::stamp::Stamp;
use crate::symbols::generations;
use crate::values::FormattedValue;
use calltap_names::{ShortNames, Word, demangle, file_name, is_named, selects};
use calltap_trace::{
    Batch, Captured, ClockKind, ClockMap, ClockPair, Kept, Meta, Module, Record, Session, Site, SiteId,
    Thread, ThreadId,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Returns the name of the function at a link-time address of a module, if it can be found.
pub type Lookup = Box<dyn FnMut(&Module, u64) -> Option<String> + Send>;

/// Maximum number of cached callers; the cache is emptied when it is full.
const CACHE: usize = 1 << 18;

/// Whether a function's name is its address in a file (`libc.so.6+0x1234`), for lack of a symbol.
pub fn is_place(name: &str) -> bool {
    let digits = name.rsplit_once("+0x").map(|(_, digits)| digits.strip_suffix(".cold").unwrap_or(digits));
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A traced function.
struct Described {
    name: String,
    /// Display form of the name.
    shown: String,
    module: String,
    wanted: bool,
    /// Indices of the globs that match the function.
    asked: Vec<usize>,
}

/// Metadata of the recording, collected from its records.
pub struct QueryContext {
    /// The functions asked about, by demangled or linker names; empty: all functions.
    globs: Vec<Word>,
    linker_names: bool,
    lookup: Option<Lookup>,
    kind: ClockKind,
    clock: ClockMap,
    first: Option<ClockPair>,
    /// Form of written times; `None`: seconds since the first clock pair.
    stamp: Option<Stamp>,
    /// Offset from CLOCK_MONOTONIC to CLOCK_REALTIME, modulo 2^64.
    apart: Option<u64>,
    /// Makes the form of written times from a session, if they are times of day.
    pub wall: Option<fn(&Session) -> Stamp>,
    /// Time in which calls were recorded.
    pub elapsed: Elapsed,
    /// Number of lost entries and exits.
    pub lost: u64,
    /// Full names of functions that the overhead limit disabled.
    pub disabled: HashSet<String>,
    /// Calls of functions of which only entries are recorded.
    pub entries_only: EntriesOnly,
    kept: Vec<Kept>,
    /// Whether context switches are recorded; they arrive after the events of their time.
    pub(super) switches: bool,
    modules: HashMap<u32, Module>,
    functions: Vec<Described>,
    by_place: HashMap<(String, u64, String), Function>,
    sites: Vec<Option<Function>>,
    /// Roles of the functions that poll futures.
    roles: HashMap<Function, Role>,
    /// Descriptions of the values captured at each site.
    captured: HashMap<SiteId, Arc<Captured>>,
    /// Functions by module and address, with their sizes.
    by_address: BTreeMap<(u32, u64), (u64, Function)>,
    threads: HashMap<ThreadId, Thread>,
    /// Process id and parent of each process, by index.
    processes: HashMap<u32, (u32, Option<u32>)>,
    callers: HashMap<(u32, u64), u32>,
    words: Numbers,
    function_words: HashMap<Function, u32>,
    /// Set if names are shown in their shortest distinguishing form.
    short: Option<ShortNames>,
}

impl QueryContext {
    /// Makes metadata without any record. `lookup` names callers that are not traced.
    pub fn new(globs: Vec<Word>, linker_names: bool, lookup: Option<Lookup>) -> QueryContext {
        let (kind, clock) = (ClockKind::Tsc, ClockMap::new(ClockKind::Counter, &[]).0);
        QueryContext {
            globs,
            linker_names,
            lookup,
            kind,
            clock,
            first: None,
            stamp: None,
            apart: None,
            wall: None,
            elapsed: Elapsed::default(),
            lost: 0,
            disabled: HashSet::new(),
            entries_only: EntriesOnly::default(),
            kept: Vec::new(),
            switches: false,
            modules: HashMap::new(),
            functions: Vec::new(),
            by_place: HashMap::new(),
            sites: Vec::new(),
            roles: HashMap::new(),
            captured: HashMap::new(),
            by_address: BTreeMap::new(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            callers: HashMap::new(),
            words: Numbers::default(),
            function_words: HashMap::new(),
            short: None,
        }
    }

    /// Applies a record.
    pub(super) fn record(&mut self, record: &Record) {
        match record {
            Record::Session(session) => {
                self.kind = session.clock;
                self.apart = Some(session.start_realtime_ns.wrapping_sub(session.start_monotonic_ns));
                self.stamp = self.wall.map(|wall| wall(session));
            }
            Record::Clock(pair) => self.now(*pair),
            Record::Kept(kept) => self.kept.push(kept.clone()),
            Record::Scheduling(scheduling) => self.switches = scheduling.refused.is_none(),
            Record::Process(process) => {
                self.processes.insert(process.id, (process.pid, process.parent));
            }
            Record::Thread(thread) => drop(self.threads.insert(thread.id, thread.clone())),
            Record::Module(module) => {
                // The address range may belong to another module from now on.
                self.callers.clear();
                self.modules.insert(module.id, module.clone());
            }
            Record::Sites { sites } => {
                sites.iter().for_each(|site| self.site(site));
                self.show_short();
            }
            _ => {}
        }
    }

    /// Applies all metadata of a recording.
    pub(super) fn meta(&mut self, meta: &Meta) {
        let records = [
            meta.session.iter().cloned().map(Record::Session).collect::<Vec<_>>(),
            meta.processes.iter().cloned().map(Record::Process).collect(),
            meta.threads.iter().cloned().map(Record::Thread).collect(),
            meta.modules.iter().cloned().map(Record::Module).collect(),
            vec![Record::Sites { sites: meta.sites.clone() }],
            meta.clock.iter().copied().map(Record::Clock).collect(),
        ];
        records.iter().flatten().for_each(|record| self.record(record));
        self.clock = ClockMap::new(self.kind, &meta.clock).0;
        if let Some(end) = &meta.end {
            self.elapsed = Elapsed::of(end.wall_ns);
        }
    }

    /// Whether the glob with index `glob` matches the function.
    pub(super) fn is_named_by(&self, function: Function, glob: usize) -> bool {
        self.functions.get(function as usize).is_some_and(|known| known.asked.contains(&glob))
    }

    /// Updates the clock from a new clock pair.
    pub fn now(&mut self, pair: ClockPair) {
        let first = *self.first.get_or_insert(pair);
        self.elapsed.now(pair.monotonic_ns);
        self.clock = ClockMap::new(self.kind, &[first, pair]).0;
    }

    /// Notes when the first and the last event of a batch happened.
    pub(super) fn see_times(&mut self, batch: &Batch) {
        let Some((first, last)) = batch.events.first().zip(batch.events.last()) else { return };
        self.elapsed.saw(self.clock.to_ns(first.ticks), self.clock.to_ns(last.ticks));
    }

    fn site(&mut self, site: &Site) {
        let described = self.modules.get(&site.module);
        let path = described.map(|module| module.path.clone()).unwrap_or_default();
        let (module, modules) = (file_name(&path).to_owned(), described.map(Module::names));
        let new = self.functions.len() as Function;
        let function = *self.by_place.entry((path, site.address, site.name.clone())).or_insert(new);
        if function == new {
            let asked =
                |name: &&str| self.globs.iter().any(|word| is_named(word, [*name].into_iter(), modules));
            // The name that the user typed is preferred over the others of the same function.
            let name = [site.name.as_str()].into_iter().chain(site.names()).find(asked);
            let name = name.unwrap_or(&site.name);
            let name = if self.linker_names { name.to_owned() } else { demangle(name) };
            let names =
                |word: &Word| is_named(word, [site.name.as_str()].into_iter().chain(site.names()), modules);
            let wanted = self.globs.is_empty() || selects(&self.globs, names);
            let asked = (0..self.globs.len()).filter(|at| names(&self.globs[*at])).collect();
            self.functions.push(Described { shown: name.clone(), name, module, wanted, asked });
        }
        let place = site.id.0 as usize;
        if self.sites.len() <= place {
            self.sites.resize(place + 1, None);
        }
        self.sites[place] = Some(function);
        self.roles.extend(Role::of(site).map(|role| (function, role)));
        self.captured.extend(site.captured.clone().map(|captured| (site.id, captured)));
        self.by_address.insert((site.module, site.address), (site.size, function));
    }

    /// Returns the name of the traced function that begins at an address.
    fn function_at(&self, process: u32, address: u64) -> Option<String> {
        let here = |module: &&Module| {
            module.process == process && (module.range.0..module.range.1).contains(&address)
        };
        let module = self.modules.values().find(here)?;
        let (_, function) = self.by_address.get(&(module.id, address.wrapping_sub(module.bias)))?;
        Some(self.functions[*function as usize].shown.clone())
    }

    /// Number of described sites; events of other sites belong to no function.
    pub(super) fn sites(&self) -> u32 {
        self.sites.len() as u32
    }

    /// Returns the function of a site, and whether it is asked about.
    pub(super) fn function_of(&self, site: SiteId) -> (Function, bool) {
        let function = self.sites.get(site.0 as usize).copied().flatten().unwrap_or(Function::MAX);
        (function, self.functions.get(function as usize).is_some_and(|function| function.wanted))
    }

    /// Returns the function of a site if it is asked about.
    pub(super) fn wanted(&self, site: SiteId) -> Option<Function> {
        Some(self.function_of(site)).filter(|(_, wanted)| *wanted).map(|(function, _)| function)
    }

    /// Whether a function with this full, demangled name is asked about.
    pub fn asks_about(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function.wanted && demangle(&function.name) == name)
    }

    /// Returns the globs that match no traced function; of Python, only called ones are known.
    pub fn unmatched(&self) -> Vec<String> {
        let has = |glob: usize| self.functions.iter().any(|function| function.asked.contains(&glob));
        let all = self.globs.iter().enumerate().filter(|(glob, word)| !has(*glob) && !word.excludes());
        all.map(|(_, word)| word.text().to_owned()).collect()
    }

    /// Iterates over all functions that are asked about.
    pub(super) fn all_wanted(&self) -> impl Iterator<Item = Function> {
        let all = self.functions.iter().zip(0..);
        all.filter(|(function, _)| function.wanted).map(|(_, number)| number)
    }

    /// Shows names in their shortest distinguishing form from now on, among the functions described
    /// so far.
    pub fn shorten_names(&mut self) {
        self.short = (!self.linker_names).then(ShortNames::default);
        self.show_short();
    }

    fn show_short(&mut self) {
        let Some(short) = &mut self.short else { return };
        self.functions.iter().for_each(|function| short.add(&function.name));
        self.functions.iter_mut().for_each(|function| function.shown = short.of(&function.name));
    }

    /// Number of traced functions.
    pub fn traced(&self) -> usize {
        self.functions.len()
    }

    /// Returns the display form of a function's name.
    pub fn name(&self, function: Function) -> &str {
        self.functions.get(function as usize).map_or(UNKNOWN, |function| &function.shown)
    }

    /// Returns a function's full name.
    pub(super) fn full_name(&self, function: Function) -> &str {
        self.functions.get(function as usize).map_or(UNKNOWN, |function| &function.name)
    }

    /// Returns the file name of a function's module.
    pub fn module(&self, function: Function) -> &str {
        self.functions.get(function as usize).map_or(UNKNOWN, |function| &function.module)
    }

    /// Returns a function's role in polling futures.
    pub(crate) fn role(&self, function: Function) -> Option<&Role> {
        self.roles.get(&function)
    }

    /// Returns the process id of a process, by its index.
    pub(super) fn pid_of(&self, process: u32) -> Option<u32> {
        self.processes.get(&process).map(|(pid, _)| *pid)
    }

    /// Returns the process of a thread, or 0.
    pub(super) fn process_of(&self, thread: ThreadId) -> u32 {
        self.threads.get(&thread).map_or(0, |thread| thread.process)
    }

    /// Converts nanoseconds to ticks, approximately.
    pub(super) fn ticks(&self, ns: u64) -> u64 {
        const MAX_FACTOR: u64 = 1 << 40;
        let many = self.clock.duration_ns(MAX_FACTOR).max(1);
        (u128::from(ns) * u128::from(MAX_FACTOR) / u128::from(many)) as u64
    }

    /// Converts a duration in ticks to nanoseconds.
    pub fn ns(&self, ticks: u64) -> u64 {
        self.clock.duration_ns(ticks)
    }

    /// Converts a time of CLOCK_MONOTONIC, nanoseconds, to ticks.
    pub(super) fn ticks_at(&self, ns: u64) -> u64 {
        self.clock.from_ns(ns)
    }

    /// Converts the off-CPU time of a call from ticks to nanoseconds; `None` if part of it is
    /// unknown.
    pub fn off(&self, off: Off) -> Option<Off> {
        (off.unknown == 0).then(|| off.map(|ticks| self.ns(ticks)))
    }

    /// Nanoseconds from the first clock pair to `ticks`.
    pub(crate) fn since_start(&self, ticks: u64) -> u64 {
        let start = self.first.map_or(0, |first| first.monotonic_ns);
        self.clock.to_ns(ticks).saturating_sub(start)
    }

    /// Formats the time at `ticks`.
    pub(crate) fn stamp(&self, ticks: u64) -> String {
        let start = self.first.map_or(0, |first| first.monotonic_ns);
        self.stamp.unwrap_or(Stamp::Since(start)).at(self.clock.to_ns(ticks))
    }

    /// Nanoseconds since the epoch at `ticks`, if the session says when it began.
    pub(crate) fn since_epoch(&self, ticks: u64) -> Option<u64> {
        let apart = self.apart?;
        Some(self.clock.to_ns(ticks).wrapping_add(apart))
    }

    /// Whether ticks of the session's clock measure time.
    pub fn has_time(&self) -> bool {
        self.kind != ClockKind::Counter
    }

    /// Returns the name and id of a thread.
    pub fn task(&self, thread: ThreadId) -> String {
        let known = self.threads.get(&thread);
        known.map_or_else(|| "?".to_owned(), |thread| format!("{}-{}", thread.comm, thread.tid))
    }

    pub(super) fn tid(&self, thread: ThreadId) -> u32 {
        self.threads.get(&thread).map_or(0, |thread| thread.tid)
    }

    /// Removes a thread that ended.
    pub(super) fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
    }

    /// Returns the number of a word, which counts are keyed by.
    pub(super) fn number_of(&mut self, word: String) -> u32 {
        self.words.of(word, str::to_owned)
    }

    /// Returns the number of a function's name, displayed in short form if names are shortened.
    fn number_of_name(&mut self, name: String) -> u32 {
        let short = &mut self.short;
        self.words.of(name, |name| match short {
            None => name.to_owned(),
            Some(short) => {
                short.add(name);
                short.of(name)
            }
        })
    }

    /// Returns the word that has this number.
    pub(super) fn word(&self, number: u32) -> &str {
        self.words.word(number)
    }

    /// Returns the number of the word that groups a call under `by`: its thread, caller or values.
    /// `None` if unknown.
    pub(super) fn who(&mut self, by: By, ended: &EndedCall<'_>) -> Option<u32> {
        match by {
            By::Function => None,
            By::Thread => Some(self.number_of(self.task(ended.thread))),
            By::Caller => self.caller(ended),
            By::Value => {
                let values = ended.arguments.iter().chain(ended.results);
                let text: Vec<String> =
                    values.map(|FormattedValue { name, text, .. }| format!("{name}={text}")).collect();
                (!text.is_empty()).then(|| self.number_of(text.join(", ")))
            }
        }
    }

    /// Returns the number of the function that made a call: the one its return address lies in,
    /// else the enclosing traced function.
    pub(super) fn caller(&mut self, ended: &EndedCall<'_>) -> Option<u32> {
        let address = ended.callers.and_then(|callers| callers.addresses.first().copied());
        match address.unwrap_or(ended.parent) {
            0 if ended.callers.is_some() => Some(UNKNOWN_WORD),
            0 => ended
                .below
                .last()
                .map(|frame| frame.function)
                .map(|function| self.number_of_function(function)),
            address => Some(self.number_at(self.process_of(ended.thread), address)),
        }
    }

    /// Returns the numbers of the functions on the stack of a call, outermost first, ending with
    /// the called one. Without unwound callers only the traced functions are known.
    pub(super) fn path(&mut self, ended: &EndedCall<'_>) -> Vec<u32> {
        let mut path = Vec::new();
        match ended.callers {
            Some(callers) => {
                let process = self.process_of(ended.thread);
                if !callers.whole {
                    path.push(UNKNOWN_WORD);
                }
                path.extend(callers.addresses.iter().rev().map(|address| self.number_at(process, *address)));
            }
            None => path.extend(ended.below.iter().map(|frame| self.number_of_function(frame.function))),
        }
        path.push(self.number_of_function(ended.function));
        path
    }

    /// Returns the number of a traced function's name.
    fn number_of_function(&mut self, function: Function) -> u32 {
        if let Some(number) = self.function_words.get(&function) {
            return *number;
        }
        let number = self.number_of_name(self.full_name(function).to_owned());
        self.function_words.insert(function, number);
        number
    }

    /// Returns the number of the name of the function that contains a return address.
    fn number_at(&mut self, process: u32, address: u64) -> u32 {
        if let Some(known) = self.callers.get(&(process, address)) {
            return *known;
        }
        let name = self.name_at(process, address);
        if self.callers.len() >= CACHE {
            self.callers.clear();
        }
        let number = self.number_of_name(name);
        self.callers.insert((process, address), number);
        number
    }

    /// Names the function that contains the return address `address`: a traced function, else the
    /// one that `lookup` finds in the module's file, else module and offset.
    fn name_at(&mut self, process: u32, address: u64) -> String {
        let here = |module: &&Module| {
            (module.range.0..module.range.1).contains(&address) && module.unloaded_ticks.is_none()
        };
        let loaded = self.modules.values().filter(here);
        let Some(module) = loaded.min_by_key(|module| {
            (
                generations(process, module.process, |child| self.processes.get(&child)?.1),
                u32::MAX - module.id,
            )
        }) else {
            return format!("0x{address:x}");
        };
        // The return address lies past the function if the call is its last instruction.
        let call = address.wrapping_sub(module.bias).wrapping_sub(1);
        let below = self.by_address.range((module.id, 0)..=(module.id, call)).next_back();
        let traced =
            below.filter(|((_, start), (size, _))| call - start < *size).map(|(_, (_, function))| *function);
        // A function without a symbol has a placeholder name; the file may name the function around
        // it.
        if let Some(function) = traced.filter(|function| !is_place(self.full_name(*function))) {
            return self.full_name(function).to_owned();
        }
        let found = self.lookup.as_mut().and_then(|lookup| lookup(module, call));
        let name = |name: String| if self.linker_names { name } else { demangle(&name) };
        let traced = || traced.map(|function| self.full_name(function).to_owned());
        let place = || format!("{}+0x{:x}", file_name(&module.path), call + 1);
        found.map(name).or_else(traced).unwrap_or_else(place)
    }
}
