//! The stacks of stopped threads: the addresses of code on them, and whether all was read.
//!
//! Stacks are searched for words, not unwound: a return address, or the program counter that a
//! signal handler will return to, is a word above the stack pointer. Such a word may be left over
//! from an earlier call, but no open call is overlooked. Code that makes no outward calls is left
//! only by a signal handler, whose frame holds the program counter. Each signal frame leads to the
//! stack that it interrupted and names the alternate stack of its time: all are searched. If one
//! cannot be searched to its end, the answer is [unknown](Stacks::are_whole), never "no address".

mod closing;
mod code;
mod inside;
mod reading;

pub use closing::close_calls;
pub use code::find;
pub use inside::Pushed;

use crate::agent;
use crate::go;
use crate::memory::maps::{Mappings, Region, text_of};
use crate::memory::text::ProcessText;
use crate::ptrace::threads::{StoppedThread, USER_CODE, aside};
use crate::target::Symbols;
use calltap_abi::stub;
use calltap_patch::{Avma, Text};
use code::Code;
use reading::{end_of_stack, read_up};
use std::collections::{HashMap, HashSet};

/// Maximum number of bytes that are searched above a stack pointer.
const MAX_STACK_SEARCH: u64 = 64 << 20;
/// Maximum number of stacks of a thread.
const SEGMENTS: usize = 64;
/// Maximum distance from the stack pointer up to a control block that is taken for the stack's end.
const CONTROL_BLOCK_DISTANCE: u64 = 64 << 10;
const WORD: usize = 8;

/// The stacks of stopped threads, as of the time when the threads were stopped.
pub struct Stacks {
    threads: Vec<Whereabouts>,
}

/// The addresses of code at which a thread is or may continue.
struct Whereabouts {
    rip: u64,
    /// General registers.
    registers: [u64; 15],
    words: Vec<CodeWord>,
    /// Ranges of its stacks.
    stacks: Vec<(u64, u64)>,
    /// Whether a stack could not be read to its end.
    is_cut: bool,
}

/// A word on a stack that is an address of executable memory.
struct CodeWord {
    value: u64,
    /// Whether the word lies near the stack pointer.
    is_near: bool,
    /// Whether a signal handler returns to this address: it lies among saved registers.
    is_interrupted: bool,
}

/// Program counter, stack pointer, other registers and control block of a stopped thread.
#[derive(Clone, Copy)]
struct Point {
    rip: u64,
    top: u64,
    registers: [u64; 15],
    block: u64,
}

impl Point {
    fn of(thread: &StoppedThread) -> Point {
        let regs = &thread.regs;
        let registers = [
            regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp, regs.r8, regs.r9, regs.r10,
            regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
        ];
        Point { rip: regs.rip, top: regs.rsp, registers, block: regs.fs_base }
    }

    /// Start and length of the memory from the stack pointer up to the control block, inclusive;
    /// 0 if that is not near. Both lie in one mapping, or unreadable memory ends the stack before.
    fn short_stack(&self) -> (u64, usize) {
        let start = self.top & !7;
        let is_short = (1..=CONTROL_BLOCK_DISTANCE).contains(&self.block.wrapping_sub(start));
        (start, if is_short { (self.block - start) as usize + WORD } else { 0 })
    }

    /// Returns the stack that was read for [`Self::short_stack`], if a control block ends it: a
    /// thread library's block begins with its own address. Go's runtime keeps a thread's words on
    /// its heap.
    fn of_short<'a>(&self, read: &'a [u8]) -> Option<&'a [u8]> {
        let (stack, own) = read.split_last_chunk::<WORD>()?;
        (u64::from_le_bytes(*own) == self.block).then_some(stack)
    }
}

impl Whereabouts {
    fn read(
        thread: Point,
        first: Option<&[u8]>,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
        handlers: &mut Handlers,
    ) -> Whereabouts {
        let stack = Stack::read_from(first, thread, text, mappings, handlers);
        let words = stack.segments.iter().flat_map(|segment| {
            segment.code.iter().map(|(at, value)| {
                let is_interrupted = segment.is_saved_pc(*at);
                CodeWord { value: *value, is_near: *at < UNWINDER, is_interrupted }
            })
        });
        Whereabouts {
            rip: thread.rip,
            registers: thread.registers,
            words: words.collect(),
            stacks: stack.segments.iter().map(|segment| (segment.start, segment.end())).collect(),
            is_cut: stack.is_cut(),
        }
    }

