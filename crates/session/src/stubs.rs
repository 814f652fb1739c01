//! The code file: stubs, and the hops that lead to them from modules too far away for a direct jump.

use crate::journal::{Entries, Entry};
use crate::maps::{self, Region, gap_near};
use calltap_abi::stub;
use calltap_patch::{Agent, Avma, Bias, Wanted, reaches};
use calltap_sites::SiteForm;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Hops mapped near a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopRange {
    /// First byte in the process.
    pub address: u64,
    /// First byte in the code file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes in use.
    used: u64,
}

/// What was given out of the code file.
#[derive(Debug)]
pub struct Stubs<'a> {
    code: &'a File,
    /// The process's agent.
    pub agent: Agent,
    next: u32,
    next_hop: u64,
    /// Modules that have a number in the trace, where they follow each other.
    modules: u32,
    /// Ranges that have to be mapped before the stubs given out since can be used.
    pub to_map: Vec<HopRange>,
    /// What has to be in the journal before they are.
    pub to_note: Entries,
}

const PAGE: u64 = 4096;

impl<'a> Stubs<'a> {
    /// Nothing was given out yet.
    pub fn new(code: &'a File) -> Stubs<'a> {
        let agent = Agent { stubs: Avma(0), hooks: Default::default() };
        Stubs {
            code,
            agent,
            next: 0,
            next_hop: stub::REGION as u64,
            modules: 0,
            to_map: Vec::new(),
            to_note: Entries::default(),
        }
    }

    /// Goes on behind what was given out before.
    pub fn recall(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::Site { stub: Some((stub, _)), .. } => {
                    self.next = self.next.max(stub.saturating_add(1)).min(stub::COUNT as u32);
                }
                Entry::Hops { offset, length, .. } => {
                    self.next_hop = self.next_hop.max(offset.saturating_add(*length));
                }
                Entry::Site { .. } | Entry::Drained { .. } => {}
            }
        }
    }

    /// The number of one more module.
    pub fn number_module(&mut self) -> u32 {
        self.modules += 1;
        self.modules - 1
    }

    /// Stubs that are left.
    pub fn room(&self) -> usize {
        stub::COUNT - self.next as usize
    }

    /// Are all stubs within reach of a module?
    fn is_near(&self, module: (u64, u64)) -> bool {
        let (low, high) = (self.agent.stub(0), self.agent.stub(stub::COUNT as u32 - 1));
        [module.0, module.1].map(Avma).iter().all(|end| reaches(*end, low) && reaches(*end, high))
    }

    /// Sees to it that the last range of hops has room for so many more. The length of the address range that would have been needed, if there is none.
    fn provide_hops(
        &mut self,
        process: u32,
        module: (u64, u64),
        count: usize,
        regions: &[Region],
        hops: &mut Vec<HopRange>,
    ) -> Result<(), u64> {
        let bytes = (count * stub::HOP_SIZE) as u64;
        if hops.last().is_some_and(|range| range.length - range.used >= bytes) {
            return Ok(());
        }
        let length = bytes.next_multiple_of(PAGE);
        let taken = self.to_map.iter().map(|range| Region::taken(range.address, range.length));
        let regions: Vec<Region> = regions.iter().cloned().chain(taken).collect();
        let address = gap_near(&regions, module.0, module.1, length, maps::lowest_address()).ok_or(length)?;
        let range = HopRange { address, offset: self.next_hop, length, used: 0 };
        self.next_hop += length;
        self.to_note.push(&Entry::Hops { process, address, offset: range.offset, length });
        self.to_map.push(range.clone());
        hops.push(range);
        Ok(())
    }

    /// Maps hops for so many functions of a module in advance, if it needs any: mapping some later takes a thread of the program's.
    pub fn reserve(
        &mut self,
        process: u32,
        module: (u64, u64),
        count: usize,
        regions: &[Region],
        hops: &mut Vec<HopRange>,
    ) -> Result<(), u64> {
        if self.is_near(module) { Ok(()) } else { self.provide_hops(process, module, count, regions, hops) }
    }

    /// Where code at `from` in a module has to jump that shall come to `to`: there, or to a hop near it.
    pub fn lead(
        &mut self,
        process: u32,
        module: (u64, u64),
        [from, to]: [Avma; 2],
        regions: &[Region],
        hops: &mut Vec<HopRange>,
    ) -> Option<Avma> {
        if reaches(from, to) {
            return Some(to);
        }
        self.provide_hops(process, module, 1, regions, hops).ok()?;
        let range = hops.last_mut()?;
        let hop = Avma(range.address + range.used);
        self.code.write_all_at(&calltap_patch::hop_bytes(to), range.offset + range.used).ok()?;
        range.used += stub::HOP_SIZE as u64;
        reaches(from, hop).then_some(hop)
    }

    /// Begins a batch of stubs for a module. The length of the address range that would have been needed, if there is none.
    pub fn begin<'s>(
        &'s mut self,
        process: u32,
        module: (u64, u64),
        count: usize,
        regions: &[Region],
        hops: &'s mut Vec<HopRange>,
    ) -> Result<Batch<'s, 'a>, u64> {
        let near = self.is_near(module);
        if !near {
            self.provide_hops(process, module, count, regions, hops)?;
        }
        let first = self.next;
        let hop = hops.last().filter(|_| !near).map_or(0, |range| range.used);
        let range = if near { None } else { hops.last_mut() };
        self.to_note.reserve(count);
        let stubs = Vec::with_capacity(count * stub::SIZE);
        let hops = Vec::with_capacity(if near { 0 } else { count * stub::HOP_SIZE });
        Ok(Batch { first, first_hop: hop, range, owner: self, stubs, hops })
    }
}

/// Stubs being written.
pub struct Batch<'s, 'a> {
    owner: &'s mut Stubs<'a>,
    first: u32,
    first_hop: u64,
    range: Option<&'s mut HopRange>,
    stubs: Vec<u8>,
    hops: Vec<u8>,
}

impl Batch<'_, '_> {
    /// A stub for a site: its number, and where the site shall jump. None if it is out of reach.
    pub fn add(&mut self, form: &SiteForm, bias: Bias, wanted: Wanted) -> Option<(u32, Avma)> {
        let agent = &self.owner.agent;
        let id = self.owner.next;
        let after = calltap_patch::is_after_prologue(form);
        let (at, body) = (agent.stub(id), bias.apply(calltap_patch::body_address(form)));
        let bytes = calltap_patch::stub_bytes(agent, at, body, wanted, after).ok()?;
        let entry = Avma(at.0 + calltap_patch::entry_offset(wanted, after) as u64);
        let site = bias.apply(calltap_patch::site_address(form));
        let target = match &mut self.range {
            None => entry,
            Some(range) => {
                self.hops.extend_from_slice(&calltap_patch::hop_bytes(entry));
                range.used += stub::HOP_SIZE as u64;
                Avma(range.address + range.used - stub::HOP_SIZE as u64)
            }
        };
        self.stubs.extend_from_slice(&bytes);
        self.owner.next += 1;
        reaches(site, target).then_some((id, target))
    }

    /// Has a site with its new stub written down.
    pub fn note(&mut self, entry: &Entry) {
        self.owner.to_note.push(entry);
    }

    /// Writes them to the code file.
    pub fn finish(self) -> io::Result<()> {
        let code = self.owner.code;
        code.write_all_at(&self.stubs, u64::from(self.first) * stub::SIZE as u64)?;
        match self.range {
            Some(range) => code.write_all_at(&self.hops, range.offset + self.first_hop),
            None => Ok(()),
        }
    }
}
