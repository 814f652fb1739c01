//! Threads of Go programs: their stacks, and where the runtime keeps their ids.
//!
//! Most of the time a thread is on a goroutine's stack: some kilobytes of Go's heap, with other
//! memory right below and above.
//!
//! In a program without a C library, the thread pointer leads to words inside the runtime's own
//! record of the thread (`runtime.m`, field `tls`); the runtime uses the first of the six. It keeps
//! the thread's id in front of them, at a distance that differs between versions.

use crate::memory::text::ProcessText;
use crate::ptrace::threads::StoppedThread;
use calltap_abi::USER_END;
use calltap_patch::{Avma, Text};

const WORD: u64 = 8;
/// Number of words below the thread pointer among which the thread's `g` is. It is the first,
/// except in programs with C.
const BELOW: usize = 64;
/// Index of `m` in `runtime.g`, which begins with the bounds of its stack.
const G_M: usize = 0x30 / WORD as usize;
/// Number of words of `runtime.m` that are read. It begins with the `g` of the thread's own stack;
/// the others include those of its signal handlers and of the goroutine that it runs.
const M_GS: usize = 48;
/// Size of the largest possible stack.
const MAX_STACK_SIZE: u64 = 1 << 30;
/// Maximum distance of the thread's id in front of the words at its thread pointer.
const ID_BEFORE: u64 = 0x100;
/// Bytes of stack that an injected call needs at most.
const ROOM: u64 = 512;

/// A stack that Go's runtime knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoStack {
    low: u64,
    /// End of the stack. None if frames of C may lie above.
    pub high: Option<u64>,
}

fn words<const N: usize>(text: &mut ProcessText, at: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * WORD as usize];
    text.read(Avma(at), &mut bytes).ok()?;
    let mut words = bytes.chunks_exact(WORD as usize).filter_map(|word| word.try_into().ok());
    Some(std::array::from_fn(|_| words.next().map_or(0, u64::from_le_bytes)))
}

/// Reads a `g`: the bounds of its stack, and its thread's `m`.
fn read_g(text: &mut ProcessText, g: u64) -> Option<([u64; 2], u64)> {
    if g == 0 || !g.is_multiple_of(WORD) || g >= USER_END {
        return None;
    }
    let g: [u64; G_M + 1] = words(text, g)?;
    let [low, high, ..] = g;
    let is_stack = low < high && high - low <= MAX_STACK_SIZE;
    (is_stack && g[G_M] != 0).then_some(([low, high], g[G_M]))
}

/// Returns the stack that the thread of this thread pointer is on, if Go's runtime knows it. `top`
/// is the stack pointer.
///
/// The address of the heap, which holds goroutines' stacks, does not help: it is random from Go
/// 1.26 on.
pub fn stack(pointer: u64, top: u64, text: &mut ProcessText) -> Option<GoStack> {
    Some(stack_and_m(pointer, top, text)?.0)
}

/// Returns the stack that a thread is on, and the thread's `m`.
fn stack_and_m(pointer: u64, top: u64, text: &mut ProcessText) -> Option<(GoStack, u64)> {
    let [nearest, own] = words(text, pointer.checked_sub(WORD)?)?;
    let (g, m, of_m) = read_thread(text, nearest).or_else(|| {
        let below: [u64; BELOW] = words(text, pointer.checked_sub(BELOW as u64 * WORD)?)?;
        below.iter().rev().skip(1).find_map(|g| read_thread(text, *g))
    })?;
    let mut holds = |g: u64| {
        let ([low, high], its) = read_g(text, g)?;
        // A C library's thread has its own address in the word at its thread pointer. Frames of the
        // functions that started the thread are on the same stack above the runtime's.
        let is_of_c = own == pointer && g == of_m[0];
        let stack = GoStack { low, high: (!is_of_c).then_some(high) };
        (its == m && (low..=high).contains(&top)).then_some(stack)
    };
    // A thread may be on its own stack or that of its signal handlers while its `g` is a
    // goroutine's.
    let stack = [g].into_iter().chain(of_m).find_map(&mut holds)?;
    Some((stack, m))
}

