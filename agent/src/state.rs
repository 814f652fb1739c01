//! The agent's state: about the session (once per process), and about each thread.
//!
//! Uses `unsafe` because raw addresses of mapped memory become references here. They stay valid as
//! long as any code can hold one: the session's memory is unmapped only when no thread is inside a
//! hook, and no code leads to one any more.

use crate::sys;
#[cfg(doc)]
use calltap_abi::event;
use calltap_abi::first_calls::{self, FirstCalls};
use calltap_abi::python;
use calltap_abi::traps::{self, Traps};
use calltap_abi::values::{self, Program};
use calltap_abi::waits::{self, Wait};
use calltap_abi::{
    CHUNK_DATA, CHUNK_LIMIT, CHUNK_SIZE, CHUNKS_AT, ChunkHeader, Control, PLAN_AT, PROCESS_MAX, PROCESSES_AT,
    PYTHON_AT,
};
use calltap_abi::{
    FIRST_CALLS_AT, PROGRAMS_AT, ProcessEntry, TABLE_AT, THREAD_MAX, THREADS_AT, TRAPS_AT, ThreadEntry,
    WAITS_AT, stub,
};
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Address of the control mapping; 0 until the session is joined.
pub static CONTROL: AtomicUsize = AtomicUsize::new(0);
/// Number of chunks that this process has mapped.
pub static CHUNKS: AtomicU32 = AtomicU32::new(0);
/// Address of the stub region.
pub static STUBS: AtomicUsize = AtomicUsize::new(0);
/// Address of the private memory described by [`Private`].
pub static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// Memory that the kernel replaces by zeros in a forked child (MADV_WIPEONFORK): a child finds at
/// its first event that it is a child, and never writes to its parent's rings. A vfork child shares
/// the memory with its parent, as it shares the stack.
#[repr(C)]
pub struct Private {
    /// Index of the process plus one; 0 in a forked child that has not registered yet.
    pub process: AtomicU32,
    /// Ids of the threads that map pieces of the shadow stack, by the number of the piece.
    pub mappers: [AtomicU32; 63],
    /// States of threads, by index of the thread entry.
    pub threads: [Thread; THREAD_MAX],
    /// Stacks for Rust code that is called from a small stack.
    pub stacks: Stacks,
    /// The part that a forked child inherits, behind all that is wiped.
    pub kept: InheritedMemory,
}

/// Memory that the kernel does not wipe: a forked child finds its parent's last values there.
#[repr(C, align(4096))]
pub struct InheritedMemory {
    /// Newest events of threads, by index of the thread entry.
    pub newest: [Newest; THREAD_MAX],
}

/// The position of a thread's recording. In a forked child, that of the forking thread: all events
/// up to it precede the fork.
#[repr(C, align(64))]
pub struct Newest {
    /// Address of its newest event; outside a chunk's data if that event was lost. 0: not known.
    pub event: AtomicU64,
    /// Pointer to the thread's control block.
    pub thread_pointer: AtomicU64,
    /// Number of chunks that the thread has had.
    pub chunks: AtomicU32,
    _pad: [AtomicU32; size_of::<Thread>() / 4 - 5],
}

// The hooks compute the address of one from the other.
const _: () = assert!(size_of::<Newest>() == size_of::<Thread>());

/// Distance from a thread's [`Thread`] to its [`Newest`], in bytes.
pub const TO_NEWEST: usize = offset_of!(Private, kept) - offset_of!(Private, threads);

/// Stacks for threads whose own is too small, each for the time of one call with all signals
/// blocked.
#[repr(C, align(4096))]
pub struct Stacks {
    /// Whether each stack is in use. A thread that finds none free waits: each is taken for a
    /// moment only.
    pub used: [AtomicU8; STACKS],
    _pad: [AtomicU8; 4096 - STACKS],
    /// The stacks, each growing down.
    pub memory: [[AtomicU64; STACK_SIZE / 8]; STACKS],
}

