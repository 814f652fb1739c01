//! A call of a function in another process, made by one of its threads.
//!
//! The thread's registers are changed once, by one system call, to run a piece of code that could put everything back by itself: before that
//! nothing has happened to the thread, and afterwards it does not depend on this process, which may be killed at any instant. The code and its data lie
//! behind the end of a library's text, in its last page, where nothing is executed otherwise. The thread's stack is not touched; signals wait.
//!
//! As long as this process lives, the code does not go its own way back: the thread is [stopped](Held::come_back) at the last system call before that,
//! with all signals blocked, and gets back the registers and the mask that it was stopped with. So no signal frame leads into the code, which
//! can be taken away or used for the next call at once. The code's own way back lets signals in while it is still executing: after this process was
//! killed, the code stays until no stack leads there any more.
//!
//! Unsafe because the code is assembly.
#![allow(unsafe_code)]

use crate::memory::maps::Region;
use crate::memory::text::ProcessText;
use crate::ptrace::threads::{FAULT_SIGNALS, Held, Interrupted, NotHeld};
use crate::reason::Reason;
use calltap_abi::{PAGE, USER_END};
use calltap_patch::{Avma, Text};
use nix::libc::user_regs_struct;
use std::arch::global_asm;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// What the code finds behind itself.
#[repr(C)]
struct Block {
    function: u64,
    /// Called if the function returns 0, to say why.
    complaint: u64,
    arguments: [u64; 2],
    /// Signals that wait while the function runs,
    waiting: u64,
    /// while there is no stack for a handler,
    all_signals: u64,
    /// and those that the thread blocks by itself.
    signals: u64,
    /// Signals that a handler of the program runs for, and that the thread does not block.
    handled: u64,
    /// Rounds that it waits before it goes back.
    linger: u64,
    /// Where it goes on, and with what, if one of these has come meanwhile: then its system call is not begun again.
    interrupted: [u64; 2],
    rax: u64,
    rbx: u64,
    rcx: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    rbp: u64,
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rsp: u64,
    rip: u64,
    flags: u64,
}

/// A mapping that a thread can be had to make.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Mapping {
    /// Where.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// In the file.
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

/// Stack and room for the vector registers, mapped for the time of the call.
const SCRATCH: u64 = 1 << 20;
/// In r13 at the end, if the function was called: there was memory for the scratch area.
const CALLED: u64 = 1;
/// Where in it the address of a complaint is left.
const RESULT: u64 = 1 << 17;
/// Where in it the code says that the function has returned,
const RETURNED: u64 = RESULT + 8;
/// and where it is told to go on.
const GO_ON: u64 = RESULT + 16;
/// Bytes behind the block, for strings.
const STRINGS: usize = 256;

// Entered with the registers of an mmap call.
global_asm!(
    include_str!("inject.s"),
    scratch = const SCRATCH,
    called = const CALLED,
    prctl = const libc::SYS_prctl,
    get_tsc = const libc::PR_GET_TSC,
    tsc_enable = const libc::PR_TSC_ENABLE,
    returned = const RETURNED,
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
    static calltap_call_tsc: u8;
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

impl Block {
    fn new(
        call: &Call<'_>,
        signals: u64,
        handled: u64,
        linger: u64,
        interrupted: [u64; 2],
        back: &user_regs_struct,
    ) -> Block {
        Block {
            function: call.function,
            complaint: call.complaint,
            arguments: call.arguments,
            waiting: !(call.let_in | FAULT_SIGNALS) | signals,
            all_signals: !FAULT_SIGNALS | signals,
            signals,
            handled,
            linger,
            interrupted,
            rax: back.rax,
            rbx: back.rbx,
            rcx: back.rcx,
            rdx: back.rdx,
            rsi: back.rsi,
            rdi: back.rdi,
            rbp: back.rbp,
            r8: back.r8,
            r9: back.r9,
            r10: back.r10,
            r11: back.r11,
            r12: back.r12,
            r13: back.r13,
            r14: back.r14,
            r15: back.r15,
            rsp: back.rsp,
            rip: back.rip,
            flags: back.eflags,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a struct of u64s has no padding; the slice covers it.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Block>()) }
    }
}

/// What a thread is to call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Address.
    pub function: u64,
    /// First two arguments.
    pub arguments: [u64; 2],
    /// A string that will be at [`Place::string_address`].
    pub string: &'a [u8],
    /// Called if that returns 0 (unless this is 0): it returns a string that says why.
    pub complaint: u64,
    /// Signals that stay as they are during the call. Their handlers must return.
    pub let_in: u64,
}

