//! The code file: stubs, veneers for modules that are out of a stub's reach, and out-of-line copies
//! of the instructions that jumps overwrite.

use crate::plan::journal::{Entries, Entry};
use calltap_abi::PAGE;
use calltap_abi::python::Table;
use calltap_abi::stub;
use calltap_collect::metadata::Metadata;
use calltap_collect::programs::Programs;
use calltap_collect::shm::Shared;
use calltap_patch::{Agent, Avma, Bias, HookSet, Leaves, LoadedG, Site, copy_room, exit_targets, reaches};
use calltap_process::memory::maps::{self, Region, gap_near, gap_within};
use calltap_sites::{Exit, Returns, SiteForm, Svma};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::*;

/// A range of veneers and out-of-line copies, mapped near a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VeneerRange {
    /// First address in the process.
    pub address: u64,
    /// Offset in the code file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bytes in use.
    used: u64,
}

/// Allocator of the code file.
#[derive(Debug)]
pub(crate) struct Stubs<'a> {
    code: &'a File,
    shared: &'a Shared,
    /// The process's agent.
    pub agent: Agent,
    next: u32,
    /// End of the numbers that are free. Watched functions are numbered from here downwards: a
    /// trace describes every number below the greatest that it uses, and has none of these.
    end: u32,
    next_veneer: u64,
    /// Number of modules that have an id in the trace; the ids are consecutive.
    modules: u32,
    /// Ranges that have to be mapped before stubs created since can be used.
    pub to_map: Vec<VeneerRange>,
    /// Entries that have to be in the journal before the ranges are mapped.
    pub to_note: Entries,
    /// Programs that read values, with their numbers.
    programs: Programs,
    /// Whether some of them copy stacks.
    pub unwinds: bool,
    /// Whether entries have their return addresses, which may lie in files without traced
    /// functions.
    pub names_callers: bool,
}

const INT3: u8 = 0xCC;
/// Minimum bytes to map for out-of-line copies that have to be in a window.
const WINDOWED: u64 = 16 * PAGE;
/// Bytes of a window that a batch leaves for other batches, and for the process's own mappings.
const WINDOW_MARGIN: u64 = 4 << 20;

