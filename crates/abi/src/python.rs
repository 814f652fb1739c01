//! Table of called Python functions: the site and the name of each code object.
//!
//! The agent learns of a code object when it is first called. It gives the code object an entry and
//! a site (a stub that no code leads to, whose number identifies it in events), writes down its
//! name, and publishes the entry. The recorder describes the site before it hands over its first
//! event.
//!
//! Entries are never freed. The agent holds a reference to each code object, so its address is not
//! reused.

pub mod arguments;
pub mod evaluators;
pub mod scopes;

use crate::stub;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

/// Maximum number of code objects of a session, forked children included.
pub const FUNCTIONS: usize = 1 << 13;
/// Buckets of the hash, a power of two; half of them stay empty.
pub const BUCKETS: usize = 2 * FUNCTIONS;
/// Maximum number of buckets that are searched for a code object.
const PROBES: usize = 256;
/// Bytes of the filter.
pub const FILTER: usize = 3000;
/// Maximum number of bytes of a function's name.
pub const NAME: usize = 256;
/// Bytes of a name and of a file's path.
pub const TEXT: usize = 476;
/// Bytes of the table.
pub const SIZE: usize = size_of::<Table>();

const _: () = assert!(size_of::<Entry>() == 632);
const _: () = assert!(size_of::<Header>() == 4096);

/// Values of [`crate::Control::python`].
pub mod wanted {
    /// There is no table.
    pub const NEVER: u32 = 0;
    /// Python functions are traced.
    pub const NOW: u32 = 1;
    /// Python functions were traced: the interpreter is to be left alone.
    pub const NO_MORE: u32 = 2;
}

/// Progress of a filter change: the lowest bits of [`Header::selection`]. The bits above count the
/// changes.
pub mod phase {
    /// The change is complete.
    pub const SETTLED: u32 = 0;
    /// The filter is being written.
    pub const WRITING: u32 = 1;
    /// The filter is complete, and is applied to the functions already known.
    pub const APPLYING: u32 = 2;
    /// Bits of the phase.
    pub const MASK: u32 = 3;
    /// Increment of [`Header::selection`](super::Header::selection) for each change.
    pub const STEP: u32 = 4;
}

/// Code object of an entry that is not found any more: a new one has taken its place, as other
/// arguments of the function are read. No object has this address.
const RETIRED: u64 = 1;
/// Site of an entry that was never selected.
pub const NO_SITE: u32 = u32::MAX;
/// Maximum number of changes of the filter for which a function that is being introduced is decided
/// again.
const DECISIONS: usize = 64;

/// Values about a coroutine. The first values of its entries are the address of the coroutine
/// object, and a byte of [`RESUMED`](coroutine::RESUMED) and [`OUTERMOST`](coroutine::OUTERMOST).
pub mod coroutine {
    /// Bytes of a return: two of 0, as the value could be read, and one of the states below.
    pub const RETURN: usize = 2 + 1;
    /// Flag: the coroutine has run before.
    pub const RESUMED: u8 = 1;
    /// Flag: no coroutine or generator resumes it, but for example the event loop.
    pub const OUTERMOST: u8 = 2;
    /// The coroutine has returned.
    pub const RETURNED: u8 = 1;
    /// An exception has left it.
    pub const RAISED: u8 = 2;
    /// The coroutine waits to be resumed.
    pub const WAITS: u8 = 3;
}

/// Values of [`Entry::state`].
pub mod state {
    /// The entry is being filled in.
    pub const FILLING: u32 = 0;
    /// Calls are recorded.
    pub const ON: u32 = 1;
    /// Calls are not recorded, as the recorder has disabled the function.
    pub const OFF: u32 = 2;
    /// Calls are not recorded, as the filter does not select the function.
    pub const UNSELECTED: u32 = 3;
}

/// The agent's knowledge of an interpreter: the program of its evaluator's stub
/// ([`crate::values`]), which the evaluator's hook reads. No hook runs it.
pub mod program {
    use crate::values;

