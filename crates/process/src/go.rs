//! Threads of Go programs. A thread is at most times on a goroutine's stack: some kilobytes of Go's heap,
//! with other memory right below and above.
//!
//! Where no C library is in the program, the thread pointer leads to words inside the runtime's own record of
//! the thread (`runtime.m`, whose `tls` it is); of the six the runtime uses the first. In front of them it
//! keeps the thread's id, at a distance that differs from version to version.

use crate::memory::text::ProcessText;
use crate::ptrace::threads::Held;
use calltap_abi::USER_END;
use calltap_patch::{Avma, Text};

const WORD: u64 = 8;
/// Words below the thread pointer among which a thread has its `g`: the first, but in programs with C also
/// others.
const BELOW: usize = 64;
/// `runtime.g` begins with the bounds of its stack, and has its thread's `m` here.
const G_M: usize = 0x30 / WORD as usize;
/// `runtime.m` begins with the `g` of the thread's own stack; among these words are those of its signal handlers and of the goroutine that it runs.
const M_GS: usize = 48;
/// Larger stacks there are none.
const LARGEST: u64 = 1 << 30;
/// The thread's id lies no further in front of its words.
const ID_BEFORE: u64 = 0x100;
/// What is run on a borrowed thread needs no more of its stack.
const ROOM: u64 = 512;

/// A stack that Go's runtime knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoStack {
    low: u64,
    /// Where it ends. None: frames of C may lie above.
    pub high: Option<u64>,
}

fn words<const N: usize>(text: &mut ProcessText, at: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; N * WORD as usize];
    text.read(Avma(at), &mut bytes).ok()?;
    let mut words = bytes.chunks_exact(WORD as usize).filter_map(|word| word.try_into().ok());
    Some(std::array::from_fn(|_| words.next().map_or(0, u64::from_le_bytes)))
}

/// What a `g` says: the bounds of its stack, and its thread's `m`.
fn read_g(text: &mut ProcessText, g: u64) -> Option<([u64; 2], u64)> {
    if g == 0 || !g.is_multiple_of(WORD) || g >= USER_END {
        return None;
    }
    let g: [u64; G_M + 1] = words(text, g)?;
    let [low, high, ..] = g;
    let is_stack = low < high && high - low <= LARGEST;
    (is_stack && g[G_M] != 0).then_some(([low, high], g[G_M]))
}

/// Which stack a thread with this thread pointer is on, if it is one that Go's runtime knows. Where the heap lies, in which stacks of goroutines are, does not
/// say it: from Go 1.26 on that is random.
pub fn stack(pointer: u64, top: u64, text: &mut ProcessText) -> Option<GoStack> {
    let around: [u64; BELOW + 1] = words(text, pointer.checked_sub(BELOW as u64 * WORD)?)?;
    let (below, own) = (&around[..BELOW], around[BELOW]);
    let (g, m) = below.iter().rev().find_map(|g| Some((*g, read_g(text, *g)?.1)))?;
    let of_m: [u64; M_GS] = words(text, m)?;
    let belongs = |text: &mut ProcessText, g: u64| read_g(text, g).filter(|(_, its)| *its == m);
    belongs(text, of_m[0])?;
    let holds = |text: &mut ProcessText, g: u64| {
        let ([low, high], _) = belongs(text, g)?;
        // A C library's thread has itself in the word at its thread pointer. Below the runtime's frames on its stack are those that started the thread.
        let is_of_c = own == pointer && g == of_m[0];
        (low..=high).contains(&top).then_some(GoStack { low, high: (!is_of_c).then_some(high) })
    };
    [g].into_iter().chain(of_m).find_map(|g| holds(text, g))
}

/// Can a thread be borrowed, as far as its stack has room?
pub fn has_room(thread: &Held, text: &mut ProcessText) -> bool {
    let top = thread.regs.rsp;
    stack(thread.regs.fs_base, top, text).is_none_or(|stack| top - stack.low >= ROOM)
}

/// Where the runtime keeps a thread's id, counted from the thread pointer, if it is such a thread and the
/// runtime knows it by now.
pub fn owner_word(thread: &Held, id: u32, text: &mut ProcessText) -> Option<u64> {
    let pointer = thread.regs.fs_base;
    let [g] = words(text, pointer.checked_sub(WORD)?)?;
    let ([low, high], m) = read_g(text, g)?;
    if !(low..=high).contains(&thread.regs.rsp) {
        return None;
    }
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

    /// The memory of a thread of Go's: the words around its thread pointer, its `m`, and the `g` of its own stack and of a goroutine.
    struct Memory {
        around: Box<[u64; BELOW + 1]>,
        m: Box<[u64; M_GS]>,
        gs: Box<[[u64; G_M + 1]; 2]>,
    }

    fn at<T>(of: &T) -> u64 {
        std::ptr::from_ref(of) as u64
    }

    impl Memory {
        /// `current`: the `g` that the thread has. `of_c`: a C library has made the thread.
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
    fn stacks_are_found_wherever_the_heap_is() {
        let goroutine = GoStack { low: GOROUTINE[0], high: Some(GOROUTINE[1]) };
        for current in [0, 1] {
            for of_c in [false, true] {
                let memory = Memory::new(current, of_c);
                // Also of a thread that is about to leave the goroutine's stack, or has just come to it.
                check(&memory, GOROUTINE[0] + 8, Some(goroutine));
                let high = (!of_c).then_some(G0_STACK[1]);
                check(&memory, G0_STACK[0] + 8, Some(GoStack { low: G0_STACK[0], high }));
                check(&memory, GOROUTINE[1] + 8, None);
            }
        }
    }

    #[test]
    fn what_belongs_to_no_thread_is_no_stack() {
        let mut memory = Memory::new(1, false);
        memory.m[0] = 0;
        check(&memory, GOROUTINE[0] + 8, None);
        let mut memory = Memory::new(1, false);
        memory.gs[1][G_M] = 8;
        check(&memory, GOROUTINE[0] + 8, None);
    }
}
