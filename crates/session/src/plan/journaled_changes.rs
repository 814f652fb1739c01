//! Changes to a process as the journal lists them, and the code that undoes them.

use crate::plan::journal::{self, Entry, NO_FILE};
use crate::plan::read_ahead::ReadAhead;
use calltap_collect::shm::Shared;
use calltap_patch::{Avma, Change, ChangeError, Demand, Failed, Prepared, Site, State, Text, carry_out};
use calltap_process::frames::{Pushed, Stacks};
use calltap_process::memory::maps::{self, Region};
use calltap_process::memory::text::ProcessText;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Notes about a process that calltap detaches from.
#[derive(Default)]
pub(crate) struct DetachNotes {
    /// Reports that something of calltap's stays.
    pub ours: Vec<String>,
    /// Reports that another tool has changed code.
    pub others: Vec<String>,
}

/// A site that was patched, with all its possible targets.
pub(crate) struct PatchedSite {
    pub site: Site,
    targets: Vec<State>,
    /// Whether it may have been written. It was not if another tool had changed its code before.
    is_written: bool,
    /// Whether it was disabled and its bytes are not the file's yet.
    normalized: bool,
    /// Inode of its file; 0 for the dynamic linker, which is never unloaded.
    inode: u64,
    /// Address that corresponds to the file's first byte.
    base: u64,
}

impl PatchedSite {
    /// Whether the site may still be in memory. Its mapping need not be executable: programs that
    /// change their own code make it writable for that moment, and would find a jump to unmapped
    /// code afterwards.
    fn is_there(&self, regions: &[Region]) -> bool {
        // Memory of no file that is not executable is not among the regions. Its bytes show whether
        // it is still this code.
        if self.inode == NO_FILE {
            return true;
        }
        let region = maps::at(regions, self.site.address().0);
        // A file may have more than one piece of text, and a program may have moved its text into
        // other memory, as into huge pages: bytes that calltap has written are there, too. The
        // file's other mappings show that it was not unloaded.
        let begins = |region: &Region| region.begins_at(self.inode, self.base);
        // Nearly every site lies in the file's own text, so that no other region is searched for.
        let is_loaded = |region| begins(region) || regions.iter().any(begins);
        region.is_some_and(|region| self.inode == 0 || is_loaded(region))
    }

    /// Returns what may push an address inside it. Sites in Go's code never wait for threads here.
    fn pushed(&self) -> Pushed {
        if self.inode == NO_FILE { Pushed::ByAnything } else { Pushed::ByCall }
    }

    /// Whether it may be written only while all threads are stopped: by its form, or because the
    /// program may unmap code made at run time at any moment.
    pub(crate) fn needs_stop(&self) -> bool {
        let demand = |target: &State| self.site.demand(*target, State::Disabled);
        self.inode == NO_FILE || self.targets.iter().map(demand).max() == Some(Demand::Stopped)
    }
}

/// Returns the mappings that identify patched sites. The kernel's own page exists in every process,
/// and PROCMAP_QUERY does not report it.
fn code_and_files(regions: &[Region]) -> Vec<Region> {
    let is_marked = |region: &&Region| region.executable && !region.is_kernels() || region.file.1 != 0;
    regions.iter().filter(is_marked).cloned().collect()
}

/// The changes to one process that the journal lists.
pub(crate) struct JournaledChanges {
    pub sites: Vec<PatchedSite>,
    /// Mapped veneers: address, length.
    pub veneers: Vec<(u64, u64)>,
    /// Sites whose code another tool has changed since calltap did.
    foreign: BTreeSet<Avma>,
    /// Code and files that were mapped when the patched sites were last compared with them.
    seen: Vec<Region>,
}

/// State of the sites that are to be disabled.
#[derive(Default)]
struct SiteStates {
    /// Sites to change, with their states and the targets of batches that were cut short.
    sites: Vec<(Site, State, Vec<State>)>,
    /// Places that another tool has changed, and the bytes there.
    others: Vec<(Avma, Vec<u8>)>,
}

impl SiteStates {
    fn changes(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.sites.iter().map(|(site, from, recover)| Change {
            site,
            from: *from,
            to: State::Disabled,
            recover,
        })
    }
}

/// A prepared batch that disables sites while all threads are stopped.
pub(crate) struct SwitchOff {
    found: SiteStates,
    /// None if there is something to report, or if code could not be read.
    prepared: Option<Prepared<Errno>>,
    /// Number of patched sites at that time.
    sites: usize,
}