impl<'a> Stubs<'a> {
    /// Creates an allocator with nothing allocated.
    pub(crate) fn new(code: &'a File, shared: &'a Shared) -> Stubs<'a> {
        let agent = Agent { stubs: Avma(0), hooks: [Avma(0); stub::HOOK_COUNT] };
        Stubs {
            code,
            shared,
            agent,
            next: 0,
            end: stub::COUNT as u32,
            next_veneer: stub::REGION as u64,
            modules: 0,
            to_map: Vec::new(),
            to_note: Entries::default(),
            programs: Programs::default(),
            unwinds: false,
            names_callers: false,
        }
    }

    /// Returns the number of a program that reads values; 0 if there is no space for another.
    pub(crate) fn number_program(&mut self, words: &[u64], records: &mut Vec<Metadata>) -> u16 {
        self.programs.number(self.shared, words, records)
    }

    /// Continues behind the stubs and veneers of earlier controllers.
    pub(crate) fn recall(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Site { stub: Some((stub, hook_set)), .. } if hook_set.only_watches() => {
                    self.end = self.end.min(*stub);
                }
                Entry::Site { stub: Some((stub, _)), .. } => {
                    self.next = self.next.max(stub.saturating_add(1)).min(stub::COUNT as u32);
                }
                Entry::Veneers { offset, length, .. } => {
                    self.next_veneer = self.next_veneer.max(offset.saturating_add(*length));
                }
                Entry::Site { .. } | Entry::Unwritten { .. } | Entry::Drained { .. } => {}
            }
        }
    }

    /// Returns a new module id.
    pub(crate) fn number_module(&mut self) -> u32 {
        // An earlier controller may have given an id to the module of Python functions.
        let python = self.shared.python().and_then(Table::module);
        self.modules += 1 + u32::from(python == Some(self.modules));
        self.modules - 1
    }

    /// Returns the bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        let stubs = u64::from(self.next) + (stub::COUNT as u64 - u64::from(self.end));
        stubs * stub::SIZE as u64 + self.next_veneer - stub::REGION as u64
    }

    /// Returns the number of stubs that are left.
    pub(crate) fn room(&self) -> usize {
        self.end.saturating_sub(self.next.max(self.next_site())) as usize
    }

    /// Returns the next site number, if Python functions have none.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Returns the next site number, if Python functions take theirs from the same range.
    fn next_site(&self) -> u32 {
        let table = self.shared.python();
        table.map_or(0, |table| table.header.next_site.load(Relaxed).min(stub::COUNT as u32))
    }

    /// Takes consecutive site numbers. [`Stubs::return_numbers`] gives the unused ones back.
    fn take_numbers(&mut self, count: u32) {
        if let Some(table) = self.shared.python() {
            let first = table.header.next_site.fetch_add(count, AcqRel);
            // The program may write to this word: numbers in use are never taken again.
            self.next = self.next.max(first).min(stub::COUNT as u32);
        }
    }

    /// Gives unused numbers up to `end` back, unless a Python function has taken the next one.
    fn return_numbers(&self, end: u32) {
        if let Some(table) = self.shared.python() {
            let _ = table.header.next_site.compare_exchange(end, self.next, AcqRel, Relaxed);
        }
    }

    /// Whether all stubs are within reach of a module.
    fn is_near(&self, module: (u64, u64)) -> bool {
        let (low, high) = (self.agent.stub(0), self.agent.stub(stub::COUNT as u32 - 1));
        [module.0, module.1].map(Avma).iter().all(|end| reaches(*end, low) && reaches(*end, high))
    }

    /// Makes sure that the last range of veneers has enough free bytes, within a window if one is
    /// given. The error is the length of the address range that is missing.
    fn provide_veneers(
        &mut self,
        process: u32,
        module: (u64, u64),
        (bytes, window): (usize, Option<&Range<u64>>),
        regions: &[Region],
        veneers: &mut Vec<VeneerRange>,
    ) -> Result<(), u64> {
        let bytes = bytes as u64;
        let suits = |range: &VeneerRange| {
            let (start, end) = (range.address + range.used, range.address + range.length);
            let is_inside = |window: &Range<u64>| window.start <= start && end <= window.end;
            end - start >= bytes && window.is_none_or(is_inside)
        };
        if let Some(n) = veneers.iter().rposition(suits) {
            let last = veneers.len() - 1;
            veneers.swap(n, last);
            return Ok(());
        }
        // Windows are small, so later batches use the same range.
        let least = if window.is_some() { WINDOWED } else { 0 };
        let length = bytes.max(least).next_multiple_of(PAGE);
        let taken = self.to_map.iter().map(|range| Region::taken(range.address, range.length));
        let regions: Vec<Region> = regions.iter().cloned().chain(taken).collect();
        let lowest = maps::lowest_address();
        let address = match window {
            Some(window) => gap_within(&regions, window, length, lowest),
            None => gap_near(&regions, module.0, module.1, length, lowest),
        };
        let address = address.ok_or(length)?;
        let range = VeneerRange { address, offset: self.next_veneer, length, used: 0 };
        self.next_veneer += length;
        self.to_note.push(&Entry::Veneers { process, address, offset: range.offset, length });
        self.to_map.push(range.clone());
        veneers.push(range);
        Ok(())
    }

    /// Maps veneers for `count` functions of a module in advance, if it needs any: mapping them
    /// later takes a thread of the program.
    pub(crate) fn reserve(
        &mut self,
        process: u32,
        module: (u64, u64),
        count: usize,
        regions: &[Region],
        veneers: &mut Vec<VeneerRange>,
    ) -> Result<(), u64> {
        if self.is_near(module) {
            return Ok(());
        }
        self.provide_veneers(process, module, (count * stub::VENEER_SIZE, None), regions, veneers)
    }

    /// Returns where code at `from` in a module has to jump to reach `to`: there, or a veneer near
    /// it.
    pub(crate) fn lead(
        &mut self,
        process: u32,
        module: (u64, u64),
        [from, to]: [Avma; 2],
        regions: &[Region],
        veneers: &mut Vec<VeneerRange>,
    ) -> Option<Avma> {
        if reaches(from, to) {
            return Some(to);
        }
        self.provide_veneers(process, module, (stub::VENEER_SIZE, None), regions, veneers).ok()?;
        let range = veneers.last_mut()?;
        let veneer = Avma(range.address + range.used);
        self.code.write_all_at(&calltap_patch::veneer_bytes(to), range.offset + range.used).ok()?;
        range.used += stub::VENEER_SIZE as u64;
        reaches(from, veneer).then_some(veneer)
    }

    /// Begins a batch of stubs for a module. The error is the length of the address range that is
    /// missing.
    pub(crate) fn begin<'s>(
        &'s mut self,
        process: u32,
        module: (u64, u64),
        room: &BatchRoom,
        regions: &[Region],
        veneers: &'s mut Vec<VeneerRange>,
    ) -> Result<Batch<'s, 'a>, u64> {
        let (near, count) = (self.is_near(module), room.stubs);
        let bytes = room.copies + if near { 0 } else { count * stub::VENEER_SIZE };
        if bytes > 0 {
            self.provide_veneers(process, module, (bytes, room.window.as_ref()), regions, veneers)?;
        }
        let first = if room.is_watched {
            self.end = self.end.saturating_sub(count as u32);
            self.end
        } else {
            self.take_numbers(count as u32);
            self.next
        };
        let range = veneers.last_mut().filter(|_| bytes > 0);
        let first_veneer = range.as_ref().map_or(0, |range| range.used);
        self.to_note.reserve(count);
        let stubs = Vec::with_capacity(count * stub::SIZE);
        let end = first.saturating_add(count as u32);
        Ok(Batch {
            first,
            next: first,
            end,
            is_watched: room.is_watched,
            first_veneer,
            near,
            range,
            owner: self,
            stubs,
            veneers: Vec::with_capacity(bytes),
        })
    }
}

