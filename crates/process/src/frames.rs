//! The stacks of stopped threads.
//!
//! Stacks are searched for words, not unwound: a return address, or the place where a signal handler will return to, is a word on some
//! stack above its stack pointer. A word that is found may be left over from an earlier call; no open call is overlooked. Code that calls
//! nothing but itself is left only by a signal handler, whose frame says where it returns to.
//!
//! A thread has more than one stack where a signal handler runs on an alternate stack, or has switched to another one: each signal frame
//! leads to the stack that it interrupted, and names the alternate stack of its time. All of them are searched, each to its end. A stack
//! that cannot be searched to its end makes the answer [unknown](Stacks::are_whole), never "nothing".

mod closing;
mod code;

pub use closing::close_calls;
pub use code::find;

use crate::agent;
use crate::go;
use crate::memory::maps::{Mappings, Region, text_of};
use crate::memory::text::ProcessText;
use crate::ptrace::threads::{Held, aside};
use crate::target::Symbols;
use calltap_abi::PAGE;
use calltap_abi::stub;
use calltap_patch::{Avma, Text};
use code::Code;
use std::collections::{HashMap, HashSet};

/// A stack is searched this far up from its stack pointer.
const LONGEST: u64 = 64 << 20;
/// A thread has no more stacks than this.
const SEGMENTS: usize = 64;
/// Where a thread's control block lies no further above its stack pointer than this, the stack ends there: what is between is read without a look at the mappings.
const SHORT: u64 = 64 << 10;
/// Stacks are read in pieces, as most of what lies above may not be there.
const PIECE: u64 = 1 << 20;
const WORD: usize = 8;

/// The stacks of stopped threads, as they were when the threads were stopped.
pub struct Stacks {
    threads: Vec<Whereabouts>,
}

/// Where a thread is, will return to, or will be when a signal handler returns.
struct Whereabouts {
    rip: u64,
    words: Vec<CodeWord>,
    /// Its stack could not be read to its end.
    is_cut: bool,
}

/// A word on a stack that is the address of executable memory.
struct CodeWord {
    value: u64,
    /// It lies near the stack pointer.
    is_near: bool,
    /// A signal handler returns there.
    is_interrupted: bool,
}

/// Where a stopped thread is.
#[derive(Clone, Copy)]
struct Point {
    rip: u64,
    /// Its stack pointer.
    top: u64,
    /// Its control block.
    block: u64,
}

impl Point {
    fn of(thread: &Held) -> Point {
        let regs = &thread.regs;
        Point { rip: regs.rip, top: regs.rsp, block: regs.fs_base }
    }

    /// From the stack pointer to the thread's control block and its first word, if that is near: where it begins, and its length. It may be less than the stack
    /// where the thread has switched to another one, and is never more: both lie in one mapping, or memory between that cannot be read ends the stack.
    fn short_stack(&self) -> (u64, usize) {
        let start = self.top & !7;
        let is_short = (1..=SHORT).contains(&self.block.wrapping_sub(start));
        (start, if is_short { (self.block - start) as usize + WORD } else { 0 })
    }

    /// That stack, if the block is one: a thread library's begins with its own address. Go's runtime has a thread's words on its heap, with stacks of
    /// goroutines below.
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
                let is_interrupted = segment.interrupted.contains(at);
                CodeWord { value: *value, is_near: *at < UNWINDER, is_interrupted }
            })
        });
        Whereabouts { rip: thread.rip, words: words.collect(), is_cut: stack.is_cut() }
    }

    /// The same of some threads.
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

