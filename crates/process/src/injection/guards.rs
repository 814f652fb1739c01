//! Locks that loading the agent needs: decides whether a stopped thread may be made to call
//! `dlopen`.
//!
//! `dlopen` allocates memory and takes the dynamic linker's locks. A thread that holds a lock of
//! the allocator or the thread library would wait for itself. If another thread is in the dynamic
//! linker, the hijacked thread would wait for that one, which may take long and may in turn wait
//! for a lock that the hijacked thread holds. A thread qualifies if it is proven to hold no such
//! lock; where there is no proof, the lock counts as held.

use crate::frames::{Segment, Stack, find, words};
use crate::injection::allocators::{ALLOCATOR, other_allocators, span};
use crate::injection::linker::{LinkerLocks, first_objects, is_linker};
use crate::memory::maps::{Mappings, Region, text_of};
use crate::memory::text::ProcessText;
use crate::proc;
use crate::ptrace::threads::StoppedThread;
use crate::reason::Inside;
use crate::target::{Symbols, is_libc};
use crate::unwind::Unwinder;
use calltap_patch::{Avma, Text};
use std::cell::{Cell, OnceCell};

/// Ranges of code in which a thread may hold locks that loading the agent needs.
pub struct Guards {
    /// The dynamic linker.
    linker: Vec<(u64, u64)>,
    locks: LinkerLocks,
    /// The C library's allocator, and other functions of it that hold such locks: fork, thread
    /// creation.
    allocator: Vec<(u64, u64)>,
    /// Other objects that define the allocator's functions; the program itself may be one.
    other_allocators: Vec<(u64, u64)>,
    /// The whole C library.
    libc: Vec<(u64, u64)>,
    /// Functions of the C library that wait for another thread and hold no lock meanwhile.
    waits: Vec<(u64, u64)>,
    /// The C library's function by which other code makes system calls.
    syscall: Option<(u64, u64)>,
    /// The process that is judged, and its unwinding information, once it was
    /// [read](Guards::read_unwinder).
    pid: u32,
    unwinder: OnceCell<Unwinder>,
    /// Whether a thread could not be judged without the unwinding information.
    wants_unwinder: Cell<bool>,
}

/// Functions that hold the allocator's or the dynamic linker's locks.
const LOCKING: &[&str] = &[
    "fork",
    "_Fork",
    "dlopen",
    "dlclose",
    "dlsym",
    "dladdr",
    "dl_iterate_phdr",
    "pthread_create",
    "setuid",
    "seteuid",
    "setreuid",
    "setresuid",
    "setgid",
    "setegid",
    "setregid",
    "setresgid",
    "setgroups",
];

/// Functions of the C library that wait by a futex and hold no lock of its own meanwhile. All
/// others may wait while they hold one.
const WAITS: &[&str] = &[
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock",
    "pthread_barrier_wait",
    "pthread_join",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
];

/// System calls of [`WAITING`] that an unknown allocator may make while it holds its lock: to back
/// off, or to print.
const BACKING_OFF: &[u64] = &[1, 20, 23, 35, 44, 46, 230, 270];

/// System calls in which a thread waits for an event from outside. Neither the allocator nor the
/// dynamic linker makes them, nor does a thread that holds a lock of the thread library, unless a
/// signal handler is what waits.
const WAITING: &[u64] = &[
    0,   // read
    1,   // write
    7,   // poll
    23,  // select
    34,  // pause
    35,  // nanosleep
    43,  // accept
    44,  // sendto
    45,  // recvfrom
    46,  // sendmsg
    47,  // recvmsg
    61,  // wait4
    65,  // semop
    69,  // msgsnd
    70,  // msgrcv
    73,  // flock
    128, // rt_sigtimedwait
    130, // rt_sigsuspend
    208, // io_getevents
    220, // semtimedop
    230, // clock_nanosleep
    232, // epoll_wait
    247, // waitid
    270, // pselect6
    271, // ppoll
    281, // epoll_pwait
    288, // accept4
    299, // recvmmsg
    307, // sendmmsg
    426, // io_uring_enter
    441, // epoll_pwait2
];
const FUTEX: u64 = 202;
/// The C library's `syscall`. Locks other than the C library's, such as Rust's, wait for a futex by
/// it; the C library itself does not use it.
const SYSCALL: &str = "syscall";

