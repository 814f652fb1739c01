//! What lies on the stacks of stopped threads.
//!
//! Stacks are searched for words, not unwound: a return address, or the place where a signal handler will return to, is a word on some
//! stack above its stack pointer. What is found may be left over from before; nothing is overlooked. Code that calls nothing but itself is
//! left only by a signal handler, and those say in their frame where they return to.

use crate::agent::Loaded;
use crate::go;
use crate::maps::{Region, text_of};
use crate::proc;
use crate::target::{Symbols, is_libc};
use crate::text::ProcessText;
use crate::threads::Held;
use crate::unwind::Unwinder;
use calltap_abi::{profile, stub};
use calltap_patch::{Avma, Text};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A stack is searched this far up from its stack pointer.
const DEPTH: u64 = 1 << 20;
const PAGE: u64 = 4096;
const WORD: usize = 8;

/// The stacks of stopped threads.
pub struct Stacks<'a> {
    held: &'a [Held],
    regions: &'a [Region],
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// Does an address lie in one of the ranges, which are sorted and disjoint?
pub fn find(ranges: &[(u64, u64)], address: u64) -> bool {
    let at = ranges.partition_point(|(start, _)| *start <= address);
    at > 0 && address < ranges[at - 1].1
}

fn read_stack(thread: &Held, text: &mut ProcessText, regions: &[Region]) -> Vec<u8> {
    let from = thread.regs.rsp & !7;
    // The first that ends above it: a stack may have grown downwards, or be a new one, since the mappings were read.
    let end = regions.iter().map(|region| region.end).find(|end| from < *end).unwrap_or(u64::MAX);
    let end = go::stack(thread, text).map_or(end, |[_, high]| end.min(high));
    let end = end.min(from.saturating_add(DEPTH)).max(from);
    let mut stack = vec![0; (end - from) as usize];
    if text.read(Avma(from), &mut stack).is_err() {
        // As far as it goes: what cannot be read holds no frame.
        let mut read = 0;
        while read < stack.len() {
            let next = stack.len().min(read + (PAGE - (from + read as u64) % PAGE) as usize);
            if text.read(Avma(from + read as u64), &mut stack[read..next]).is_err() {
                break;
            }
            read = next;
        }
        stack.truncate(read);
    }
    stack
}

impl<'a> Stacks<'a> {
    /// Of these threads; `regions` are the process's mappings.
    pub fn new(held: &'a [Held], regions: &'a [Region]) -> Stacks<'a> {
        Stacks { held, regions }
    }

    /// Where threads are, will return to, or will be when a signal handler returns, as far as it lies in one of the (sorted) ranges.
    pub fn words_in(&self, text: &mut ProcessText, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.search(text, ranges, |_, _, _| true)
    }

    /// The same for code that calls nothing outside itself: where threads are, or will be when a signal handler returns.
    pub fn running_in(&self, text: &mut ProcessText, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.search(text, ranges, |text, stack, at| {
            let frame = at.checked_sub(SIGNAL_FRAME_PC).and_then(|at| stack.get(at..at + WORD));
            let restorer = frame.and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
            is_restorer(text, restorer)
        })
    }

    /// Is a thread in one of the [unwinders]? It has copies of what it found in the slots of open calls.
    pub fn unwinding(&self, text: &mut ProcessText, ranges: &[(u64, u64)]) -> bool {
        // Not far up: what is there is more often left over from an earlier time.
        !self.search(text, ranges, |_, _, at| at < UNWINDER).is_empty()
    }

    fn search(
        &self,
        text: &mut ProcessText,
        ranges: &[(u64, u64)],
        counts: impl Fn(&mut ProcessText, &[u8], usize) -> bool,
    ) -> Vec<u64> {
        let Some((low, high)) = ranges.first().zip(ranges.last()).map(|(a, b)| (a.0, b.1)) else {
            return Vec::new();
        };
        let hit = |word: &u64| (low..high).contains(word) && find(ranges, *word);
        let mut found = Vec::new();
        for thread in self.held {
            found.extend(Some(thread.regs.rip).filter(hit));
            let stack = read_stack(thread, text, self.regions);
            for (n, word) in words(&stack).enumerate().filter(|(_, word)| hit(word)) {
                if counts(text, &stack, n * WORD) {
                    found.push(word);
                }
            }
        }
        found
    }
}

/// Is this the file name of a library that unwinds stacks?
pub fn is_unwinder(name: &str) -> bool {
    name.starts_with("libgcc_s.") || name.starts_with("libunwind.")
}

