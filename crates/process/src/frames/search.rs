//! Searches the memory of a stack, a piece at a time, for addresses of code and for signal frames.

use super::code::{Code, find};
use super::reading::{MAX_STACK_SEARCH, Reader};
use super::{UNWINDER, WORD, words};
use crate::agent;
use crate::memory::maps::{Region, text_of};
use crate::memory::text::ProcessText;
use crate::ptrace::threads::USER_CODE;
use calltap_abi::stub;
use calltap_patch::{Avma, Text};
use std::collections::HashMap;

/// A word on a stack that is an address of executable memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CodeWord {
    pub(super) value: u64,
    /// Whether the word lies near the stack pointer.
    pub(super) is_near: bool,
    /// Whether a signal handler returns to this address: it lies among saved registers.
    pub(super) is_interrupted: bool,
}

/// The fields that are read from a signal frame.
#[derive(Clone, Copy)]
pub(super) struct SignalFrame {
    /// Stack pointer that the handler will return to.
    pub(super) interrupted: u64,
    /// Address and size of the alternate stack.
    pub(super) alternate: [u64; 2],
}

/// Contents of a range of memory that holds stack frames.
#[derive(Clone, Default, Debug)]
pub struct Segment {
    /// Address of the first byte: a stack pointer.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The memory from `start` up, as far as it was asked for.
    pub bytes: Vec<u8>,
    /// The addresses of code, sorted, each once: those of a deep recursion are few.
    pub(super) words: Vec<CodeWord>,
    /// Whether the stack may go on beyond what was read.
    pub(super) is_cut: bool,
    /// Whether one of its signal frames holds an interrupted program counter.
    pub(super) has_interrupted: bool,
}

impl Segment {
    /// Returns the addresses of code on this stack.
    pub(crate) fn code(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|word| word.value)
    }
}

/// The code of a process, and the code in it that ends signal handlers.
pub(super) struct Handlers {
    code: Code,
    /// Ranges of stubs, whose addresses replace the return address of a traced handler.
    stubs: Vec<(u64, u64)>,
    /// Addresses that were read, with whether a restorer is there.
    restorers: HashMap<u64, bool>,
    /// Memory for pieces of a stack, used again for each.
    buffer: Vec<u8>,
}

/// Number of words of code whose latest sightings are remembered, so that a deep recursion does not
/// add each of its frames.
const RECENT: usize = 64;

/// A stack that is being searched.
struct Search<'a> {
    handlers: &'a mut Handlers,
    segment: Segment,
    frames: Vec<SignalFrame>,
    /// End of the alternate stack that this stack is on.
    limit: Option<u64>,
    recent: [Option<CodeWord>; RECENT],
}

impl Handlers {
    /// Prepares the search in a process with these mappings.
    pub(super) fn new(regions: &[Region]) -> Handlers {
        let (code, stubs) = (text_of(regions, |_| true), text_of(regions, agent::is_code));
        let code = Code::new(code);
        Handlers { code, stubs, restorers: HashMap::new(), buffer: Vec::new() }
    }

    /// Searches a whole stack whose memory was read before.
    pub(super) fn search_read(
        &mut self,
        start: u64,
        bytes: &[u8],
        text: &mut ProcessText,
    ) -> (Segment, Vec<SignalFrame>) {
        let mut search = Search::new(self, start);
        search.piece(start, bytes, bytes.len(), text);
        search.finish(start + bytes.len() as u64, false)
    }

