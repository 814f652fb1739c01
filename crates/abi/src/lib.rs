//! The shared memory between the agent (inside the traced program) and the recorder.
//!
//! Both sides compile this crate, so a layout exists once. Every field that both sides touch is an
//! atomic: any bytes are a valid value of every type here, and neither side trusts what the other
//! wrote.
//!
//! ```text
//! <session directory>/           0700, one per recording, on a file system that allows execution
//!   agent.so                     the agent, as ld.so loads it
//!   control                      Control | ProcessEntry[] | ThreadEntry[] | waits | plan area | first calls | breakpoints | values | chunks
//!   code                         stubs (REGION) | near veneers (VENEERS); written by the recorder, mapped r-x by the agent: each part as a
//!                                whole, and pieces of the veneers near modules once more
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

pub mod event;
pub mod first_calls;
pub mod frames;
pub mod isa;
pub mod nonlocal;
pub mod overwrite;
pub mod plan;
pub mod profile;
pub mod python;
pub mod remote;
pub mod silence;
mod sizes;
pub mod stub;
pub mod traps;
mod tsc_line;
pub mod values;
pub mod waits;

pub use sizes::{CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, PAGE, USER_END};
pub use tsc_line::TscLine;

/// First word of the control file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"calltap\0");
/// Version of the layouts. Every change of a layout in this crate, or of the journal's, raises it.
pub const VERSION: u32 = 34;

/// Maximum number of bytes of a path passed between the two sides.
pub const PATH_MAX: usize = 256;

/// Offset from the thread pointer (fs base) of a word in a thread's control block that no thread
/// library on x86-64 uses.
pub const SYSINFO: u64 = 0x20;

/// Maximum number of processes of a session: the program, its forked children, and programs that
/// they run when followed.
pub const PROCESS_MAX: usize = 4096;
/// Maximum number of threads of a session that are alive or not yet drained.
pub const THREAD_MAX: usize = 32768;
/// Maximum number of pieces of shadow stack that a process may have: as many stacks as a session
/// may have threads, and as many of coroutines. Calls on further stacks are not recorded.
pub const SHADOWS: usize = 2 * THREAD_MAX;
/// Offset of the process table in the control file.
pub const PROCESSES_AT: usize = 0x1000;
/// Offset of the thread table.
pub const THREADS_AT: usize = PROCESSES_AT + PROCESS_MAX * size_of::<ProcessEntry>();
/// Offset of the [waits for the recorder](waits).
pub const WAITS_AT: usize = THREADS_AT + THREAD_MAX * size_of::<ThreadEntry>();
/// Offset of the plan area.
pub const PLAN_AT: usize = WAITS_AT + waits::SIZE;
/// Bytes of the plan area (sparse).
pub const PLAN_SIZE: usize = 64 << 20;
/// Offset of the [calls that are recorded when first made](first_calls) (sparse: only recorded
/// calls take memory).
pub const FIRST_CALLS_AT: usize = (PLAN_AT + PLAN_SIZE).next_multiple_of(PAGE as usize);
/// Offset of the lists of [sites that may be breakpoints](traps) (sparse).
pub const TRAPS_AT: usize = (FIRST_CALLS_AT + first_calls::SIZE).next_multiple_of(PAGE as usize);
/// Offset of the programs that read [`values`] (sparse).
pub const PROGRAMS_AT: usize = (TRAPS_AT + traps::SIZE).next_multiple_of(PAGE as usize);
/// Offset of the table of programs by stub.
pub const TABLE_AT: usize = PROGRAMS_AT + values::PROGRAMS_SIZE;
/// Offset of the table of [Python functions](python) (sparse).
pub const PYTHON_AT: usize = (TABLE_AT + values::TABLE_SIZE).next_multiple_of(PAGE as usize);
/// Offset of the first chunk; a multiple of [`CHUNK_SIZE`].
pub const CHUNKS_AT: usize = (PYTHON_AT + python::SIZE).next_multiple_of(CHUNK_SIZE);

const _: () = assert!(size_of::<Control>() <= PROCESSES_AT);
const _: () = assert!(size_of::<ProcessEntry>() == 744);
const _: () = assert!(size_of::<ThreadEntry>() == 128);
const _: () = assert!(size_of::<ChunkHeader>() == CHUNK_DATA);

/// Source of the events' time ([`Control::clock`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Clock {
    /// rdtsc at every event.
    Tsc = 0,
    /// rdtsc once per 64-byte block of 4-byte events.
    Sparse = 1,
    /// [`Control::tick`], kept by the recorder.
    Coarse = 2,
    /// [`Control::counter`], raised at every event.
    Counter = 3,
}

