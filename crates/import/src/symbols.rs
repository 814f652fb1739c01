//! Functions by address, from the `kallsyms` in the file.

use calltap_names::printable;
use calltap_trace::Module;
use std::collections::BTreeMap;

/// The module of functions outside of all modules.
pub(crate) const KERNEL: &str = "[kernel]";

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    /// Distance to the next symbol; 0 if none follows.
    pub(crate) size: u64,
    pub(crate) name: String,
    /// Index in [`Symbols::modules`].
    pub(crate) module: u32,
}

/// All functions and modules.
pub(crate) struct Symbols {
    /// Functions in order of address.
    all: Vec<Symbol>,
    modules: Vec<Module>,
}

/// Whether a symbol of this kind is a function; other symbols in these files mark ends.
fn is_function(kind: &str) -> bool {
    matches!(kind, "t" | "T" | "w" | "W")
}

impl Symbols {
    /// Parses lines like `ffffffff81000000 T name [module]`. In files written by calltap, names in
    /// brackets are those of files.
    pub(crate) fn parse(text: &[u8], is_own: bool) -> Symbols {
        let mut paths = BTreeMap::from([(KERNEL.to_owned(), 0)]);
        let mut all = Vec::new();
        for line in String::from_utf8_lossy(text).lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            // Kernels show addresses as zeros to users without privileges.
            if address == 0 || !is_function(kind) {
                continue;
            }
            let path = match words.next() {
                Some(module) if is_own => module.trim_matches(['[', ']']),
                Some(module) => module,
                None => KERNEL,
            };
            let next = paths.len() as u32;
            let module = *paths.entry(printable(path).into_owned()).or_insert(next);
            all.push(Symbol { address, size: 0, name: printable(name).into_owned(), module });
        }
        all.sort_by_key(|symbol| symbol.address);
        // Of several names of an address, the first is kept.
        all.dedup_by_key(|symbol| symbol.address);
        for at in 1..all.len() {
            all[at - 1].size = all[at].address - all[at - 1].address;
        }
        let modules = modules(paths, &all);
        Symbols { all, modules }
    }

    /// Returns the function that contains an address, if known.
    pub(crate) fn at(&self, address: u64) -> Option<&Symbol> {
        let at = self.all.partition_point(|symbol| symbol.address <= address);
        self.all.get(at.checked_sub(1)?)
    }

    /// Returns the modules by number; the first is the kernel itself.
    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }
}

fn modules(paths: BTreeMap<String, u32>, all: &[Symbol]) -> Vec<Module> {
    let new = |(path, id): (String, u32)| Module::without_file(id, 0, &path);
    let mut modules: Vec<Module> = paths.into_iter().map(new).collect();
    modules.sort_by_key(|module| module.id);
    for symbol in all {
        if let Some(module) = modules.get_mut(symbol.module as usize) {
            let (start, end) = module.range;
            let is_new = start == end;
            let own_end = symbol.address.saturating_add(symbol.size.max(1));
            module.range = if is_new { (symbol.address, own_end) } else { (start, own_end) };
        }
    }
    // A module whose functions surround those of another has no range of its own.
    let inside: Vec<bool> = modules.iter().map(|module| is_split(module, all)).collect();
    for (module, is_split) in modules.iter_mut().zip(inside) {
        if is_split {
            module.range = (module.range.0, module.range.0);
        }
    }
    modules
}

/// Whether functions of another module lie within the module's range.
fn is_split(module: &Module, all: &[Symbol]) -> bool {
    let (start, end) = module.range;
    let first = all.partition_point(|symbol| symbol.address < start);
    let last = all.partition_point(|symbol| symbol.address < end);
    all[first..last].iter().any(|symbol| symbol.module != module.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 T hidden\nffffffff81000100 T second\nffffffff81000000 T first\n\
        ffffffff81000050 D data\nffffffff81000100 t alias\nffffffffc0000000 t inside\t[xfs]\nno symbol\nffffffffc0000040 t last\t[xfs]\n";

    #[test]
    fn address_lies_in_preceding_function() {
        let symbols = Symbols::parse(TEXT, false);
        let name = |address| symbols.at(address).map(|symbol| symbol.name.as_str());
        assert_eq!(name(0xffffffff81000000), Some("first"));
        assert_eq!(name(0xffffffff810000ff), Some("first"));
        assert_eq!(name(0xffffffff81000104), Some("second"));
        assert_eq!((name(0x1000), name(u64::MAX)), (None, Some("last")));
        let modules: Vec<_> =
            symbols.modules().iter().map(|module| (&*module.path, module.range.0)).collect();
        assert_eq!(modules, [(KERNEL, 0xffffffff81000000), ("[xfs]", 0xffffffffc0000000)]);
        assert_eq!(Symbols::parse(TEXT, true).modules()[1].path, "xfs");
        assert_eq!(symbols.at(0xffffffff81000000).unwrap().size, 0x100);
    }
}