/// The words of a piece of memory that begins at a multiple of eight.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// A piece of memory that holds stack frames.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Where it begins: at a stack pointer.
    pub start: u64,
    /// What lies there and above.
    pub bytes: Vec<u8>,
    /// Which of its words are addresses of code: where, and what.
    code: Vec<(usize, u64)>,
    /// There may be more of it than was read.
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

    /// Notes the signal frames on it. An alternate stack, as one of them says, ends where that one says.
    fn note_frames(&mut self, frames: &[SignalFrame]) {
        let own = frames.iter().map(|frame| frame.alternate).find(|[start, size]| {
            *size <= LONGEST && (*start..start.saturating_add(*size)).contains(&self.start)
        });
        if let Some([start, size]) = own {
            let length = (start + size - self.start) as usize;
            self.bytes.truncate(length);
            self.code.retain(|(at, _)| at + WORD <= length);
            self.cut = false;
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
    /// First the one that the thread is on.
    pub segments: Vec<Segment>,
    /// There are more of them.
    cut: bool,
}

impl Stack {
    /// Reads the stacks of a thread.
    pub fn read(
        thread: &Held,
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
        handlers: &mut Handlers,
    ) -> Stack {
        Stack::read_from(None, Point::of(thread), text, mappings, handlers)
    }

    /// The same; `first` is the stack that the thread is on, if that was [read before](Point::short_stack).
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
                // Another handler may have left the alternate stack with calls open. Of one that is in use, nothing below the stack pointer is.
                if size > 0 && size <= LONGEST && !stack.is_on(start, size) && is_mapped() {
                    stack.add(start, Some(start + size), block, text, mappings);
                }
            }
            next += 1;
        }
        stack
    }

    /// Adds the stack above a stack pointer, unless it was read already. It ends at `limit` if that is known, and no later than the thread's
    /// control block if that lies on it: thread libraries put the block above the stack.
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
        // What lies above was read already, as the stack of a frame further in.
        let known = self.segments.iter().map(|known| known.start).filter(|known| *known > start).min();
        let end = known.map_or(end, |known| end.min(known));
        let end = if (start..end).contains(&block) { block } else { end };
        let bytes = read_up(start, end.min(start.saturating_add(LONGEST)), text);
        // A stack ends where memory ends: what only looks like a signal frame leads to where nothing is.
        let cut = bytes.len() as u64 == LONGEST && end - start > LONGEST;
        self.segments.push(Segment::new(start, bytes, cut));
    }

    /// Does one that holds open calls begin within this memory?
    fn is_on(&self, start: u64, size: u64) -> bool {
        self.segments.iter().any(|segment| segment.start.wrapping_sub(start) < size)
    }

    fn is_cut(&self) -> bool {
        self.cut || self.segments.iter().any(|segment| segment.cut)
    }

    /// Does a signal handler run, as far as the stacks say?
    pub fn is_in_handler(&self) -> bool {
        self.segments.iter().any(|segment| !segment.interrupted.is_empty())
    }
}

/// Where the stack ends that has this address in it: where memory ends that can be written, whatever mappings it consists of.
fn end_of_stack(start: u64, mappings: &Mappings<'_>) -> u64 {
    // The first that ends above it: a stack may have grown downwards, or be a new one, since the mappings were read.
    let Some(first) = mappings.next(start) else { return u64::MAX };
    let is_more = |end: u64, region: &Region| region.start == end && region.writable && region.file.1 == 0;
    let mut end = first.end;
    while let Some(region) = mappings.next(end).filter(|region| is_more(end, region)) {
        end = region.end;
    }
    end
}

/// The memory between two addresses, as far as it can be read.
fn read_up(start: u64, end: u64, text: &mut ProcessText) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = start;
    while at < end {
        let next = end.min((at + PIECE) / PIECE * PIECE);
        let from = bytes.len();
        bytes.resize(from + (next - at) as usize, 0);
        if text.read(Avma(at), &mut bytes[from..]).is_err() {
            bytes.truncate(from);
            read_pages(at, next, text, &mut bytes);
            break;
        }
        at = next;
    }
    bytes
}

/// The same page by page: a page that cannot be read holds no frame.
fn read_pages(mut at: u64, end: u64, text: &mut ProcessText, bytes: &mut Vec<u8>) {
    while at < end {
        let next = end.min((at + PAGE) / PAGE * PAGE);
        let from = bytes.len();
        bytes.resize(from + (next - at) as usize, 0);
        if text.read(Avma(at), &mut bytes[from..]).is_err() {
            bytes.truncate(from);
            return;
        }
        at = next;
    }
}

/// What a signal frame says.
struct SignalFrame {
    /// At which byte of its segment it begins.
    at: usize,
    /// The stack pointer that the handler will return to.
    interrupted: u64,
    /// Address and size of the alternate stack.
    alternate: [u64; 2],
}

/// The code that ends signal handlers, in a process.
pub struct Handlers {
    code: Code,
    /// Where stubs are. The return address of a handler that is traced is one of these; the restorer's address is in the shadow stack.
    stubs: Vec<(u64, u64)>,
    /// Addresses that were read: is the code there a restorer?
    restorers: HashMap<u64, bool>,
}

impl Handlers {
    /// Of a process with these mappings.
    pub fn new(regions: &[Region]) -> Handlers {
        let (code, stubs) = (text_of(regions, |_| true), text_of(regions, agent::is_code));
        let code = Code::new(code);
        Handlers { code, stubs, restorers: HashMap::new() }
    }