/// Number of stacks (a power of two).
pub const STACKS: usize = 256;
/// Size of a stack in bytes.
pub const STACK_SIZE: usize = 16 << 10;

/// The ring writer of a thread. Only the thread itself, and its signal handlers, write here.
#[repr(C, align(64))]
pub struct Thread {
    /// Address of the next event. A single `xadd` moves it, which makes events safe from signal
    /// handlers.
    pub cursor: AtomicU64,
    /// The clock at the last EPOCH word, without its [`event::CLOCK_BITS`] lower bits.
    pub epoch: AtomicU64,
    /// The lowest slot that an event may name by its low bits, see the STACK word; [`NOWHERE`] if
    /// none may.
    pub window: AtomicU64,
    /// The `g` of the last GOROUTINE words; 0 if later events may not rely on them.
    pub g: AtomicU64,
    /// Number of that goroutine.
    pub goroutine: AtomicU64,
    /// Set while this thread rearranges its chunks in overwrite mode.
    pub busy: AtomicU32,
    /// Index of the thread entry plus one; 0 before registration and in a forked child.
    pub entry: AtomicU32,
    /// While the thread waits for a chunk: the latest end of the wait, in milliseconds of
    /// CLOCK_MONOTONIC, made odd. 0 otherwise.
    pub waiting: AtomicU32,
    /// [`python::Table::hooked_since`] when the first of `evaluators` was noted.
    pub hooked_since: AtomicU32,
    /// Signals blocked when the thread registered.
    pub blocked: AtomicU64,
    /// Thread id of the owner, see [the thread's word](crate::word).
    pub owner: AtomicU32,
    /// Address of its [table of profile chunks](crate::profile); 0 while it has none.
    pub profiles: AtomicU64,
    /// The frame of a coroutine whose entry the interpreter does not report; 0 if there is none.
    pub frame: AtomicU64,
    /// The evaluators in which it runs Python functions.
    pub evaluators: python::evaluators::Evaluators,
}

/// Value of [`Thread::window`] before the first STACK word; user addresses are below it.
pub const NOWHERE: u64 = 1 << 63;

/// Cursor of a thread without a chunk: in no chunk, and where every event finds no room.
pub const PARKED: u64 = CHUNK_LIMIT as u64;

/// Index plus one of the process before a fork, for a forked child to name its parent.
pub static PROCESS_BEFORE_FORK: AtomicU32 = AtomicU32::new(0);

/// A session that was joined.
#[derive(Clone, Copy)]
pub struct Session(usize);

impl Session {
    /// Reads memory by a system call, which fails where memory is missing: a pointer is the
    /// program's, and may lead anywhere. Fails where a filter forbids the call.
    pub fn read_memory(self, address: u64, bytes: &mut [u8]) -> bool {
        self.control().unreadable.load(Relaxed) == 0 && sys::read_memory(address, bytes)
    }

    /// Returns the session, once [`join`] was called.
    pub fn get() -> Option<Session> {
        match CONTROL.load(Acquire) {
            0 => None,
            base => Some(Session(base)),
        }
    }

