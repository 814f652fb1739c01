//! Raw system calls: the agent has no libc, and must not change the program's `errno`.
//!
//! Uses `unsafe` because every call enters the kernel. The wrappers take the arguments that make a
//! call sound as types; those that change memory are `unsafe fn` and state the caller's
//! obligations.

use calltap_abi::plan::Sync;
use calltap_abi::values::PR_TSC_SIGSEGV;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::Release};

/// Error of a system call: its negated result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

const READ: usize = 0;
const CLOSE: usize = 3;
const CLONE: usize = 56;
const EXIT: usize = 60;
const FSTAT: usize = 5;
const MMAP: usize = 9;
const MPROTECT: usize = 10;
const MUNMAP: usize = 11;
const MREMAP: usize = 25;
const RT_SIGACTION: usize = 13;
pub const RT_SIGPROCMASK: usize = 14;
const MADVISE: usize = 28;
const GETPID: usize = 39;
const SIGALTSTACK: usize = 131;
const MUNLOCK: usize = 150;
const PRCTL: usize = 157;
const GETTID: usize = 186;
const FUTEX: usize = 202;
const CLOCK_GETTIME: usize = 228;
const OPENAT: usize = 257;
const RT_TGSIGQUEUEINFO: usize = 297;
const PROCESS_VM_READV: usize = 310;
const MEMBARRIER: usize = 324;

pub const O_RDONLY: usize = 0;
pub const O_RDWR: usize = 2;
const O_CLOEXEC: usize = 0o2000000;
const AT_FDCWD: usize = -100isize as usize;

pub const PROT_READ: usize = 1;
pub const PROT_WRITE: usize = 2;
pub const PROT_EXEC: usize = 4;
pub const MAP_SHARED: usize = 1;
pub const MAP_PRIVATE: usize = 2;
pub const MAP_FIXED: usize = 0x10;
pub const MAP_ANONYMOUS: usize = 0x20;
pub const MAP_NORESERVE: usize = 0x4000;
pub const MAP_FIXED_NOREPLACE: usize = 0x100000;
pub const MADV_DONTNEED: usize = 4;
pub const MADV_WIPEONFORK: usize = 18;

pub const ENOENT: Errno = Errno(2);
pub const EEXIST: Errno = Errno(17);
pub const ENOMEM: Errno = Errno(12);

/// # Safety
/// The kernel does what the number and the arguments say; the caller is responsible for that.
unsafe fn call(n: usize, a: [usize; 6]) -> Result<usize, Errno> {
    let r: isize;
    // SAFETY: the system call convention of x86-64; rcx, r11 and memory are declared as changed.
    // The caller is responsible for the effect.
    unsafe {
        asm!("syscall", inlateout("rax") n as isize => r, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
             in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&r) { Err(Errno(-r as i32)) } else { Ok(r as usize) }
}

/// An open file that closes itself.
pub struct Fd(usize);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is the agent's and is not used again.
        let _ = unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Opens a path that ends in a NUL byte.
pub fn open(path: &[u8], flags: usize) -> Result<Fd, Errno> {
    if path.last() != Some(&0) {
        return Err(Errno(22));
    }
    // SAFETY: the path is a readable, terminated string.
    unsafe { call(OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags | O_CLOEXEC, 0, 0, 0]) }.map(Fd)
}