/// Space that a batch of stubs needs.
#[derive(Default)]
pub(crate) struct BatchRoom {
    stubs: usize,
    /// Bytes for out-of-line copies.
    copies: usize,
    /// Addresses where these have to be, if exits of the batch only reach some.
    window: Option<Range<u64>>,
    /// Whether its functions are watched, and not traced.
    is_watched: bool,
}

impl BatchRoom {
    /// Whether its out-of-line copies have to be in a window.
    pub(crate) fn is_windowed(&self) -> bool {
        self.window.is_some()
    }

    /// Adds a function. Returns false, and adds nothing, if the copies of all would have too little
    /// space, or if only this one, or only the others, are watched and not traced.
    pub(crate) fn add(&mut self, displaced: &Displaced<'_>, bias: Bias, is_watched: bool) -> bool {
        let copies = self.copies + displaced.room();
        let window = displaced.window(bias, self.window.clone());
        let bytes = (copies + (self.stubs + 1) * stub::VENEER_SIZE) as u64 + WINDOW_MARGIN;
        let fits = window.as_ref().is_none_or(|window| window.end.saturating_sub(window.start) >= bytes)
            && self.is_watched == is_watched;
        if fits || self.stubs == 0 {
            *self = BatchRoom { stubs: self.stubs + 1, copies, window, is_watched };
        }
        fits || self.stubs == 0
    }
}

/// The instructions of a function that are executed out of line while it is traced.
pub(crate) struct Displaced<'a> {
    /// Address and bytes of the instructions at its entry.
    entry: Option<(Svma, &'a [u8])>,
    /// Offsets of the instructions at the entry that leave the function.
    leaves: &'a [u8],
    /// The function's exits behind its entry.
    exits: &'a [Exit],
    /// Whether each call looks first whether its stack has room for a hook.
    guarded: bool,
}

