//! Evaluators in which a thread runs Python functions, from CPython 3.13 on: the agent finds the
//! slot of the innermost one once, and not at each event.
//!
//! An evaluator is identified by how far C may still recurse in it. One evaluator within another
//! has less left, and two that run at the same time never have the same. When an evaluator is
//! entered, those that had less left than its caller has now have ended.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Number of evaluators that are known at a time: one, and one that it was called from.
const KNOWN: usize = 2;
/// Lowest bit of the recursion that is left in a key. The address of the thread state lies below.
const LEFT: u32 = 48;

/// The known evaluators of a thread. Only the thread itself reads and writes them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Evaluators {
    /// A key for each: the thread state, and the recursion that is left; 0 if there is none.
    keys: [AtomicU64; KNOWN],
    slots: [AtomicU64; KNOWN],
}

/// Returns the key of the innermost evaluator of a thread state, given the recursion that is left.
/// `None` if they do not fit into a key.
fn key(state: u64, left: u32) -> Option<u64> {
    (state >> LEFT == 0 && left < 1 << (64 - LEFT)).then_some(state | u64::from(left) << LEFT)
}

impl Evaluators {
    /// Returns the slot of the innermost evaluator, if it is known.
    pub fn slot(&self, state: u64, left: u32) -> Option<u64> {
        let key = key(state, left)?;
        let mut all = self.keys.iter().zip(&self.slots);
        all.find(|(known, _)| known.load(Relaxed) == key).map(|(_, slot)| slot.load(Relaxed))
    }

    /// Notes the slot of the innermost evaluator, in the place of the one that was noted before the
    /// last.
    pub fn note(&self, state: u64, left: u32, slot: u64) {
        let Some(key) = key(state, left) else { return };
        for (all, new) in [(&self.keys, key), (&self.slots, slot)] {
            let [newest, older] = all;
            older.store(newest.swap(new, Relaxed), Relaxed);
        }
    }

    /// Forgets all evaluators.
    pub fn clear(&self) {
        self.keys.iter().for_each(|known| known.store(0, Relaxed));
    }

    /// Forgets the evaluators that have ended when a function of a thread state enters another.
    pub fn enter(&self, state: u64, left: u32) {
        for known in &self.keys {
            let key = known.load(Relaxed);
            let is_its = key & ((1 << LEFT) - 1) == state;
            if is_its && key >> LEFT < u64::from(left) {
                known.store(0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: u64 = 0x7f12_3456_7890;

    #[test]
    fn an_evaluator_is_known_until_another_takes_its_place() {
        let evaluators = Evaluators::default();
        assert_eq!(evaluators.slot(STATE, 100), None);
        evaluators.note(STATE, 100, 0x1000);
        evaluators.enter(STATE, 100);
        evaluators.note(STATE, 98, 0x900);
        assert_eq!(evaluators.slot(STATE, 98), Some(0x900));
        // Back in the outer one.
        assert_eq!(evaluators.slot(STATE, 100), Some(0x1000));
        // The outer one calls another, which may have the recursion of the former.
        evaluators.enter(STATE, 100);
        assert_eq!(evaluators.slot(STATE, 98), None);
        assert_eq!(evaluators.slot(STATE, 100), Some(0x1000));
        evaluators.clear();
        assert_eq!(evaluators.slot(STATE, 100), None);
    }

    #[test]
    fn evaluators_of_other_thread_states_stay() {
        let evaluators = Evaluators::default();
        evaluators.note(STATE, 5, 0x1000);
        evaluators.enter(STATE + 16, 100);
        assert_eq!((evaluators.slot(STATE, 5), evaluators.slot(STATE + 16, 5)), (Some(0x1000), None));
    }

    #[test]
    fn states_that_no_key_can_hold_are_not_known() {
        let evaluators = Evaluators::default();
        evaluators.note(STATE, 1 << 16, 0x1000);
        evaluators.note(1 << 50, 3, 0x1000);
        assert_eq!((evaluators.slot(STATE, 1 << 16), evaluators.slot(1 << 50, 3)), (None, None));
    }

    /// Random calls: what is known is always the truth.
    #[test]
    fn slots_are_those_of_a_stack_of_evaluators() {
        let (evaluators, mut stack, mut seed) = (Evaluators::default(), std::vec![(1000_u32, 1_u64)], 7_u64);
        let (mut next, mut hits) = (2, 0);
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (left, slot) = *stack.last().expect("the first stays");
            match seed >> 61 {
                0 | 1 if stack.len() < 40 => {
                    // C may recurse between two evaluators.
                    evaluators.enter(STATE, left - (seed >> 40 & 3) as u32);
                    stack.push((left - (seed >> 40 & 3) as u32 - 1, next));
                    next += 1;
                }
                2 if stack.len() > 1 => {
                    stack.pop();
                }
                _ => match evaluators.slot(STATE, left) {
                    Some(known) => {
                        assert_eq!(known, slot);
                        hits += 1;
                    }
                    None => evaluators.note(STATE, left, slot),
                },
            }
        }
        assert!(hits > 10_000, "{hits}");
    }
}