/// First page of the control file.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// A [`Clock`].
    pub clock: AtomicU32,
    /// 1 while events are recorded. The agent clears it when the recorder is gone, or stopped for
    /// too long.
    pub recording: AtomicU32,
    /// 1: a thread that finds no free chunk reuses its own oldest (flight recorder).
    pub overwrite: AtomicU32,
    /// Longest time, in microseconds, that a full buffer may hold up a thread while the recorder
    /// works. 0 while attached to a process.
    pub wait_us: AtomicU32,
    /// Raised many times a second by a thread of the recorder. If it stands still, the recorder is
    /// stopped or dead.
    pub heartbeat: AtomicU64,
    /// Futex: raised by the agent when a process has a request.
    pub doorbell: AtomicU32,
    /// Futex: raised by the recorder when it has returned chunks.
    pub chunks_returned: AtomicU32,
    /// Chunks that may be used now, as their memory is allocated and no access can fail. The
    /// recorder raises it.
    pub chunk_count: AtomicU32,
    /// Chunks taken so far; those behind were never touched.
    pub chunk_bump: AtomicU32,
    /// Thread entries taken so far.
    pub thread_bump: AtomicU32,
    /// Process entries taken so far.
    pub process_bump: AtomicU32,
    /// Entries and exits lost by threads without an entry in the thread table.
    pub lost_unregistered: AtomicU64,
    /// Calls of Go functions that are not recorded, as the goroutine's stack had no room for a
    /// hook.
    pub lost_without_room: AtomicU64,
    /// Maximum number of chunks that may ever be used: those that fit into the control file. An
    /// agent that can map fewer lowers it.
    pub chunk_max: AtomicU32,
    /// 1 if the process locks its memory, so that new mappings are populated as a whole.
    pub locked: AtomicU32,
    /// Agent: [`Control::chunks_returned`] when a thread had waited in vain, plus one. No thread
    /// waits again until the recorder returns a chunk.
    pub in_vain: AtomicU32,
    /// Processes that run untraced, as their agent could not map its memory.
    pub unmapped: AtomicU32,
    /// Overwrite mode: number of untouched chunks reserved for threads with fewer than two. A
    /// thread with one cannot keep its newest events.
    pub reserved: AtomicU32,
    /// Agent: chunks taken from the list [`Control::chunk_spare`] so far.
    pub spares_taken: AtomicU32,
    #[doc(hidden)]
    pub _pad0: [AtomicU32; 4],
    /// Head of the list of free chunks, see [`Tagged`].
    pub chunk_free: AtomicU64,
    /// Head of the list of free chunks for signal handlers, which must not wait for one.
    pub chunk_spare: AtomicU64,
    #[doc(hidden)]
    pub _pad1: [AtomicU64; 3],
    /// Head of the list of free thread entries, see [`Tagged`].
    pub thread_free: AtomicU64,
    #[doc(hidden)]
    pub _pad2: [AtomicU64; 7],
    /// [`Clock::Coarse`]: nanoseconds of CLOCK_MONOTONIC.
    pub tick: AtomicU64,
    #[doc(hidden)]
    pub _pad3: [AtomicU64; 7],
    /// [`Clock::Counter`].
    pub counter: AtomicU64,
    #[doc(hidden)]
    pub _pad4: [AtomicU64; 7],
    /// Offset of a thread's id from its thread pointer in the thread library. The recorder fills it
    /// in for an agent without a thread-local variable.
    pub owner_word: AtomicU64,
    /// 1 while a recorder answers questions about modules. The agent clears it when it has asked in
    /// vain.
    pub listening: AtomicU32,
    /// Agent: the heartbeat when a thread last looked at it with full rings.
    pub last_beat: AtomicU64,
    /// Agent: time when that heartbeat was first seen (CLOCK_MONOTONIC, nanoseconds).
    pub last_beat_ns: AtomicU64,
    /// Calls that the profile tracer could not count, for lack of a chunk.
    pub lost_profile: AtomicU64,
    /// State of the recording of [first calls](first_calls).
    pub first_calls: first_calls::Counters,
    /// Word of the lists of [sites that may be breakpoints](traps::Traps::word).
    pub traps: AtomicU64,
    /// Whether the agent handles those breakpoints: one of [`traps::answer`].
    pub trap_answer: AtomicU32,
    /// Number of [programs](values) written so far.
    pub programs: AtomicU32,
    /// 1 if a seccomp filter forbids the system call with which programs read memory.
    pub unreadable: AtomicU32,
    /// 1 if a seccomp filter forbids to ask whether a thread may read the time stamp counter.
    pub unasked: AtomicU32,
    /// 1 if no thread of the process that the recorder attached to had a seccomp filter then.
    pub unfiltered: AtomicU32,
    /// Address of the program headers (AT_PHDR) of a process that the recorder attaches to; 0 if
    /// not given. The agent may be unable to read its own `/proc`: a process that changed its user
    /// is not dumpable, and a chroot may have none.
    pub headers: AtomicU64,
    /// Number of these headers (AT_PHNUM).
    pub header_count: AtomicU64,
    /// Inode of that process's pid namespace; 0 if not given.
    pub pid_namespace: AtomicU64,
    /// Whether Python functions are traced, one of [`python::wanted`]. Unless it is 0, the
    /// [table](python) exists.
    pub python: AtomicU32,
    /// The time stamp counter as a function of a clock, for threads that may not read the counter.
    pub tsc_line: TscLine,
    /// Number of [`waits`] for the recorder that have begun.
    pub waits: AtomicU32,
    /// Path of the agent in the session directory as the traced process sees it, ending with a 0.
    pub agent_path: [AtomicU8; PATH_MAX],
}

