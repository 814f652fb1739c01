//! Changes the text of a process: switches sites in batches, and makes the dynamic linker's empty
//! function jump to the agent.

use super::Planner;
use crate::plan::journal::{Entry, Journal};
use crate::plan::loaded::ProcessModule;
use crate::plan::modules::mapped;
use crate::plan::reason::NotWritable;
use calltap_abi::ProcessEntry;
use calltap_abi::plan::{self, Phase};
use calltap_collect::metadata::Metadata;
use calltap_patch::{
    Avma, Change, ChangeError, Demand, Failed, Prepared, Site, State, Text, Transition, carry_out,
};
use calltap_process::Reason;
use calltap_process::agent;
use calltap_process::memory::maps;
use calltap_process::memory::text::{KeepMapped, LEASE_EXPIRED, ProcessText, Sync};
use calltap_process::ptrace::threads::stop_machine;
use calltap_trace::Record;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Note if the dynamic linker is too far from all free memory, or has no empty function.
const UNWATCHED: &str = "the dynamic linker could not be watched: libraries opened later are not traced";
/// Note if the dynamic linker is in the middle of unmapping for too long.
const UNLOADING: &str =
    "no site was changed: the dynamic linker was unloading libraries for more than 2 s; try again";
/// End of the note if calltap waited for a processor in the middle of each attempt to write.
const TOO_LATE: &str =
    "sites were not switched, as calltap did not get a processor for seconds; 'calltap set' tries again";
/// How often sites are written that were not written before the end of a lease.
const LEASES: usize = 5;
/// Ends of notes about functions in which a thread may be.
const NOT_TRACED: &str =
    "not traced: a thread may be inside the code that the jumps overwrite; 'calltap set' tries again";
const LATE: &str =
    "traced later than the others: a thread may have been inside the code that the jumps overwrite";

/// Functions of a process that were not enabled because a thread may have been inside.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Functions that were not enabled with the others.
    seen: BTreeSet<String>,
    /// Functions of which a note says that they are not traced.
    told: BTreeSet<String>,
    /// Functions of which the trace says that they are not watched.
    unwatched: BTreeSet<String>,
}

