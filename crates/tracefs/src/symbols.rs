//! Names of sites, of return addresses, and of threads.

use calltap_names::{file_name, printable};
use calltap_selection::Listed;
use calltap_trace::{Module, Site};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// A function that was traced.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    /// Linker symbol, which contains no blanks.
    pub name: String,
    /// Address in the process.
    pub address: u64,
    /// Size in bytes, 0 if it is not known.
    pub size: u64,
}

/// The names of a process.
#[derive(Default, Debug)]
pub(crate) struct Symbols {
    /// Functions by the number of their site; `None` if the site was not described.
    sites: Vec<Option<Traced>>,
    modules: HashMap<u32, Module>,
    /// All functions that can be traced; new ones are appended.
    functions: Vec<Listed>,
    /// Addresses of the functions in ascending order, with their indexes.
    by_address: Vec<(u64, usize)>,
    /// Indexes of the functions in the order in which the process last listed them.
    order: Vec<usize>,
    /// Thread names by id.
    comms: HashMap<u32, String>,
    /// Thread groups by thread id.
    groups: HashMap<u32, u32>,
    /// Lines of `kallsyms`, by address, for callers in pages that are outside of these functions.
    strangers: BTreeMap<u64, String>,
    /// The kernel's release.
    release: String,
}

/// Number of callers outside of functions with a line of their own; further ones resolve to the
/// symbol below them.
const STRANGERS: usize = 1 << 20;
/// The address that stands for `trace_marker`.
const MARKER: u64 = 2;

impl Symbols {
    /// Adds a module that was loaded.
    pub(crate) fn add_module(&mut self, module: &Module) {
        self.modules.insert(module.id, module.clone());
    }

    /// Adds a traced site.
    pub(crate) fn add_site(&mut self, site: &Site) {
        let bias = self.modules.get(&site.module).map_or(0, |module| module.bias);
        let place = site.id.0 as usize;
        if self.sites.len() <= place {
            self.sites.resize(place + 1, None);
        }
        let address = site.address.wrapping_add(bias);
        self.sites[place] = Some(Traced { name: site.name.clone(), address, size: site.size });
    }

    /// Adds a thread with its process and name, or renames it.
    pub(crate) fn add_thread(&mut self, tid: u32, group: u32, comm: &str) {
        self.comms.insert(tid, printable(comm).into_owned());
        self.groups.insert(tid, group);
    }

    /// Sets the functions that can be traced. Known functions keep their order; unloaded ones are
    /// removed, which renumbers those behind them. True if the list has changed.
    pub(crate) fn set_functions(&mut self, now: Vec<Listed>) -> bool {
        let is_same = |(listed, place): (&Listed, &usize)| {
            let old = &self.functions[*place];
            (old.address, &old.function) == (listed.address, &listed.function)
        };
        if now.len() == self.order.len() && now.iter().zip(&self.order).all(is_same) {
            for (listed, place) in now.into_iter().zip(&self.order) {
                self.functions[*place] = listed;
            }
            return false;
        }
        let asked: Vec<u64> = now.iter().map(|listed| listed.address).collect();
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
        let place = |address: &u64| self.by_address.partition_point(|(start, _)| start < address);
        self.order = asked.iter().map(|address| self.by_address[place(address)].1).collect();
        true
    }

    /// Returns the functions that can be traced.
    pub(crate) fn functions(&self) -> &[Listed] {
        &self.functions
    }

    /// Returns all sites that were ever described.
    pub(crate) fn sites(&self) -> impl Iterator<Item = (usize, &Traced)> {
        self.sites.iter().enumerate().filter_map(|(n, site)| Some((n, site.as_ref()?)))
    }

    /// Returns the number of site numbers in use.
    pub(crate) fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Returns the function of a site.
    pub(crate) fn site(&self, site: u32) -> Option<&Traced> {
        self.sites.get(site as usize)?.as_ref()
    }

    /// Returns the function that begins at an address.
    pub(crate) fn function_at(&self, address: u64) -> Option<&Listed> {
        let at = self.by_address.partition_point(|(start, _)| *start < address);
        let (start, n) = self.by_address.get(at)?;
        (*start == address).then(|| &self.functions[*n])
    }

    /// Sets the kernel's release: the first word of its description.
    pub(crate) fn set_release(&mut self, kernel: &str) {
        self.release = kernel.split(' ').next().unwrap_or_default().to_owned();
    }

    /// Returns the kernel's release.
    pub(crate) fn release(&self) -> &str {
        &self.release
    }

