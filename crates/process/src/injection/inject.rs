//! A call of a function in another process, made by one of its threads.
//!
//! One system call changes the thread's registers, so that it runs a piece of code that restores
//! everything by itself. Before that system call, nothing has happened to the thread; after it, the
//! thread does not depend on this process, which may be killed at any instant. The code and its
//! data lie behind the end of a library's text, in its last page, where nothing else is executed.
//! The call does not touch the thread's stack; signals wait.
//!
//! The descriptor table is the program's: a file that the call opened would take a number that
//! another thread may expect to get, or may close. So a call that opens files is made by an
//! **opener**, a new thread that shares everything with the waiting one, the thread pointer
//! included, but leaves the descriptor table for an empty one of its own
//! (`CLOSE_RANGE_UNSHARE`). To the C library it is the waiting thread: locks that it takes have
//! that thread as owner. Only where no thread can be started, the thread makes the call itself.
//!
//! While this process lives, the thread does not take the code's own way back: it is
//! stopped at the last system call before, with all signals blocked (`StoppedThread::come_back`),
//! and gets back the registers and the signal mask that it was stopped with. So no signal frame
//! leads into the code, which can be removed or used for the next call at once. The code's own way
//! back unblocks signals while it is still executing: after this process was killed, the code stays
//! until no stack leads into it.
//!
//! Unsafe because the code is assembly.
#![allow(unsafe_code)]

use super::block::Block;
use super::flags::plain;
use crate::injection::call::Call;
use crate::memory::maps::Region;
use crate::memory::text::ProcessText;
use crate::ptrace::threads::{Interrupted, NotHeld, StoppedThread};
use crate::reason::Reason;
use crate::seccomp::OPENER_FLAGS;
use calltap_abi::{PAGE, USER_END, stub};
use calltap_patch::{Avma, Text};
use nix::libc::user_regs_struct;
use std::arch::global_asm;
use std::mem::offset_of;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A mapping that a thread can be made to create.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Mapping {
    /// Address.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the file.
    pub offset: u64,
    /// PROT_...
    pub protection: i32,
    /// MAP_...
    pub flags: i32,
}

impl Mapping {
    fn bytes(&self) -> Vec<u8> {
        let long = [self.address, self.length, self.offset].map(u64::to_le_bytes).concat();
        let short = [self.protection, self.flags].map(i32::to_le_bytes).concat();
        [long, short].concat()
    }
}

/// Size of the scratch memory, mapped during the call: a stack, and an area for the vector
/// registers.
const SCRATCH: u64 = 1 << 20;
/// Value of r13 at the end if the function was called, as the scratch memory could be mapped.
const CALLED: u64 = 1;
/// Offset in the scratch memory of the address of a complaint.
const RESULT: u64 = 1 << 17;
/// Offset of the flag that the code sets once the function has returned.
const RETURNED: u64 = RESULT + 8;
/// Offset of the flag that calltap sets to let the code continue.
const GO_ON: u64 = RESULT + 16;
/// Offset of the opener's thread id, which the kernel clears when the opener has ended.
const OPENER: u64 = RESULT + 24;
/// Offset of the result of the opener's call.
const OUTCOME: u64 = RESULT + 32;
/// Bytes behind the block, for strings.
const STRINGS: usize = 256;