    /// Index of the word with the version: 8 for CPython 3.8, perhaps with [`WAITS`]. The addresses
    /// follow it.
    pub const VERSION: usize = 1;
    /// Flag: the function is not the evaluator, but one that releases the interpreter's lock.
    pub const WAITS: u64 = 1 << 8;

    /// Returns the words of the program, given the version and addresses in the process.
    pub fn words(version: u64, addresses: &[u64]) -> impl Iterator<Item = u64> {
        let first = values::without_steps(2 + addresses.len());
        [first, version].into_iter().chain(addresses.iter().copied())
    }

    /// Index of the address of the current thread state, CPython 3.11.
    pub const CURRENT: usize = VERSION + 1;

    // The following indices are those of functions and objects of the interpreter, from 3.12 on.
    /// Index of `PyThreadState_Get`.
    pub const CURRENT_STATE: usize = VERSION + 1;
    /// Index of `_Py_NoneStruct`.
    pub const NONE: usize = VERSION + 2;
    /// Index of `PySys_GetObject`.
    pub const SYS_OBJECT: usize = VERSION + 3;
    /// Index of `PyObject_CallMethod`.
    pub const CALL_METHOD: usize = VERSION + 4;
    /// Index of `PyCMethod_New`.
    pub const NEW_FUNCTION: usize = VERSION + 5;
    /// Index of `PyObject_GetAttrString`.
    pub const ATTRIBUTE: usize = VERSION + 6;
    /// Index of `PyErr_Clear`.
    pub const CLEAR: usize = VERSION + 7;
    /// Index of `Py_DecRef`.
    pub const RELEASE: usize = VERSION + 8;
    /// Words up to the last of the addresses.
    pub const ADDRESSES: usize = RELEASE + 1;
    /// Symbols of the addresses, in this order.
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

/// Header of the table.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// Number of the session's next site: the recorder's stubs and the agent's Python functions
    /// take theirs from here.
    pub next_site: AtomicU32,
    /// Number of entries taken.
    pub taken: AtomicU32,
    /// Recorder: number of the functions' module in the trace.
    pub module: AtomicU32,
    /// Recorder: the tracers that want the functions, a bit each; 0 until the module has its
    /// number.
    pub tracers: AtomicU32,
    /// Thread states left alone, as they have a profile function of their own.
    pub occupied: AtomicU32,
    /// Thread states left alone, as the interpreter's memory is not as expected.
    pub unknown: AtomicU32,
    /// 1 if the agent was placed without the dynamic linker, and may be unmapped: it must not leave
    /// a pointer to itself.
    pub placed: AtomicU32,
    /// Recorder: how often recording was paused and resumed; odd while no events are wanted.
    pub pauses: AtomicU32,
    /// Calls of functions without an entry.
    pub missed: AtomicU64,
    /// Recorder: the process in which the module is described.
    pub process: AtomicU32,
    /// Recorder: number of filter changes, and the [`phase`] of the last.
    pub selection: AtomicU32,
    /// Functions that the agent decided again, as the filter had changed meanwhile.
    pub late: AtomicU64,
    /// Recorder: whether coroutines are recorded, with what identifies them, even if the filter
    /// does not select them.
    pub coroutines: AtomicU64,
    /// Bytes of the rules in use.
    pub rules_length: AtomicU32,
    /// Recorder: number of changes of the rules, twice; odd while they are being written.
    pub rules_version: AtomicU32,
    /// Rules for arguments ([`arguments`]).
    pub rules: [AtomicU8; arguments::RULES],
    /// Bytes of the filter in use.
    pub filter_length: AtomicU64,
    /// Patterns with `*` and `?`, each followed by a line feed; one that begins with `!` deselects.
    /// The last matching pattern counts.
    pub filter: [AtomicU8; FILTER],
}

