//! Threads of Go programs. A thread is at most times on a goroutine's stack: some kilobytes of Go's heap,
//! with other memory right below and above.
//!
//! Where no C library is in the program, the thread pointer leads to words inside the runtime's own record of
//! the thread (`runtime.m`, whose `tls` it is); of the six the runtime uses the first. In front of them it
//! keeps the thread's id, at a distance that differs from version to version.

use crate::memory::text::ProcessText;
use crate::ptrace::threads::Held;
use calltap_patch::{Avma, Text};

const WORD: u64 = 8;
/// Go's heap, if nothing else was mapped there before: what the stacks of goroutines lie in.
const HEAP: std::ops::Range<u64> = 0xC0_0000_0000..0x100_0000_0000;
/// Words below the thread pointer among which a thread has its `g`: the first, but in programs with C also
/// others.
const BELOW: usize = 64;
/// `runtime.g` begins with the bounds of its stack, and has its thread's `m` here.
const G_M: usize = 0x30 / WORD as usize;
/// Larger stacks there are none.
const LARGEST: u64 = 1 << 30;
/// The thread's id lies no further in front of its words.
const ID_BEFORE: u64 = 0x100;
/// What is run on a borrowed thread needs no more of its stack.
const ROOM: u64 = 512;

fn words<const N: usize>(text: &mut ProcessText, at: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * WORD as usize];
    text.read(Avma(at), &mut bytes).ok()?;
    let mut words = bytes.chunks_exact(WORD as usize).filter_map(|word| word.try_into().ok());
    Some(std::array::from_fn(|_| words.next().map_or(0, u64::from_le_bytes)))
}

/// The bounds of the stack that a `g` says it has, and its thread's `m`, if that is the stack the thread is on.
fn read_g(text: &mut ProcessText, g: u64, stack_pointer: u64) -> Option<([u64; 2], u64)> {
    let g: [u64; G_M + 1] = words(text, g)?;
    let [low, high, ..] = g;
    let is_stack = low <= stack_pointer && stack_pointer <= high && high - low <= LARGEST;
    (is_stack && g[G_M] != 0).then_some(([low, high], g[G_M]))
}

/// Does a stack pointer lie in Go's heap?
pub fn is_on_heap(top: u64) -> bool {
    HEAP.contains(&top)
}

/// Where the stack begins and ends that a thread with this thread pointer is on, if it lies in Go's heap.
pub fn stack(pointer: u64, top: u64, text: &mut ProcessText) -> Option<[u64; 2]> {
    if !is_on_heap(top) {
        return None;
    }
    let below: [u64; BELOW] = words(text, pointer.wrapping_sub(BELOW as u64 * WORD))?;
    below.iter().rev().filter(|word| **word != 0).find_map(|g| Some(read_g(text, *g, top)?.0))
}

/// Can a thread be borrowed, as far as its stack has room?
pub fn has_room(thread: &Held, text: &mut ProcessText) -> bool {
    let top = thread.regs.rsp;
    !is_on_heap(top) || stack(thread.regs.fs_base, top, text).is_some_and(|[low, _]| top - low >= ROOM)
}

/// Where the runtime keeps a thread's id, counted from the thread pointer, if it is such a thread and the
/// runtime knows it by now.
pub fn owner_word(thread: &Held, id: u32, text: &mut ProcessText) -> Option<u64> {
    let pointer = thread.regs.fs_base;
    let [g] = words(text, pointer.checked_sub(WORD)?)?;
    let (_, m) = read_g(text, g, thread.regs.rsp)?;
    let own = m.max(pointer.saturating_sub(ID_BEFORE));
    let places = (own..pointer - WORD).step_by(WORD as usize);
    let mut is_id = |at: &u64| words(text, *at).is_some_and(|[word]| word == u64::from(id));
    Some(places.into_iter().find(|at| is_id(at))?.wrapping_sub(pointer))
}
