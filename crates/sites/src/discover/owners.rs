//! To which functions the parts belong that the compiler moved away, when parts may belong to parts.

use std::collections::{BTreeMap, BTreeSet};

/// A part that is linked to more functions than this, over however many others, is not followed: each of them may have all the parts.
const MOST_OWNERS: usize = 64;

/// Parts that are linked with each other, and the functions they belong to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub parts: Vec<usize>,
    pub owners: BTreeSet<usize>,
}

impl Group {
    /// Has it more owners than can be told apart?
    pub fn is_entangled(&self) -> bool {
        self.owners.len() > MOST_OWNERS
    }
}

/// The groups of parts, by what each is linked to: other parts, which are keys and linked to it, and functions. Every link is followed once.
pub(super) fn groups(links: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<Group> {
    let (mut seen, mut groups) = (BTreeSet::new(), Vec::new());
    for first in links.keys() {
        if !seen.insert(*first) {
            continue;
        }
        let mut group = Group { parts: vec![*first], owners: BTreeSet::new() };
        let mut next = 0;
        while let Some(part) = group.parts.get(next) {
            next += 1;
            for other in links.get(part).into_iter().flatten() {
                match links.contains_key(other) {
                    true if seen.insert(*other) => group.parts.push(*other),
                    true => {}
                    false => drop(group.owners.insert(*other)),
                }
            }
        }
        group.parts.sort_unstable();
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_belong_to_whom_those_belong_to() {
        // 1 is linked with 10 and 2, 2 with 11; 3 with 12.
        let link = |part, others: &[usize]| (part, others.iter().copied().collect());
        let links = BTreeMap::from([link(1, &[2, 10]), link(2, &[1, 11]), link(3, &[12])]);
        let group = |parts: &[usize], owners: &[usize]| Group {
            parts: parts.to_vec(),
            owners: owners.iter().copied().collect(),
        };
        assert_eq!(groups(&links), [group(&[1, 2], &[10, 11]), group(&[3], &[12])]);
    }
}
