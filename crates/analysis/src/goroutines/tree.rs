//! The order of goroutines in the tree of starters.

use super::{GoroutineFacts, Key, Starter, starter};
use std::collections::{BTreeMap, HashSet};

/// Returns the goroutines and their depths, each behind its starter; those with the same starter by
/// number. A goroutine whose starter has no events begins a tree of its own.
pub(super) fn in_order(all: &BTreeMap<Key, GoroutineFacts>) -> Vec<(Key, usize)> {
    let mut children = BTreeMap::<Key, Vec<Key>>::new();
    let mut roots = Vec::new();
    for (key, seen) in all {
        match starter(seen) {
            Starter::Goroutine(parent) if parent != key.1 && all.contains_key(&(key.0, parent)) => {
                children.entry((key.0, parent)).or_default().push(*key);
            }
            _ => roots.push(*key),
        }
    }
    // Starters that form a circle, in a damaged trace, have no root.
    let (mut order, mut shown) = (Vec::with_capacity(all.len()), HashSet::new());
    for root in roots.into_iter().chain(all.keys().copied()) {
        let mut next = vec![(root, 0)];
        while let Some((key, depth)) = next.pop() {
            if !shown.insert(key) {
                continue;
            }
            order.push((key, depth));
            let below = children.get(&key).map_or(&[][..], Vec::as_slice);
            next.extend(below.iter().rev().map(|child| (*child, depth + 1)));
        }
    }
    order
}