/// Number of bytes of a stack that are kept for the unwinder, which gives up on deep stacks.
pub const UNWOUND: usize = 8 << 20;

impl Guards {
    /// Finds the code in a process.
    pub fn new(pid: u32, regions: &[Region]) -> Guards {
        let mut allocator = text_of(regions, |name| name.contains("malloc"));
        let lists = [ALLOCATOR, LOCKING, WAITS, &[SYSCALL]];
        let wanted = |name: &str| lists.iter().any(|list| list.contains(&name));
        let (mut syscall, mut waits) = (None, Vec::new());
        let first = first_objects(pid, regions);
        if let Some(libc) = Symbols::of(pid, &first, is_libc, wanted) {
            let all: Vec<(u64, u64)> = ALLOCATOR.iter().filter_map(|name| libc.range(name)).collect();
            allocator.extend(span(&all));
            allocator.extend(LOCKING.iter().filter_map(|name| libc.range(name)));
            waits.extend(WAITS.iter().flat_map(|name| libc.ranges_of(name)));
            syscall = libc.range(SYSCALL);
        }
        let linker = text_of(regions, is_linker);
        let locks = LinkerLocks::find(pid, regions, is_linker);
        let libc = text_of(regions, is_libc);
        allocator.sort();
        waits.sort();
        let (unwinder, wants_unwinder) = (OnceCell::new(), Cell::new(false));
        let other_allocators = other_allocators(pid, regions);
        Guards {
            linker,
            locks,
            allocator,
            other_allocators,
            libc,
            waits,
            syscall,
            pid,
            unwinder,
            wants_unwinder,
        }
    }

    /// Whether other objects than the C library define the allocator. A call of such an allocator
    /// may hold a lock while it waits for other threads, as a collector does that stops all
    /// threads. A thread that is made to allocate then waits for ever, wherever it stood before.
    pub fn has_other_allocators(&self) -> bool {
        !self.other_allocators.is_empty()
    }

    /// Reads the unwinding information if a thread could not be judged without it. This takes long,
    /// so the caller keeps no thread stopped meanwhile.
    pub fn read_unwinder(&self, regions: &[Region]) {
        if self.wants_unwinder.get() {
            self.unwinder.get_or_init(|| Unwinder::new(self.pid, regions));
        }
    }

    /// Returns the code in which a stopped thread may hold a lock that loading the agent would wait
    /// for.
    pub fn inside(
        &self,
        thread: &StoppedThread,
        text: &mut ProcessText,
        regions: &[Region],
    ) -> Option<Inside> {
        if self.locks.are_held(text) {
            return Some(Inside::Linker);
        }
        if !has_control_block(self.pid, thread, text) {
            return Some(Inside::OwnThread);
        }
        let stack = Stack::read(thread, UNWOUND, text, &Mappings::known(regions));
        let in_handler = stack.is_in_handler();
        let current = stack.segments.first();
        let own = current.map_or(&[][..], |segment| &segment.bytes);
        // A word may be left over from an earlier call, in a frame that is still open. The
        // unwinder, if it was read, says which calls are open.
        let open: OnceCell<Option<Vec<u64>>> = OnceCell::new();
        let open = || {
            self.wants_unwinder.set(true);
            open.get_or_init(|| self.unwinder.get()?.frames(thread, own)).as_deref()
        };
        let at = |ranges: &[(u64, u64)]| {
            let may_be = || current.into_iter().flat_map(Segment::code).any(|word| find(ranges, word));
            let is = || open().is_none_or(|open| open.iter().any(|at| find(ranges, *at)));
            find(ranges, thread.regs.rip) || may_be() && is()
        };
        let rip = thread.regs.rip;
        let calls = |all: &[u64]| thread.system_call.is_some_and(|call| all.contains(&call));
        if waits_outside(thread) && !find(&self.linker, rip) && !in_handler {
            let backs_off = calls(BACKING_OFF) && at(&self.other_allocators);
            return backs_off.then_some(Inside::Allocator);
        }
        // A thread that waits for a futex may wait for one lock of the C library while it holds
        // another.
        let waits = || open().is_some_and(|open| self.is_waiting(open));
        if find(&self.libc, rip) && !(calls(&[FUTEX]) && waits()) {
            return Some(Inside::Libc);
        }
        if at(&self.linker) {
            return Some(Inside::Linker);
        }
        if at(&self.other_allocators) {
            return Some(Inside::Allocator);
        }
        let caller = words(own).next().unwrap_or(0);
        let is_own = [&self.libc, &self.linker, &self.allocator].into_iter().any(|code| find(code, caller));
        let by_others = self.syscall.is_some_and(|(start, end)| (start..end).contains(&rip)) && !is_own;
        // Code that holds these locks calls no other code meanwhile, except for the dynamic linker:
        // such words on this stack are left over. A handler may have interrupted the allocator,
        // though.
        if by_others && !in_handler {
            return None;
        }
        at(&self.allocator).then_some(Inside::Allocator)
    }