    /// Returns the address of a site's function.
    pub(crate) fn code(&self, site: u32) -> u64 {
        self.site(site).map_or(0, |traced| traced.address)
    }

    /// Returns the address that stands for a caller in pages.
    pub(crate) fn caller(&mut self, address: u64) -> u64 {
        // A call that is a function's last instruction returns to the first byte of the next
        // function.
        let call = address.wrapping_sub(u64::from(self.function_at(address).is_some()));
        if address != 0
            && self.function_around(call).is_none()
            && self.strangers.len() < STRANGERS
            && !self.strangers.contains_key(&call)
        {
            let mut name = String::new();
            self.write_address(&mut name, address, Style::default());
            self.strangers.insert(call, line(call, &name, None));
        }
        call
    }

    /// Returns the address that stands for `trace_marker` in pages.
    pub(crate) fn marker(&mut self) -> u64 {
        self.strangers.entry(MARKER).or_insert_with(|| line(MARKER, "tracing_mark_write", None));
        MARKER
    }

    /// Returns the symbols of all addresses in pages, in the form of `/proc/kallsyms`.
    pub(crate) fn kallsyms(&self) -> String {
        let mut lines = self.strangers.clone();
        for traced in self.sites.iter().flatten() {
            lines.insert(traced.address, line(traced.address, &traced.name, None));
        }
        for listed in &self.functions {
            lines.insert(listed.address, line(listed.address, &listed.function, Some(&listed.module)));
        }
        // A reader resolves the last symbol only at its first byte, so one follows all others.
        lines.insert(u64::MAX, line(u64::MAX, "[end]", None));
        lines.into_values().collect()
    }

    /// Returns the name of a thread; an unknown thread has the kernel's placeholder.
    pub(crate) fn comm(&self, tid: u32) -> &str {
        self.comms.get(&tid).map_or("<...>", String::as_str)
    }

    /// Whether a thread of a process is known.
    pub(crate) fn has_group(&self, group: u32) -> bool {
        self.groups.values().any(|own| *own == group)
    }

    /// Returns the process of a thread.
    pub(crate) fn group(&self, tid: u32) -> Option<u32> {
        self.groups.get(&tid).copied()
    }

    /// Returns the threads with their names, sorted by id.
    pub(crate) fn threads(&self) -> Vec<(u32, &str)> {
        let mut all: Vec<(u32, &str)> = self.comms.iter().map(|(tid, comm)| (*tid, comm.as_str())).collect();
        all.sort_unstable();
        all
    }

    /// Appends the name of a site's function.
    pub(crate) fn write_site(&self, text: &mut String, site: u32, style: Style) {
        match self.site(site) {
            Some(traced) => write_symbol(text, &traced.name, 0, traced.size, traced.address, style),
            None => text.push_str("[unknown]"),
        }
    }

    /// Returns the function that contains an address.
    fn function_around(&self, address: u64) -> Option<&Listed> {
        let below = self.by_address.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, n) = self.by_address[below];
        Some(&self.functions[n]).filter(|listed| address - start < listed.size)
    }

    /// Returns the beginning of the function that contains the call before a return address.
    pub(crate) fn begin(&self, parent: u64) -> Option<u64> {
        self.function_around(parent.wrapping_sub(1)).map(|listed| listed.address)
    }

    /// Appends the symbol of a return address: of a function that can be traced, else its offset in
    /// its file.
    pub(crate) fn write_address(&self, text: &mut String, address: u64, style: Style) {
        // A return address lies behind its function if the call is the function's last instruction.
        if let Some(listed) = self.function_around(address.wrapping_sub(1)) {
            let offset = address - listed.address;
            return write_symbol(text, &listed.function, offset, listed.size, address, style);
        }
        let inside = |module: &&Module| (module.range.0..module.range.1).contains(&address);
        let _ = match self.modules.values().filter(inside).max_by_key(|module| module.id) {
            Some(module) => {
                let name = file_name(&module.path);
                write!(text, "{name}+{:#x}", address.wrapping_sub(module.bias))
            }
            None => write!(text, "{address:#x}"),
        };
    }
}

/// The form of symbols: options `sym-offset` and `sym-addr`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Style {
    /// Whether the offset is printed: `f+0x4/0x40`.
    pub offset: bool,
    /// Whether the address follows: ` <5555...>`.
    pub address: bool,
}

fn line(address: u64, name: &str, module: Option<&str>) -> String {
    let module = module.map_or_else(String::new, |module| format!("\t[{}]", module.replace(' ', "_")));
    format!("{address:016x} t {}{module}\n", name.replace(' ', "_"))
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