    /// The signal frames on a stack. What was left there by an earlier handler is one as well: it leads to memory that is searched in vain.
    fn frames(&mut self, segment: &Segment, text: &mut ProcessText) -> Vec<SignalFrame> {
        let mut frames = Vec::new();
        for (place, word) in segment.code.iter().copied() {
            let field = |at: usize| segment.word(place + at);
            let Some(interrupted) = field(SIGNAL_FRAME_SP) else { continue };
            // `sigaction` leaves the restorer's address on the stack as well.
            if field(SIGNAL_FRAME_SEGMENTS).is_none_or(|segments| segments as u16 != USER_CODE) {
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

    /// What a return address is, or was before a stub took its place.
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
    /// Reads the stacks of threads: those of many by two threads.
    pub fn read(held: &[Held], text: &mut ProcessText, mappings: &Mappings<'_>) -> Stacks {
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
        let Some(told) = read_aside() else {
            return Stacks { threads: Whereabouts::read_all(&all, text, mappings) };
        };
        let mut threads = Whereabouts::read_all(own, text, mappings);
        threads.extend(told.recv().unwrap_or_else(|_| Whereabouts::read_all(others, text, mappings)));
        Stacks { threads }
    }

    /// Reads the stacks of those threads again that have run, by their numbers; `mappings` are those since then.
    pub fn read_again(
        &mut self,
        ran: &[usize],
        held: &[Held],
        text: &mut ProcessText,
        mappings: &Mappings<'_>,
    ) {
        let mut handlers = Handlers::new(mappings.code());
        for n in ran {
            self.threads[*n] = Whereabouts::read(Point::of(&held[*n]), None, text, mappings, &mut handlers);
        }
    }

    /// Could all stacks be read to their ends? If not, what is not found may be there all the same.
    pub fn are_whole(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_cut)
    }

    /// Where threads are, will return to, or will be when a signal handler returns, as far as it lies in one of the (sorted) ranges.
    pub fn words_in(&self, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.threads.iter().flat_map(|thread| thread.in_ranges(ranges, |_| true)).collect()
    }

    /// Does thread number `n` run code that calls nothing outside itself: is it there, or will it be when a signal handler returns?
    pub fn runs_in(&self, n: usize, ranges: &[(u64, u64)]) -> bool {
        self.threads[n].in_ranges(ranges, |word| word.is_interrupted).next().is_some()
    }

    /// The numbers of the threads that are in one of the [unwinders]: they have copies of what they found in the slots of open calls.
    pub fn unwinding(&self, ranges: &[(u64, u64)]) -> impl Iterator<Item = usize> {
        // Not far up: what is there is more often left over from an earlier time.
        let unwinds = |thread: &Whereabouts| thread.in_ranges(ranges, |word| word.is_near).next().is_some();
        (0..self.threads.len()).filter(move |n| unwinds(&self.threads[*n]))
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

/// The code of all unwinders of a process, by address. One that is linked in, and whose symbols were stripped, is not found.
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

/// Is this the code that ends a signal handler: does it begin with the system call rt_sigreturn?
fn is_restorer(text: &mut ProcessText, address: u64) -> bool {
    let mut code = [0; RESTORERS[0].len()];
    text.read(Avma(address), &mut code).is_ok() && RESTORERS.iter().any(|restorer| code.starts_with(restorer))
}

/// An unwinder, and what it calls, needs no more stack than this.
const UNWINDER: usize = 16 << 10;
/// A signal frame begins with the address of the code that ends the handler. So many bytes behind that come, in `struct ucontext`: the alternate stack (address, flags, size),
const SIGNAL_FRAME_ALTERNATE: usize = 24;
/// the interrupted stack pointer,
const SIGNAL_FRAME_SP: usize = 168;
/// the interrupted program counter,
const SIGNAL_FRAME_PC: usize = 176;
/// and the segment registers, of which the first is that of code.
const SIGNAL_FRAME_SEGMENTS: usize = 192;
/// What it is in a thread that runs code of 64 bits.
const USER_CODE: u16 = 0x33;
/// Code that ends a handler, the longest first: `mov $15, %rax` (glibc, Go), `mov $15, %eax` (musl), `push $15; pop %rax`, and `xor %eax, %eax; mov $15, %al`, each
/// followed by `syscall`.
const RESTORERS: [&[u8]; 4] = [
    &[0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0xB8, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0x6A, 0x0F, 0x58, 0x0F, 0x05],
    &[0x31, 0xC0, 0xB0, 0x0F, 0x0F, 0x05],
];