    /// Whether the C library's function that the program called waits without a lock. `open` holds
    /// the addresses of the open calls, the newest first.
    fn is_waiting(&self, open: &[u64]) -> bool {
        let called = open.iter().take_while(|at| find(&self.libc, **at)).last();
        called.is_some_and(|at| find(&self.waits, *at))
            || self
                .syscall
                .is_some_and(|(start, end)| open.first().is_some_and(|at| (start..end).contains(at)))
    }
}

/// Whether a stopped thread waits for an event from outside, so that it holds no lock of the
/// allocator, unless a signal handler is what waits.
fn waits_outside(thread: &StoppedThread) -> bool {
    thread.system_call.is_some_and(|call| WAITING.contains(&call))
}

/// Whether a stopped thread may hold the lock of an allocator whose functions are these. Without
/// the unwinding information, a word that is left over from an earlier call counts as one. `stack`:
/// the thread's, with [`UNWOUND`] bytes.
pub fn may_allocate(
    thread: &StoppedThread,
    stack: &Stack,
    functions: &[(u64, u64)],
    unwinder: Option<&Unwinder>,
) -> bool {
    let is_outside = || {
        let calls = |all: &[u64]| thread.system_call.is_some_and(|call| all.contains(&call));
        waits_outside(thread) && !calls(BACKING_OFF) && !stack.is_in_handler()
    };
    let own = stack.segments.first().map_or(&[][..], |segment| &segment.bytes);
    let is_open = |unwinder: &Unwinder| {
        unwinder.frames(thread, own).is_some_and(|open| open.iter().any(|at| find(functions, *at)))
    };
    let is_inside =
        find(functions, thread.regs.rip) || stack.leads_into(functions) && unwinder.is_none_or(is_open);
    is_inside && !is_outside()
}

/// Whether a stopped thread runs with the control block that glibc has made for it. Functions of
/// glibc find the owner of a lock there, and the thread's local variables.
fn has_control_block(pid: u32, thread: &StoppedThread, text: &mut ProcessText) -> bool {
    /// Offsets of a block's own address and of its thread's id.
    const ITSELF: u64 = 0x10;
    const ID: u64 = 0x2d0;
    let pointer = thread.regs.fs_base;
    let mut word = |at: u64| {
        let mut bytes = [0; 8];
        text.read(Avma(pointer.wrapping_add(at)), &mut bytes).ok().map(|()| u64::from_le_bytes(bytes))
    };
    let id = word(ID).map(|word| word as u32);
    let is_id = id == Some(proc::inner_id(pid, thread.tid).unwrap_or(thread.tid));
    // The only thread of a process that was forked without the C library has its parent's id there.
    let is_parents = || id.is_some_and(|id| id != 0) && proc::has_one_thread(pid);
    pointer != 0 && word(ITSELF) == Some(pointer) && (is_id || is_parents())
}