// Entered with the registers of an mmap call.
global_asm!(
    include_str!("inject.s"),
    scratch = const SCRATCH,
    called = const CALLED,
    returned = const RETURNED,
    opener = const OPENER,
    outcome = const OUTCOME,
    opener_flags = const OPENER_FLAGS,
    clone = const libc::SYS_clone,
    futex = const libc::SYS_futex,
    close_range = const libc::SYS_close_range,
    unshare_range = const libc::CLOSE_RANGE_UNSHARE,
    unshare = const libc::SYS_unshare,
    files = const libc::CLONE_FILES,
    exit = const libc::SYS_exit,
    opens_files = const offset_of!(Block, opens_files),
    go_on = const GO_ON,
    linger_rounds = const LINGER,
    sigprocmask = const libc::SYS_rt_sigprocmask,
    munmap = const libc::SYS_munmap,
    mmap = const libc::SYS_mmap,
    openat = const libc::SYS_openat,
    close = const libc::SYS_close,
    cwd = const libc::AT_FDCWD,
    open_flags = const libc::O_RDONLY | libc::O_CLOEXEC,
    map_address = const offset_of!(Mapping, address),
    map_length = const offset_of!(Mapping, length),
    map_offset = const offset_of!(Mapping, offset),
    map_protection = const offset_of!(Mapping, protection),
    map_flags = const offset_of!(Mapping, flags),
    map_size = const size_of::<Mapping>(),
    result = const RESULT,
    red_zone = const RED_ZONE,
    function = const offset_of!(Block, function),
    complaint = const offset_of!(Block, complaint),
    arguments = const offset_of!(Block, arguments),
    waiting = const offset_of!(Block, waiting),
    all_signals = const offset_of!(Block, all_signals),
    signals = const offset_of!(Block, signals),
    sigpending = const libc::SYS_rt_sigpending,
    handled = const offset_of!(Block, handled),
    linger = const offset_of!(Block, linger),
    interrupted_rip = const offset_of!(Block, interrupted),
    interrupted_rax = const offset_of!(Block, interrupted) + 8,
    rax = const offset_of!(Block, rax),
    rbx = const offset_of!(Block, rbx),
    rcx = const offset_of!(Block, rcx),
    rdx = const offset_of!(Block, rdx),
    rsi = const offset_of!(Block, rsi),
    rdi = const offset_of!(Block, rdi),
    rbp = const offset_of!(Block, rbp),
    r8 = const offset_of!(Block, r8),
    r9 = const offset_of!(Block, r9),
    r10 = const offset_of!(Block, r10),
    r11 = const offset_of!(Block, r11),
    r12 = const offset_of!(Block, r12),
    r13 = const offset_of!(Block, r13),
    r14 = const offset_of!(Block, r14),
    r15 = const offset_of!(Block, r15),
    rsp = const offset_of!(Block, rsp),
    rip = const offset_of!(Block, rip),
    flags = const offset_of!(Block, flags),
);

unsafe extern "C" {
    static calltap_call_start: u8;
    static calltap_call_map: u8;
    static calltap_call_quit: u8;
    static calltap_call_done: u8;
    static calltap_call_linger: u8;
    static calltap_call_lingered: u8;
    static calltap_call_end: u8;
}

fn code() -> &'static [u8] {
    let (start, end) = (&raw const calltap_call_start, &raw const calltap_call_end);
    // SAFETY: the two labels enclose constant bytes.
    unsafe { std::slice::from_raw_parts(start, end as usize - start as usize) }
}

/// Bytes below a stack pointer that may be in use.
const RED_ZONE: u64 = stub::RED_ZONE as u64;
/// Rounds that a parked thread waits: a second or less.
const LINGER: u64 = 1 << 24;

/// Returns the offset of the code that ends an opener.
fn quit() -> u64 {
    &raw const calltap_call_quit as u64 - &raw const calltap_call_start as u64
}

/// Returns the offset in the code that the last system call before the way back returns to.
fn done() -> u64 {
    &raw const calltap_call_done as u64 - &raw const calltap_call_start as u64
}

/// Returns the offsets in the code where a parked thread waits to be fetched.
fn lingering() -> std::ops::Range<u64> {
    let start = &raw const calltap_call_start as u64;
    (&raw const calltap_call_linger as u64 - start)..(&raw const calltap_call_lingered as u64 - start)
}

/// Returns the bytes that the code takes with its block and strings.
fn size() -> usize {
    code().len() + size_of::<Block>() + STRINGS
}

/// A place for the code: bytes of an executable mapping behind the end of the text.
#[derive(Clone, Debug)]
pub struct CodeCave {
    at: u64,
    before: Vec<u8>,
    /// Address of a free range for the scratch memory.
    scratch: u64,
}

/// Why a call could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The process has no agent to call: it has executed another program.
    NoAgent,
    /// The thread could not be held.
    Thread(NotHeld),
    /// The memory could not be written.
    Memory,
    /// The process cannot map more memory.
    NoMemory,
    /// A fault ended the call, with this signal.
    Fault(i32),
    /// The call has not returned in time; the thread goes on with it.
    Late,
}

impl From<NotHeld> for Failed {
    fn from(why: NotHeld) -> Failed {
        Failed::Thread(why)
    }
}

impl From<Failed> for Reason {
    fn from(failed: Failed) -> Reason {
        match failed {
            Failed::NoAgent => Reason::AgentGone,
            Failed::Thread(why) => why.into(),
            Failed::Memory => Reason::Unwritable,
            Failed::NoMemory => Reason::NoMemory,
            Failed::Fault(signal) => Reason::Fault { signal },
            Failed::Late => Reason::Late,
        }
    }
}