    /// Reads the stacks of several threads.
    fn read_all(threads: &[Point], text: &mut ProcessText, mappings: &Mappings<'_>) -> Vec<Whereabouts> {
        let mut handlers = Handlers::new(mappings.code());
        let short: Vec<(u64, usize)> = threads.iter().map(Point::short_stack).collect();
        let pieces = text.read_many(&short);
        let read = |(n, thread): (usize, &Point)| {
            let first = pieces.get(n).and_then(|first| thread.of_short(first));
            Whereabouts::read(*thread, first, text, mappings, &mut handlers)
        };
        threads.iter().enumerate().map(read).collect()
    }

    fn in_ranges<'a>(
        &'a self,
        ranges: &'a [(u64, u64)],
        counts: impl Fn(&CodeWord) -> bool + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let words = self.words.iter().filter(move |word| counts(word)).map(|word| word.value);
        [self.rip].into_iter().chain(words).filter(|word| find(ranges, *word))
    }
}

/// Splits memory that begins at a multiple of eight into words.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// A range of memory that holds stack frames.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Address of the first byte: a stack pointer.
    pub start: u64,
    /// The memory from `start` up.
    pub bytes: Vec<u8>,
    /// Offset and value of the words that are addresses of code.
    code: Vec<(usize, u64)>,
    /// Whether the stack may go on beyond what was read.
    cut: bool,
    /// Offsets of the interrupted program counters in its signal frames.
    interrupted: Vec<usize>,
}

impl Segment {
    fn new(start: u64, bytes: Vec<u8>, cut: bool) -> Segment {
        Segment { start, bytes, code: Vec::new(), cut, interrupted: Vec::new() }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Notes the signal frames of this segment, and the end of the alternate stack that it is on.
    fn note_frames(&mut self, frames: &[SignalFrame]) {
        let own = frames.iter().map(|frame| frame.alternate).find(|[start, size]| {
            *size <= MAX_STACK_SEARCH && (*start..start.saturating_add(*size)).contains(&self.start)
        });
        if let Some([start, size]) = own {
            let length = (start + size - self.start) as usize;
            self.bytes.truncate(length);
            self.code.retain(|(at, _)| at + WORD <= length);
            self.cut &= self.bytes.len() < length;
        }
        let interrupted = frames.iter().map(|frame| frame.at + SIGNAL_FRAME_PC);
        self.interrupted = interrupted.filter(|at| *at < self.bytes.len()).collect();
    }

    fn word(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk::<WORD>()?))
    }
}

/// All stacks of a thread that hold open calls.
#[derive(Clone, Default, Debug)]
pub struct Stack {
    /// The stacks, first the one that the thread is on.
    pub segments: Vec<Segment>,
    /// Whether the thread has more stacks than were read.
    cut: bool,
}

impl Stack {
    /// Reads the stacks of a thread.
    pub fn read(
        thread: &StoppedThread,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
        handlers: &mut Handlers,
    ) -> Stack {
        Stack::read_from(None, Point::of(thread), text, mappings, handlers)
    }

    /// Reads the stacks of a thread; `first` is the current stack [read
    /// before](Point::short_stack).
    fn read_from(
        first: Option<&[u8]>,
        thread: Point,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
        handlers: &mut Handlers,
    ) -> Stack {
        let mut stack = Stack::default();
        let Point { top, block, .. } = thread;
        if let Some(bytes) = first {
            stack.segments.push(Segment::new(top & !7, bytes.to_vec(), false));
        } else {
            let limit = go::stack(block, top, text).and_then(|stack| stack.high);
            stack.add(top, limit, block, text, mappings);
        }
        let mut next = 0;
        while next < stack.segments.len() {
            let segment = &mut stack.segments[next];
            let code = words(&segment.bytes).enumerate().filter(|(_, word)| handlers.code.contains(*word));
            segment.code = code.map(|(n, word)| (n * WORD, word)).collect();
            let frames = handlers.frames(segment, text);
            segment.note_frames(&frames);
            for frame in frames {
                let limit = go::stack(block, frame.interrupted, text).and_then(|stack| stack.high);
                stack.add(frame.interrupted, limit, block, text, mappings);
                let [start, size] = frame.alternate;
                let is_mapped = || mappings.next(start).is_some_and(|region| region.contains(start));
                // A handler that switched stacks may have left calls open on the alternate stack.
                if size > 0 && size <= MAX_STACK_SEARCH && !stack.is_on(start, size) && is_mapped() {
                    stack.add(start, Some(start + size), block, text, mappings);
                }
            }
            next += 1;
        }
        stack
    }