impl<'a> Displaced<'a> {
    /// Collects the instructions of a function, for a site form and a hook set.
    pub(crate) fn new(form: &'a SiteForm, returns: &'a Returns, hook_set: HookSet) -> Displaced<'a> {
        let entry = match form {
            SiteForm::Prologue { at, old }
            | SiteForm::PaddingJump { at, old, .. }
            | SiteForm::Unchecked { at, old, .. }
            | SiteForm::Checked { at, old, .. }
            | SiteForm::Trap { at, old } => Some((*at, &old[..])),
            SiteForm::Entry { .. } | SiteForm::Prefix { .. } | SiteForm::AfterPrologue { .. } => None,
        };
        let (leaves, exits) = match returns {
            Returns::Exits { at_entry, elsewhere, .. } if hook_set.returns() => {
                (&at_entry[..], &elsewhere[..])
            }
            _ => Default::default(),
        };
        let guarded = matches!(form, SiteForm::Unchecked { .. });
        Displaced { entry, leaves, exits, guarded }
    }

    /// Returns the bytes to reserve for the copies.
    pub(crate) fn room(&self) -> usize {
        let entry = self.entry.map_or(0, |(_, old)| copy_room(old, self.leaves.len()));
        let guard = if self.guarded { calltap_patch::GUARD + stub::VENEER_SIZE } else { 0 };
        guard + entry + self.exits.iter().map(|exit| copy_room(&exit.old, exit.leaves.len())).sum::<usize>()
    }

    /// Returns the addresses that all its exits, and `others`, can reach. None if they reach all.
    fn window(&self, bias: Bias, others: Option<Range<u64>>) -> Option<Range<u64>> {
        let windows = self.exits.iter().filter_map(|exit| exit_targets(exit, bias));
        let common = |a: Range<u64>, b: Range<u64>| a.start.max(b.start)..a.end.min(b.end);
        others.into_iter().chain(windows).reduce(common)
    }
}

/// A stub that was created for a site.
pub(crate) struct Added {
    /// Number of the stub.
    pub id: u32,
    /// Jump target of the site.
    pub target: Avma,
    /// Out-of-line copy of the overwritten instructions, if there is one.
    pub copy: Option<Avma>,
    /// Exits of the function, with the out-of-line copies that they jump to.
    pub exits: Vec<(Site, Avma)>,
}

/// A batch of stubs being written.
pub(crate) struct Batch<'s, 'a> {
    owner: &'s mut Stubs<'a>,
    first: u32,
    /// Number of its next stub.
    next: u32,
    /// Whether its functions are watched, and not traced.
    is_watched: bool,
    /// End, exclusive, of the numbers that were taken for it.
    end: u32,
    first_veneer: u64,
    /// Whether the stubs are within reach of the module.
    near: bool,
    range: Option<&'s mut VeneerRange>,
    stubs: Vec<u8>,
    veneers: Vec<u8>,
}

