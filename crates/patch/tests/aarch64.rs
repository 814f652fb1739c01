//! Model of aarch64 sites: `NOP` and `B` replace each other by one store while threads execute
//! them.
//!
//! ARM ARM, B2.2.5 (concurrent modification and execution of instructions): each of `B`, `BL`,
//! `BRK`, `HVC`, `ISB`, `NOP`, `SMC`, `SVC` may replace another of them without synchronisation. A
//! processor then executes the old or the new instruction. For any other instruction the
//! architecture guarantees nothing, unless the processor has executed a context synchronisation
//! event since.
//!
//! Each processor of the model has an instruction cache, which may hold, word by word, any value
//! stored since the last barrier. A store of four aligned bytes is whole; others are seen in parts.
//! A thread goes from word to word through what its processor may fetch. It must execute the code
//! before or after the change, from beginning to end. Mutants break the rule, and must be refused.

use calltap_abi::isa::{Aarch64, Isa};
use std::collections::BTreeSet;

/// Address of the site; its function's body is behind it.
const SITE: u64 = 0x40_0000;
/// A stub within reach, and one out of reach (`FAR`).
const STUB: u64 = SITE + 0x40_0000;
const FAR: u64 = SITE + 0x4000_0000;

const NOP: u32 = word(Aarch64::NOP);
/// `stp x29, x30, [sp, #-16]!`, as functions begin.
const PUSH: u32 = 0xA9BF_7BFD;
/// `adrp x16, FAR`, the beginning of a linker's veneer; `br x16` ends it.
const ADRP: u32 = 0x9000_0010 | (((FAR - SITE) >> 14) as u32) << 5;
const BR: u32 = 0xD61F_0200;

const fn word(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

fn branch(to: u64) -> u32 {
    word(Aarch64::jump(SITE, to).expect("a stub within reach"))
}

/// Whether an instruction may be replaced by another such instruction while it is executed.
fn is_exchangeable(word: u32) -> bool {
    let (b, bl) = (0x05, 0x25);
    // HVC, SMC, SVC, BRK, by the class and last bits of exception-generating instructions.
    let is_exception = matches!(word & 0xFFE0_001F, 0xD400_0001..=0xD400_0003 | 0xD420_0000);
    [b, bl].contains(&(word >> 26)) || is_exception || word == NOP || word & 0xFFFF_F0FF == 0xD503_30DF
}

/// A step of a change.
#[derive(Clone, Debug)]
enum Act {
    /// Stores bytes at an offset from the site.
    Store(usize, Vec<u8>),
    /// Cleans the caches, and makes every processor execute a context synchronisation event.
    Barrier,
}

/// Values that instruction caches may hold for a word of the code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cached {
    now: u32,
    /// Values since the last barrier, the present one among them.
    seen: BTreeSet<u32>,
}

impl Cached {
    fn new(now: u32) -> Cached {
        Cached { now, seen: BTreeSet::from([now]) }
    }

    /// Stores bytes in this word. Caches see a whole store as the old or the new value, and a
    /// partial one as any mixture.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let mut new = self.now.to_le_bytes();
        new[at..at + bytes.len()].copy_from_slice(bytes);
        if bytes.len() == 4 {
            self.seen.insert(word(new));
        } else {
            let mixed = |old: &u32| {
                let old = old.to_le_bytes();
                (0..16u8).map(move |from_new| {
                    let byte = |n: usize| if from_new & 1 << n == 0 { old[n] } else { new[n] };
                    word([byte(0), byte(1), byte(2), byte(3)])
                })
            };
            self.seen = self.seen.iter().flat_map(mixed).collect();
        }
        self.now = word(new);
    }

    /// Returns the words that a processor may execute, if the rule lets each of them replace the
    /// others.
    fn executed(&self) -> Result<&BTreeSet<u32>, String> {
        let is_known = self.seen.len() == 1 || self.seen.iter().all(|word| is_exchangeable(*word));
        is_known.then_some(&self.seen).ok_or_else(|| format!("no rule says what runs of {:08x?}", self.seen))
    }
}

/// The words that a thread executes from the site on, up to the one by which it leaves.
type Path = Vec<u32>;

/// Returns all paths of a thread through code: for each index, the words that it may fetch there.
/// None ends the site: the thread is in the body.
fn paths(code: &dyn Fn(usize) -> Option<BTreeSet<u32>>) -> BTreeSet<Path> {
    let (mut found, mut open) = (BTreeSet::new(), vec![Path::new()]);
    while let Some(path) = open.pop() {
        let leaves = path.last().is_some_and(|word| *word == BR || word >> 26 == 0x05);
        match code(path.len()).filter(|_| !leaves) {
            None => drop(found.insert(path)),
            Some(next) => open.extend(next.iter().map(|word| [&path[..], &[*word]].concat())),
        }
    }
    found
}

/// A change from old to new code.
struct Change {
    old: Vec<u32>,
    new: Vec<u32>,
    acts: Vec<Act>,
}

impl Change {
    /// The change of the protocol: one store of one instruction.
    fn of_one(old: u32, new: u32) -> Change {
        let acts = vec![Act::Store(0, new.to_le_bytes().to_vec()), Act::Barrier];
        Change { old: vec![old], new: vec![new], acts }
    }

