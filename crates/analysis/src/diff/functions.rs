//! Matches the functions of all recordings of both sides.
//!
//! Addresses change from build to build, and so do the hashes in linker symbols of Rust: a function
//! is identified by its name and the file name of its module. If that file was renamed too
//! (`prog-old`, `prog-new`), the name alone identifies the function, provided that exactly one
//! module of each side has it.

use super::Sources;
use crate::names::Names;
use calltap_names::{FunctionNames, ModuleNames};
use calltap_trace::SiteId;
use std::collections::{BTreeSet, HashMap};

/// A function of one side or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// File name of its module, in B if B has the function.
    pub(crate) module: String,
    /// Name of the symbolic link through which a program was started from the module.
    link: Option<String>,
}

impl Function {
    /// Returns the names by which words select it.
    pub(crate) fn names(&self) -> FunctionNames<'_> {
        let module = ModuleNames { file: &self.module, link: self.link.as_deref() };
        FunctionNames::new([self.name.as_str()], Some(module))
    }
}

/// The functions of all recordings, and the function of each site by side and recording.
pub(crate) struct Functions {
    pub(crate) list: Vec<Function>,
    of_site: [Vec<HashMap<SiteId, u32>>; 2],
}

impl Functions {
    /// Matches the functions of the given sites of each recording.
    pub(crate) fn new(sources: Sources<'_>, sites: &[Vec<Vec<SiteId>>; 2], linker_names: bool) -> Self {
        let names = sources.map(|side| {
            side.iter().map(|source| Names::new(source.meta(), linker_names)).collect::<Vec<_>>()
        });
        let mut modules: HashMap<&str, [BTreeSet<&str>; 2]> = HashMap::new();
        for side in 0..2 {
            for (names, sites) in names[side].iter().zip(&sites[side]) {
                for &site in sites {
                    modules.entry(names.function(site)).or_default()[side].insert(names.module(site));
                }
            }
        }
        let mut known: HashMap<(&str, &str), u32> = HashMap::new();
        let mut list: Vec<Function> = Vec::new();
        let mut of_site = [Vec::new(), Vec::new()];
        for side in [1, 0] {
            for (names, sites) in names[side].iter().zip(&sites[side]) {
                let mut of_recording = HashMap::new();
                for &site in sites {
                    let (name, module) = (names.function(site), names.module(site));
                    let alone = modules[name].iter().all(|modules| modules.len() == 1);
                    let next = list.len() as u32;
                    let id = *known.entry((name, if alone { "" } else { module })).or_insert(next);
                    if id == next {
                        let link = names.link(site).map(str::to_owned);
                        list.push(Function { name: name.to_owned(), module: module.to_owned(), link });
                    }
                    of_recording.insert(site, id);
                }
                of_site[side].push(of_recording);
            }
        }
        Self { list, of_site }
    }

    pub(crate) fn of(&self, side: usize, recording: usize, site: SiteId) -> Option<u32> {
        self.of_site[side][recording].get(&site).copied()
    }
}