impl Planner<'_> {
    /// Switches the sites of a process to their desired states.
    pub(crate) fn patch(&mut self, index: u32, pid: u32, last: bool, records: &mut Vec<Metadata>) {
        let mut note = |text: String| records.push(Record::Note { text }.into());
        if let Err(why) = self.open_text(index, pid) {
            return note(why.to_string());
        }
        let entry = self.shared.process(index);
        let regions = entry.is_none().then(|| maps::read(pid).unwrap_or_default());
        let loader = self
            .image(index, &regions.unwrap_or_default())
            .map_or((0, 0), |image| (image.loader_brk.load(Acquire), image.loader_hook.load(Acquire)));
        // A forked child is registered with the kernel as its parent was.
        let registered = entry.or_else(|| self.shared.process(0));
        let can_sync = registered.is_some_and(|entry| entry.sync.load(Acquire) == plan::Sync::Works as u32);
        let Some(process) = self.processes.get_mut(&index) else { return };
        let Some(text) = &mut process.text else { return };
        text.lease();
        text.sync = if can_sync { Sync::Barrier } else { Sync::Quiet };
        let armed = self.armed == Some(index);
        text.through = if armed { Transition::Int3 } else { self.policy.mode.transition() };
        // The watch comes first: without it, a module that is unmapped and mapped again would pass
        // for one that has been patched.
        if !process.watched {
            let through = process.watch_through.unwrap_or(Avma(loader.1));
            process.watched = watch_loader(index, text, &self.directory.journal, Avma(loader.0), through);
            // Without a dynamic linker, no library is opened later.
            if !process.watched && loader.0 != 0 && !self.warnings.iter().any(|told| told == UNWATCHED) {
                note(UNWATCHED.into());
                self.warnings.push(UNWATCHED.into());
            }
        }
        let session = self.directory.inside();
        let how = match entry {
            Some(_) if can_sync && self.policy.mode.is_live() => Method::Live,
            Some(_) => Method::Stopped,
            // A process in no table cannot be told to keep its mappings.
            None => Method::StoppedAndSeen(session.to_owned()),
        };
        for tried in 1..=LEASES {
            let switched = switch_kept(&mut process.modules, text, (pid, entry), session, &how);
            let Some(Switched { tally, notes, too_late }) = switched else {
                note(UNLOADING.into());
                break;
            };
            self.tally.add(&tally);
            notes.into_iter().for_each(&mut note);
            if too_late == 0 {
                break;
            }
            if tried == LEASES {
                note(format!("{too_late} {TOO_LATE}"));
            }
        }
        note_unwritten(&mut process.modules, index, &self.directory.journal);
        if last {
            process.modules.iter_mut().for_each(|module| module.tell_changed(records));
            self.tell_busy(index, records);
        }
    }

    /// Tells which functions of a process wait until no thread is inside them, and which of those
    /// that have waited are traced now.
    fn tell_busy(&mut self, index: u32, records: &mut Vec<Metadata>) {
        let now = self.event_ticks();
        let Some(process) = self.processes.get_mut(&index) else { return };
        let (waiting, unwatched) = (process.waiting_functions(false), process.waiting_functions(true));
        let never: Vec<String> = waiting.difference(&process.busy.told).cloned().collect();
        let next = Busy { told: waiting, unwatched: unwatched.clone(), ..Busy::default() };
        let Busy { seen, told, unwatched: before } = std::mem::replace(&mut process.busy, next);
        let on = || process.modules.iter().flat_map(ProcessModule::names_on);
        let late: Vec<String> = match seen.is_empty() && told.is_empty() {
            true => Vec::new(),
            false => {
                on().filter(|name| seen.contains(*name) || told.contains(*name)).map(str::to_owned).collect()
            }
        };
        for (functions, until, what) in [(never, None, NOT_TRACED), (late, Some(now), LATE)] {
            if let Some(text) = not_free(&functions, what) {
                self.warnings.push(text);
                records.push(Record::Busy(calltap_trace::Busy { functions, until, watched: false }).into());
            }
        }
        let watched = |functions: Vec<String>, until| calltap_trace::Busy { functions, until, watched: true };
        let never = unwatched.difference(&before).cloned().collect();
        let late = before.difference(&unwatched).cloned().collect();
        for busy in [watched(never, None), watched(late, Some(now))] {
            if !busy.functions.is_empty() {
                records.push(Record::Busy(busy).into());
            }
        }
    }

    /// Notes which functions of a process wait until no thread is inside them.
    pub(super) fn note_busy(&mut self, index: u32) {
        if let Some(process) = self.processes.get_mut(&index) {
            process.busy.seen = process.waiting_functions(false);
        }
    }

    /// Opens the text of a process, unless it is open.
    pub(crate) fn open_text(&mut self, index: u32, pid: u32) -> Result<(), NotWritable> {
        let Some(process) = self.processes.get_mut(&index).filter(|process| process.text.is_none()) else {
            return Ok(());
        };
        let text = ProcessText::open(pid);
        // The id comes from the program's memory, and may by now belong to another program. A
        // process that maps the session's memory after its text was opened belongs to this session.
        if !agent::has_mapped(pid, &self.directory.identity()) {
            return Err(NotWritable::OtherSession { pid });
        }
        let denied = |error: io::Error| NotWritable::Denied { pid, why: error.to_string() };
        let text = process.text.insert(text.map_err(denied)?);
        text.after_int3 = self.shared.has_traps();
        if std::mem::take(&mut process.forked) {
            process.modules.iter_mut().for_each(|module| module.read_states(text));
        }
        Ok(())
    }
}

/// Returns the note about functions whose code could not be changed, as threads may be inside it.
fn not_free(functions: &[String], what: &str) -> Option<String> {
    let [first, others @ ..] = functions else { return None };
    let first = calltap_names::in_message(first);
    let them = match others.len() {
        0 => format!("{first} is"),
        1 => format!("{first} and another function are"),
        more => format!("{first} and {more} other functions are"),
    };
    Some(format!("{them} {what}"))
}

/// Adds the sites to the journal that another tool had changed. If that fails, detaching leaves
/// calltap's code mapped for them.
fn note_unwritten(modules: &mut [ProcessModule], process: u32, journal: &Journal) {
    let found = modules.iter_mut().flat_map(ProcessModule::take_unwritten);
    let entries: Vec<Entry> = found.map(|address| Entry::Unwritten { process, address }).collect();
    if !entries.is_empty() {
        let _ = journal.add(&entries.iter().collect());
    }
}

/// How code is changed that may be running.
enum Method {
    /// While it runs.
    Live,
    /// While all threads are stopped.
    Stopped,
    /// While all threads are stopped, with the mappings read again then, except for the files in
    /// this directory of the session.
    StoppedAndSeen(PathBuf),
}