impl JournaledChanges {
    /// Collects the changes to process `index` and those it was forked from; to any process if it
    /// has no index. Changes in files that are no longer mapped there are left out.
    pub(crate) fn new(
        entries: Vec<Entry>,
        shared: &Shared,
        index: Option<u32>,
        regions: &[Region],
        code: u64,
    ) -> JournaledChanges {
        let line = index.map(|index| shared.line(index));
        let ours = |process: u32| journal::is_ours(process, line.as_deref());
        let shows = |address, offset| regions.iter().any(|region| region.shows(address, code, offset));
        let (mut sites, mut veneers) = (BTreeMap::<Avma, PatchedSite>::new(), Vec::new());
        for entry in entries {
            match entry {
                Entry::Site { process, site, target, inode, base, .. } if ours(process) => {
                    let fresh = || PatchedSite {
                        site,
                        targets: Vec::new(),
                        is_written: true,
                        normalized: false,
                        inode,
                        base,
                    };
                    if !fresh().is_there(regions) {
                        continue;
                    }
                    let patched = sites.entry(site.address()).or_insert_with(fresh);
                    if patched.site != site {
                        // Another library was loaded there since.
                        *patched = fresh();
                    }
                    patched.targets.push(State::Enabled(target));
                    patched.is_written = true;
                }
                Entry::Veneers { process, address, offset, length }
                    if ours(process) && shows(address, offset) =>
                {
                    veneers.push((address, length));
                }
                // A related process may have been written at the same address.
                Entry::Unwritten { process, address } if Some(process) == index => {
                    sites.entry(address).and_modify(|patched| patched.is_written = false);
                }
                _ => {}
            }
        }
        let (sites, seen) = (sites.into_values().collect(), code_and_files(regions));
        JournaledChanges { sites, veneers, foreign: BTreeSet::new(), seen }
    }

    /// Forgets sites that are no longer mapped. Does nothing if code and files are mapped as at the
    /// last comparison.
    pub(crate) fn forget_unmapped(&mut self, regions: &[Region]) {
        let now = code_and_files(regions);
        if self.seen != now {
            self.sites.retain(|patched| patched.is_there(regions));
            self.seen = now;
        }
    }

    /// Reads the states of sites that are to be disabled. Returns those that are not, and those
    /// that another tool has changed.
    fn read_states(&mut self, which: impl Fn(&PatchedSite) -> bool, text: &mut ProcessText) -> SiteStates {
        let mut found = SiteStates::default();
        // The patched sites are in the order of addresses.
        let mut read_ahead = ReadAhead::new(text);
        for patched in self.sites.iter_mut().filter(|patched| which(patched)) {
            let Ok(actual) = read_ahead.at(patched.site.address(), patched.site.len()) else { continue };
            let state = patched.site.state_of(actual, patched.targets.iter().copied());
            patched.normalized = state != Some(State::Original);
            match state {
                Some(State::Original | State::Disabled) => {}
                // Run-time code is something else by now.
                None if patched.inode == NO_FILE => patched.normalized = false,
                // As calltap has found it.
                None if !patched.is_written => patched.normalized = false,
                None if patched.site.is_foreign(actual, &patched.targets) => {
                    patched.normalized = false;
                    found.others.push((patched.site.address(), actual.to_vec()));
                }
                Some(state) => found.sites.push((patched.site, state, Vec::new())),
                // A batch was cut short here.
                None => {
                    let recover = [&patched.targets[..], &[State::Original]].concat();
                    found.sites.push((patched.site, State::Disabled, recover));
                }
            }
        }
        found
    }

    /// Disables the chosen sites, with this demand granted. Returns false if some could not be
    /// written.
    pub(crate) fn switch_off(
        &mut self,
        which: impl Fn(&PatchedSite) -> bool,
        granted: Demand,
        text: &mut ProcessText,
        notes: &mut DetachNotes,
    ) -> bool {
        let found = self.read_states(which, text);
        let changes: Vec<Change<'_>> = found.changes().collect();
        let failed = still_changed(carry_out(text, changes.iter().copied(), granted), &changes);
        self.foreign.extend(found.others.iter().map(|(at, _)| *at).chain(mismatches(&failed, &changes)));
        let is_lost = |(_, failure): &(_, ChangeError<_>)| !matches!(failure, ChangeError::Mismatch(_));
        let are_written = !failed.iter().any(is_lost);
        report(failed, &changes, &mut notes.ours);
        if let [(at, bytes), more @ ..] = &found.others[..] {
            add(&mut notes.others, changed(&places(*at, more.len()), bytes));
        }
        are_written
    }

