//! Checks a [log](crate::log) of the reads and writes of a program's code against the protocol of
//! `site.rs`:
//!
//! - before a batch writes anything, it reads every site and finds it as expected;
//! - a write has exactly the stores of a site's next step, and changes no byte between sites;
//! - a core sync lies between two steps of a site, unless no thread runs it, and another one behind
//!   the last step;
//! - when a batch ends, every site that was as expected has its new state, or nothing was written;
//! - no change demands more of the threads than the caller granted;
//! - a write outside of batches touches no site.

use crate::address::Avma;
use crate::bytes::MAX_SITE_LEN;
use crate::log::Entry;
use crate::site::{Demand, Site, State};
use crate::steps::{STEPS, Transition};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Result of checking a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Batches that ended.
    pub batches: usize,
    /// Batches that did not end, as their writer was killed.
    pub cut_short: usize,
    /// Changes of sites.
    pub changes: usize,
    /// Refused changes: other bytes were found, or the change demanded too much.
    pub refused: usize,
    /// Writes.
    pub writes: usize,
    /// Core syncs.
    pub syncs: usize,
    /// Violations of the protocol: number of the entry, and description.
    pub faults: Vec<(usize, String)>,
    /// Sites seen so far, by process: address and length.
    sites: HashMap<u32, BTreeMap<u64, u64>>,
    batch: Option<Batch>,
    entries: usize,
}

/// A batch that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Batch {
    pid: u32,
    quiet: bool,
    granted: Demand,
    transition: Transition,
    after_int3: bool,
    /// Sites, by address.
    ways: BTreeMap<u64, Way>,
    /// Address and bytes of the last read.
    read: (u64, Vec<u8>),
    written: bool,
    /// Whether it has written since the last sync.
    unsynced: bool,
}

/// A write against the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WrongWrite {
    Hasty,
    OtherStep,
    Unexpected,
    Arrived,
}

impl fmt::Display for WrongWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WrongWrite::Hasty => "two steps without a sync between them",
            WrongWrite::OtherStep => "not what its next step is",
            WrongWrite::Unexpected => "written although it was not as expected",
            WrongWrite::Arrived => "written although it had arrived",
        })
    }
}

/// Progress of a site in a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Way {
    site: Site,
    from: State,
    to: State,
    recover: Vec<State>,
    /// Stores of each step that has any, once the site was read and found as expected.
    steps: Option<Vec<Vec<(usize, u8)>>>,
    /// Whether the site was read.
    seen: bool,
    taken: usize,
    /// Whether no sync has come since its last step.
    waiting: bool,
}

impl Way {
    /// Notes the bytes that were read of the site.
    fn read(&mut self, bytes: &[u8], granted: Demand, transition: Transition, after_int3: bool) {
        self.seen = true;
        let from = match &self.recover[..] {
            [] => self.site.is(self.from, bytes).then_some(self.from),
            cut_short => self.site.recognise(bytes, &[&[self.from], cut_short].concat(), self.to, after_int3),
        };
        let from = from.filter(|from| self.site.demand(*from, self.to) <= granted);
        let steps = from.and_then(|from| self.site.steps(from, self.to, transition).ok());
        self.steps = steps.map(|steps| {
            let stores = |step: usize| {
                let mut all = Vec::new();
                steps.each(step, |at, bytes| {
                    all.extend(bytes.iter().zip(usize::from(at)..).map(|(byte, at)| (at, *byte)));
                });
                all
            };
            (0..STEPS).map(stores).filter(|stores| !stores.is_empty()).collect()
        });
    }

    /// Notes a write that changes the site's bytes from `before` to `after`. Returns what is wrong
    /// with it.
    fn write(&mut self, before: &[u8], after: &[u8], quiet: bool) -> Option<WrongWrite> {
        let next = self.steps.as_ref().and_then(|steps| steps.get(self.taken));
        let expected = next.map(|stores| {
            let mut bytes = before.to_vec();
            stores.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            bytes
        });
        match expected {
            Some(expected) if expected == after => {
                let hasty = self.waiting && !quiet;
                (self.taken, self.waiting) = (self.taken + 1, true);
                hasty.then_some(WrongWrite::Hasty)
            }
            _ if before == after => None,
            Some(_) => Some(WrongWrite::OtherStep),
            None if self.steps.is_none() => Some(WrongWrite::Unexpected),
            None => Some(WrongWrite::Arrived),
        }
    }

    /// Whether the site can be changed, and has not reached its new state.
    fn is_on_its_way(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| self.taken < steps.len())
    }
}

impl Audit {
    /// Checks a whole log.
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Audit {
        let mut audit = Audit::default();
        entries.into_iter().for_each(|entry| audit.add(entry));
        audit.finish()
    }

    /// Ends the check: the log has no more entries.
    pub fn finish(mut self) -> Audit {
        self.cut_short += usize::from(self.batch.take().is_some());
        self
    }

    /// Checks the next entry.
    pub fn add(&mut self, entry: Entry) {
        self.entries += 1;
        match entry {
            Entry::Batch { pid, quiet, granted, transition, after_int3 } => {
                let (ways, read, written, unsynced) = (BTreeMap::new(), (0, Vec::new()), false, false);
                self.begin(Batch {
                    pid,
                    quiet,
                    granted,
                    transition,
                    after_int3,
                    ways,
                    read,
                    written,
                    unsynced,
                });
            }
            Entry::Change { site, from, to, recover } => self.change(*site, from, to, recover),
            Entry::Read(at, bytes) => self.read(at, bytes),
            Entry::Write(at, bytes) => self.write(at, &bytes),
            Entry::Sync => self.sync(),
            Entry::End => self.end(),
            Entry::Poke(pid, at, bytes) => self.poke(pid, at, bytes.len() as u64),
        }
    }