/// A code object.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// Address of the code object.
    pub code: AtomicU64,
    /// Index of its process.
    pub process: AtomicU32,
    /// State, a value of [`state`].
    pub state: AtomicU32,
    /// Number of its site, or [`NO_SITE`].
    pub site: AtomicU32,
    /// First line of the function.
    pub line: AtomicU32,
    /// Bytes of the name (module and qualified name) at the beginning of `text`.
    pub name: AtomicU32,
    /// Bytes of the file's path behind the name.
    pub file: AtomicU32,
    /// 1 if it is the code of a coroutine.
    pub is_coroutine: AtomicU32,
    /// Name and path, in UTF-8.
    pub text: [AtomicU8; TEXT],
    /// Number of arguments that entries carry.
    pub arguments: AtomicU32,
    /// Bytes of their names.
    pub names_length: AtomicU32,
    /// Numbers of the parameters, in their order.
    pub locals: [AtomicU8; 8],
    /// Names of the arguments in UTF-8, with a comma behind each.
    pub names: [AtomicU8; arguments::NAMES],
}

impl Entry {
    /// Makes the function unknown again: its next call takes a new entry.
    pub fn retire(&self) {
        self.code.store(RETIRED, Release);
    }

    /// Whether another entry has taken the place of this one.
    pub fn is_retired(&self) -> bool {
        self.code.load(Acquire) == RETIRED
    }

    /// Passes the function's name, as bytes, to `take`.
    pub fn with_name<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        let mut name = [0; NAME];
        let length = (self.name.load(Relaxed) as usize).min(NAME);
        for (byte, place) in name.iter_mut().zip(&self.text) {
            *byte = place.load(Relaxed);
        }
        take(name.get(..length).unwrap_or_default())
    }
}

/// The table.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// Header.
    pub header: Header,
    /// Indices of entries plus one, by the hash of code object and process; 0 if empty.
    pub buckets: [AtomicU32; BUCKETS],
    /// Agent: the entries that say how a code object is named, up to CPython 3.10.
    pub scopes: scopes::Scopes,
    /// The entries.
    pub entries: [Entry; FUNCTIONS],
}

/// Returns the first bucket of a code object.
fn hash(code: u64, process: u32) -> usize {
    let mixed = (code >> 4 ^ u64::from(process) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - BUCKETS.ilog2())) as usize
}

impl Table {
    fn probes(&self, code: u64, process: u32) -> impl Iterator<Item = &AtomicU32> {
        let first = hash(code, process);
        (first..first + PROBES).filter_map(|at| self.buckets.get(at % BUCKETS))
    }

    /// Returns the entry of a code object of a process.
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

    /// Takes a new entry, to be filled in and [introduced](Table::introduce). Returns its index,
    /// too.
    pub fn take(&self) -> Option<(u32, &Entry)> {
        let taken = &self.header.taken;
        let index = taken
            .fetch_update(AcqRel, Relaxed, |index| (index < FUNCTIONS as u32).then_some(index + 1))
            .ok()?;
        let entry = self.entries.get(index as usize)?;
        entry.site.store(NO_SITE, Relaxed);
        Some((index, entry))
    }

    /// Makes the entry visible to [`Table::find`]. False if there is no bucket for it.
    fn publish(&self, index: u32, entry: &Entry, state: u32) -> bool {
        entry.state.store(state, SeqCst);
        let (code, process) = (entry.code.load(Relaxed), entry.process.load(Relaxed));
        self.probes(code, process)
            .any(|bucket| bucket.compare_exchange(0, index + 1, AcqRel, Relaxed).is_ok())
    }

    /// Number of the functions' module in the trace, once it has one.
    pub fn module(&self) -> Option<u32> {
        let is_numbered = self.header.tracers.load(Acquire) != 0;
        is_numbered.then(|| self.header.module.load(Relaxed))
    }

    /// Returns the entries taken so far.
    pub fn taken(&self) -> &[Entry] {
        let taken = (self.header.taken.load(Acquire) as usize).min(FUNCTIONS);
        self.entries.get(..taken).unwrap_or_default()
    }