    /// Returns the control block.
    pub fn control(self) -> &'static Control {
        // SAFETY: the control file is mapped at this address for ever, starts with a Control, and
        // any bytes are a valid Control.
        unsafe { &*(self.0 as *const Control) }
    }

    /// Returns a process entry.
    pub fn process(self, index: u32) -> Option<&'static ProcessEntry> {
        let index = index as usize;
        // SAFETY: as above; the table has PROCESS_MAX entries.
        (index < PROCESS_MAX)
            .then(|| unsafe { &*((self.0 + PROCESSES_AT) as *const ProcessEntry).add(index) })
    }

    /// Returns a thread entry.
    pub fn thread_entry(self, index: u32) -> Option<&'static ThreadEntry> {
        let index = index as usize;
        // SAFETY: as above; the table has THREAD_MAX entries.
        (index < THREAD_MAX).then(|| unsafe { &*((self.0 + THREADS_AT) as *const ThreadEntry).add(index) })
    }

    /// Returns the table of waits for the recorder.
    pub fn waits(self) -> &'static [Wait; waits::COUNT] {
        // SAFETY: as above; the ring lies there, and any bytes are valid.
        unsafe { &*((self.0 + WAITS_AT) as *const [Wait; waits::COUNT]) }
    }

    /// Returns the tables in which first calls are recorded.
    pub fn first_calls(self) -> FirstCalls<'static> {
        // SAFETY: as above; the tables lie there, and any bytes are valid. Unallocated memory is
        // not touched: a bucket is read only where the profiling function leads to the agent, and
        // is allocated before; a record only if the controller has provided it, or a bucket names
        // it.
        let (buckets, records) = unsafe {
            let buckets = (self.0 + FIRST_CALLS_AT) as *const [AtomicU32; first_calls::BUCKETS];
            let records = (self.0 + FIRST_CALLS_AT + first_calls::BUCKETS_SIZE)
                as *const [first_calls::Record; first_calls::RECORDS];
            (&*buckets, &*records)
        };
        FirstCalls { counters: &self.control().first_calls, buckets, records }
    }

    /// Returns the program for reading values of a stub's calls, given an address in the stub.
    pub fn program_of(self, stub: u64) -> Option<&'static Program> {
        let stub = (stub as usize).wrapping_sub(STUBS.load(Relaxed)) / stub::SIZE;
        // SAFETY: the control file is mapped at this address for ever, and has that table; any
        // bytes are valid.
        let table = unsafe { &*((self.0 + TABLE_AT) as *const [AtomicU32; stub::COUNT]) };
        let number = table.get(stub)?.load(Relaxed);
        // Unallocated memory is not touched: the controller allocates the table and the program
        // before it makes such a stub.
        let is_known =
            (1..self.control().programs.load(Relaxed).min(values::PROGRAMS as u32)).contains(&number);
        // SAFETY: as above; there are PROGRAMS of them.
        is_known.then(|| unsafe { &*((self.0 + PROGRAMS_AT) as *const Program).add(number as usize) })
    }

    /// Whether Python functions are traced now.
    pub fn traces_python(self) -> bool {
        self.control().python.load(Relaxed) == python::wanted::NOW
    }

    /// Returns the table of Python functions.
    pub fn python(self) -> &'static python::Table {
        // SAFETY: as above; any bytes are a valid table. Unallocated memory is not touched: the
        // controller allocates the table before it sets `Control::python`.
        unsafe { &*((self.0 + PYTHON_AT) as *const python::Table) }
    }

    /// Returns the sites that may be breakpoints.
    pub fn traps(self) -> Traps<'static> {
        // SAFETY: as above. Unallocated memory is not touched: the controller allocates the list
        // that the word names.
        let lists =
            [0, traps::LIST].map(|offset| unsafe { &*((self.0 + TRAPS_AT + offset) as *const traps::List) });
        Traps { word: &self.control().traps, lists }
    }

    /// Returns the address of the plan area.
    pub fn plan_area(self) -> usize {
        self.0 + PLAN_AT
    }

    /// Returns the address of a chunk.
    pub fn chunk(self, index: u32) -> Option<usize> {
        (index < CHUNKS.load(Relaxed)).then(|| self.0 + CHUNKS_AT + index as usize * CHUNK_SIZE)
    }

    /// Returns the header of a chunk.
    pub fn chunk_header(self, index: u32) -> Option<&'static ChunkHeader> {
        // SAFETY: `chunk` returned an address inside the mapping, where any bytes are a valid
        // header.
        self.chunk(index).map(|address| unsafe { &*(address as *const ChunkHeader) })
    }

    /// Returns a chunk as 8-byte words, header included.
    pub fn chunk_words(self, index: u32) -> Option<&'static [AtomicU64; CHUNK_SIZE / 8]> {
        // SAFETY: as above; a chunk is mapped for ever, and aligned to its size.
        self.chunk(index).map(|address| unsafe { &*(address as *const [AtomicU64; CHUNK_SIZE / 8]) })
    }

    /// Returns the index of the chunk in which an address lies.
    pub fn chunk_index(self, address: u64) -> Option<u32> {
        let offset = (address as usize).checked_sub(self.0 + CHUNKS_AT)?;
        let index = u32::try_from(offset / CHUNK_SIZE).ok()?;
        (index < CHUNKS.load(Relaxed)).then_some(index)
    }

    /// Returns the position of recording of the thread with this state.
    pub fn newest(self, thread: &Thread) -> Option<&'static Newest> {
        self.private().kept.newest.get(self.index_of(core::ptr::from_ref(thread) as u64)?)
    }

    /// Returns the index of the thread state at an address.
    pub fn index_of(self, thread: u64) -> Option<usize> {
        let first = self.private().threads.as_ptr() as u64;
        let offset = thread.checked_sub(first)? as usize;
        (offset / size_of::<Thread>() < THREAD_MAX).then_some(offset / size_of::<Thread>())
    }

    /// Returns the private memory of the process.
    pub fn private(self) -> &'static Private {
        // SAFETY: `join` set the address before CONTROL, to a zeroed mapping of the type's size;
        // zeros are valid, and all is atomic.
        unsafe { &*(PRIVATE.load(Relaxed) as *const Private) }
    }
}