/// Switches the sites of all modules while the dynamic linker unmaps nothing. Modules that it has
/// unmapped before are dropped. None if it is not kept from unmapping in time.
fn switch_kept(
    modules: &mut Vec<ProcessModule>,
    text: &mut ProcessText,
    (pid, entry): (u32, Option<&ProcessEntry>),
    session: &Path,
    how: &Method,
) -> Option<Switched> {
    text.lease();
    // A thread that asks holds the dynamic linker's lock. Otherwise the linker must be kept from
    // unmapping the written memory.
    let asked = entry.is_some_and(|entry| entry.phase.load(Acquire) == Phase::Writing as u32);
    let mut kept = None;
    if let (Some(entry), false) = (entry, asked) {
        kept = Some(KeepMapped::new(entry, text)?);
        let regions = maps::read(pid).unwrap_or_default();
        let now = mapped(&regions, session);
        modules.retain_mut(|module| module.is_there(&now, &regions));
    }
    let switched = switch_all(modules, text, pid, how);
    drop(kept);
    Some(switched)
}

/// Switches the sites of all modules: first those that no thread can be running yet, then the
/// others.
fn switch_all(modules: &mut [ProcessModule], text: &mut ProcessText, pid: u32, how: &Method) -> Switched {
    let mut switched = Switched::default();
    let (fresh, mut running): (Vec<&mut ProcessModule>, Vec<&mut ProcessModule>) =
        modules.iter_mut().filter(|module| !module.is_made()).partition(|module| module.fresh);
    switch(fresh, text, Demand::Stopped, &mut switched);
    // A site that is normalized while it runs is enabled only once no thread is inside.
    let waiting: usize = running.iter().map(|module| module.changes().count()).sum();
    if let Method::Live = how {
        switch(running, text, Demand::Outside, &mut switched);
    } else if waiting > 0 {
        let before = std::mem::replace(&mut text.sync, Sync::Quiet);
        let (counted, changed) = (&mut switched, &mut *text);
        let work = move || {
            if let Method::StoppedAndSeen(session) = how {
                let regions = maps::code_and_files(pid).unwrap_or_default();
                let now = mapped(&regions, session);
                running.retain_mut(|module| module.is_there(&now, &regions));
            }
            changed.need_no_lease();
            switch(running, changed, Demand::Outside, counted);
        };
        let done = stop_machine(pid, work);
        text.sync = before;
        match done {
            Ok(((), stopped)) => switched.tally.stopped += stopped,
            Err(why) => switched.notes.push(format!(
                "{waiting} sites were not switched, as the threads could not be stopped: {}",
                Reason::from(why)
            )),
        }
    }
    switched
}

/// The result of switching sites.
#[derive(Default, Debug)]
pub(super) struct Switched {
    pub tally: Tally,
    /// Notes about failures for the user.
    pub notes: Vec<String>,
    /// Number of sites that were not written before the end of the lease.
    too_late: usize,
}

/// Counts of a batch.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Sites that were enabled.
    pub on: u32,
    /// Sites that were disabled.
    pub off: u32,
    /// How long all threads were stopped for it.
    pub stopped: Duration,
    /// How long code that may be running was written, with the reads before and the core syncs.
    pub written: Duration,
}

impl Tally {
    /// Adds the counts of another batch.
    pub(super) fn add(&mut self, other: &Tally) {
        self.on += other.on;
        self.off += other.off;
        self.stopped += other.stopped;
        self.written += other.written;
    }

    /// Returns what was counted since `before`.
    pub fn since(self, before: Tally) -> Tally {
        Tally {
            on: self.on - before.on,
            off: self.off - before.off,
            stopped: self.stopped - before.stopped,
            written: self.written - before.written,
        }
    }
}

/// A [`switch`] of many sites, prepared before all threads are stopped for it.
pub(super) struct PreparedSwitch(Prepared<Errno>);

impl PreparedSwitch {
    /// Prepares the batch. None if code of the modules cannot be read.
    pub(super) fn new(modules: &[ProcessModule], text: &mut ProcessText) -> Option<PreparedSwitch> {
        let before = std::mem::replace(&mut text.sync, Sync::Quiet);
        let prepared = Prepared::new(text, changes(&in_order(modules)), Demand::Stopped);
        text.sync = before;
        prepared.map(PreparedSwitch)
    }

    /// Writes the batch, with all threads stopped and the modules unchanged. The failures are for
    /// [`settle`].
    pub(super) fn write(self, modules: &[ProcessModule], text: &mut ProcessText) -> Failed<Errno> {
        self.0.carry_out(text, changes(&in_order(modules)))
    }
}