impl Fd {
    /// Reads into `buffer`; 0 at the end.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer is borrowed mutably for its length.
        unsafe { call(READ, [self.0, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
    }

    /// Returns the inode number.
    pub fn inode(&self) -> Result<u64, Errno> {
        let mut stat = [0u64; 18]; // struct stat is 144 bytes; st_ino is the second word
        // SAFETY: the kernel writes 144 bytes, which the array has.
        unsafe { call(FSTAT, [self.0, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) }?;
        Ok(stat[1])
    }
}

/// # Safety
/// With MAP_FIXED the mapping replaces those at `address`: the caller owns that range.
pub unsafe fn map(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    file: Option<(&Fd, u64)>,
) -> Result<usize, Errno> {
    let (fd, offset) = file.map_or((usize::MAX, 0), |(fd, offset)| (fd.0, offset as usize));
    if length < LARGE || !LOCKS_MEMORY.load(Relaxed) {
        // SAFETY: without MAP_FIXED the kernel chooses unused addresses; with it the caller owns
        // the range.
        return unsafe { call(MMAP, [address, length, protection, flags, fd, offset]) };
    }
    // Pages without access are not faulted in, and after munlock they are faulted in only when
    // used.
    // SAFETY: as above; the later calls change the mapping just made.
    unsafe {
        let at = call(MMAP, [address, length, 0, flags, fd, offset])?;
        let _ = call(MUNLOCK, [at, length, 0, 0, 0, 0]);
        if protection != 0 {
            call(MPROTECT, [at, length, protection, 0, 0, 0])?;
        }
        Ok(at)
    }
}

/// Whether the program locks its memory (mlockall with MCL_FUTURE): every page of a new mapping
/// would be faulted in at once, hundreds of megabytes of which most are never used.
pub static LOCKS_MEMORY: AtomicBool = AtomicBool::new(false);
/// Size below which mappings stay locked as the program requested.
const LARGE: usize = 1 << 16;

/// Maps a part of a shared mapping a second time, replacing the mappings at `to`.
///
/// # Safety
/// `from` lies in a shared mapping of at least that length, and the caller owns the range at `to`.
pub unsafe fn duplicate(from: usize, to: usize, length: usize) -> Result<(), Errno> {
    const MAYMOVE: usize = 1;
    const FIXED: usize = 2;
    // SAFETY: with an old length of 0 the kernel leaves a shared mapping unchanged and makes
    // another; the caller is responsible for the rest.
    unsafe { call(MREMAP, [from, 0, length, MAYMOVE | FIXED, to, 0]) }.map(drop)
}

/// Unlocks memory that the dynamic linker has mapped, if the program locks its memory.
pub fn unlock(address: usize, length: usize) {
    if LOCKS_MEMORY.load(Relaxed) {
        // SAFETY: changes no contents.
        let _ = unsafe { call(MUNLOCK, [address, length, 0, 0, 0, 0]) };
    }
}

/// # Safety
/// The range is the caller's mapping, and nothing refers to it.
pub unsafe fn unmap(address: usize, length: usize) {
    // SAFETY: as the caller promises.
    let _ = unsafe { call(MUNMAP, [address, length, 0, 0, 0, 0]) };
}

/// # Safety
/// The range is the caller's mapping.
pub unsafe fn advise(address: usize, length: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    unsafe { call(MADVISE, [address, length, advice, 0, 0, 0]) }.map(drop)
}

/// Returns the process id.
pub fn pid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(GETPID, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns the kernel's thread id.
pub fn tid() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { call(GETTID, [0; 6]) }.unwrap_or(0) as u32
}

/// Returns the calling thread's name, padded with zeros.
pub fn thread_name() -> [u64; 2] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { call(PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Whether this thread may read the time stamp counter.
pub fn may_read_counter() -> bool {
    const PR_GET_TSC: usize = 25;
    let mut mode = 0_u32;
    // SAFETY: the kernel writes four bytes.
    let _ = unsafe { call(PRCTL, [PR_GET_TSC, &raw mut mode as usize, 0, 0, 0, 0]) };
    mode != PR_TSC_SIGSEGV
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(1)
}

/// Returns CLOCK_MONOTONIC_RAW in nanoseconds.
pub fn monotonic_raw_ns() -> u64 {
    clock_ns(4)
}

/// Returns a clock of the kernel in nanoseconds.
fn clock_ns(clock: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes one timespec.
    let _ = unsafe { call(CLOCK_GETTIME, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Copies memory of this process that may be unmapped. Returns false if it is, or if the kernel
/// refuses.
pub fn read_memory(address: u64, bytes: &mut [u8]) -> bool {
    let local = [bytes.as_mut_ptr() as usize, bytes.len()];
    let remote = [address as usize, bytes.len()];
    // SAFETY: the kernel writes to `bytes` only.
    let done = unsafe {
        call(PROCESS_VM_READV, [pid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0])
    };
    done.is_ok_and(|copied| copied == bytes.len())
}

/// Copies memory like [`read_memory`], in up to `N` elements of `element` bytes. Returns how many
/// bytes were copied, up to the first element that is unmapped.
pub fn read_elements<const N: usize>(address: u64, bytes: &mut [u8], element: usize) -> usize {
    let local = [bytes.as_mut_ptr() as usize, bytes.len()];
    let (mut remote, mut count, mut at) = ([[0; 2]; N], 0, address as usize);
    for (place, part) in remote.iter_mut().zip(bytes.chunks(element)) {
        *place = [at, part.len()];
        at = at.wrapping_add(element);
        count += 1;
    }
    // SAFETY: the kernel writes to `bytes` only, no more than their number.
    let done = unsafe {
        call(
            PROCESS_VM_READV,
            [pid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, count, 0],
        )
    };
    done.unwrap_or(0)
}

/// Returns the calling thread's blocked signals.
pub fn blocked_signals() -> u64 {
    let mut mask = 0u64;
    // SAFETY: no new set is given (second argument null), so nothing changes; the kernel writes 8
    // bytes.
    let _ = unsafe { call(RT_SIGPROCMASK, [0, 0, &raw mut mask as usize, 8, 0, 0]) };
    mask
}

/// The action for a signal: the kernel's own `struct sigaction`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Returns the former action for a signal, and sets a new one if given.
pub fn set_action(signal: usize, new: Option<&Action>) -> Result<Action, Errno> {
    let mut old = Action::default();
    let from = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    // SAFETY: the kernel reads one `Action`, or none, and writes one. The handlers that are set are
    // the agent's own, which stays loaded, and the program's former ones.
    unsafe { call(RT_SIGACTION, [signal, from, &raw mut old as usize, 8, 0, 0]) }?;
    Ok(old)
}

/// Blocks a signal in this thread, until the present signal handler returns.
pub fn block_signal(signal: usize) {
    let mask = 1u64 << (signal - 1);
    // SAFETY: SIG_BLOCK (0): the kernel reads 8 bytes.
    let _ = unsafe { call(RT_SIGPROCMASK, [0, &raw const mask as usize, 0, 8, 0, 0]) };
}

/// Sends a signal to this thread again, with the same `siginfo_t`.
pub fn send_to_self(signal: usize, info: *const u8) {
    // SAFETY: the kernel reads the structure that it has written for a handler that still runs.
    let _ = unsafe { call(RT_TGSIGQUEUEINFO, [pid() as usize, tid() as usize, signal, info as usize, 0, 0]) };
}

/// Whether the thread is on its alternate signal stack.
pub fn on_alternate_stack() -> bool {
    let mut stack = [0u64; 3]; // ss_sp, ss_flags (int), ss_size
    // SAFETY: no new stack is given; the kernel writes one stack_t.
    let done = unsafe { call(SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    done.is_ok() && stack[1] & 1 != 0
}

/// Waits until the word differs from `expected`, a wake-up, a signal, or the end of `timeout_ns`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: u64) {
    let time = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000];
    // SAFETY: FUTEX_WAIT (0) reads the word and the timespec.
    let _ =
        unsafe { call(FUTEX, [word.as_ptr() as usize, 0, expected as usize, time.as_ptr() as usize, 0, 0]) };
}

/// Sleeps for `ns` nanoseconds.
pub fn nap(ns: u64) {
    let word = AtomicU32::new(0);
    futex_wait(&word, 0, ns);
}

/// Wakes all threads that wait on the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE (1) changes no memory.
    let _ = unsafe { call(FUTEX, [word.as_ptr() as usize, 1, i32::MAX as usize, 0, 0, 0]) };
}

/// The two registrations that live patching from outside needs: to be interrupted when the recorder
/// requests it (MEMBARRIER_CMD_GLOBAL_EXPEDITED), and to serialize where the kernel returns to the
/// program without an interrupt (SYNC_CORE).
const REGISTRATIONS: [usize; 2] = [1 << 2, 1 << 6];

/// Registers the process, which is fast while it has one thread.
pub fn register_for_sync() -> Sync {
    // SAFETY: changes only how the kernel switches to threads of this process.
    let registered = |command| unsafe { call(MEMBARRIER, [command, 0, 0, 0, 0, 0]) }.is_ok();
    if REGISTRATIONS.into_iter().all(registered) { Sync::Works } else { Sync::Refused }
}

/// Registers a process of many threads, which takes some ten milliseconds, in a thread that only
/// does this and ends. It takes no signal and touches no memory but `outcome`. If no thread can be
/// created, the calling one registers.
pub fn register_in_background(outcome: &AtomicU32) {
    const SETMASK: usize = 2;
    // CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM
    const THREAD: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000;
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the kernel reads and writes 8 bytes each; the mask is restored below.
    let _ = unsafe {
        call(RT_SIGPROCMASK, [SETMASK, &raw const all as usize, &raw mut before as usize, 8, 0, 0])
    };
    let thread: isize;
    // SAFETY: the new thread has this one's stack pointer and uses no stack: system calls, one
    // store to `outcome`, which stays mapped until the recorder has seen it written, exit.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {membarrier}",
            "mov edi, {first}",
            "xor esi, esi",
            "xor edx, edx",
            "syscall",
            "mov r8, rax",
            "mov eax, {membarrier}",
            "mov edi, {second}",
            "syscall",
            "or r8, rax",
            "cmp r8, 1",
            "mov eax, {refused}",
            "sbb eax, 0",
            "mov dword ptr [r9], eax",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            membarrier = const MEMBARRIER, first = const REGISTRATIONS[0], second = const REGISTRATIONS[1],
            refused = const Sync::Refused as u32, exit = const EXIT,
            inlateout("rax") CLONE as isize => thread, inlateout("rdi") THREAD => _, inlateout("rsi") 0usize => _,
            inlateout("rdx") 0usize => _, in("r10") 0, inlateout("r8") 0usize => _, in("r9") outcome.as_ptr(),
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if thread < 0 {
        outcome.store(register_for_sync() as u32, Release);
    }
    // SAFETY: as above.
    let _ = unsafe { call(RT_SIGPROCMASK, [SETMASK, &raw const before as usize, 0, 8, 0, 0]) };
}