/// Size of a gap between mappings that no mapping will grow into.
const GAP: u64 = 64 << 20;

impl CodeCave {
    /// Returns all places in a process. `behind_text` returns, for an executable mapping and a
    /// size, the address where its text ends, and the bytes that the file has behind it.
    pub(crate) fn all(
        regions: &[Region],
        mut behind_text: impl FnMut(&Region, usize) -> Option<(u64, Vec<u8>)>,
    ) -> Vec<CodeCave> {
        let gaps = regions.windows(2).rev().map(|pair| (pair[0].end, pair[1].start));
        // The middle of a gap is out of reach of a stack above it, which may grow.
        let wide = gaps
            .filter(|(start, end)| *end < USER_END && end - start >= GAP)
            .map(|(start, end)| start + (end - start) / 2);
        let Some(scratch) = wide.map(|at| at / PAGE * PAGE).next() else { return Vec::new() };
        let executable = regions.iter().filter(|region| region.executable);
        let place = |region: &Region| {
            let (at, before) = behind_text(region, size())?;
            let last_page = at.next_multiple_of(PAGE) == region.end && region.end - at >= size() as u64;
            (at > region.start && last_page).then_some(CodeCave { at, before, scratch })
        };
        executable.rev().filter_map(place).collect()
    }

    /// Whether the bytes differ from the file's.
    pub fn is_used(&self, text: &mut ProcessText) -> bool {
        let mut now = vec![0; self.before.len()];
        text.read(Avma(self.at), &mut now).is_err() || now != self.before
    }

    /// Whether the code is still at the place, left by a calltap that was killed.
    pub fn is_left(&self, text: &mut ProcessText) -> bool {
        let mut now = vec![0; code().len()];
        text.read(Avma(self.at), &mut now).is_ok() && now == code()
    }

    /// Returns the first address and the one past the last.
    pub fn range(&self) -> (u64, u64) {
        (self.at, self.at + size() as u64)
    }

    /// Returns the address of the string that an injected call writes.
    pub fn string_address(&self) -> u64 {
        self.at + (code().len() + size_of::<Block>()) as u64
    }

    /// Returns the call that maps a file: function, arguments, and the bytes to put at
    /// [`CodeCave::string_address`].
    pub fn mapping_call(&self, path: &[u8], mappings: &[Mapping]) -> (u64, [u64; 2], Vec<u8>) {
        let function = &raw const calltap_call_map as usize - &raw const calltap_call_start as usize;
        let list = mappings.iter().flat_map(Mapping::bytes).chain([0; 8]);
        let strings = path.iter().copied().chain([0]).chain(list).collect();
        let at = self.string_address();
        (self.at + function as u64, [at, at + path.len() as u64 + 1], strings)
    }

    /// Makes the thread call a function, then restores the thread's registers. Returns the
    /// function's result, or 0 if the thread has ended.
    pub(super) fn call(
        &self,
        text: &mut ProcessText,
        thread: &mut StoppedThread,
        call: &Call<'_>,
        limit: Duration,
    ) -> Result<u64, Failed> {
        let start = Instant::now();
        if call.string.len() >= STRINGS {
            return Err(Failed::Memory);
        }
        thread.abort_sequence()?;
        let back = thread.resumption();
        let (blocked, interrupted) = (thread.blocked_signals()?, thread.interruption());
        let handled = thread.handled_signals() & !blocked;
        let block = Block::new(call, blocked, handled, 0, interrupted, &back);
        let all = [code(), block.as_bytes(), call.string, &[0]].concat();
        text.write(Avma(self.at), &all).map_err(|_| Failed::Memory)?;
        let mut regs = back;
        (regs.rip, regs.eflags) = (self.at, plain(back.eflags));
        (regs.rax, regs.orig_rax, regs.r13) = (libc::SYS_mmap as u64, u64::MAX, 0);
        (regs.rdi, regs.rsi, regs.rdx) = (self.scratch, SCRATCH, (libc::PROT_READ | libc::PROT_WRITE) as u64);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        (regs.r10, regs.r8, regs.r9) = (flags as u64, u64::MAX, 0);
        let trip = thread.leave(regs)?;
        let quit = call.opens_files.then(|| self.at + quit());
        match self.follow(text, thread, start + limit, quit) {
            Ok(result) => {
                thread.come_back(trip)?;
                result.ok_or(Failed::NoMemory)
            }
            // The thread ended on the code's own way back. The caller finds the outcome of the call
            // elsewhere.
            Err(Interrupted::Lost(NotHeld::Gone)) => Ok(0),
            Err(Interrupted::Lost(why)) => Err(Failed::Thread(why)),
            Err(Interrupted::Fault(signal)) => {
                thread.put_back(trip)?;
                Err(Failed::Fault(signal))
            }
            Err(Interrupted::Late) => Err(Failed::Late),
        }
    }