/// Bytes below a stack pointer that may be in use.
const RED_ZONE: u64 = 128;
/// A second or less.
const LINGER: u64 = 1 << 24;

/// Flags with which the injected code runs: without those by which a program has its own code trap
/// (single steps, unaligned accesses), and without the direction of string instructions.
fn plain(flags: u64) -> u64 {
    const TRAP: u64 = 1 << 8;
    const DIRECTION: u64 = 1 << 10;
    const NESTED_TASK: u64 = 1 << 14;
    const ALIGNMENT_CHECK: u64 = 1 << 18;
    flags & !(TRAP | DIRECTION | NESTED_TASK | ALIGNMENT_CHECK)
}

/// Where in the code the last system call returns to before the way back.
fn done() -> u64 {
    &raw const calltap_call_done as u64 - &raw const calltap_call_start as u64
}

/// Where in the code a thread waits to be fetched.
fn lingering() -> std::ops::Range<u64> {
    let start = &raw const calltap_call_start as u64;
    (&raw const calltap_call_linger as u64 - start)..(&raw const calltap_call_lingered as u64 - start)
}

/// Bytes that the code needs, with its block and strings.
fn size() -> usize {
    code().len() + size_of::<Block>() + STRINGS
}

/// A place for the code: bytes of an executable mapping behind the end of the text.
#[derive(Clone, Debug)]
pub struct Place {
    at: u64,
    before: Vec<u8>,
    /// A free range for the scratch memory.
    scratch: u64,
}

/// Why a call could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// There is no agent to call: another program has taken the process's place.
    NoAgent,
    /// The thread.
    Thread(NotHeld),
    /// The memory could not be written.
    Memory,
    /// The process may map no more memory.
    NoMemory,
    /// The call was ended by a fault, with this signal.
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

/// A gap between mappings that nothing will grow into.
const GAP: u64 = 64 << 20;

impl Place {
    /// All there are. `behind_text` tells, for an executable mapping, the address where the text ends in it, and the bytes behind.
    pub fn all(
        regions: &[Region],
        mut behind_text: impl FnMut(&Region, usize) -> Option<(u64, Vec<u8>)>,
    ) -> Vec<Place> {
        let gaps = regions.windows(2).rev().map(|pair| (pair[0].end, pair[1].start));
        let wide =
            gaps.filter(|(start, end)| *end < USER_END && end - start >= GAP).map(|(_, end)| end - GAP / 2);
        let Some(scratch) = wide.map(|at| at / PAGE * PAGE).next() else { return Vec::new() };
        let executable = regions.iter().filter(|region| region.executable);
        let place = |region: &Region| {
            let (at, before) = behind_text(region, size())?;
            let last_page = at.next_multiple_of(PAGE) == region.end && region.end - at >= size() as u64;
            (at > region.start && last_page).then_some(Place { at, before, scratch })
        };
        executable.rev().filter_map(place).collect()
    }

    /// Are there other bytes than the file's?
    pub fn is_used(&self, text: &mut ProcessText) -> bool {
        let mut now = vec![0; self.before.len()];
        text.read(Avma(self.at), &mut now).is_err() || now != self.before
    }

    /// Is the code there still, left by a calltap that was killed?
    pub fn is_left(&self, text: &mut ProcessText) -> bool {
        let mut now = vec![0; code().len()];
        text.read(Avma(self.at), &mut now).is_ok() && now == code()
    }

    /// First byte, and one past the last.
    pub fn range(&self) -> (u64, u64) {
        (self.at, self.at + size() as u64)
    }

    /// Where a string handed to [`Place::call`] will be.
    pub fn string_address(&self) -> u64 {
        self.at + (code().len() + size_of::<Block>()) as u64
    }

