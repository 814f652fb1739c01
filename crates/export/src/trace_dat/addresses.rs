//! Addresses of functions and callers, and the symbols by which readers name them.
//!
//! A reader has one list of symbols for the whole file and takes the nearest one below an address.
//! A recording can have several programs, and libraries that were loaded and unloaded: a module
//! whose addresses overlap those of another is moved to a free range. A caller that no symbol fits
//! gets one of its own.

use super::text::word;
use calltap_analysis::Names;
use calltap_analysis::symbols::Symbols;
use calltap_trace::{Meta, Module, Site, SiteId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// First address for moved modules.
const ELSEWHERE: u64 = 1 << 62;
/// First address for functions of modules without an address range, as those of Python and system
/// calls: the addresses of their sites are numbers, which several modules have.
const NUMBERED: u64 = 3 << 61;
/// Distance of two such functions.
const APART: u64 = 16;
/// Added to callers outside of all modules, so that no module of another process names them.
const NOWHERE: u64 = 1 << 63;
/// Address of functions that the recording does not describe.
const UNKNOWN: u64 = 1;
/// Address of calltap's own messages.
const OWN: u64 = 2;
/// Maximum number of cached callers; the cache is emptied when it is full.
const CACHE: usize = 1 << 18;
/// Maximum number of symbols for callers outside of traced functions; further callers are unknown.
const SYMBOLS: usize = 1 << 20;

pub(super) struct Addresses<'a> {
    meta: &'a Meta,
    names: &'a Names<'a>,
    symbols: Symbols<'a>,
    /// Offset added to the addresses of each module.
    moved: Vec<u64>,
    /// Addresses by site; the last entry is for undescribed sites.
    sites: Vec<u64>,
    /// Whether each site's address was requested.
    used: Vec<bool>,
    /// Addresses of callers by process and original address.
    callers: HashMap<(u32, u64), u64>,
    /// Symbol lines of callers, and of calltap, by address.
    own: BTreeMap<u64, String>,
}

impl<'a> Addresses<'a> {
    pub(super) fn new(meta: &'a Meta, names: &'a Names<'a>) -> Self {
        let moved = placed(&meta.modules);
        let address = |(index, site): (u64, &Site)| match meta.modules.get(site.module as usize) {
            Some(module) if module.range.0 < module.range.1 => {
                let moved = moved.get(site.module as usize).copied().unwrap_or(0);
                module.bias.wrapping_add(moved).wrapping_add(site.address)
            }
            _ => NUMBERED + index * APART,
        };
        let mut sites: Vec<u64> = (0..).zip(&meta.sites).map(address).collect();
        sites.push(UNKNOWN);
        Self {
            meta,
            names,
            symbols: Symbols::new(meta, names),
            moved,
            used: vec![false; sites.len()],
            sites,
            callers: HashMap::new(),
            own: BTreeMap::new(),
        }
    }

    /// Returns the address of a function.
    #[inline]
    pub(super) fn function(&mut self, site: SiteId) -> u64 {
        let site = (site.0 as usize).min(self.meta.sites.len());
        self.used[site] = true;
        self.sites[site]
    }

    /// Returns the address whose symbol is calltap.
    pub(super) fn own(&mut self) -> u64 {
        self.own.entry(OWN).or_insert_with(|| line(OWN, "calltap", None));
        OWN
    }

    /// Returns the address of a caller; 0 if it is unknown.
    pub(super) fn caller(&mut self, thread: ThreadId, ticks: u64, address: u64) -> u64 {
        if address == 0 {
            return 0;
        }
        let process = self.meta.threads.get(thread.0 as usize).map_or(0, |thread| thread.process);
        if let Some(&known) = self.callers.get(&(process, address)) {
            return known;
        }
        let place = self.symbols.place(process, ticks, address);
        let mut written = match place.module {
            Some(module) => {
                let moved = self.moved.get(module.id as usize).copied().unwrap_or(0);
                // The return address of a function's last call may be the first byte of the next
                // function.
                let before = u64::from(self.symbols.begins_site(module, address));
                address.wrapping_add(moved) - before
            }
            None => address | NOWHERE,
        };
        match place.site {
            Some(site) => {
                self.function(site);
            }
            None if self.own.contains_key(&written) => {}
            None if self.own.len() < SYMBOLS => {
                let name = self.symbols.text(&place, address);
                self.own.insert(written, line(written, &name, place.module));
            }
            None => written = 0,
        }
        let here = |module: &&Module| (module.range.0..module.range.1).contains(&address);
        // If the mapping changed over time, the address is valid at `ticks` only.
        if self.meta.modules.iter().filter(here).nth(1).is_none() {
            if self.callers.len() >= CACHE {
                self.callers.clear();
            }
            self.callers.insert((process, address), written);
        }
        written
    }

