//! Python functions that were called: which code object has which site, and what it is called.
//!
//! A code object becomes known to the agent when it is called first. The agent gives it an entry and a site of its own (a stub that
//! no code leads to: its number is the identity in events), writes down its name, and publishes it. The recorder describes the site before it
//! hands over the first event of it.
//!
//! Entries are never given back. The agent holds a reference to each code object, so no other one comes to be at its address.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

/// Code objects of a session, those of forked children included.
pub const FUNCTIONS: usize = 1 << 13;
/// Buckets of the hash, a power of two; half of them stay empty.
pub const BUCKETS: usize = 2 * FUNCTIONS;
/// Buckets that are searched for a code object.
const PROBES: usize = 256;
/// Bytes of the filter.
pub const FILTER: usize = 4032;
/// Bytes of a function's name, at most.
pub const NAME: usize = 256;
/// Bytes of a name and of a file's path.
pub const TEXT: usize = 480;
/// Bytes of the table.
pub const SIZE: usize = size_of::<Table>();

const _: () = assert!(size_of::<Entry>() == 512);
const _: () = assert!(size_of::<Header>() == 4096);

/// What an entry is, see [`Entry::state`].
pub mod state {
    /// Being filled in.
    pub const FILLING: u32 = 0;
    /// Its calls are recorded.
    pub const ON: u32 = 1;
    /// They are not, as the recorder has switched it off.
    pub const OFF: u32 = 2;
    /// They are not, as the filter does not select it.
    pub const UNSELECTED: u32 = 3;
}

/// What the agent has to know of an interpreter: the program of its evaluator's stub ([`crate::values`]), which the evaluator's hook reads and no other runs.
pub mod program {
    /// The word that has the version: 8 for CPython 3.8, with [`WAITS`]. The addresses follow it.
    pub const VERSION: usize = 1;
    /// The function is not the evaluator, but one that gives the interpreter's lock away.
    pub const WAITS: u64 = 1 << 8;
    /// Its first word, which no hook runs as a step.
    const NO_STEPS: u64 = 0;

    /// The program, given the version and addresses in the process.
    pub fn words(version: u64, addresses: &[u64]) -> impl Iterator<Item = u64> {
        [NO_STEPS, version].into_iter().chain(addresses.iter().copied())
    }

    /// Where addresses are, CPython 3.11: of the current thread state.
    pub const CURRENT: usize = VERSION + 1;

    // From 3.12 on, of functions and objects of the interpreter:
    /// `PyThreadState_Get`,
    pub const CURRENT_STATE: usize = VERSION + 1;
    /// `_Py_NoneStruct`,
    pub const NONE: usize = VERSION + 2;
    /// `PySys_GetObject`,
    pub const SYS_OBJECT: usize = VERSION + 3;
    /// `PyObject_CallMethod`,
    pub const CALL_METHOD: usize = VERSION + 4;
    /// `PyCMethod_New`,
    pub const NEW_FUNCTION: usize = VERSION + 5;
    /// `PyObject_GetAttrString`,
    pub const ATTRIBUTE: usize = VERSION + 6;
    /// `PyErr_Clear`,
    pub const CLEAR: usize = VERSION + 7;
    /// `Py_DecRef`.
    pub const RELEASE: usize = VERSION + 8;
    /// Words up to the last of them.
    pub const ADDRESSES: usize = RELEASE + 1;
    /// Their symbols, in this order.
    pub const SYMBOLS: [&str; 8] = [
        "PyThreadState_Get",
        "_Py_NoneStruct",
        "PySys_GetObject",
        "PyObject_CallMethod",
        "PyCMethod_New",
        "PyObject_GetAttrString",
        "PyErr_Clear",
        "Py_DecRef",
    ];
}