/// Returns the modules by address, the order in which a batch is fastest.
fn in_order(modules: &[ProcessModule]) -> Vec<&ProcessModule> {
    let mut modules: Vec<&ProcessModule> = modules.iter().collect();
    modules.sort_by_key(|module| module.mapped.range);
    modules
}

fn changes<'a>(modules: &'a [&'a ProcessModule]) -> impl Iterator<Item = Change<'a>> + Clone {
    modules.iter().flat_map(|module| module.changes())
}

/// Switches the sites of modules to their desired states.
pub(super) fn switch(
    mut modules: Vec<&mut ProcessModule>,
    text: &mut ProcessText,
    granted: Demand,
    switched: &mut Switched,
) {
    if modules.iter().all(|module| module.changes().next().is_none()) {
        return;
    }
    modules.sort_by_key(|module| module.mapped.range);
    let start = Instant::now();
    let failures = carry_out(text, modules.iter().flat_map(|module| module.changes()), granted);
    if modules.iter().any(|module| !module.fresh) {
        switched.tally.written += start.elapsed();
    }
    settle(modules, failures, switched);
}

/// Records the results of changes to modules.
pub(super) fn settle(mut modules: Vec<&mut ProcessModule>, failures: Failed<Errno>, switched: &mut Switched) {
    let Switched { tally, notes, too_late } = switched;
    modules.sort_by_key(|module| module.mapped.range);
    let mut failures = failures.into_iter().peekable();
    let mut numbers = 0..;
    let mut failure = || {
        let number = numbers.next();
        failures.next_if(|(n, _)| Some(*n) == number).map(|(_, failure)| failure)
    };
    let (mut failed, mut surprises) = (None, 0);
    for module in modules {
        module.settle(&mut failure, |name, change, failure| match failure {
            None if change.site.is_exit() => {}
            None => match (change.from, change.to) {
                (State::Enabled(_), State::Enabled(_)) => {}
                (_, State::Enabled(_)) => tally.on += 1,
                (State::Enabled(_), _) => tally.off += 1,
                _ => {}
            },
            Some(ChangeError::Mismatch(actual)) => {
                surprises += 1;
                if let (1, Ok(expected)) = (surprises, change.site.bytes(change.from)) {
                    notes.push(format!(
                        "{name} at {:#x} is not traced: expected {expected:02x?}, found {actual:02x?}{}",
                        change.site.address().0,
                        if is_xray(actual) { ": the program's own XRay traces it" } else { "" }
                    ));
                }
            }
            Some(ChangeError::PartialWrite(errno)) if *errno == LEASE_EXPIRED => *too_late += 1,
            Some(ChangeError::PartialWrite(errno) | ChangeError::ReadFailed(errno)) => {
                failed = Some((failed.map_or(0, |(n, _)| n) + 1, *errno));
            }
            // The site demands more of the threads than was granted, and waits.
            Some(ChangeError::Demands(_) | ChangeError::OutOfReach) => {}
        });
    }
    if surprises > 1 {
        notes.push(format!(
            "{} further functions are not traced: their bytes are not as expected",
            surprises - 1
        ));
    }
    if let Some((n, errno)) = failed {
        notes.push(format!("{n} sites could not be written and are not traced: {errno}"));
    }
}

/// Whether this is a sled that XRay's own runtime has patched: a number in r10d, and a call or
/// jump.
fn is_xray(code: &[u8]) -> bool {
    matches!(code, [0x41, 0xBA, _, _, _, _, 0xE8 | 0xE9, ..])
}

/// Makes the dynamic linker's empty function jump to the agent. Returns false if it is not empty,
/// or the target out of reach.
fn watch_loader(process: u32, text: &mut ProcessText, journal: &Journal, mut brk: Avma, hook: Avma) -> bool {
    let mut bytes = [0; 9];
    if text.read(brk, &mut bytes).is_err() {
        return false;
    }
    let mut first = [0; 5];
    if bytes.starts_with(&[0xF3, 0x0F, 0x1E, 0xFA]) {
        first.copy_from_slice(&bytes[4..]);
        brk = Avma(brk.0 + 4);
    } else {
        first.copy_from_slice(&bytes[..5]);
    }
    // The function's padding reaches to the next 16-byte boundary.
    let Some(site) = Site::empty_function(brk, first).filter(|_| brk.0 % 16 <= 11) else { return false };
    let entry = Entry::Site { process, site, target: hook, copy: None, stub: None, inode: 0, base: 0 };
    let to = State::Enabled(hook);
    let change = Change { site: &site, from: State::Original, to, recover: &[] };
    journal.add(&[entry].iter().collect()).is_ok() && carry_out(text, [change], Demand::Nothing).is_empty()
}