    /// Returns the symbols of all requested addresses in the format of `/proc/kallsyms`.
    pub(super) fn kallsyms(&self) -> String {
        let mut lines = self.own.clone();
        for (site, &address) in (0..).map(SiteId).zip(&self.sites) {
            if self.used[site.0 as usize] {
                let module = self.meta.sites.get(site.0 as usize).map(|site| site.module as usize);
                let module = module.and_then(|module| self.meta.modules.get(module));
                lines.entry(address).or_insert_with(|| line(address, self.names.function(site), module));
            }
        }
        // A reader accepts the last symbol at its first byte only, so one is put after all others.
        lines.insert(u64::MAX, line(u64::MAX, "[end]", None));
        lines.into_values().collect()
    }
}

fn line(address: u64, name: &str, module: Option<&Module>) -> String {
    let mut line = format!("{address:016x} t {}", word(name));
    if let Some(module) = module {
        let _ = write!(line, "\t[{}]", word(calltap_analysis::file_name(&module.path)));
    }
    line.push('\n');
    line
}

/// Returns the offset of each module, so that no two different modules overlap.
fn placed(modules: &[Module]) -> Vec<u64> {
    let mut same = HashMap::new();
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    let mut elsewhere = ELSEWHERE;
    let mut moved = Vec::with_capacity(modules.len());
    for module in modules {
        let (start, end) = module.range;
        let by = same.entry((&module.path, &module.build_id, module.bias, start, end)).or_insert_with(|| {
            if taken.range(..end).next_back().is_some_and(|(_, &other)| other > start) {
                let by = elsewhere.wrapping_sub(start & !0xfff);
                elsewhere += (end.saturating_sub(start) + 0x2fff) & !0xfff;
                return by;
            }
            if start < end {
                taken.insert(start, end);
            }
            0
        });
        moved.push(*by);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(id: u32, path: &str, range: (u64, u64)) -> Module {
        Module {
            id,
            process: id,
            path: path.into(),
            link: None,
            build_id: None,
            bias: range.0,
            range,
            unloaded_ticks: None,
            untraceable: calltap_trace::Untraceable::default(),
        }
    }

    #[test]
    fn functions_without_an_address_have_symbols_of_their_own() {
        let mut meta = Meta::default();
        for (id, name) in [(0, "sys_read"), (1, "app.handle"), (1, "app.main")] {
            meta.modules.resize(meta.modules.len().max(id + 1), module(id as u32, "[python]", (0, 0)));
            meta.sites.push(Site {
                id: SiteId(meta.sites.len() as u32),
                module: id as u32,
                address: 0,
                size: 0,
                name: name.into(),
                aliases: Vec::new(),
                kind: String::new(),
                tracers: 0,
                captured: None,
            });
        }
        let names = Names::new(&meta, false);
        let mut addresses = Addresses::new(&meta, &names);
        let all: Vec<u64> = (0..3).map(|site| addresses.function(SiteId(site))).collect();
        let listed = addresses.kallsyms();
        for (address, name) in all.iter().zip(["sys_read", "app.handle", "app.main"]) {
            assert!(listed.contains(&format!("{address:016x} t {name}\t")), "{listed}");
        }
    }

    #[test]
    fn modules_that_differ_have_places_that_differ_and_others_share_theirs() {
        let modules = [
            module(0, "/bin/a", (0x400000, 0x500000)),
            module(1, "/bin/b", (0x400000, 0x400800)),
            module(2, "/bin/a", (0x400000, 0x500000)),
            module(3, "/bin/c", (0x4ff000, 0x600000)),
            module(4, "/bin/d", (0x500000, 0x600000)),
            module(5, "/bin/e", (0, 0)),
        ];
        let moved = placed(&modules);
        let ranges: Vec<_> =
            modules.iter().zip(&moved).map(|(m, by)| (m.range.0 + by, m.range.1 + by)).collect();
        assert_eq!(moved[0], moved[2]);
        assert_eq!((moved[0], moved[4], moved[5]), (0, 0, 0));
        for (a, b) in [(0, 1), (0, 3), (0, 4), (1, 3), (1, 4), (3, 4)] {
            let ((a_start, a_end), (b_start, b_end)) = (ranges[a], ranges[b]);
            assert!(a_end <= b_start || b_end <= a_start, "{a} {b}: {ranges:x?}");
        }
    }
}
