//! What a trace says of its functions and threads, each value once: a row has numbers.

use calltap_analysis::Names;
use calltap_trace::{Meta, SiteId, ThreadId};
use parquet::data_type::ByteArray;
use std::collections::HashMap;
use std::hash::Hash;

/// The number of what has no value.
pub const NONE: u32 = u32::MAX;

/// The distinct values of a column, and which of them each key has.
pub struct Values<T> {
    /// By key: the number of a value, or [`NONE`].
    numbers: Vec<u32>,
    /// By number.
    pub values: Vec<T>,
}

impl<T> Values<T> {
    /// Of the keys in their order.
    pub fn new<K: Hash + Eq + Clone>(
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

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a key's value.
    pub fn number(&self, key: u32) -> u32 {
        self.numbers.get(key as usize).copied().unwrap_or(NONE)
    }
}

fn texts<'a>(keys: impl Iterator<Item = Option<&'a str>>) -> Values<ByteArray> {
    Values::new(keys, ByteArray::from)
}

/// How calls end, by their keys.
const ENDINGS: [&str; 9] =
    ["returned", "tail", "left", "unfinished", "unknown", "lost", "switched_off", "thread_ended", "outside"];

/// The values of a trace, shared by all rows. Functions are keyed by their site; behind those stand sites that the trace does not describe, and losses.
pub struct Texts {
    sites: u32,
    /// Names of functions.
    pub function: Values<ByteArray>,
    /// Their symbols.
    pub linker_name: Values<ByteArray>,
    /// Paths of their files,
    pub module: Values<ByteArray>,
    /// and what tells builds of these apart.
    pub build_id: Values<ByteArray>,
    /// Names of threads,
    pub thread: Values<ByteArray>,
    /// their ids,
    pub tid: Values<i32>,
    /// and those of their processes.
    pub pid: Values<i32>,
    /// How calls end.
    pub ending: Values<ByteArray>,
}

impl Texts {
    /// Of a trace.
    pub fn new(meta: &Meta, names: &Names<'_>) -> Texts {
        let sites = meta.sites.len() as u32;
        let module = |index: u32| {
            meta.sites.get(index as usize).and_then(|site| meta.modules.get(site.module as usize))
        };
        let described = || (0..sites).map(SiteId);
        let nothing = [None, None];
        // What belongs to no thread that is described stands behind all of them.
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

    /// The key of a function,
    pub fn site(&self, site: SiteId) -> u32 {
        site.0.min(self.sites)
    }

    /// of losses,
    pub fn losses(&self) -> u32 {
        self.sites + 1
    }

    /// of a thread.
    pub fn thread(&self, thread: ThreadId) -> u32 {
        thread.0.min(self.thread.keys() as u32 - 1)
    }
}
