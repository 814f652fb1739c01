//! Functions that the user's words name, resolved as the trace describes them.

use calltap_names::{Word, is_named};
use calltap_trace::{Module, Record, SiteId};
use std::collections::HashMap;

/// Words that name functions, each with a value for them.
#[derive(Clone, Debug)]
pub struct Chosen<T> {
    words: Vec<(Word, T)>,
    /// Paths of modules, by id.
    modules: HashMap<u32, Module>,
    /// Value of each site.
    sites: Vec<Option<T>>,
}

impl<T: Copy + Ord> Chosen<T> {
    /// Creates the set of words, each with the value of the functions it names.
    pub fn new(words: impl IntoIterator<Item = (Word, T)>) -> Chosen<T> {
        Chosen { words: words.into_iter().collect(), modules: HashMap::new(), sites: Vec::new() }
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Takes the descriptions of modules and functions.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Module(module) => drop(self.modules.insert(module.id, module.clone())),
            Record::Sites { sites } => {
                for site in sites {
                    let place = site.id.0 as usize;
                    self.sites.resize(self.sites.len().max(place + 1), None);
                    let module = self.modules.get(&site.module).map(Module::names);
                    let says = self.words.iter().filter(|(word, _)| is_named(word, site.names(), module));
                    self.sites[place] = says.map(|(_, what)| *what).min();
                }
            }
            _ => {}
        }
    }

    /// Returns the least value of the words that name a function; `None` if no word does.
    #[inline(always)]
    pub fn of(&self, site: SiteId) -> Option<T> {
        self.sites.get(site.0 as usize).copied().flatten()
    }
}