/// Returns a `g`, its `m` and the words of `m`, if `g` belongs to a thread: the first `g` in `m`
/// must name the same `m`.
fn read_thread(text: &mut ProcessText, g: u64) -> Option<(u64, u64, [u64; M_GS])> {
    let (_, m) = read_g(text, g)?;
    let of_m: [u64; M_GS] = words(text, m)?;
    let (_, its) = read_g(text, of_m[0])?;
    (its == m).then_some((g, m, of_m))
}

/// Whether the thread's stack has enough room for an injected call.
pub fn has_room(thread: &StoppedThread, text: &mut ProcessText) -> bool {
    let top = thread.regs.rsp;
    stack(thread.regs.fs_base, top, text).is_none_or(|stack| top - stack.low >= ROOM)
}

/// Returns where the runtime keeps a thread's id, relative to the thread pointer. None if this is
/// no thread of Go's, or the runtime does not know the id yet.
pub fn owner_word(thread: &StoppedThread, id: u32, text: &mut ProcessText) -> Option<u64> {
    let pointer = thread.regs.fs_base;
    let (_, m) = stack_and_m(pointer, thread.regs.rsp, text)?;
    let own = m.max(pointer.saturating_sub(ID_BEFORE));
    let places = (own..pointer - WORD).step_by(WORD as usize);
    let mut is_id = |at: &u64| words(text, *at).is_some_and(|[word]| word == u64::from(id));
    Some(places.into_iter().find(|at| is_id(at))?.wrapping_sub(pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G0_STACK: [u64; 2] = [0x7f00_0000_0000, 0x7f00_0001_0000];
    const GOROUTINE: [u64; 2] = [0x2dae_5ddb_b000, 0x2dae_5ddb_c000];

    /// The memory of a thread of Go's: the words around its thread pointer, its `m`, and the `g`s
    /// of its own stack and of a goroutine.
    struct Memory {
        around: Box<[u64; BELOW + 1]>,
        m: Box<[u64; M_GS]>,
        gs: Box<[[u64; G_M + 1]; 2]>,
    }

    fn at<T>(of: &T) -> u64 {
        std::ptr::from_ref(of) as u64
    }

    impl Memory {
        /// Lays the memory out. `current`: index of the thread's current `g`. `of_c`: whether a C
        /// library made the thread.
        fn new(current: usize, of_c: bool) -> Memory {
            let (around, m, gs) = (Box::new([0; BELOW + 1]), Box::new([0; M_GS]), Box::default());
            let mut memory = Memory { around, m, gs };
            for (n, stack) in [G0_STACK, GOROUTINE].into_iter().enumerate() {
                memory.gs[n][..2].copy_from_slice(&stack);
                memory.gs[n][G_M] = at(&*memory.m);
            }
            (memory.m[0], memory.m[20]) = (at(&memory.gs[0]), at(&memory.gs[1]));
            memory.around[BELOW - 1] = at(&memory.gs[current]);
            memory.around[BELOW] = if of_c { memory.pointer() } else { 0 };
            memory
        }

        fn pointer(&self) -> u64 {
            at(&self.around[BELOW])
        }
    }

    fn check(memory: &Memory, top: u64, expected: Option<GoStack>) {
        let mut text = ProcessText::open(std::process::id()).expect("this process");
        assert_eq!(stack(memory.pointer(), top, &mut text), expected, "{top:#x}");
    }

    #[test]
    fn stacks_are_found_at_any_heap_address() {
        let goroutine = GoStack { low: GOROUTINE[0], high: Some(GOROUTINE[1]) };
        for current in [0, 1] {
            for of_c in [false, true] {
                let memory = Memory::new(current, of_c);
                // Applies also to a thread that is switching to or from the goroutine's stack.
                check(&memory, GOROUTINE[0] + 8, Some(goroutine));
                let high = (!of_c).then_some(G0_STACK[1]);
                check(&memory, G0_STACK[0] + 8, Some(GoStack { low: G0_STACK[0], high }));
                check(&memory, GOROUTINE[1] + 8, None);
            }
        }
    }

    #[test]
    fn stack_without_thread_is_not_found() {
        let mut memory = Memory::new(1, false);
        memory.m[0] = 0;
        check(&memory, GOROUTINE[0] + 8, None);
        let mut memory = Memory::new(1, false);
        memory.gs[1][G_M] = 8;
        check(&memory, GOROUTINE[0] + 8, None);
    }
}