    /// Adds the unread stack from `pointer` up to `limit` or the control block at the stack's end.
    fn add(
        &mut self,
        pointer: u64,
        limit: Option<u64>,
        block: u64,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
    ) {
        let start = pointer & !7;
        if self.segments.iter().any(|known| (known.start..known.end()).contains(&start)) {
            return;
        }
        if self.segments.len() == SEGMENTS {
            self.cut = true;
            return;
        }
        let end = limit.unwrap_or_else(|| end_of_stack(start, mappings));
        // The memory above was read already, as the stack of a newer frame.
        let known = self.segments.iter().map(|known| known.start).filter(|known| *known > start).min();
        let end = known.map_or(end, |known| end.min(known));
        let end = if (start..end).contains(&block) { block } else { end };
        let (bytes, is_hidden) = read_up(start, end.min(start.saturating_add(MAX_STACK_SEARCH)), text);
        // A stack ends where memory ends: a false signal frame leads to unmapped memory.
        let cut = is_hidden || bytes.len() as u64 == MAX_STACK_SEARCH && end - start > MAX_STACK_SEARCH;
        self.segments.push(Segment::new(start, bytes, cut));
    }

    /// Whether a segment begins within this memory.
    fn is_on(&self, start: u64, size: u64) -> bool {
        self.segments.iter().any(|segment| segment.start.wrapping_sub(start) < size)
    }

    fn is_cut(&self) -> bool {
        self.cut || self.segments.iter().any(|segment| segment.cut)
    }

    /// Whether a signal handler runs, as far as the stacks show.
    pub(crate) fn is_in_handler(&self) -> bool {
        self.segments.iter().any(|segment| !segment.interrupted.is_empty())
    }
}

/// The fields that are read from a signal frame.
struct SignalFrame {
    /// Offset of the frame in its segment.
    at: usize,
    /// Stack pointer that the handler will return to.
    interrupted: u64,
    /// Address and size of the alternate stack.
    alternate: [u64; 2],
}

/// The code that ends signal handlers in a process.
pub struct Handlers {
    code: Code,
    /// Ranges of stubs, whose addresses replace the return address of a traced handler.
    stubs: Vec<(u64, u64)>,
    /// Addresses that were read, with whether a restorer is there.
    restorers: HashMap<u64, bool>,
}

impl Handlers {
    /// Prepares the search in a process with these mappings.
    pub(crate) fn new(regions: &[Region]) -> Handlers {
        let (code, stubs) = (text_of(regions, |_| true), text_of(regions, agent::is_code));
        let code = Code::new(code);
        Handlers { code, stubs, restorers: HashMap::new() }
    }

    /// Returns the signal frames on a stack. A stale frame leads to memory without open calls.
    fn frames(&mut self, segment: &Segment, text: &mut ProcessText) -> Vec<SignalFrame> {
        let mut frames = Vec::new();
        for (place, word) in segment.code.iter().copied() {
            let field = |at: usize| segment.word(place + at);
            let Some(interrupted) = field(SIGNAL_FRAME_SP) else { continue };
            // `sigaction` leaves the restorer's address on the stack as well.
            if field(SIGNAL_FRAME_SEGMENTS).is_none_or(|segments| !USER_CODE.contains(&(segments as u16))) {
                continue;
            }
            let Some(returns_to) = self.return_address(word, segment.start + place as u64, text) else {
                continue;
            };
            if *self.restorers.entry(returns_to).or_insert_with(|| is_restorer(text, returns_to)) {
                let alternate = [SIGNAL_FRAME_ALTERNATE, SIGNAL_FRAME_ALTERNATE + 2 * WORD];
                let alternate = alternate.map(|at| field(at).unwrap_or(0));
                frames.push(SignalFrame { at: place, interrupted, alternate });
            }
        }
        frames
    }

    /// Returns a return address, or the one that a stub has replaced.
    fn return_address(&self, word: u64, slot: u64, text: &mut ProcessText) -> Option<u64> {
        if !find(&self.stubs, word) {
            return Some(word);
        }
        let mut kept = [0; WORD];
        text.read(Avma(slot ^ 1 << stub::SHADOW_BIT), &mut kept).ok()?;
        Some(u64::from_le_bytes(kept))
    }
}

impl Stacks {
    /// Reads the stacks of threads, with a second thread of calltap if there are many.
    pub fn read(held: &[StoppedThread], text: &mut ProcessText, mappings: &Mappings<'_>) -> Stacks {
        let all: Vec<Point> = held.iter().map(Point::of).collect();
        let (own, others) = all.split_at(all.len() / 2);
        let mut reader = text.shared();
        let work = |others: Vec<Point>, mut text: ProcessText, pid: u32, code: Vec<Region>| {
            move || Whereabouts::read_all(&others, &mut text, &Mappings::asked(pid, &code))
        };
        let mut read_aside = || {
            let ((pid, code), text) = mappings.process().zip(reader.take())?;
            aside(all.len(), work(others.to_vec(), text, pid, code.to_vec()))
        };
        let Some(other_half) = read_aside() else {
            return Stacks { threads: Whereabouts::read_all(&all, text, mappings) };
        };
        let mut threads = Whereabouts::read_all(own, text, mappings);
        threads.extend(other_half.recv().unwrap_or_else(|_| Whereabouts::read_all(others, text, mappings)));
        Stacks { threads }
    }