    /// Follows a thread through the code to the last system call before the way back. Returns the
    /// function's result, or None if it was not called.
    fn follow(
        &self,
        text: &mut ProcessText,
        thread: &mut StoppedThread,
        until: Instant,
        quit: Option<u64>,
    ) -> Result<Option<u64>, Interrupted> {
        let (start, last) = (self.at, self.at + done());
        loop {
            let regs = thread.follow_to_system_call(until)?;
            if regs.rip == last {
                return Ok(None);
            }
            if regs.rax == self.scratch {
                break;
            }
        }
        // The thread is not stopped while the function runs: on a busy machine each stop may cost
        // it its time slice.
        let (mut flag, returned) = ([0; 8], Avma(self.scratch + RETURNED));
        let regs =
            thread.run_until(until, quit, || text.read(returned, &mut flag).is_ok() && flag != [0; 8])?;
        if !(start..last).contains(&regs.rip) {
            // The thread waited for this process, which was not scheduled for about a second, and
            // is on its own way back.
            thread.let_run();
            return Err(Interrupted::Late);
        }
        // If the write fails, the thread soon continues by itself.
        let _ = text.write(Avma(self.scratch + GO_ON), &1u64.to_le_bytes());
        loop {
            let regs = thread.follow_to_system_call(until)?;
            if regs.rip == last {
                return Ok(Some(regs.r12));
            }
        }
    }

    /// Sends a thread to wait in the code. It continues by itself if it is not
    /// [fetched](CodeCave::fetch) soon. Returns the registers to fetch it with.
    pub fn park(
        &self,
        text: &mut ProcessText,
        thread: &mut StoppedThread,
    ) -> Result<user_regs_struct, Failed> {
        let back = thread.resumption();
        let nothing = Call::new(0, [0; 2]);
        let block = Block::new(&nothing, 0, 0, LINGER, [back.rip, back.rax], &back);
        text.write(Avma(self.at), &[code(), block.as_bytes()].concat()).map_err(|_| Failed::Memory)?;
        // The registers as of code that ran up to the wait: no signal is pending, and the stack
        // pointer is below the red zone.
        let rip = self.at + lingering().start;
        let (rsp, eflags) = (back.rsp - RED_ZONE, plain(back.eflags));
        let regs = user_regs_struct { rip, rcx: LINGER, rbx: 0, rsp, eflags, ..back };
        thread.set(regs)?;
        Ok(back)
    }

    /// Gives a parked thread the registers that it was sent away with. Returns false if it has
    /// continued by itself.
    pub fn fetch(&self, thread: &mut StoppedThread, back: user_regs_struct) -> Result<bool, Failed> {
        let waits = lingering().contains(&thread.regs.rip.wrapping_sub(self.at));
        if waits {
            thread.set(back)?;
        }
        Ok(waits)
    }

    /// Returns the complaint of the last call, if there was one, with address and length of the
    /// scratch memory, which is then still mapped; the next calls use other memory. `around`
    /// returns the mapping around an address. Memory that is not mapped is not read: below a stack,
    /// the kernel would extend the stack for it.
    pub fn complaint(
        &mut self,
        text: &mut ProcessText,
        around: impl FnOnce(u64) -> Option<Region>,
    ) -> Option<(String, [u64; 2])> {
        around(self.scratch).filter(|region| region.start == self.scratch)?;
        let mut address = [0; 8];
        text.read(Avma(self.scratch + RESULT), &mut address).ok()?;
        let address = u64::from_le_bytes(address);
        let bytes = (0..1000).map_while(|n| {
            let mut byte = [0];
            text.read(Avma(address + n), &mut byte).ok().filter(|()| byte[0] != 0).map(|()| byte[0])
        });
        let scratch = [self.scratch, SCRATCH];
        let complaint = String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned();
        self.scratch += SCRATCH;
        Some((complaint, scratch))
    }

    /// Restores the bytes of the file. No thread may run the code any more.
    pub(super) fn restore(&self, text: &mut ProcessText) {
        let _ = text.write(Avma(self.at), &self.before);
    }
}