impl Batch<'_, '_> {
    /// Creates a stub for a site. None if something is out of reach.
    pub(crate) fn add(
        &mut self,
        form: &SiteForm,
        returns: &Returns,
        bias: Bias,
        hook_set: HookSet,
    ) -> Option<Added> {
        let id = Some(self.next).filter(|id| *id < stub::COUNT as u32)?;
        let style = calltap_patch::style(form, returns);
        let site = bias.apply(form.address());
        let at = self.owner.agent.stub(id);
        let displaced = Displaced::new(form, returns, hook_set);
        let leaves = |offsets| Leaves {
            offsets,
            call: Avma(at.0 + stub::LEAVE as u64),
            guarded: displaced.guarded,
            g: LoadedG::of(form, bias),
        };
        let is_checked = matches!(form, SiteForm::Checked { .. });
        let mut copy = match displaced.entry.filter(|_| !is_checked) {
            Some((at, old)) => Some(self.copy(old, leaves(displaced.leaves), bias.apply(at))?),
            None => None,
        };
        let mut exits = Vec::with_capacity(displaced.exits.len());
        for exit in displaced.exits {
            let copy = self.copy(&exit.old, leaves(&exit.leaves), bias.apply(exit.at))?;
            let reaches = exit_targets(exit, bias).is_none_or(|targets| targets.contains(&copy.0));
            exits.push((Site::exit(exit, bias)?, Some(copy).filter(|_| reaches)?));
        }
        let body = copy.unwrap_or_else(|| bias.apply(calltap_patch::body_address(form)));
        let mut bytes = calltap_patch::stub_bytes(&self.owner.agent, at, body, hook_set, style).ok()?;
        if let Some(goroutine) = form.goroutine() {
            bytes[stub::GOID] = goroutine.number;
            bytes[stub::STARTED_BY] = goroutine.started_by.unwrap_or_default();
        }
        let entry = Avma(at.0 + calltap_patch::entry_offset(hook_set, style) as u64);
        // The SIGTRAP handler reaches any address.
        let jumps = !matches!(form, SiteForm::Trap { .. });
        let mut target =
            if self.near || !jumps { entry } else { self.put(&calltap_patch::veneer_bytes(entry))? };
        if let Some((at, old)) = displaced.entry.filter(|_| is_checked) {
            // The copy is executed in front of the stub.
            let (g, from) = (LoadedG::of(form, bias), bias.apply(at));
            let code = calltap_patch::copy_check(old, g, from, self.place()?, target).ok()?;
            target = self.put(&code)?;
            copy = Some(target);
        }
        if let (SiteForm::Unchecked { .. }, Some(body)) = (form, copy) {
            let lost = self.owner.agent.lost_hook();
            let code = calltap_patch::guard_bytes(self.place()?, target, body, lost).ok()?;
            target = self.put(&code)?;
        }
        if hook_set.program() != 0 && self.owner.shared.assign_program(id, hook_set.program()).is_err() {
            return None;
        }
        self.stubs.extend_from_slice(&bytes);
        self.next += 1;
        if !self.is_watched {
            self.owner.next = self.next;
        }
        let reaches = (!jumps || reaches(site, target))
            && exits.iter().all(|(site, copy)| reaches(site.address(), *copy));
        reaches.then_some(Added { id, target, copy, exits })
    }

    fn copy(&mut self, code: &[u8], leaves: Leaves<'_>, from: Avma) -> Option<Avma> {
        let code = calltap_patch::copy(code, leaves, from, self.place()?).ok()?;
        self.put(&code)
    }

    /// Returns the address of the next veneer or copy in the process.
    fn place(&self) -> Option<Avma> {
        self.range.as_ref().map(|range| Avma(range.address + range.used))
    }

    fn put(&mut self, code: &[u8]) -> Option<Avma> {
        let place = self.place()?;
        let length = code.len().next_multiple_of(stub::VENEER_SIZE);
        let range = self.range.as_mut().filter(|range| range.length - range.used >= length as u64)?;
        range.used += length as u64;
        self.veneers.extend_from_slice(code);
        self.veneers.resize(self.veneers.len() + length - code.len(), INT3);
        Some(place)
    }

    /// Records a site with its new stub for the journal.
    pub(crate) fn note(&mut self, entry: &Entry) {
        self.owner.to_note.push(entry);
    }

    /// Writes the batch to the code file.
    pub(crate) fn finish(self) -> io::Result<()> {
        let code = self.owner.code;
        if !self.is_watched {
            self.owner.return_numbers(self.end);
        }
        code.write_all_at(&self.stubs, u64::from(self.first) * stub::SIZE as u64)?;
        match self.range {
            Some(range) => code.write_all_at(&self.veneers, range.offset + self.first_veneer),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