/// What there is besides functions.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Number of the next site of the session: the recorder's stubs and the agent's Python functions take theirs from here.
    pub next_site: AtomicU32,
    /// Entries that were taken; those behind are unused.
    pub taken: AtomicU32,
    /// Recorder: number of the module that functions belong to in the trace,
    pub module: AtomicU32,
    /// and the tracers that want them, a bit each; 0 until the module has its number.
    pub tracers: AtomicU32,
    /// Thread states that were left alone, as they have a profile function of their own.
    pub occupied: AtomicU32,
    /// Thread states that were left alone, as the interpreter's memory is not as expected.
    pub unknown: AtomicU32,
    /// The agent was placed without the dynamic linker, and may be unmapped: it must not leave a pointer to itself.
    pub placed: AtomicU32,
    /// Recorder: 1 while no events are wanted.
    pub paused: AtomicU32,
    /// Calls of functions for which there was no entry.
    pub missed: AtomicU64,
    /// Recorder: the process that the module is described in.
    pub process: AtomicU32,
    #[doc(hidden)]
    pub _pad0: AtomicU32,
    #[doc(hidden)]
    pub _pad1: AtomicU64,
    /// Bytes in use of the filter.
    pub filter_length: AtomicU64,
    /// Patterns with `*` and `?`, each followed by a line feed; one that begins with `!` takes away. The last that matches counts.
    pub filter: [AtomicU8; FILTER],
}

/// A code object.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Its address.
    pub code: AtomicU64,
    /// Index of its process.
    pub process: AtomicU32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// Number of its site.
    pub site: AtomicU32,
    /// The first line of the function.
    pub line: AtomicU32,
    /// Bytes of its name (module and qualified name) in `text`,
    pub name: AtomicU32,
    /// and behind these, of the path of its file.
    pub file: AtomicU32,
    /// UTF-8.
    pub text: [AtomicU8; TEXT],
}

/// All of them.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// What there is besides.
    pub header: Header,
    /// Indices of entries plus one, by the hash of code object and process; 0: empty.
    pub buckets: [AtomicU32; BUCKETS],
    /// The entries.
    pub entries: [Entry; FUNCTIONS],
}

/// The first bucket of a code object.
fn hash(code: u64, process: u32) -> usize {
    let mixed = (code >> 4 ^ u64::from(process) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - BUCKETS.ilog2())) as usize
}

impl Table {
    fn probes(&self, code: u64, process: u32) -> impl Iterator<Item = &AtomicU32> {
        let first = hash(code, process);
        (first..first + PROBES).filter_map(|at| self.buckets.get(at % BUCKETS))
    }

    /// The entry of a code object of a process.
    pub fn find(&self, code: u64, process: u32) -> Option<&Entry> {
        for bucket in self.probes(code, process) {
            let index = bucket.load(Acquire).checked_sub(1)?;
            let entry = self.entries.get(index as usize)?;
            if entry.code.load(Relaxed) == code && entry.process.load(Relaxed) == process {
                return Some(entry);
            }
        }
        None
    }

    /// A new entry, to be filled in and [published](Table::publish), and its index.
    pub fn take(&self) -> Option<(u32, &Entry)> {
        let taken = &self.header.taken;
        let index = taken
            .fetch_update(Relaxed, Relaxed, |index| (index < FUNCTIONS as u32).then_some(index + 1))
            .ok()?;
        Some((index, self.entries.get(index as usize)?))
    }

    /// Has the entry found from now on. False if there is no bucket for it.
    pub fn publish(&self, index: u32, entry: &Entry, state: u32) -> bool {
        entry.state.store(state, Release);
        let (code, process) = (entry.code.load(Relaxed), entry.process.load(Relaxed));
        self.probes(code, process)
            .any(|bucket| bucket.compare_exchange(0, index + 1, AcqRel, Relaxed).is_ok())
    }

    /// Number of the module that functions belong to in the trace, once it has one.
    pub fn module(&self) -> Option<u32> {
        let is_numbered = self.header.tracers.load(Acquire) != 0;
        is_numbered.then(|| self.header.module.load(Relaxed))
    }

    /// The entries that were ever taken.
    pub fn taken(&self) -> &[Entry] {
        let taken = (self.header.taken.load(Acquire) as usize).min(FUNCTIONS);
        self.entries.get(..taken).unwrap_or_default()
    }

    /// Does the filter select a function of this name? Without a filter, all are.
    pub fn selects(&self, name: &[u8]) -> bool {
        let length = (self.header.filter_length.load(Acquire) as usize).min(FILTER);
        let filter = self.header.filter.get(..length).unwrap_or_default();
        let mut selected = filter.first().is_none_or(|first| first.load(Relaxed) == b'!');
        for pattern in filter.split(|byte| byte.load(Relaxed) == b'\n') {
            let takes_away = pattern.first().is_some_and(|first| first.load(Relaxed) == b'!');
            let pattern = pattern.get(usize::from(takes_away)..).unwrap_or_default();
            if !pattern.is_empty() && matches(&|at| pattern.get(at).map(|byte| byte.load(Relaxed)), name) {
                selected = !takes_away;
            }
        }
        selected
    }
}