    /// Proves that every thread executes the old or the new code, wherever it is at each step, and
    /// whatever its processor's cache holds.
    fn prove(&self) -> Result<(), String> {
        let as_is = |code: &[u32]| paths(&|at| code.get(at).map(|word| BTreeSet::from([*word])));
        let allowed: BTreeSet<Path> = as_is(&self.old).into_iter().chain(as_is(&self.new)).collect();
        let mut code: Vec<Cached> = self.old.iter().map(|word| Cached::new(*word)).collect();
        // The code may change while a thread is between two instructions, so each of its steps may
        // be at another time.
        let mut ever: Vec<BTreeSet<u32>> = code.iter().map(|word| word.seen.clone()).collect();
        for act in &self.acts {
            match act {
                Act::Store(at, bytes) => {
                    let mut at = *at;
                    for piece in pieces(at, bytes) {
                        code[at / 4].store(at % 4, piece);
                        at += piece.len();
                    }
                }
                Act::Barrier => code.iter_mut().for_each(|word| word.seen = BTreeSet::from([word.now])),
            }
            for (word, ever) in code.iter().zip(&mut ever) {
                ever.extend(word.executed()?);
            }
        }
        let harmed = paths(&|at| ever.get(at).cloned()).into_iter().find(|path| !allowed.contains(path));
        harmed.map_or(Ok(()), |path| Err(format!("a thread executes {path:08x?}")))?;
        let left: Vec<u32> = code.iter().map(|word| word.now).collect();
        if left == self.new { Ok(()) } else { Err(format!("the code is {left:08x?} at the end")) }
    }
}

/// Splits a store into the pieces that are whole.
fn pieces(at: usize, bytes: &[u8]) -> Vec<&[u8]> {
    if at.is_multiple_of(4) { bytes.chunks(4).collect() } else { bytes.chunks(1).collect() }
}

#[track_caller]
fn check(change: &Change) {
    change.prove().unwrap();
}

#[track_caller]
fn check_mutant(change: &Change, why: &str) {
    let harm = change.prove().expect_err("the model proves a mutant");
    assert!(harm.contains(why), "{harm}");
}

#[test]
fn a_site_is_switched_on_off_and_to_another_stub_under_running_threads() {
    let states = [NOP, branch(STUB), branch(STUB + 64), branch(SITE - 64)];
    for (old, new) in states.iter().flat_map(|old| states.iter().map(move |new| (*old, *new))) {
        check(&Change::of_one(old, new));
    }
}

#[test]
fn batch_needs_no_barrier_before_its_end_even_if_switched_back_at_once() {
    let (on, off) = (branch(STUB), NOP);
    let store = |word: u32| Act::Store(0, word.to_le_bytes().to_vec());
    let acts = vec![store(on), store(off), store(on), Act::Barrier];
    check(&Change { old: vec![off], new: vec![on], acts });
}

#[test]
fn a_branch_reaches_stubs_within_128_mib_and_no_others() {
    const MIB: u64 = 1 << 20;
    for (to, operand) in [(SITE + 4, 1), (SITE + 128 * MIB - 4, 0x1FF_FFFF), (SITE, 0)] {
        assert_eq!(Aarch64::jump(SITE, to).map(word), Some(0x1400_0000 | operand));
    }
    let backwards = Aarch64::jump(SITE + 128 * MIB, SITE).map(word);
    assert_eq!(backwards, Some(0x1400_0000 | 0x200_0000), "the farthest one backwards");
    for to in [SITE + 128 * MIB, SITE + 2, FAR] {
        assert_eq!(Aarch64::jump(SITE, to), None, "{to:#x}");
    }
}

#[test]
fn an_instruction_of_the_function_itself_is_not_exchangeable() {
    check_mutant(&Change::of_one(PUSH, branch(STUB)), "no rule says");
    check_mutant(&Change::of_one(branch(STUB), PUSH), "no rule says");
}

#[test]
fn a_far_stub_is_not_reached_through_two_instructions() {
    let bytes = |words: [u32; 2]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let change = |acts| Change { old: vec![NOP, NOP], new: vec![ADRP, BR], acts };
    check_mutant(&change(vec![Act::Store(0, bytes([ADRP, BR])), Act::Barrier]), "no rule says");
    // Neither are they if the second is written first, with a barrier between them.
    let one = |at: usize, word: u32| Act::Store(at, word.to_le_bytes().to_vec());
    check_mutant(&change(vec![one(4, BR), Act::Barrier, one(0, ADRP), Act::Barrier]), "no rule says");
}

#[test]
fn two_exchangeable_instructions_are_not_one() {
    // NOP NOP and B NOP are each whole. A thread between them executes neither: it has passed the
    // first word as a NOP, and calls by the second.
    let link = 0x9400_0010;
    let store = |at: usize, word: u32| Act::Store(at, word.to_le_bytes().to_vec());
    let acts = vec![store(4, link), Act::Barrier, store(0, 0x9400_0020), Act::Barrier];
    check_mutant(&Change { old: vec![NOP, NOP], new: vec![0x9400_0020, link], acts }, "a thread executes");
}

#[test]
fn a_store_in_parts_is_seen_in_parts() {
    let new = branch(STUB).to_le_bytes();
    let in_halves = vec![Act::Store(0, new[..2].to_vec()), Act::Store(2, new[2..].to_vec()), Act::Barrier];
    check_mutant(&Change { old: vec![NOP], new: vec![word(new)], acts: in_halves }, "no rule says");
    // If another branch is written byte by byte, every mixture is a branch, but to an address
    // without a stub.
    let (one, other) = (branch(STUB), branch(STUB + 0x1_0004));
    let by_bytes = (0..4).map(|n| Act::Store(n, vec![other.to_le_bytes()[n]])).collect();
    check_mutant(&Change { old: vec![one], new: vec![other], acts: by_bytes }, "a thread executes");
}

#[test]
fn a_change_that_is_cut_short_is_found_out() {
    let mut change = Change::of_one(NOP, branch(STUB));
    change.acts.remove(0);
    check_mutant(&change, "at the end");
}