    /// Reads the stacks of threads that ran again, by number; `mappings` are newer than the run.
    pub fn read_again(
        &mut self,
        ran: &[usize],
        held: &[StoppedThread],
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
    ) {
        let mut handlers = Handlers::new(mappings.code());
        for n in ran {
            self.threads[*n] = Whereabouts::read(Point::of(&held[*n]), None, text, mappings, &mut handlers);
        }
    }

    /// Whether all stacks were read to their ends. If not, a missing address may still be there.
    pub fn are_whole(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_cut)
    }

    /// Returns the addresses in these sorted ranges at which threads are or may continue.
    pub fn words_in(&self, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.threads.iter().flat_map(|thread| thread.in_ranges(ranges, |_| true)).collect()
    }

    /// Whether thread `n` runs code without outward calls, now or when a signal handler returns.
    pub fn runs_in(&self, n: usize, ranges: &[(u64, u64)]) -> bool {
        self.threads[n].in_ranges(ranges, |word| word.is_interrupted).next().is_some()
    }

    /// Returns the numbers of threads in [unwinders] that may hold copies of stubs' addresses. An
    /// unwinder copies return addresses from the stack, so a thread without a stub on its stacks
    /// has no copy.
    pub fn unwinding(&self, unwinders: &[(u64, u64)], stubs: (u64, u64)) -> Vec<usize> {
        // Words further up are mostly left over from earlier calls.
        let unwinds =
            |thread: &Whereabouts| thread.in_ranges(unwinders, |word| word.is_near).next().is_some();
        let has_stub = |thread: &Whereabouts| {
            thread.registers.iter().any(|register| find(&[stubs], *register))
                || thread.in_ranges(&[stubs], |_| true).next().is_some()
        };
        let counts = |n: &usize| unwinds(&self.threads[*n]) && has_stub(&self.threads[*n]);
        (0..self.threads.len()).filter(counts).collect()
    }

    /// Returns the ranges of the stacks of these threads, sorted and disjoint.
    pub fn of_threads(&self, numbers: &[usize]) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> =
            numbers.iter().flat_map(|n| self.threads[*n].stacks.iter().copied()).collect();
        ranges.sort_unstable();
        // The range of a stack without a known end may hold the next stack.
        ranges.dedup_by(|next, before| {
            let is_same = next.0 <= before.1;
            before.1 = if is_same { before.1.max(next.1) } else { before.1 };
            is_same
        });
        ranges
    }
}

/// Whether a library of this file name unwinds stacks.
pub(crate) fn is_unwinder(name: &str) -> bool {
    name.starts_with("libgcc_s.") || name.starts_with("libunwind.")
}

/// Entry points of an unwinder that is linked into a program or library.
const UNWINDING: &[&str] = &[
    "_Unwind_RaiseException",
    "_Unwind_RaiseException_Phase2",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
    "_Unwind_ForcedUnwind",
    "_Unwind_ForcedUnwind_Phase2",
    "_Unwind_Backtrace",
];

/// Returns the sorted code ranges of all unwinders in a process, except stripped linked-in ones.
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

/// Whether the code at an address is a restorer: it begins with the system call rt_sigreturn.
fn is_restorer(text: &mut ProcessText, address: u64) -> bool {
    let mut code = [0; RESTORERS[0].len()];
    text.read(Avma(address), &mut code).is_ok() && RESTORERS.iter().any(|restorer| code.starts_with(restorer))
}

/// Stack bytes that an unwinder and its callees need at most.
const UNWINDER: usize = 16 << 10;
/// Offset in a signal frame (first word: the restorer's address) of `uc_stack`: address, flags,
/// size.
const SIGNAL_FRAME_ALTERNATE: usize = 24;
/// Offset of the interrupted stack pointer.
const SIGNAL_FRAME_SP: usize = 168;
/// Offset of the interrupted program counter.
const SIGNAL_FRAME_PC: usize = 176;
/// Offset of the segment registers: first the code segment.
const SIGNAL_FRAME_SEGMENTS: usize = 192;
/// Restorers, the longest first: `mov $15, %rax` (glibc, Go), `mov $15, %eax` (musl), `push $15;
/// pop %rax`, and `xor %eax, %eax; mov $15, %al`, each followed by `syscall`.
const RESTORERS: [&[u8]; 4] = [
    &[0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0xB8, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0x6A, 0x0F, 0x58, 0x0F, 0x05],
    &[0x31, 0xC0, 0xB0, 0x0F, 0x0F, 0x05],
];
