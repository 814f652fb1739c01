//! What the journal says was done to a process, and undoing it in its text.

use crate::plan::ahead::Ahead;
use crate::plan::journal::{self, Entry, NO_FILE};
use calltap_collect::shm::Shared;
use calltap_patch::{Avma, Change, ChangeError, Demand, Failed, Site, State, Text, carry_out};
use calltap_process::frames::Stacks;
use calltap_process::maps::{self, Region};
use calltap_process::text::ProcessText;
use std::collections::BTreeMap;

/// What is told of a process that is left.
#[derive(Default)]
pub struct Told {
    /// Something of ours stays there.
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
        // A file may have more than one piece of text.
        let is_where_it_was = |region: &Region| region.is_at(self.inode, self.base);
        let is_file = |region: &Region| {
            matches!(self.inode, 0 | NO_FILE)
                || is_where_it_was(region)
                || region.file.1 == self.inode && regions.iter().any(is_where_it_was)
        };
        region.is_some_and(|region| region.executable && is_file(region))
    }

    /// It is written only while all threads stand still: by its form, or as the program may unmap the code it has made at any moment.
    pub fn needs_stop(&self) -> bool {
        let demand = |target: &State| self.site.demand(*target, State::Disabled);
        self.inode == NO_FILE || self.targets.iter().map(demand).max() == Some(Demand::Stopped)
    }
}

/// What the journal says of one process.
pub struct Past {
    pub marks: Vec<Mark>,
    /// Veneers that are mapped: address, length.
    pub veneers: Vec<(u64, u64)>,
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
        Past { marks: marks.into_values().collect(), veneers }
    }

    pub fn what_is_left(mut self, regions: &[Region]) -> Past {
        self.marks.retain(|mark| mark.is_there(regions));
        self
    }

    /// Switches off what is to be, with this seen to.
    pub fn switch_off(
        &mut self,
        which: impl Fn(&Mark) -> bool,
        granted: Demand,
        text: &mut ProcessText,
        told: &mut Told,
    ) {
        let (mut found, mut others) = (Vec::new(), Vec::new());
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
                    others.push((mark.site.address(), actual.to_vec()));
                }
                Some(state) => found.push((mark.site, state, Vec::new())),
                // A batch was cut short here.
                None => {
                    found.push((mark.site, State::Disabled, [&mark.targets[..], &[State::Original]].concat()))
                }
            }
        }
        let changes: Vec<Change<'_>> = found
            .iter()
            .map(|(site, from, recover)| Change { site, from: *from, to: State::Disabled, recover })
            .collect();
        report(carry_out(text, changes.iter().copied(), granted), &changes, &mut told.ours);
        if let [(at, bytes), more @ ..] = &others[..] {
            add(&mut told.others, changed(&places(*at, more.len()), bytes));
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
