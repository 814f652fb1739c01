//! Texts and ids of a trace's functions and threads, each value stored once; rows refer to them by
//! number.

use calltap_analysis::Names;
use calltap_trace::{Meta, SiteId, ThreadId};
use parquet::data_type::ByteArray;
use std::collections::HashMap;
use std::hash::Hash;

/// The number of an absent value.
pub(crate) const NONE: u32 = u32::MAX;

/// The distinct values of a column, and the value of each key.
pub(crate) struct Values<T> {
    /// The number of each key's value, or [`NONE`].
    numbers: Vec<u32>,
    /// Values by number.
    pub values: Vec<T>,
}

impl<T> Values<T> {
    /// Makes the values of keys, given in their order.
    pub(crate) fn new<K: Hash + Eq + Clone>(
        keys: impl Iterator<Item = Option<K>>,
        make: impl Fn(K) -> T,
    ) -> Values<T> {
        let (mut known, mut values) = (HashMap::new(), Vec::new());
        let mut number = |key: K| {
            *known.entry(key.clone()).or_insert_with(|| {
                values.push(make(key));
                values.len() as u32 - 1
            })
        };
        let numbers = keys.map(|key| key.map_or(NONE, &mut number)).collect();
        Values { numbers, values }
    }

    /// Number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the number of a key's value.
    pub(crate) fn number(&self, key: u32) -> u32 {
        self.numbers.get(key as usize).copied().unwrap_or(NONE)
    }
}

fn texts<'a>(keys: impl Iterator<Item = Option<&'a str>>) -> Values<ByteArray> {
    Values::new(keys, ByteArray::from)
}

/// Endings of calls by key.
const ENDINGS: [&str; 9] =
    ["returned", "tail", "left", "unfinished", "unknown", "lost", "switched_off", "thread_ended", "outside"];

/// The values of a trace, shared by all rows. Functions are keyed by their sites, followed by one
/// key for undescribed sites and one for losses.
pub(crate) struct Texts {
    sites: u32,
    /// Names of functions.
    pub function: Values<ByteArray>,
    /// Linker symbols of functions.
    pub linker_name: Values<ByteArray>,
    /// Paths of modules.
    pub module: Values<ByteArray>,
    /// Build ids of modules.
    pub build_id: Values<ByteArray>,
    /// Names of threads.
    pub thread: Values<ByteArray>,
    /// Ids of threads.
    pub tid: Values<i32>,
    /// Process ids of threads.
    pub pid: Values<i32>,
    /// Endings of calls.
    pub ending: Values<ByteArray>,
}

impl Texts {
    /// Makes the values of a trace.
    pub(crate) fn new(meta: &Meta, names: &Names<'_>) -> Texts {
        let sites = meta.sites.len() as u32;
        let module = |index: u32| {
            meta.sites.get(index as usize).and_then(|site| meta.modules.get(site.module as usize))
        };
        let described = || (0..sites).map(SiteId);
        let nothing = [None, None];
        // The key after all threads stands for undescribed threads.
        let threads = || meta.threads.iter().map(Some).chain([None]);
        let process = |thread: u32| meta.processes.get(thread as usize);
        Texts {
            sites,
            function: texts(
                described().map(|site| Some(names.function(site))).chain([Some("[unknown]"), Some("[LOST]")]),
            ),
            linker_name: texts(described().map(|site| Some(names.linker(site))).chain(nothing)),
            module: texts((0..sites).map(|index| Some(module(index)?.path.as_str())).chain(nothing)),
            build_id: texts((0..sites).map(|index| module(index)?.build_id.as_deref()).chain(nothing)),
            thread: texts(threads().map(|thread| Some(thread.map_or("", |thread| thread.comm.as_str())))),
            tid: Values::new(
                threads().map(|thread| Some(thread.map_or(0, |thread| thread.tid as i32))),
                |tid| tid,
            ),
            pid: Values::new(
                threads().map(|thread| {
                    Some(thread.and_then(|thread| process(thread.process)).map_or(0, |p| p.pid as i32))
                }),
                |pid| pid,
            ),
            ending: texts(ENDINGS.into_iter().map(Some)),
        }
    }

    /// Returns the key of a function.
    pub(crate) fn site(&self, site: SiteId) -> u32 {
        site.0.min(self.sites)
    }

    /// Returns the key of losses.
    pub(crate) fn losses(&self) -> u32 {
        self.sites + 1
    }

    /// Returns the key of a thread.
    pub(crate) fn thread(&self, thread: ThreadId) -> u32 {
        thread.0.min(self.thread.keys() as u32 - 1)
    }
}
