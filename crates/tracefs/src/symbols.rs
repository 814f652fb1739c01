//! Names: of sites, of return addresses, of threads.

use calltap_session::Listed;
use calltap_trace::{Module, Site};
use std::collections::HashMap;
use std::fmt::Write;

/// A function that was traced.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Linker symbol; blanks never come in them.
    pub name: String,
    /// Where it is in the process.
    pub address: u64,
    /// Bytes, 0 when unknown.
    pub size: u64,
}

/// What is known by name.
#[derive(Default, Debug)]
pub struct Symbols {
    /// By number of the site. (None: not described.)
    sites: Vec<Option<Traced>>,
    modules: HashMap<u32, Module>,
    /// All functions that can be traced; new ones are added at the end.
    functions: Vec<Listed>,
    /// The same by address.
    by_address: Vec<(u64, usize)>,
    /// Thread names by id.
    comms: HashMap<u32, String>,
    /// Thread groups by thread id.
    groups: HashMap<u32, u32>,
}

impl Symbols {
    /// A module was loaded.
    pub fn add_module(&mut self, module: &Module) {
        self.modules.insert(module.id, module.clone());
    }

    /// Sites are traced.
    pub fn add_site(&mut self, site: &Site) {
        let bias = self.modules.get(&site.module).map_or(0, |module| module.bias);
        let place = site.id.0 as usize;
        if self.sites.len() <= place {
            self.sites.resize(place + 1, None);
        }
        let address = site.address.wrapping_add(bias);
        self.sites[place] = Some(Traced { name: site.name.clone(), address, size: site.size });
    }

    /// A thread, its process, its name.
    pub fn add_thread(&mut self, tid: u32, group: u32, comm: &str) {
        self.comms.insert(tid, comm.to_owned());
        self.groups.insert(tid, group);
    }

    /// These are the functions now. Those that were known keep their places: users count on the numbers.
    pub fn set_functions(&mut self, now: Vec<Listed>) {
        let mut new: HashMap<(u64, String), Listed> =
            now.iter().map(|listed| ((listed.address, listed.function.clone()), listed.clone())).collect();
        let mut kept = Vec::with_capacity(now.len());
        for old in &self.functions {
            kept.extend(new.remove(&(old.address, old.function.clone())));
        }
        let added =
            now.into_iter().filter(|listed| new.contains_key(&(listed.address, listed.function.clone())));
        kept.extend(added);
        self.functions = kept;
        self.by_address = self.functions.iter().enumerate().map(|(n, listed)| (listed.address, n)).collect();
        self.by_address.sort_unstable();
    }

    /// The functions that can be traced.
    pub fn functions(&self) -> &[Listed] {
        &self.functions
    }

    /// Sites that were ever described.
    pub fn sites(&self) -> impl Iterator<Item = (usize, &Traced)> {
        self.sites.iter().enumerate().filter_map(|(n, site)| Some((n, site.as_ref()?)))
    }

    /// How many numbers are in use.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// A site.
    pub fn site(&self, site: u32) -> Option<&Traced> {
        self.sites.get(site as usize)?.as_ref()
    }

    /// The function that begins at an address.
    pub fn function_at(&self, address: u64) -> Option<&Listed> {
        let at = self.by_address.partition_point(|(start, _)| *start < address);
        let (start, n) = self.by_address.get(at)?;
        (*start == address).then(|| &self.functions[*n])
    }

    /// Name of a thread; as the kernel, if it is not known.
    pub fn comm(&self, tid: u32) -> &str {
        self.comms.get(&tid).map_or("<...>", String::as_str)
    }

    /// Process of a thread.
    pub fn group(&self, tid: u32) -> Option<u32> {
        self.groups.get(&tid).copied()
    }

    /// Threads with their names, by id.
    pub fn threads(&self) -> Vec<(u32, &str)> {
        let mut all: Vec<(u32, &str)> = self.comms.iter().map(|(tid, comm)| (*tid, comm.as_str())).collect();
        all.sort_unstable();
        all
    }

    /// Writes the function of a site.
    pub fn write_site(&self, text: &mut String, site: u32, style: Style) {
        match self.site(site) {
            Some(traced) => write_symbol(text, &traced.name, 0, traced.size, traced.address, style),
            None => text.push_str("[unknown]"),
        }
    }

    /// Writes the function that an address is in: one that can be traced, else its place in its file.
    pub fn write_address(&self, text: &mut String, address: u64, style: Style) {
        // A return address can lie right behind a function whose last instruction is the call.
        let call = address.wrapping_sub(1);
        let below = self.by_address.partition_point(|(start, _)| *start <= call);
        if let Some((start, n)) = below.checked_sub(1).and_then(|at| self.by_address.get(at)) {
            let listed = &self.functions[*n];
            if call - start < listed.size {
                return write_symbol(text, &listed.function, address - start, listed.size, address, style);
            }
        }
        let inside = |module: &&Module| (module.range.0..module.range.1).contains(&address);
        let _ = match self.modules.values().filter(inside).max_by_key(|module| module.id) {
            Some(module) => {
                let name = module.path.rsplit('/').next().unwrap_or_default();
                write!(text, "{name}+{:#x}", address.wrapping_sub(module.bias))
            }
            None => write!(text, "{address:#x}"),
        };
    }
}

/// How symbols are written: options `sym-offset` and `sym-addr`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Style {
    /// `f+0x4/0x40`.
    pub offset: bool,
    /// ` <5555...>` behind it.
    pub address: bool,
}

fn write_symbol(text: &mut String, name: &str, offset: u64, size: u64, address: u64, style: Style) {
    text.push_str(name);
    if style.offset {
        let _ = write!(text, "+{offset:#x}/{size:#x}");
    }
    if style.address {
        let _ = write!(text, " <{address:016x}>");
    }
}
