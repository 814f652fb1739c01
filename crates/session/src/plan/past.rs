//! What the journal says was done to a process, and undoing it in its text.

use crate::plan::ahead::Ahead;
use crate::plan::journal::{self, Entry, NO_FILE};
use calltap_collect::shm::Shared;
use calltap_patch::{Avma, Change, ChangeError, Demand, Failed, Prepared, Site, State, Text, carry_out};
use calltap_process::frames::Stacks;
use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// What is told of a process that is left.
#[derive(Default)]
pub struct Told {
    /// Something of calltap's stays there.
    pub ours: Vec<String>,
    /// What there is is another tool's.
    pub others: Vec<String>,
}

/// A site that was patched, and all that it may lead to.
pub struct Mark {
    pub site: Site,
    targets: Vec<State>,
    /// It was switched off, and its bytes are not the file's yet.
    normalized: bool,
    /// Of the file it was in; 0 for the dynamic linker, which is never unloaded.
    inode: u64,
    /// Where that file lies.
    base: u64,
}

impl Mark {
    fn is_there(&self, regions: &[Region]) -> bool {
        let region = maps::at(regions, self.site.address().0);
        // A file may have more than one piece of text, and a program may have moved its text into
        // other memory, as into huge pages: bytes that calltap has written are there, too. The
        // file's other mappings show that it was not unloaded.
        let is_loaded = || regions.iter().any(|region| region.begins_at(self.inode, self.base));
        region.is_some_and(|region| region.executable && (matches!(self.inode, 0 | NO_FILE) || is_loaded()))
    }

    /// It is written only while all threads stand still: by its form, or as the program may unmap the code it has made at any moment.
    pub fn needs_stop(&self) -> bool {
        let demand = |target: &State| self.site.demand(*target, State::Disabled);
        self.inode == NO_FILE || self.targets.iter().map(demand).max() == Some(Demand::Stopped)
    }
}

/// The mappings by which marks are known. The kernel's own page is of every process, and not shown in every way to ask.
fn code_and_files(regions: &[Region]) -> Vec<Region> {
    let is_marked = |region: &&Region| region.executable && !region.is_kernels() || region.file.1 != 0;
    regions.iter().filter(is_marked).cloned().collect()
}

/// What the journal says of one process.
pub struct Past {
    pub marks: Vec<Mark>,
    /// Veneers that are mapped: address, length.
    pub veneers: Vec<(u64, u64)>,
    /// The code and files that were mapped when the marks were last compared with them.
    seen: Vec<Region>,
}

/// What sites that are to be disabled were found to be.
#[derive(Default)]
struct Found {
    /// Which are to be changed, from what, and where batches led to that were cut short.
    sites: Vec<(Site, State, Vec<State>)>,
    /// What another tool has changed, and the bytes there.
    others: Vec<(Avma, Vec<u8>)>,
}

impl Found {
    fn changes(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.sites.iter().map(|(site, from, recover)| Change {
            site,
            from: *from,
            to: State::Disabled,
            recover,
        })
    }
}

/// Sites to be disabled while all threads are stopped, planned before.
pub struct SwitchOff {
    found: Found,
    /// None: there is something to be told, or code could not be read.
    prepared: Option<Prepared<Errno>>,
    /// So many marks there were.
    marks: usize,
}

impl Past {
    /// Of process `index`: what was done to it, and to those it was forked from (not known: to any). What is mapped no more, or is another file's by now, is forgotten.
    pub fn new(
        entries: Vec<Entry>,
        shared: &Shared,
        index: Option<u32>,
        regions: &[Region],
        code: u64,
    ) -> Past {
        let line = index.map(|index| shared.line(index));
        let ours = |process: u32| journal::is_ours(process, line.as_deref());
        let shows = |address, offset| regions.iter().any(|region| region.shows(address, code, offset));
        let (mut marks, mut veneers) = (BTreeMap::<Avma, Mark>::new(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Site { process, site, target, inode, base, .. } if ours(process) => {
                    let fresh = || Mark { site, targets: Vec::new(), normalized: false, inode, base };
                    if !fresh().is_there(regions) {
                        continue;
                    }
                    let mark = marks.entry(site.address()).or_insert_with(fresh);
                    if mark.site != site {
                        // Another library was loaded there since.
                        *mark = fresh();
                    }
                    mark.targets.push(State::Enabled(target));
                }
                Entry::Veneers { process, address, offset, length }
                    if ours(process) && shows(address, offset) =>
                {
                    veneers.push((address, length));
                }
                _ => {}
            }
        }
        Past { marks: marks.into_values().collect(), veneers, seen: code_and_files(regions) }
    }

    /// Forgets what is no longer where it was. Where the code that is mapped has not changed since the last look, that is nothing.
    pub fn forget_unmapped(&mut self, regions: &[Region]) {
        let now = code_and_files(regions);
        if self.seen != now {
            self.marks.retain(|mark| mark.is_there(regions));
            self.seen = now;
        }
    }