impl Clock {
    /// Whether events have the time stamp counter.
    pub fn reads_tsc(self) -> bool {
        matches!(self, Clock::Tsc | Clock::Sparse)
    }
}

impl Control {
    /// Whether events of the session have the time stamp counter.
    pub fn reads_tsc(&self) -> bool {
        let clock = self.clock.load(Relaxed);
        [Clock::Tsc, Clock::Sparse].iter().any(|reading| *reading as u32 == clock)
    }
}

/// [`ProcessEntry::forked_by`] if the parent's thread had recorded no event.
pub const NO_EVENTS: u32 = u32::MAX;

/// A traced process.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ProcessEntry {
    /// Process id; 0 while the entry is filled in.
    pub pid: AtomicU32,
    /// Index of the process that forked it, plus one.
    pub parent: AtomicU32,
    /// Inode of its pid namespace. If the recorder's differs, thread ids cannot be looked up.
    pub pid_namespace: AtomicU64,
    /// A [`plan::Phase`]; futex.
    pub phase: AtomicU32,
    /// A [`plan::Sync`].
    pub sync: AtomicU32,
    /// Reasons why the agent could not do something: [`plan::Trouble`].
    pub trouble: AtomicU32,
    /// Raised by the recorder while it changes code that may be running: the dynamic linker unmaps
    /// nothing meanwhile.
    pub writing: AtomicU32,
    /// Raised by the agent while the dynamic linker unmaps a module: the recorder writes nothing
    /// meanwhile.
    pub unloading: AtomicU32,
    /// Of a forked process: the thread of its parent that forked, as index of its entry plus one; 0
    /// if unknown; [`NO_EVENTS`] if it had recorded none.
    pub forked_by: AtomicU32,
    /// [Number](ChunkHeader::number) of that thread's newest chunk at the fork.
    pub forked_number: AtomicU32,
    /// Index of that chunk.
    pub forked_chunk: AtomicU32,
    /// Offset of the thread's newest event in that chunk, in bytes.
    pub forked_offset: AtomicU32,
    #[doc(hidden)]
    pub _pad0: AtomicU32,
    /// Addresses of the agent in the process.
    pub image: Image,
}

/// Addresses of the agent, and of what it has found, in a process. A forked child inherits those of
/// its parent; a program that is followed through execve has its own.
#[derive(Debug)]
#[repr(C)]
pub struct Image {
    /// Address of the stub region.
    pub stubs: AtomicU64,
    /// Addresses of the hooks for the session's clock, by [`stub::entry_hook`] and
    /// [`stub::exit_hook`].
    pub hooks: [AtomicU64; stub::HOOK_COUNT],
    /// Address of the dynamic linker's empty function that is called when its list of objects
    /// changes; 0 if there is none.
    pub loader_brk: AtomicU64,
    /// Target of the jump that replaces that function.
    pub loader_hook: AtomicU64,
    /// Offset of a thread's pointer to its state from its thread pointer (fs base).
    pub thread_word: AtomicU64,
    /// Address of the hook that replaces the profiling function and [records](first_calls) its
    /// calls.
    pub first_hook: AtomicU64,
}

impl Default for Image {
    fn default() -> Image {
        let [stubs, loader_brk, loader_hook, thread_word, first_hook] = Default::default();
        let hooks = [const { AtomicU64::new(0) }; stub::HOOK_COUNT];
        Image { stubs, hooks, loader_brk, loader_hook, thread_word, first_hook }
    }
}

impl Image {
    /// Returns all words.
    pub fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let Image { stubs, hooks, loader_brk, loader_hook, thread_word, first_hook } = self;
        [stubs].into_iter().chain(hooks).chain([loader_brk, loader_hook, thread_word, first_hook])
    }
}