    fn fault(&mut self, what: impl Into<String>) {
        self.faults.push((self.entries, what.into()));
    }

    fn begin(&mut self, batch: Batch) {
        self.cut_short += usize::from(self.batch.is_some());
        self.batch = Some(batch);
    }

    fn change(&mut self, site: Site, from: State, to: State, recover: Vec<State>) {
        let Some(batch) = &mut self.batch else { return self.fault("a change outside of a batch") };
        let (steps, seen, taken, waiting) = (None, false, 0, false);
        let way = Way { site, from, to, recover, steps, seen, taken, waiting };
        let twice = batch.ways.insert(site.address().0, way).is_some();
        self.sites.entry(batch.pid).or_default().insert(site.address().0, site.len() as u64);
        self.changes += 1;
        if twice {
            self.fault(format!("two changes of the site at {:#x}", site.address().0));
        }
    }

    fn read(&mut self, at: Avma, bytes: Vec<u8>) {
        let Some(batch) = &mut self.batch else { return };
        let end = at.0.saturating_add(bytes.len() as u64);
        if !batch.written {
            for (start, way) in batch.ways.range_mut(at.0..end) {
                let offset = (start - at.0) as usize;
                if let Some(bytes) = bytes.get(offset..offset + way.site.len()) {
                    way.read(bytes, batch.granted, batch.transition, batch.after_int3);
                }
            }
        }
        batch.read = (at.0, bytes);
    }

    fn write(&mut self, at: Avma, bytes: &[u8]) {
        self.writes += 1;
        let Some(mut batch) = self.batch.take() else { return self.fault("a write outside of a batch") };
        if !batch.written {
            batch.written = true;
            let unread = batch.ways.values().filter(|way| !way.seen).count();
            if unread > 0 {
                self.fault(format!("written before {unread} sites of the batch were read"));
            }
        }
        batch.unsynced = true;
        for fault in batch.write(at.0, bytes) {
            self.fault(fault);
        }
        // The bytes read are out of date now, unless all threads are stopped.
        let offset = at.0.checked_sub(batch.read.0).map(|offset| offset as usize);
        let known = offset.and_then(|offset| batch.read.1.get_mut(offset..offset.checked_add(bytes.len())?));
        match known.filter(|_| batch.quiet) {
            Some(known) => known.copy_from_slice(bytes),
            None => batch.read.1.clear(),
        }
        self.batch = Some(batch);
    }

    fn sync(&mut self) {
        self.syncs += 1;
        if let Some(batch) = &mut self.batch {
            batch.unsynced = false;
            batch.ways.values_mut().for_each(|way| way.waiting = false);
        }
    }

    fn end(&mut self) {
        let Some(batch) = self.batch.take() else { return self.fault("an end without a beginning") };
        self.batches += 1;
        self.refused += batch.ways.values().filter(|way| way.steps.is_none()).count();
        for way in batch.ways.values().filter(|way| batch.written && way.is_on_its_way()) {
            self.fault(format!("the site at {:#x} was left before it had arrived", way.site.address().0));
        }
        if batch.unsynced && !batch.quiet {
            self.fault("a batch ends without a sync behind its last write");
        }
    }

    fn poke(&mut self, pid: u32, at: Avma, length: u64) {
        let sites = self.sites.get(&pid);
        let before = sites.and_then(|sites| sites.range(..at.0.saturating_add(length)).next_back());
        if let Some((start, _)) = before.filter(|(start, size)| *start + *size > at.0) {
            let what = format!("the site at {start:#x} was written outside of a batch");
            self.fault(what);
        }
    }
}

impl Batch {
    /// Returns what is wrong with a write.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Vec<String> {
        let end = at.saturating_add(bytes.len() as u64);
        let offset = at.checked_sub(self.read.0).map(|offset| offset as usize);
        let Some(before) = offset.and_then(|offset| self.read.1.get(offset..offset + bytes.len())) else {
            return vec![format!("written at {at:#x} without having been read right before")];
        };
        let mut faults = Vec::new();
        let mut changed = before.iter().zip(bytes).filter(|(a, b)| a != b).count();
        // A site may begin before the write, whose first bytes stay.
        for (start, way) in self.ways.range_mut(at.saturating_sub(MAX_SITE_LEN as u64)..end) {
            let (first, last) = (start.max(&at), end.min(start + way.site.len() as u64));
            if *first >= last {
                continue;
            }
            let site = |bytes: &[u8]| -> Option<Vec<u8>> {
                let own = start.checked_sub(self.read.0)? as usize;
                let mut all = self.read.1.get(own..own + way.site.len())?.to_vec();
                let part = bytes.get((first - at) as usize..(last - at) as usize)?;
                all[(first - start) as usize..(last - start) as usize].copy_from_slice(part);
                Some(all)
            };
            let Some((was, is)) = site(before).zip(site(bytes)) else {
                faults.push(format!(
                    "the site at {start:#x} was written without having been read right before"
                ));
                continue;
            };
            // Overlapping sites, which only an invented log has, count twice.
            changed = changed.saturating_sub(was.iter().zip(&is).filter(|(a, b)| a != b).count());
            if let Some(what) = way.write(&was, &is, self.quiet) {
                faults.push(format!("the site at {start:#x}: {what}"));
            }
        }
        if changed > 0 {
            faults.push(format!("{changed} bytes near {at:#x} were changed that belong to no site"));
        }
        faults
    }
}