    /// What sites are that are to be disabled; each that is not, and is calltap's.
    fn look(&mut self, which: impl Fn(&Mark) -> bool, text: &mut ProcessText) -> Found {
        let mut found = Found::default();
        // They are in the order of their addresses.
        let mut ahead = Ahead::new(text);
        for mark in self.marks.iter_mut().filter(|mark| which(mark)) {
            let Ok(actual) = ahead.at(mark.site.address(), mark.site.len()) else { continue };
            let state = mark.site.state_of(actual, mark.targets.iter().copied());
            mark.normalized = state != Some(State::Original);
            match state {
                Some(State::Original | State::Disabled) => {}
                // It is something else by now.
                None if mark.inode == NO_FILE => mark.normalized = false,
                None if mark.site.is_foreign(actual, &mark.targets) => {
                    mark.normalized = false;
                    found.others.push((mark.site.address(), actual.to_vec()));
                }
                Some(state) => found.sites.push((mark.site, state, Vec::new())),
                // A batch was cut short here.
                None => {
                    let recover = [&mark.targets[..], &[State::Original]].concat();
                    found.sites.push((mark.site, State::Disabled, recover));
                }
            }
        }
        found
    }

    /// Switches off what is to be, with this seen to.
    pub fn switch_off(
        &mut self,
        which: impl Fn(&Mark) -> bool,
        granted: Demand,
        text: &mut ProcessText,
        told: &mut Told,
    ) {
        let found = self.look(which, text);
        let changes: Vec<Change<'_>> = found.changes().collect();
        report(carry_out(text, changes.iter().copied(), granted), &changes, &mut told.ours);
        if let [(at, bytes), more @ ..] = &found.others[..] {
            add(&mut told.others, changed(&places(*at, more.len()), bytes));
        }
    }

    /// Plans to switch off what is to be while all threads are stopped.
    pub fn prepare(&mut self, which: impl Fn(&Mark) -> bool, text: &mut ProcessText) -> SwitchOff {
        let found = self.look(which, text);
        let prepared = Prepared::new(text, found.changes(), Demand::Stopped);
        SwitchOff { prepared: prepared.filter(|_| found.others.is_empty()), found, marks: self.marks.len() }
    }

    /// Does so, with all threads stopped. What is not as it was is looked at again.
    pub fn switch_off_stopped(
        &mut self,
        plan: SwitchOff,
        which: impl Fn(&Mark) -> bool,
        text: &mut ProcessText,
        told: &mut Told,
    ) {
        let SwitchOff { found, prepared, marks } = plan;
        let prepared = prepared.filter(|_| self.marks.len() == marks);
        let done = prepared.is_some_and(|prepared| prepared.carry_out(text, found.changes()).is_empty());
        if !done {
            self.switch_off(which, Demand::Stopped, text, told);
        }
    }

    /// With all threads stopped, restores the file's bytes. False if a thread is inside a site that demands more.
    pub fn restore(&self, text: &mut ProcessText, stacks: &Stacks, notes: &mut Vec<String>) -> bool {
        let normalized: Vec<&Mark> = self.marks.iter().filter(|mark| mark.normalized).collect();
        let demands = |mark: &&&Mark| mark.site.demand(State::Disabled, State::Original) > Demand::Nothing;
        let mut ranges: Vec<(u64, u64)> =
            normalized.iter().filter(demands).map(|mark| mark.site.inside()).collect();
        ranges.sort();
        if !stacks.words_in(&ranges).is_empty() {
            return false;
        }
        let changes: Vec<Change<'_>> = normalized
            .iter()
            .filter(|mark| mark.site.is_normalized())
            .map(|mark| Change { site: &mark.site, from: State::Disabled, to: State::Original, recover: &[] })
            .collect();
        report(carry_out(text, changes.iter().copied(), Demand::Stopped), &changes, notes);
        true
    }
}

/// One note for each way in which changes failed.
fn report(failed: Failed<<ProcessText as Text>::Error>, changes: &[Change<'_>], notes: &mut Vec<String>) {
    let (surprised, lost): (Vec<_>, Vec<_>) =
        failed.into_iter().partition(|(_, failure)| matches!(failure, ChangeError::Mismatch(_)));
    let mut note = |failed: &[(usize, ChangeError<_>)], what: &dyn Fn(&str, &ChangeError<_>) -> String| {
        let [(n, failure), more @ ..] = failed else { return };
        add(notes, what(&places(changes[*n].site.address(), more.len()), failure));
    };
    note(&surprised, &|at, failure| {
        let found = if let ChangeError::Mismatch(bytes) = failure { bytes.as_slice() } else { &[] };
        changed(at, found)
    });
    note(&lost, &|at, failure| format!("the code at {at} could not be restored: {failure:?}"));
}

fn changed(places: &str, found: &[u8]) -> String {
    format!("another tool has changed the code at {places}, it is left alone: {found:02x?}")
}

fn places(first: Avma, more: usize) -> String {
    let more = if more == 0 { String::new() } else { format!(" and {more} other places") };
    format!("{:#x}{more}", first.0)
}

/// What is found in two rounds is told once.
fn add(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