/// What every unwinding is called by, where the unwinder is linked into a program or library.
const UNWINDING: &[&str] = &[
    "_Unwind_RaiseException",
    "_Unwind_RaiseException_Phase2",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
    "_Unwind_ForcedUnwind_Phase2",
    "_Unwind_Backtrace",
];

/// The code of all unwinders of a process, by address. (One that is linked in, and whose symbols were stripped, is not found.)
pub fn unwinders(pid: u32, regions: &[Region]) -> Vec<(u64, u64)> {
    let mut found = text_of(regions, is_unwinder);
    let names: HashSet<&str> =
        regions.iter().filter(|region| region.executable && region.file.1 != 0).map(Region::name).collect();
    for name in names.into_iter().filter(|name| !is_unwinder(name)) {
        let symbols = Symbols::of(pid, regions, |other| other == name, |name| UNWINDING.contains(&name));
        found.extend(symbols.iter().flat_map(Symbols::ranges));
    }
    found.sort();
    found
}

fn is_restorer(text: &mut ProcessText, address: u64) -> bool {
    let mut code = [0; RESTORER.len()];
    text.read(Avma(address), &mut code).is_ok() && code == RESTORER
}

/// Is there the frame of a signal handler on a stack? `code` is all that can be run.
fn has_signal_frame(stack: &[u8], text: &mut ProcessText, code: &[(u64, u64)]) -> bool {
    let mut seen = HashSet::new();
    words(stack).any(|word| find(code, word) && seen.insert(word) && is_restorer(text, word))
}

/// An unwinder, and what it calls, needs no more stack than this.
const UNWINDER: usize = 16 << 10;
/// In a signal frame the interrupted program counter comes so many bytes behind the address of the code that ends the handler,
const SIGNAL_FRAME_PC: usize = 176;
/// which is: `mov $15, %rax; syscall` (rt_sigreturn).
const RESTORER: [u8; 9] = [0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05];

/// Code in which a thread may hold locks that loading the agent needs.
pub struct Guards {
    /// The dynamic linker.
    linker: Vec<(u64, u64)>,
    /// The allocator, and others that hold locks: fork, thread creation.
    allocator: Vec<(u64, u64)>,
    /// All of the C library.
    libc: Vec<(u64, u64)>,
    /// Its function by which others make system calls.
    syscall: Option<(u64, u64)>,
    /// All there is.
    code: Vec<(u64, u64)>,
    /// Of this process; its unwinding information, if it was needed.
    pid: u32,
    unwinder: OnceCell<Unwinder>,
}

/// All of the C library's allocator lies between these.
const ALLOCATOR: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_usable_size",
    "mallopt",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
];

/// Others that hold its locks, or the dynamic linker's.
const LOCKING: &[&str] = &["fork", "_Fork", "dlopen", "dlclose", "dlsym", "pthread_create"];

/// System calls in which a thread waits for something outside: neither the allocator nor the dynamic linker makes them, nor whoever holds a lock
/// of the thread library, unless a signal handler does the waiting.
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
/// Locks that are not the C library's wait for a futex by this function of its, which it does not use itself: so do Rust's.
const SYSCALL: &str = "syscall";

impl Guards {
    /// Of a process.
    pub fn new(pid: u32, regions: &[Region]) -> Guards {
        let mut allocator = text_of(regions, |name| name.contains("malloc"));
        let wanted = |name: &str| ALLOCATOR.contains(&name) || LOCKING.contains(&name) || name == SYSCALL;
        let mut syscall = None;
        if let Some(libc) = Symbols::of(pid, regions, is_libc, wanted) {
            let all: Vec<(u64, u64)> = ALLOCATOR.iter().filter_map(|name| libc.range(name)).collect();
            let ends = all.iter().map(|range| range.0).min().zip(all.iter().map(|range| range.1).max());
            allocator.extend(ends);
            allocator.extend(LOCKING.iter().filter_map(|name| libc.range(name)));
            syscall = libc.range(SYSCALL);
        }
        let linker = text_of(regions, |name| name.starts_with("ld-linux") || name.starts_with("ld-2"));
        let libc = text_of(regions, is_libc);
        allocator.sort();
        let code = text_of(regions, |_| true);
        Guards { linker, allocator, libc, syscall, code, pid, unwinder: OnceCell::new() }
    }

