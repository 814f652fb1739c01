//! Which functions of two traces are the same.
//!
//! Addresses change from build to build, and so do the hashes in linker symbols of Rust: a function is its name, and the file name of its
//! module. Where that file was renamed, too (`prog-old`, `prog-new`), it is its name, if one module alone has it in either trace.

use crate::{Names, Source};
use calltap_trace::SiteId;
use std::collections::{BTreeSet, HashMap};

/// A function of either trace or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// In B, if it is there.
    pub(super) module: String,
}

/// The functions of two traces, and by side and site, which it is.
pub(super) struct Functions {
    pub(super) list: Vec<Function>,
    of_site: [HashMap<SiteId, u32>; 2],
}

impl Functions {
    /// Of these sites of each trace.
    pub(super) fn new(sources: [&dyn Source; 2], sites: [&[SiteId]; 2], linker_names: bool) -> Self {
        let names = sources.map(|source| Names::new(source.meta(), linker_names));
        let mut modules: HashMap<&str, [BTreeSet<&str>; 2]> = HashMap::new();
        for side in 0..2 {
            for &site in sites[side] {
                let name = names[side].function(site);
                modules.entry(name).or_default()[side].insert(names[side].module(site));
            }
        }
        let mut known: HashMap<(&str, &str), u32> = HashMap::new();
        let mut list: Vec<Function> = Vec::new();
        let mut of_site = [HashMap::new(), HashMap::new()];
        for side in [1, 0] {
            for &site in sites[side] {
                let (name, module) = (names[side].function(site), names[side].module(site));
                let alone = modules[name].iter().all(|modules| modules.len() == 1);
                let next = list.len() as u32;
                let id = *known.entry((name, if alone { "" } else { module })).or_insert(next);
                if id == next {
                    list.push(Function { name: name.to_owned(), module: module.to_owned() });
                }
                of_site[side].insert(site, id);
            }
        }
        Self { list, of_site }
    }

    pub(super) fn of(&self, side: usize, site: SiteId) -> Option<u32> {
        self.of_site[side].get(&site).copied()
    }
}