/// Makes the session visible to the hooks. Both addresses are of mappings that stay.
pub fn join(control: usize, private: usize) {
    PRIVATE.store(private, Relaxed);
    CONTROL.store(control, Release);
}

/// Ends the session: hooks no longer find it, and later code must not use its memory.
pub fn leave() {
    CONTROL.store(0, Release);
    PROCESS_BEFORE_FORK.store(0, Relaxed);
}

/// Adds to the cursor and returns its former value, in one instruction: a signal handler comes
/// before or after it.
pub fn reserve(thread: &Thread, bytes: u64) -> u64 {
    let mut at = bytes;
    // SAFETY: an addition to an atomic this thread owns. Not `lock`ed: no other thread writes it.
    unsafe {
        asm!("xadd qword ptr [{0}], {1}", in(reg) thread.cursor.as_ptr(), inout(reg) at, options(nostack));
    }
    at
}

/// Compares and exchanges the cursor, safely against this thread's own signal handlers.
pub fn exchange_cursor(thread: &Thread, seen: u64, new: u64) -> bool {
    exchange(&thread.cursor, seen, new)
}

/// Compares and exchanges a word of this thread, safely against its own signal handlers; not
/// `lock`ed.
pub fn exchange(word: &AtomicU64, seen: u64, new: u64) -> bool {
    let found: u64;
    // SAFETY: as in `reserve`.
    unsafe {
        asm!("cmpxchg qword ptr [{0}], {1}", in(reg) word.as_ptr(), in(reg) new,
             inout("rax") seen => found, options(nostack));
    }
    found == seen
}

/// Whether an event at this address is inside a chunk's data.
pub fn in_data(address: u64) -> bool {
    (CHUNK_DATA as u64..CHUNK_LIMIT as u64).contains(&(address % CHUNK_SIZE as u64))
}

/// Forces the next event to write its own EPOCH and STACK words, and one of a Go function its
/// GOROUTINE words.
pub fn forget_context(thread: &Thread) {
    thread.epoch.store(u64::MAX, Relaxed);
    thread.window.store(NOWHERE, Relaxed);
    thread.g.store(0, Relaxed);
}

/// Moves the cursor back to the start of the room behind a full chunk, if it is still at `seen`.
pub fn clamp_cursor(thread: &Thread, seen: u64) {
    exchange_cursor(thread, seen, seen & !(CHUNK_SIZE as u64 - 1) | CHUNK_LIMIT as u64);
}

/// Memory for the record of an unwinder that registers the agent's frames (`struct object` of
/// libgcc, 48 bytes).
#[cfg(feature = "placed")]
#[unsafe(no_mangle)]
static calltap_frame_object: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