    /// Prepares to disable the chosen sites while all threads are stopped.
    pub(crate) fn prepare(
        &mut self,
        which: impl Fn(&PatchedSite) -> bool,
        text: &mut ProcessText,
    ) -> SwitchOff {
        let found = self.read_states(which, text);
        let prepared = Prepared::new(text, found.changes(), Demand::Stopped);
        SwitchOff { prepared: prepared.filter(|_| found.others.is_empty()), found, sites: self.sites.len() }
    }

    /// Carries the prepared batch out, with all threads stopped. If the sites have changed since,
    /// reads them again.
    pub(crate) fn switch_off_stopped(
        &mut self,
        plan: SwitchOff,
        which: impl Fn(&PatchedSite) -> bool,
        text: &mut ProcessText,
        notes: &mut DetachNotes,
    ) {
        let SwitchOff { found, prepared, sites } = plan;
        let prepared = prepared.filter(|_| self.sites.len() == sites);
        let done = prepared.is_some_and(|prepared| prepared.carry_out(text, found.changes()).is_empty());
        if !done {
            self.switch_off(which, Demand::Stopped, text, notes);
        }
    }

    /// Restores the file's bytes, with all threads stopped. Returns false if a thread is inside a
    /// site that demands otherwise.
    pub(crate) fn restore(
        &mut self,
        text: &mut ProcessText,
        stacks: &Stacks,
        notes: &mut Vec<String>,
    ) -> bool {
        let normalized: Vec<&PatchedSite> = self.sites.iter().filter(|patched| patched.normalized).collect();
        let demands =
            |patched: &&&PatchedSite| patched.site.demand(State::Disabled, State::Original) > Demand::Nothing;
        let demanding = normalized.iter().filter(demands).map(|patched| (patched.site, patched.pushed()));
        // The sites are in the order of addresses.
        if !stacks.inside(&Vec::from_iter(demanding)).is_empty() {
            return false;
        }
        let changes: Vec<Change<'_>> = normalized
            .iter()
            .filter(|patched| patched.site.is_normalized())
            .map(|patched| Change {
                site: &patched.site,
                from: State::Disabled,
                to: State::Original,
                recover: &[],
            })
            .collect();
        let failed = still_changed(carry_out(text, changes.iter().copied(), Demand::Stopped), &changes);
        self.foreign.extend(mismatches(&failed, &changes));
        report(failed, &changes, notes);
        true
    }

    /// Returns the first site whose code another tool has changed, unless the site is gone or has
    /// the file's bytes by now. The process may have loaded another version of the file to the same
    /// place.
    pub(crate) fn foreign(&self, pid: u32, regions: &[Region], text: &mut ProcessText) -> Option<Avma> {
        let is_foreign = |patched: &&PatchedSite| {
            let (at, mut now) = (patched.site.address(), vec![0; patched.site.len()]);
            let is_read = text.read(at, &mut now).is_ok();
            let in_file = || maps::at(regions, at.0).and_then(|region| region.in_file(pid, at.0, now.len()));
            !is_read || !patched.site.is(State::Original, &now) && in_file().as_ref() != Some(&now)
        };
        let was_foreign = |patched: &&PatchedSite| self.foreign.contains(&patched.site.address());
        self.sites.iter().filter(was_foreign).find(is_foreign).map(|patched| patched.site.address())
    }
}

/// Removes failures at sites that have the file's bytes: since they were read, the program has
/// closed their library and opened it again at the same address.
fn still_changed(
    mut failed: Failed<<ProcessText as Text>::Error>,
    changes: &[Change<'_>],
) -> Failed<<ProcessText as Text>::Error> {
    failed.retain(|(n, failure)| match failure {
        ChangeError::Mismatch(bytes) => !changes[*n].site.is(State::Original, bytes.as_slice()),
        _ => true,
    });
    failed
}

/// Returns the sites that had other bytes than expected.
fn mismatches(
    failed: &Failed<<ProcessText as Text>::Error>,
    changes: &[Change<'_>],
) -> impl Iterator<Item = Avma> {
    let mismatched = failed.iter().filter(|(_, failure)| matches!(failure, ChangeError::Mismatch(_)));
    mismatched.map(|(n, _)| changes[*n].site.address())
}

/// Adds a note for each way in which changes failed.
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
    format!(
        "another tool, or the program, has changed the code at {places}, so calltap does not change it: {found:02x?}"
    )
}

fn places(first: Avma, more: usize) -> String {
    let more = if more == 0 { String::new() } else { format!(" and {more} other places") };
    format!("{:#x}{more}", first.0)
}

/// Adds a note once, even if two rounds report it.
fn add(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
