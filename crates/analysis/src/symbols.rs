//! Names the functions that contain return addresses.

use crate::names::Names;
use calltap_names::file_name;
use calltap_trace::{Meta, Module, SiteId, ThreadId};
use std::collections::HashMap;

/// Maximum number of generations between a process and an ancestor.
const GENERATIONS: u32 = 64;

/// Returns the number of generations from a process up to its ancestor; the largest number if it is
/// no ancestor.
pub(crate) fn generations(process: u32, ancestor: u32, parent: impl Fn(u32) -> Option<u32>) -> u32 {
    let line = std::iter::successors(Some(process), |child| parent(*child)).take(GENERATIONS as usize);
    line.zip(0..).find(|(at, _)| *at == ancestor).map_or(u32::MAX, |(_, generation)| generation)
}

/// Maximum number of cached names; the cache is emptied when it is full.
const CACHE: usize = 1 << 18;

/// Turns return addresses into names of functions.
pub struct Symbols<'a> {
    meta: &'a Meta,
    names: &'a Names<'a>,
    /// Link-time address and id of the sites of each module, ascending.
    sites: Vec<Vec<(u64, SiteId)>>,
    cache: HashMap<(u32, u64), String>,
    text: String,
}

/// The location of a call.
#[derive(Clone, Copy)]
pub struct CodeLocation<'a> {
    /// The module that contains it.
    pub module: Option<&'a Module>,
    /// The function that contains it.
    pub site: Option<SiteId>,
}

impl<'a> Symbols<'a> {
    /// Makes the symbols of a trace.
    pub fn new(meta: &'a Meta, names: &'a Names<'a>) -> Self {
        let mut sites = vec![Vec::new(); meta.modules.len()];
        for site in &meta.sites {
            if let Some(sites) = sites.get_mut(site.module as usize) {
                sites.push((site.address, site.id));
            }
        }
        for sites in &mut sites {
            sites.sort_unstable();
        }
        Self { meta, names, sites, cache: HashMap::new(), text: String::new() }
    }

    /// Returns the name of the traced function that begins at `address`.
    pub fn code(&self, thread: ThreadId, ticks: u64, address: u64) -> Option<String> {
        let process = self.meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process);
        let module = self.module(process, ticks, address)?;
        let linked = address.wrapping_sub(module.bias);
        let sites = self.sites.get(module.id as usize)?;
        let at = sites.binary_search_by_key(&linked, |&(start, _)| start).ok()?;
        Some(self.names.function(sites[at].1).to_owned())
    }

    /// Names the function that contains the return address `address` of a call by `thread` at
    /// `ticks`: the site at or below it, else `module+0x..` with the link-time address, else the
    /// bare address.
    pub fn caller(&mut self, thread: ThreadId, ticks: u64, address: u64) -> &str {
        let process = self.meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process);
        let key = (process, address);
        if self.cache.contains_key(&key) {
            return &self.cache[&key];
        }
        let here = |module: &&Module| (module.range.0..module.range.1).contains(&address);
        let mapped = self.meta.modules.iter().filter(here).count();
        let text = self.text(&self.place(process, ticks, address), address);
        if mapped > 1 {
            // The mapping changed over time: the name is valid at `ticks` only.
            self.text = text;
            return &self.text;
        }
        if self.cache.len() >= CACHE {
            self.cache.clear();
        }
        self.cache.entry(key).or_insert(text)
    }

    /// Returns the module at `address`: of the process itself, else of the nearest ancestor; the
    /// newest if they overlap.
    fn module(&self, process: u32, ticks: u64, address: u64) -> Option<&'a Module> {
        let loaded = |module: &&Module| {
            (module.range.0..module.range.1).contains(&address)
                && module.unloaded_ticks.is_none_or(|unloaded| ticks <= unloaded)
        };
        let newest_first = self.meta.modules.iter().rev();
        let parent = |child: u32| self.meta.processes.get(child as usize).and_then(|process| process.parent);
        newest_first.filter(loaded).min_by_key(|module| generations(process, module.process, parent))
    }

    /// Returns the location of the call that returns to `address`, made in `process` at `ticks`.
    pub fn place(&self, process: u32, ticks: u64, address: u64) -> CodeLocation<'a> {
        let module = self.module(process, ticks, address);
        CodeLocation { module, site: module.and_then(|module| self.site(module, address)) }
    }

    /// Formats a location as [`Self::caller`] does.
    pub fn text(&self, place: &CodeLocation<'_>, address: u64) -> String {
        match (place.site, place.module) {
            (Some(site), _) => self.names.function(site).to_owned(),
            (None, Some(module)) => {
                format!("{}+0x{:x}", file_name(&module.path), address.wrapping_sub(module.bias))
            }
            (None, None) => format!("0x{address:x}"),
        }
    }

    /// Whether a site begins at this address.
    pub fn begins_site(&self, module: &Module, address: u64) -> bool {
        let linked = address.wrapping_sub(module.bias);
        let sites = self.sites.get(module.id as usize).map_or(&[][..], Vec::as_slice);
        sites.binary_search_by_key(&linked, |&(start, _)| start).is_ok()
    }

    fn site(&self, module: &Module, address: u64) -> Option<SiteId> {
        let linked = address.wrapping_sub(module.bias);
        // The return address lies past the function if the call is its last instruction.
        let call = linked.wrapping_sub(1);
        let sites = self.sites.get(module.id as usize).map_or(&[][..], Vec::as_slice);
        let below = sites.partition_point(|&(start, _)| start <= call);
        let &(start, site) = below.checked_sub(1).and_then(|at| sites.get(at))?;
        let size = self.meta.sites.get(site.0 as usize).map_or(0, |site| site.size);
        (size == 0 || call - start < size).then_some(site)
    }
}