/// A traced thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ThreadEntry {
    /// A [`ThreadState`].
    pub state: AtomicU32,
    /// Index in the process table.
    pub process: AtomicU32,
    /// Kernel thread id, in the process's pid namespace.
    pub tid: AtomicU32,
    /// First chunk, plus one; [`ChunkHeader::next`] leads to the others.
    pub first_chunk: AtomicU32,
    /// Function entries that happened and are in no chunk.
    pub lost_entries: AtomicU64,
    /// Function exits that happened and are in no chunk.
    pub lost_exits: AtomicU64,
    /// Link in the list of free entries: index plus one.
    pub next_free: AtomicU32,
    /// Number of chunks of this thread (overwrite mode).
    pub chunks: AtomicU32,
    /// Name of the thread when it registered, up to 16 bytes, padded with zeros. The thread may
    /// have ended when the recorder needs its name.
    pub name: [AtomicU64; 2],
    /// First chunk of [profile records](profile), plus one; [`ChunkHeader::next`] leads to the
    /// others.
    pub first_profile: AtomicU32,
    /// Counter that the thread raises before and after it clears its oldest chunk for reuse
    /// (overwrite mode): odd meanwhile.
    pub reuses: AtomicU32,
    /// Address of the thread's control block, where a C library has made the thread: its first
    /// stack lies below.
    pub block: AtomicU64,
    /// Number of lost events after which calls end without returns of their own: nonlocal exits,
    /// and entries by jumps, which are also in [`ThreadEntry::lost_entries`]. Not counted where
    /// events are overwritten.
    pub lost_jumps: AtomicU64,
}

/// State of a [`ThreadEntry`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ThreadState {
    /// Unused.
    Free = 0,
    /// A thread writes to it.
    Live = 1,
}

/// First 64 bytes of a chunk.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ChunkHeader {
    /// Next chunk of the thread or of the free list: index plus one, 0 for none.
    pub next: AtomicU32,
    /// Index of this chunk among the [profile records](profile) of its thread.
    pub part: AtomicU32,
    /// [`ThreadEntry::lost_entries`] when the chunk was linked: the difference to the previous
    /// chunk was lost between the two.
    pub lost_entries: AtomicU64,
    /// [`ThreadEntry::lost_exits`] when the chunk was linked.
    pub lost_exits: AtomicU64,
    /// [`ThreadEntry::lost_jumps`] when the chunk was linked.
    pub lost_jumps: AtomicU64,
    /// Number of this chunk among the event chunks of its thread, from 1 on.
    pub number: AtomicU32,
    #[doc(hidden)]
    pub _pad: [AtomicU32; 7],
}

/// Head of a lock-free list: an index plus one, and a tag that changes with every pop, so that a
/// stale compare-exchange fails (the ABA problem).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged(pub u64);

impl Tagged {
    /// Returns the index of the first element.
    pub fn index(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    /// Returns the head after a change that makes `link` (index plus one) the first element.
    pub fn with(self, link: u32) -> Tagged {
        Tagged((self.0 >> 32).wrapping_add(1) << 32 | u64::from(link))
    }
}

/// Puts an element on a lock-free list. `link`: the element's link.
pub fn push(head: &AtomicU64, index: u32, link: &AtomicU32) {
    let mut seen = Tagged(head.load(Relaxed));
    loop {
        link.store(seen.0 as u32, Relaxed);
        match head.compare_exchange_weak(seen.0, seen.with(index + 1).0, AcqRel, Relaxed) {
            Ok(_) => return,
            Err(found) => seen = Tagged(found),
        }
    }
}

/// Takes the first element off a lock-free list. `next` reads an element's link.
pub fn pop(head: &AtomicU64, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let mut seen = Tagged(head.load(Acquire));
    loop {
        let index = seen.index()?;
        // The link is stale if another thread takes this element now; the tag then makes the
        // exchange fail.
        let new = seen.with(next(index)?);
        match head.compare_exchange_weak(seen.0, new.0, AcqRel, Acquire) {
            Ok(_) => return Some(index),
            Err(found) => seen = Tagged(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_last_in_first_out() {
        let (head, links) = (AtomicU64::new(0), [const { AtomicU32::new(0) }; 3]);
        let take = || pop(&head, |index| links.get(index as usize).map(|link| link.load(Relaxed)));
        assert_eq!(take(), None);
        for index in [0, 2, 1] {
            push(&head, index, &links[index as usize]);
        }
        assert_eq!([take(), take(), take(), take()], [Some(1), Some(2), Some(0), None]);
    }

    #[test]
    fn a_change_in_between_makes_a_stale_exchange_fail() {
        let head = Tagged(7);
        assert_ne!(head.with(7), head, "the same first element, another tag");
    }
}