    /// What a stopped thread is in the middle of, if so.
    pub fn inside(&self, thread: &Held, text: &mut ProcessText, regions: &[Region]) -> Option<&'static str> {
        let stack = read_stack(thread, text, regions);
        // What the words say may be left over from long ago, in a frame that stays: then it matters which calls are open, if that can be told.
        let open = || {
            let unwinder = self.unwinder.get_or_init(|| Unwinder::new(self.pid, regions));
            unwinder.frames(thread, &stack)
        };
        let at = |ranges: &[(u64, u64)]| {
            let may_be = || words(&stack).any(|word| find(ranges, word));
            let is = || open().is_none_or(|open| open.iter().any(|at| find(ranges, *at)));
            find(ranges, thread.regs.rip) || may_be() && is()
        };
        let rip = thread.regs.rip;
        let calls = |all: &[u64]| thread.system_call.is_some_and(|call| all.contains(&call));
        if calls(WAITING) && !find(&self.linker, rip) && !has_signal_frame(&stack, text, &self.code) {
            return None;
        }
        // (Whoever waits for a futex waits for a lock, perhaps of these; or for anything else.)
        if find(&self.libc, rip) && !calls(&[FUTEX]) {
            return Some("the C library");
        }
        if at(&self.linker) {
            return Some("the dynamic linker");
        }
        let caller = words(&stack).next().unwrap_or(0);
        let own = [&self.libc, &self.linker, &self.allocator].into_iter().any(|code| find(code, caller));
        let by_others = self.syscall.is_some_and(|(start, end)| (start..end).contains(&rip)) && !own;
        // (Nothing that holds locks here calls anybody else meanwhile, but the dynamic linker: what its stack has of these is left over. A handler may
        // have interrupted the allocator, though.)
        if by_others && !has_signal_frame(&stack, text, &self.code) {
            return None;
        }
        at(&self.allocator).then_some("the allocator")
    }
}

/// Gives calls that are open their return addresses back: from the mirror, where a slot still holds a stub's. How many.
///
/// Found by the mirror and not by threads: a coroutine's stack belongs to nobody at the moment.
pub fn close_calls(text: &mut ProcessText, pid: u32, agent: &Loaded, stubs: (u64, u64)) -> usize {
    let pieces = mirrors(text, agent);
    let Ok(pagemap) = File::open(proc::place(pid).join("pagemap")) else { return 0 };
    let mut closed = 0;
    for piece in pieces {
        let slots = u64::from(piece) << stub::MIRROR_GRANULE;
        let mirror = slots ^ 1 << stub::MIRROR_BIT;
        let pages = 1usize << stub::MIRROR_GRANULE >> 12;
        let mut entries = vec![0; pages * WORD];
        if pagemap.read_exact_at(&mut entries, mirror / PAGE * WORD as u64).is_err() {
            continue;
        }
        // In memory, or swapped out.
        let used =
            words(&entries).enumerate().filter(|(_, entry)| entry >> 62 != 0).map(|(n, _)| n as u64 * PAGE);
        for offset in used {
            closed += close_page(text, Avma(mirror + offset), Avma(slots + offset), stubs);
        }
    }
    closed
}

fn close_page(text: &mut ProcessText, mirror: Avma, slots: Avma, stubs: (u64, u64)) -> usize {
    let (mut kept, mut now) = ([0; PAGE as usize], [0; PAGE as usize]);
    if text.read(mirror, &mut kept).is_err() || text.read(slots, &mut now).is_err() {
        return 0;
    }
    let mut closed = 0;
    for (n, (kept, now)) in words(&kept).zip(words(&now)).enumerate() {
        // (The mirror also has times, beside the slots: they are no addresses.)
        let is_address = kept != 0 && kept >> profile::TIMED == 0;
        if is_address && (stubs.0..stubs.1).contains(&now) {
            let slot = Avma(slots.0 + (n * WORD) as u64);
            closed += usize::from(text.write(slot, &kept.to_le_bytes()).is_ok());
        }
    }
    closed
}

/// The pieces of the mirror that the agent has mapped.
fn mirrors(text: &mut ProcessText, agent: &Loaded) -> Vec<u32> {
    let Some(at) = agent.symbol("calltap_mirrors").map(Avma) else { return Vec::new() };
    let mut count = [0; 4];
    if text.read(at, &mut count).is_err() {
        return Vec::new();
    }
    let count = (u32::from_le_bytes(count) as usize).min(8191);
    let mut bytes = vec![0; count * 4];
    if text.read(Avma(at.0 + 4), &mut bytes).is_err() {
        return Vec::new();
    }
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default())).collect()
}