    /// What to call to learn whether the thread may read the time stamp counter.
    pub fn tsc_call(&self) -> Call<'static> {
        let function = &raw const calltap_call_tsc as usize - &raw const calltap_call_start as usize;
        Call { function: self.at + function as u64, arguments: [0; 2], string: &[], complaint: 0, let_in: 0 }
    }

    /// What to call for mappings of a file: function, arguments, and what has to be behind the code.
    pub fn mapping_call(&self, path: &[u8], mappings: &[Mapping]) -> (u64, [u64; 2], Vec<u8>) {
        let function = &raw const calltap_call_map as usize - &raw const calltap_call_start as usize;
        let list = mappings.iter().flat_map(Mapping::bytes).chain([0; 8]);
        let strings = path.iter().copied().chain([0]).chain(list).collect();
        let at = self.string_address();
        (self.at + function as u64, [at, at + path.len() as u64 + 1], strings)
    }

    /// Has the thread make a call. Afterwards it stands where it stood. What the function returned; 0 if the thread has ended.
    pub fn call(
        &self,
        text: &mut ProcessText,
        thread: &mut Held,
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
        let all = [code(), block.bytes(), call.string, &[0]].concat();
        text.write(Avma(self.at), &all).map_err(|_| Failed::Memory)?;
        let mut regs = back;
        (regs.rip, regs.eflags) = (self.at, plain(back.eflags));
        (regs.rax, regs.orig_rax, regs.r13) = (libc::SYS_mmap as u64, u64::MAX, 0);
        (regs.rdi, regs.rsi, regs.rdx) = (self.scratch, SCRATCH, (libc::PROT_READ | libc::PROT_WRITE) as u64);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        (regs.r10, regs.r8, regs.r9) = (flags as u64, u64::MAX, 0);
        let trip = thread.leave(regs)?;
        match self.follow(text, thread, start + limit) {
            Ok(result) => {
                thread.come_back(trip)?;
                result.ok_or(Failed::NoMemory)
            }
            // The code's way back is the only one to the thread's end. What the call came to can be seen elsewhere.
            Err(Interrupted::Lost(NotHeld::Gone)) => Ok(0),
            Err(Interrupted::Lost(why)) => Err(Failed::Thread(why)),
            Err(Interrupted::Fault(signal)) => {
                thread.put_back(trip)?;
                Err(Failed::Fault(signal))
            }
            Err(Interrupted::Late) => Err(Failed::Late),
        }
    }

    /// Follows a thread through the code, up to the last system call before its way back. What the function returned, if it was called.
    fn follow(
        &self,
        text: &mut ProcessText,
        thread: &mut Held,
        until: Instant,
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
        // It is not stopped while the function runs: on a busy machine each stop may cost it its turn.
        let (mut flag, returned) = ([0; 8], Avma(self.scratch + RETURNED));
        let regs = thread.run_until(until, || text.read(returned, &mut flag).is_ok() && flag != [0; 8])?;
        if !(start..last).contains(&regs.rip) {
            // It has waited in vain for this process, which had no turn for a second, and is on its own way back.
            thread.let_run();
            return Err(Interrupted::Late);
        }
        // If it cannot be told, it goes on soon by itself.
        let _ = text.write(Avma(self.scratch + GO_ON), &1u64.to_le_bytes());
        loop {
            let regs = thread.follow_to_system_call(until)?;
            if regs.rip == last {
                return Ok(Some(regs.r12));
            }
        }
    }

    /// Sends a thread to wait in the code, from where it goes on by itself if it is not [fetched](Place::fetch) soon.
    pub fn park(&self, text: &mut ProcessText, thread: &mut Held) -> Result<user_regs_struct, Failed> {
        let back = thread.resumption();
        let nothing = Call { function: 0, arguments: [0; 2], string: &[], complaint: 0, let_in: 0 };
        let block = Block::new(&nothing, 0, 0, LINGER, [back.rip, back.rax], &back);
        text.write(Avma(self.at), &[code(), block.bytes()].concat()).map_err(|_| Failed::Memory)?;
        // As if the code had come there: no signal was pending, and below its own stack there is some room.
        let rip = self.at + lingering().start;
        let (rsp, eflags) = (back.rsp - RED_ZONE, plain(back.eflags));
        let regs = user_regs_struct { rip, rcx: LINGER, rbx: 0, rsp, eflags, ..back };
        thread.set(regs)?;
        Ok(back)
    }

    /// Has it stand where it was sent from. False if it has gone on.
    pub fn fetch(&self, thread: &mut Held, back: user_regs_struct) -> Result<bool, Failed> {
        let waits = lingering().contains(&thread.regs.rip.wrapping_sub(self.at));
        if waits {
            thread.set(back)?;
        }
        Ok(waits)
    }

    /// What the last call complained of, if it did. Then the scratch memory is still there: its address and length.
    pub fn complaint(&self, text: &mut ProcessText) -> Option<(String, [u64; 2])> {
        let mut address = [0; 8];
        text.read(Avma(self.scratch + RESULT), &mut address).ok()?;
        let address = u64::from_le_bytes(address);
        let bytes = (0..1000).map_while(|n| {
            let mut byte = [0];
            text.read(Avma(address + n), &mut byte).ok().filter(|()| byte[0] != 0).map(|()| byte[0])
        });
        Some((String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned(), [self.scratch, SCRATCH]))
    }

    /// Puts back what was there. No thread runs the code any more.
    pub fn restore(&self, text: &mut ProcessText) {
        let _ = text.write(Avma(self.at), &self.before);
    }
}