/// Does a pattern match all of a name? `*` stands for any bytes, `?` for one. In at most pattern x name steps.
fn matches(pattern: &impl Fn(usize) -> Option<u8>, name: &[u8]) -> bool {
    let (mut at, mut star, mut n) = (0, None, 0);
    while let Some(byte) = name.get(n) {
        match pattern(at) {
            Some(b'*') => {
                star = Some((at, n));
                at += 1;
            }
            Some(wanted) if wanted == b'?' || wanted == *byte => (at, n) = (at + 1, n + 1),
            _ => match star {
                Some((place, from)) => {
                    star = Some((place, from + 1));
                    (at, n) = (place + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    while pattern(at) == Some(b'*') {
        at += 1;
    }
    pattern(at).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::string::String;

    fn table() -> Box<Table> {
        let header = Header {
            next_site: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            module: AtomicU32::new(0),
            tracers: AtomicU32::new(0),
            occupied: AtomicU32::new(0),
            unknown: AtomicU32::new(0),
            placed: AtomicU32::new(0),
            paused: AtomicU32::new(0),
            missed: AtomicU64::new(0),
            process: AtomicU32::new(0),
            _pad0: AtomicU32::new(0),
            _pad1: AtomicU64::new(0),
            filter_length: AtomicU64::new(0),
            filter: [const { AtomicU8::new(0) }; FILTER],
        };
        let empty = |_| Entry {
            code: AtomicU64::new(0),
            process: AtomicU32::new(0),
            state: AtomicU32::new(0),
            site: AtomicU32::new(0),
            line: AtomicU32::new(0),
            name: AtomicU32::new(0),
            file: AtomicU32::new(0),
            text: [const { AtomicU8::new(0) }; TEXT],
        };
        Box::new(Table {
            header,
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
            entries: std::array::from_fn(empty),
        })
    }

    fn on_large_stack(test: fn()) {
        let thread = std::thread::Builder::new().stack_size(128 << 20).spawn(test).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn the_last_pattern_that_matches_counts() {
        on_large_stack(|| {
            let table = table();
            let check = |filter: &[&str], name: &str, expected: bool| {
                let text: String = filter.iter().flat_map(|pattern| [*pattern, "\n"]).collect();
                for (place, byte) in table.header.filter.iter().zip(text.bytes()) {
                    place.store(byte, Relaxed);
                }
                table.header.filter_length.store(text.len() as u64, Relaxed);
                assert_eq!(table.selects(name.as_bytes()), expected, "{filter:?} {name}");
            };
            check(&[], "app.f", true);
            check(&["*"], "app.f", true);
            check(&["app.*"], "app.f", true);
            check(&["app.*"], "apps.f", false);
            check(&["app.*.get"], "app.handlers.Item.get", true);
            check(&["app.*.get"], "app.handlers.Item.gets", false);
            check(&["app.?"], "app.f", true);
            check(&["app.?"], "app.ff", false);
            check(&["*.<lambda>"], "app.<lambda>", true);
            check(&["app.*", "!app.f"], "app.f", false);
            check(&["app.*", "!app.f"], "app.g", true);
            check(&["!importlib.*"], "app.f", true);
            check(&["!importlib.*"], "importlib.f", false);
        });
    }

    #[test]
    fn functions_are_found_by_code_object_and_process_until_the_table_is_full() {
        on_large_stack(|| {
            let table = table();
            let code = |n: u64| 0x7f00_0000_0000 + 0x1f0 * n;
            for n in 0..FUNCTIONS as u64 {
                let (index, entry) = table.take().expect("there is room");
                entry.code.store(code(n), Relaxed);
                entry.process.store(n as u32 % 2, Relaxed);
                entry.site.store(index, Relaxed);
                assert!(table.publish(index, entry, state::ON), "{n}");
            }
            assert!(table.take().is_none());
            for n in 0..FUNCTIONS as u64 {
                let site = |process| table.find(code(n), process).map(|entry| entry.site.load(Relaxed));
                assert_eq!(site(n as u32 % 2), Some(n as u32));
                assert_eq!(site(1 - n as u32 % 2), None);
            }
        });
    }
}
