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
mod search;

pub use closing::close_calls;
pub use code::find;
pub use inside::Pushed;
pub use search::Segment;

use crate::go;
use crate::memory::maps::{Mappings, Region, text_of};
use crate::memory::text::ProcessText;
use crate::ptrace::threads::{StoppedThread, aside};
use crate::target::Symbols;
use reading::{MAX_STACK_SEARCH, Reader, end_of_stack};
use search::{CodeWord, Handlers, SignalFrame};
use std::collections::HashSet;

/// Maximum number of stacks of a thread.
const SEGMENTS: usize = 64;
/// Maximum distance from the stack pointer up to a control block that is taken for the stack's end.
const CONTROL_BLOCK_DISTANCE: u64 = 64 << 10;
/// Stack bytes that an unwinder and its callees need at most.
const UNWINDER: u64 = 16 << 10;
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
    fn read(thread: Point, first: Option<&[u8]>, process: &mut Process<'_>) -> Whereabouts {
        let stack = Stack::read_from(first, thread, 0, process);
        Whereabouts {
            rip: thread.rip,
            registers: thread.registers,
            words: stack.segments.iter().flat_map(|segment| segment.words.iter().copied()).collect(),
            stacks: stack.segments.iter().map(|segment| (segment.start, segment.end)).collect(),
            is_cut: stack.is_cut(),
        }
    }

    /// Reads the stacks of several threads.
    fn read_all(threads: &[Point], text: &mut ProcessText, mappings: &Mappings<'_>) -> Vec<Whereabouts> {
        let short: Vec<(u64, usize)> = threads.iter().map(Point::short_stack).collect();
        let pieces = text.read_many(&short);
        let handlers = &mut Handlers::new(mappings.code());
        let mut process = Process { text, mappings, handlers };
        let read = |(n, thread): (usize, &Point)| {
            let first = pieces.get(n).and_then(|first| thread.of_short(first));
            Whereabouts::read(*thread, first, &mut process)
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

/// A process whose stacks are read.
struct Process<'a> {
    text: &'a mut ProcessText,
    mappings: &'a Mappings<'a>,
    handlers: &'a mut Handlers,
}

impl Process<'_> {
    /// Returns the end of the goroutine's stack that a stack pointer is on.
    fn end_of_goroutine(&mut self, block: u64, top: u64) -> Option<u64> {
        go::stack(block, top, self.text)?.high
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
    /// Reads the stacks of a thread. `kept`: number of bytes of the current stack to
    /// [return](Segment::bytes).
    pub fn read(
        thread: &StoppedThread,
        kept: usize,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
    ) -> Stack {
        let handlers = &mut Handlers::new(mappings.code());
        Stack::read_from(None, Point::of(thread), kept, &mut Process { text, mappings, handlers })
    }

    /// Reads the stacks of a thread; `first` is the current stack [read
    /// before](Point::short_stack).
    fn read_from(first: Option<&[u8]>, thread: Point, kept: usize, process: &mut Process<'_>) -> Stack {
        let mut stack = Stack::default();
        let Point { top, block, .. } = thread;
        // A stack that is found by one frame may hold others.
        let mut frames = Vec::new();
        if let Some(bytes) = first {
            let (segment, its) = process.handlers.search_read(top & !7, bytes, process.text);
            stack.segments.push(segment);
            frames = its;
        } else {
            let limit = process.end_of_goroutine(block, top);
            frames.extend(stack.add(top, limit, block, kept, process));
        }
        let mut next = 0;
        while let Some(SignalFrame { interrupted, alternate: [start, size] }) = frames.get(next).copied() {
            let limit = process.end_of_goroutine(block, interrupted);
            frames.extend(stack.add(interrupted, limit, block, 0, process));
            let is_mapped = || process.mappings.next(start).is_some_and(|region| region.contains(start));
            // A handler that switched stacks may have left calls open on the alternate stack.
            if (1..=MAX_STACK_SEARCH).contains(&size) && !stack.is_on(start, size) && is_mapped() {
                frames.extend(stack.add(start, Some(start + size), block, 0, process));
            }
            next += 1;
        }
        stack
    }

    /// Adds the unread stack from `pointer` up to `limit` or the control block at the stack's end.
    /// Returns its signal frames.
    fn add(
        &mut self,
        pointer: u64,
        limit: Option<u64>,
        block: u64,
        kept: usize,
        process: &mut Process<'_>,
    ) -> Vec<SignalFrame> {
        let start = pointer & !7;
        if self.segments.iter().any(|known| (known.start..known.end).contains(&start)) {
            return Vec::new();
        }
        if self.segments.len() == SEGMENTS {
            self.cut = true;
            return Vec::new();
        }
        let end = limit.unwrap_or_else(|| end_of_stack(start, process.mappings));
        // The memory above was read already, as the stack of a newer frame.
        let known = self.segments.iter().map(|known| known.start).filter(|known| *known > start).min();
        let end = known.map_or(end, |known| end.min(known));
        let end = if (start..end).contains(&block) { block } else { end };
        let (segment, frames) = process.handlers.search(Reader::new(start, end), kept, process.text);
        self.segments.push(segment);
        frames
    }

    /// Whether a stack holds an address in these sorted ranges.
    pub fn leads_into(&self, ranges: &[(u64, u64)]) -> bool {
        self.segments.iter().flat_map(Segment::code).any(|word| find(ranges, word))
    }

    /// Whether a segment begins within this memory.
    fn is_on(&self, start: u64, size: u64) -> bool {
        self.segments.iter().any(|segment| segment.start.wrapping_sub(start) < size)
    }

    fn is_cut(&self) -> bool {
        self.cut || self.segments.iter().any(|segment| segment.is_cut)
    }

    /// Whether a signal handler runs, as far as the stacks show.
    pub(crate) fn is_in_handler(&self) -> bool {
        self.segments.iter().any(|segment| segment.has_interrupted)
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
        let handlers = &mut Handlers::new(mappings.code());
        let mut process = Process { text, mappings, handlers };
        for n in ran {
            self.threads[*n] = Whereabouts::read(Point::of(&held[*n]), None, &mut process);
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
