//! Python functions that were called: which code object has which site, and what it is called.
//!
//! A code object becomes known to the agent when it is called first. The agent gives it an entry and a site of its own (a stub that
//! no code leads to: its number is the identity in events), writes down its name, and publishes it. The recorder describes the site before it
//! hands over the first event of it.
//!
//! Entries are never given back. The agent holds a reference to each code object, so no other one comes to be at its address.

use crate::stub;
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

/// What [`crate::Control::python`] says.
pub mod wanted {
    /// There is no table.
    pub const NEVER: u32 = 0;
    /// Python functions are traced,
    pub const NOW: u32 = 1;
    /// or were: the interpreter is to be left alone.
    pub const NO_MORE: u32 = 2;
}

/// How far the recorder has come with another filter: the lowest bits of [`Header::selection`], above which its changes are counted.
pub mod phase {
    /// It is done.
    pub const SETTLED: u32 = 0;
    /// The filter is being written.
    pub const WRITING: u32 = 1;
    /// The filter is whole, and is applied to the functions that were known before.
    pub const APPLYING: u32 = 2;
    /// These bits.
    pub const MASK: u32 = 3;
    /// What a change adds.
    pub const STEP: u32 = 4;
}

/// The site of an entry that has none: it was never selected.
pub const NO_SITE: u32 = u32::MAX;
/// Changes of the filter that a function which is being introduced is decided anew for.
const DECISIONS: usize = 64;

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
    /// Recorder: how often the filter was changed, and how far that is; see [`phase`].
    pub selection: AtomicU32,
    /// Functions that the agent decided anew, as the filter was changed meanwhile.
    pub late: AtomicU64,
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
    /// Number of its site, or [`NO_SITE`].
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

impl Entry {
    /// Its name, as bytes.
    pub fn with_name<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        let mut name = [0; NAME];
        let length = (self.name.load(Relaxed) as usize).min(NAME);
        for (byte, place) in name.iter_mut().zip(&self.text) {
            *byte = place.load(Relaxed);
        }
        take(name.get(..length).unwrap_or_default())
    }
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

    /// A new entry, to be filled in and [introduced](Table::introduce), and its index.
    pub fn take(&self) -> Option<(u32, &Entry)> {
        let taken = &self.header.taken;
        let index = taken
            .fetch_update(AcqRel, Relaxed, |index| (index < FUNCTIONS as u32).then_some(index + 1))
            .ok()?;
        let entry = self.entries.get(index as usize)?;
        entry.site.store(NO_SITE, Relaxed);
        Some((index, entry))
    }

    /// Has the entry found from now on. False if there is no bucket for it.
    fn publish(&self, index: u32, entry: &Entry, state: u32) -> bool {
        entry.state.store(state, SeqCst);
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

    /// Has the state of an entry be what the filter says now. One that is selected for the first time gets a site; without one that is left, it stays as it is.
    pub fn decide(&self, entry: &Entry) {
        let before = entry.state.load(SeqCst);
        let is_selected = entry.with_name(|name| self.selects(name));
        let after = match (before, is_selected) {
            (state::UNSELECTED, true) if self.number(entry) => state::ON,
            (state::ON | state::OFF, false) => state::UNSELECTED,
            _ => return,
        };
        let _ = entry.state.compare_exchange(before, after, SeqCst, Relaxed);
    }

    /// Gives an entry a site, if it has none. False if there is none left.
    fn number(&self, entry: &Entry) -> bool {
        if entry.site.load(Acquire) != NO_SITE {
            return true;
        }
        let more = |site| (site < stub::COUNT as u32).then_some(site + 1);
        let next = self.header.next_site.fetch_update(Relaxed, Relaxed, more);
        next.is_ok_and(|site| {
            // The other side may have given it one meanwhile.
            let _ = entry.site.compare_exchange(NO_SITE, site, AcqRel, Acquire);
            true
        })
    }

    /// Agent: decides about an entry whose name is written down, and has it found from now on. False if there is no room.
    ///
    /// Only what may have events takes a site: those in a trace have no gaps.
    pub fn introduce(&self, index: u32, entry: &Entry) -> bool {
        let mut selection = self.header.selection.load(SeqCst);
        let state = match entry.with_name(|name| self.selects(name)) {
            true if self.number(entry) => state::ON,
            true => return false,
            false => state::UNSELECTED,
        };
        if !self.publish(index, entry, state) {
            return false;
        }
        // What was decided while the filter was being written is decided again by the recorder, which sees this entry then.
        for _ in 0..DECISIONS {
            let now = self.header.selection.load(SeqCst);
            if now == selection {
                break;
            }
            selection = now;
            self.decide(entry);
            self.header.late.fetch_add(1, AcqRel);
        }
        true
    }

    /// Recorder: selects by another filter from now on, also among the functions that are known. False if it is too long.
    pub fn select(&self, filter: &[u8]) -> bool {
        let header = &self.header;
        let Some(places) = header.filter.get(..filter.len()) else { return false };
        let change = (header.selection.load(SeqCst) & !phase::MASK).wrapping_add(phase::STEP);
        header.selection.store(change | phase::WRITING, SeqCst);
        header.filter_length.store(0, SeqCst);
        places.iter().zip(filter).for_each(|(place, byte)| place.store(*byte, Relaxed));
        header.filter_length.store(filter.len() as u64, SeqCst);
        header.selection.store(change | phase::APPLYING, SeqCst);
        self.taken().iter().for_each(|entry| self.decide(entry));
        header.selection.store(change | phase::SETTLED, SeqCst);
        true
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
mod tests;