    /// Updates the state of an entry by the filter. An entry that is selected for the first time
    /// gets a site; if none is left, its state stays.
    pub fn decide(&self, entry: &Entry) {
        let before = entry.state.load(SeqCst);
        let is_selected = self.wants(entry);
        let after = match (before, is_selected) {
            (state::UNSELECTED, true) if self.number(entry) => state::ON,
            (state::ON | state::OFF, false) => state::UNSELECTED,
            _ => return,
        };
        let _ = entry.state.compare_exchange(before, after, SeqCst, Relaxed);
    }

    /// Gives an entry a site, if it has none. False if none is left.
    fn number(&self, entry: &Entry) -> bool {
        if entry.site.load(Acquire) != NO_SITE {
            return true;
        }
        let more = |site| (site < stub::COUNT as u32).then_some(site + 1);
        let next = self.header.next_site.fetch_update(Relaxed, Relaxed, more);
        next.is_ok_and(|site| {
            // The other side may have given it a site meanwhile.
            let _ = entry.site.compare_exchange(NO_SITE, site, AcqRel, Acquire);
            true
        })
    }

    /// Agent: decides about an entry whose name is written down, and publishes it. False if there
    /// is no room.
    ///
    /// Only an entry that may have events takes a site, as the sites of a trace have no gaps.
    pub fn introduce(&self, index: u32, entry: &Entry) -> bool {
        let mut selection = self.header.selection.load(SeqCst);
        let state = match self.wants(entry) {
            true if self.number(entry) => state::ON,
            true => return false,
            false => state::UNSELECTED,
        };
        if !self.publish(index, entry, state) {
            return false;
        }
        // While the filter is being written, this decision may be wrong. The recorder then decides
        // again, as it sees this entry.
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

    /// Recorder: selects by another filter from now on, also among the known functions. False if it
    /// is too long.
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

    /// Recorder: pauses or resumes recording.
    pub fn pause(&self, paused: bool) {
        if self.is_paused() != paused {
            self.header.pauses.fetch_add(1, AcqRel);
        }
    }

    /// Whether no events are wanted.
    pub fn is_paused(&self) -> bool {
        !self.header.pauses.load(Acquire).is_multiple_of(2)
    }

    /// Returns a number that changes whenever the interpreter's hooks may have been gone meanwhile.
    pub fn hooked_since(&self) -> u32 {
        let selections = self.header.selection.load(Acquire) / phase::STEP;
        selections.wrapping_add(self.header.pauses.load(Acquire))
    }

    /// Whether calls of a coroutine are recorded with what identifies it.
    pub fn identifies(&self, entry: &Entry) -> bool {
        self.header.coroutines.load(Relaxed) != 0 && entry.is_coroutine.load(Relaxed) != 0
    }

    /// Whether calls of a function are recorded.
    fn wants(&self, entry: &Entry) -> bool {
        self.identifies(entry) || entry.with_name(|name| self.selects(name))
    }

    /// Whether the filter selects a function of this name. Without a filter, it selects all.
    pub fn selects(&self, name: &[u8]) -> bool {
        let length = (self.header.filter_length.load(Acquire) as usize).min(FILTER);
        let filter = self.header.filter.get(..length).unwrap_or_default();
        let mut selected = filter.first().is_none_or(|first| first.load(Relaxed) == b'!');
        for pattern in filter.split(|byte| byte.load(Relaxed) == b'\n') {
            let takes_away = pattern.first().is_some_and(|first| first.load(Relaxed) == b'!');
            let pattern = pattern.get(usize::from(takes_away)..).unwrap_or_default();
            if !pattern.is_empty() && is_named(&|at| pattern.get(at).map(|byte| byte.load(Relaxed)), name) {
                selected = !takes_away;
            }
        }
        selected
    }
}

/// Whether a pattern matches a name, or what follows one of its dots: `Item.get` names that method
/// in every module.
fn is_named(pattern: &impl Fn(usize) -> Option<u8>, name: &[u8]) -> bool {
    let mut parts = name.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(dot, _)| dot + 1);
    matches(pattern, name) || parts.any(|part| name.get(part..).is_some_and(|part| matches(pattern, part)))
}

/// Whether a pattern matches a whole name. `*` matches any bytes, `?` one. Takes at most pattern x
/// name steps.
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