    /// Reads and searches a stack. Returns its signal frames as well: a stale one leads to memory
    /// without open calls. `kept`: number of bytes of the stack's memory to return.
    pub(super) fn search(
        &mut self,
        mut reader: Reader,
        kept: usize,
        text: &mut ProcessText,
    ) -> (Segment, Vec<SignalFrame>) {
        let start = reader.at;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut search = Search::new(self, start);
        // The words at the end of a piece are searched with the next, which holds the rest of a
        // signal frame that begins at them.
        let (mut at, mut waiting) = (start, 0);
        loop {
            let read = reader.next(text, &mut buffer, waiting);
            let filled = waiting + read;
            let wanted = kept - search.segment.bytes.len();
            search.segment.bytes.extend(&buffer[waiting..filled][..read.min(wanted)]);
            let ready = if read == 0 { filled } else { filled.saturating_sub(SIGNAL_FRAME) / WORD * WORD };
            search.piece(at, &buffer[..filled], ready, text);
            if read == 0 {
                break;
            }
            if let Some(limit) = search.limit {
                reader.end = reader.end.min(limit);
            }
            buffer.copy_within(ready..filled, 0);
            (at, waiting) = (at + ready as u64, filled - ready);
        }
        let found = search.finish(reader.at, reader.is_cut);
        self.buffer = buffer;
        found
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

impl<'a> Search<'a> {
    fn new(handlers: &'a mut Handlers, start: u64) -> Search<'a> {
        let segment = Segment { start, ..Segment::default() };
        Search { handlers, segment, frames: Vec::new(), limit: None, recent: [None; RECENT] }
    }

    /// Searches the first `ready` of the bytes at an address.
    fn piece(&mut self, at: u64, bytes: &[u8], ready: usize, text: &mut ProcessText) {
        for (n, word) in words(&bytes[..ready]).enumerate() {
            if self.handlers.code.contains(word) {
                let place = n * WORD;
                if self.limit.is_some_and(|limit| at + (place + WORD) as u64 > limit) {
                    return;
                }
                self.add(at + place as u64, word, &bytes[place..], text);
            }
        }
    }

    /// Takes an address of code, and the signal frame that may begin with it; `bytes` begin there.
    fn add(&mut self, at: u64, value: u64, bytes: &[u8], text: &mut ProcessText) {
        let is_near = at - self.segment.start < UNWINDER;
        let word = CodeWord { value, is_near, is_interrupted: is_saved_pc(bytes) };
        let recent = &mut self.recent[value as usize % RECENT];
        if recent.replace(word) != Some(word) {
            self.segment.words.push(word);
        }
        let Some(frame) = self.signal_frame(at, value, bytes, text) else { return };
        let [start, size] = frame.alternate;
        let end = start.saturating_add(size);
        let is_possible = self.limit.is_none() && size <= MAX_STACK_SEARCH;
        if is_possible && (start..end).contains(&self.segment.start) {
            self.limit = Some(end);
        }
        self.segment.has_interrupted |= bytes.len() > SIGNAL_FRAME_PC;
        self.frames.push(frame);
    }

    fn signal_frame(
        &mut self,
        at: u64,
        word: u64,
        bytes: &[u8],
        text: &mut ProcessText,
    ) -> Option<SignalFrame> {
        let interrupted = word_at(bytes, SIGNAL_FRAME_SP)?;
        // `sigaction` leaves the restorer's address on the stack as well.
        if !USER_CODE.contains(&(word_at(bytes, SIGNAL_FRAME_SEGMENTS)? as u16)) {
            return None;
        }
        let returns_to = self.handlers.return_address(word, at, text)?;
        let restorers = &mut self.handlers.restorers;
        let is_frame = *restorers.entry(returns_to).or_insert_with(|| is_restorer(text, returns_to));
        let alternate = [SIGNAL_FRAME_ALTERNATE, SIGNAL_FRAME_ALTERNATE + 2 * WORD];
        let alternate = alternate.map(|at| word_at(bytes, at).unwrap_or(0));
        is_frame.then_some(SignalFrame { interrupted, alternate })
    }

    /// `end`: end of what was read. `is_cut`: whether the memory may go on there.
    fn finish(self, end: u64, is_cut: bool) -> (Segment, Vec<SignalFrame>) {
        let mut segment = self.segment;
        let limit = self.limit.unwrap_or(u64::MAX);
        segment.end = end.min(limit);
        segment.is_cut = is_cut && end < limit;
        segment.bytes.truncate((segment.end - segment.start) as usize);
        segment.words.sort_unstable();
        segment.words.dedup();
        (segment, self.frames)
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<WORD>()?))
}

/// Whether the first word is a program counter as the kernel saves it for a signal handler: flags
/// and segment registers follow. Unlike a whole signal frame, it is known whatever restorer the
/// frame has, and in a copy.
fn is_saved_pc(bytes: &[u8]) -> bool {
    let (flags, segments) = (word_at(bytes, WORD), word_at(bytes, 2 * WORD));
    let has_flags = flags.is_some_and(|flags| flags & FLAGS_SET != 0 && flags >> u32::BITS == 0);
    has_flags && segments.is_some_and(|segments| USER_CODE.contains(&(segments as u16)))
}

/// Whether the code at an address is a restorer: it begins with the system call rt_sigreturn.
fn is_restorer(text: &mut ProcessText, address: u64) -> bool {
    let mut code = [0; RESTORERS[0].len()];
    text.read(Avma(address), &mut code).is_ok() && RESTORERS.iter().any(|restorer| code.starts_with(restorer))
}

/// A bit of the processor's flags that is always set.
const FLAGS_SET: u64 = 1 << 1;
/// Offset in a signal frame (first word: the restorer's address) of `uc_stack`: address, flags,
/// size.
const SIGNAL_FRAME_ALTERNATE: usize = 24;
/// Offset of the interrupted stack pointer.
const SIGNAL_FRAME_SP: usize = 168;
/// Offset of the interrupted program counter.
const SIGNAL_FRAME_PC: usize = 176;
/// Offset of the segment registers: first the code segment.
const SIGNAL_FRAME_SEGMENTS: usize = 192;
/// Bytes of a signal frame that are looked at.
const SIGNAL_FRAME: usize = SIGNAL_FRAME_SEGMENTS + WORD;
/// Restorers, the longest first: `mov $15, %rax` (glibc, Go), `mov $15, %eax` (musl), `push $15;
/// pop %rax`, and `xor %eax, %eax; mov $15, %al`, each followed by `syscall`.
const RESTORERS: [&[u8]; 4] = [
    &[0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0xB8, 0x0F, 0, 0, 0, 0x0F, 0x05],
    &[0x6A, 0x0F, 0x58, 0x0F, 0x05],
    &[0x31, 0xC0, 0xB0, 0x0F, 0x0F, 0x05],
];

#[cfg(test)]
mod tests {
    use super::super::reading::PIECE;
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Memory that counts as code: a restorer, and other addresses.
    static CODE: [u8; 64] =
        *b"\x48\xC7\xC0\x0F\0\0\0\x0F\x05                                                       ";
    const WORDS: usize = PIECE as usize / WORD;

    fn code() -> u64 {
        CODE.as_ptr() as u64
    }

    fn handlers() -> Handlers {
        let code = Code::new(vec![(code(), code() + CODE.len() as u64)]);
        Handlers { code, stubs: Vec::new(), restorers: HashMap::new(), buffer: Vec::new() }
    }

    fn put_frame(stack: &mut [u64], at: usize, alternate: [u64; 2]) {
        stack[at] = code();
        stack[at + SIGNAL_FRAME_ALTERNATE / WORD] = alternate[0];
        stack[at + SIGNAL_FRAME_ALTERNATE / WORD + 2] = alternate[1];
        stack[at + SIGNAL_FRAME_SP / WORD] = at as u64;
        stack[at + SIGNAL_FRAME_PC / WORD] = code() + 20;
        stack[at + SIGNAL_FRAME_PC / WORD + 1] = FLAGS_SET;
        stack[at + SIGNAL_FRAME_SEGMENTS / WORD] = u64::from(USER_CODE[0]);
    }

    fn search(stack: &[u64], kept: usize) -> (Segment, Vec<u64>) {
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        let start = stack.as_ptr() as u64;
        let reader = Reader::new(start, start + size_of_val(stack) as u64);
        let (segment, frames) = handlers().search(reader, kept, &mut text);
        (segment, frames.iter().map(|frame| frame.interrupted).collect())
    }

    #[test]
    fn pieces_of_a_stack_are_searched_like_the_whole() {
        let mut stack = vec![0_u64; 3 * WORDS];
        let first = WORDS - stack.as_ptr() as usize % PIECE as usize / WORD;
        // Around the end of a piece, and at the end of the stack.
        let frames = [first - 30, first + WORDS - 1, stack.len() - SIGNAL_FRAME / WORD];
        for at in frames {
            put_frame(&mut stack, at, [0; 2]);
        }
        for (n, at) in [5, first - 31, first + 30, stack.len() - 70].into_iter().enumerate() {
            stack[at] = code() + n as u64 + 1;
        }
        let bytes = Vec::from_iter(stack.iter().flat_map(|word| word.to_le_bytes()));
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        let (whole, _) = handlers().search_read(stack.as_ptr() as u64, &bytes, &mut text);
        let (segment, found) = search(&stack, bytes.len());
        assert_eq!(segment.words, whole.words);
        let values = Vec::from_iter(segment.code().map(|value| value - code()));
        assert_eq!(values, [0, 1, 2, 3, 4, 20], "each word once");
        assert_eq!(found, frames.map(|at| at as u64));
        assert_eq!((segment.end - segment.start) as usize, bytes.len());
        assert!(segment.bytes == bytes && segment.has_interrupted && !segment.is_cut);
        assert_eq!(search(&stack, 100).0.bytes, bytes[..100]);
    }

    #[test]
    fn a_stack_ends_with_the_alternate_stack_that_a_frame_names() {
        let mut stack = vec![0_u64; 2 * WORDS];
        let (start, size) = (stack.as_ptr() as u64, 1000 * WORD as u64);
        put_frame(&mut stack, 10, [start, size]);
        (stack[999], stack[1000], stack[WORDS + 900]) = (code() + 1, code() + 2, code() + 3);
        let (segment, found) = search(&stack, usize::MAX);
        assert_eq!((segment.end - start, segment.bytes.len() as u64), (size, size));
        assert_eq!(Vec::from_iter(segment.code().map(|value| value - code())), [0, 1, 20]);
        assert_eq!(found, [10]);
    }

    #[test]
    fn memory_that_is_not_mapped_ends_a_stack() {
        // The memory behind the program's own data does not change, unlike that behind the heap.
        let start = code();
        let file = File::open("/proc/self/mem").expect("this process");
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        let (segment, _) = handlers().search(Reader::new(start, u64::MAX), 0, &mut text);
        assert!(segment.end >= start + CODE.len() as u64 && !segment.is_cut);
        assert!(file.read_at(&mut [0], segment.end).is_err(), "{:#x} is mapped", segment.end);
    }
}
