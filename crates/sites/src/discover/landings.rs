//! Branch targets of a file as its code tells them, for comparison with the jumps that a run takes.

use std::ops::Range;

use super::lookup::index_at;
use crate::binary::Binary;
use crate::code::branches::{Branches, To};
use crate::function::{Function, Returns};
use crate::site::{JUMP, SiteForm};

/// Bytes of the short jump at a site with a jump in the padding.
const SHORT_JUMP: u64 = 2;

/// Known branch targets of a file, and the bytes that sites overwrite.
#[derive(Debug, Default)]
pub struct Landings {
    /// Known branch targets, in order.
    targets: Vec<u64>,
    /// Indirect jumps, in order, each with its resolution.
    indirect: Vec<(u64, Resolution)>,
    /// Bytes behind the first one of each overwritten place, in order.
    displaced: Vec<Range<u64>>,
}

/// How an indirect jump was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resolution {
    /// The jump leaves its function.
    Leaves,
    /// The jump leads to known places.
    Known,
    /// The jump may lead to any instruction of its function.
    Unresolved,
}

/// How a taken jump contradicts the analysis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contradiction {
    /// The jump lands behind the first of the bytes that a site overwrites.
    LandsOnDisplaced,
    /// The jump is resolved, but lands in a function at a place that is not a known target.
    UnknownTarget,
    /// The analysis takes the jump for an exit, but it stays in its function.
    Stays,
}

impl Contradiction {
    /// Describes the contradiction in words.
    pub fn text(self) -> &'static str {
        match self {
            Contradiction::LandsOnDisplaced => "lands on displaced bytes",
            Contradiction::UnknownTarget => "is resolved, and leads to an unknown place",
            Contradiction::Stays => "is taken for an exit, and stays",
        }
    }
}

impl Landings {
    pub(crate) fn new(branches: Branches, functions: &[Function]) -> Landings {
        let leaves = |at: &u64| {
            let n = branches.leavings.partition_point(|leaving| leaving.at < *at);
            branches.leavings.get(n).is_some_and(|leaving| leaving.at == *at && leaving.to == To::Pointer)
        };
        let resolution = |at: u64| match () {
            () if branches.unresolved.binary_search(&at).is_ok() => Resolution::Unresolved,
            () if leaves(&at) => Resolution::Leaves,
            () => Resolution::Known,
        };
        let indirect = branches.indirect.iter().map(|jump| (jump.at, resolution(jump.at))).collect();
        let mut displaced: Vec<Range<u64>> = functions.iter().flat_map(displaced).collect();
        displaced.retain(|range| !range.is_empty());
        displaced.sort_unstable_by_key(|range| range.start);
        Landings { targets: branches.targets().to_vec(), indirect, displaced }
    }

    /// Number of indirect jumps in the file.
    pub fn jumps(&self) -> usize {
        self.indirect.len()
    }

    /// Whether there is an indirect jump at this address.
    pub fn is_indirect(&self, at: u64) -> bool {
        self.resolution(at).is_some()
    }

    /// Whether the jump at this address may lead to any instruction of its function.
    pub fn is_unresolved(&self, at: u64) -> bool {
        self.resolution(at) == Some(Resolution::Unresolved)
    }

    fn resolution(&self, at: u64) -> Option<Resolution> {
        let n = self.indirect.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(self.indirect[n].1)
    }

    /// Compares a transfer of control with the analysis: the instruction at `from`, if that is in
    /// the file, led to `to`. Returns the contradiction, if there is one.
    pub fn check(&self, binary: &Binary, from: Option<u64>, to: u64) -> Option<Contradiction> {
        let n = self.displaced.partition_point(|range| range.start <= to);
        if n.checked_sub(1).is_some_and(|n| self.displaced[n].contains(&to)) {
            return Some(Contradiction::LandsOnDisplaced);
        }
        let from = from?;
        let at = index_at(&binary.functions, to)?;
        let function = &binary.functions[at];
        let is_inside = function.address.0 != to;
        match self.resolution(from)? {
            Resolution::Leaves if is_inside && index_at(&binary.functions, from) == Some(at) => {
                Some(Contradiction::Stays)
            }
            Resolution::Unresolved => None,
            _ => (is_inside && self.targets.binary_search(&to).is_err())
                .then_some(Contradiction::UnknownTarget),
        }
    }
}

/// Bytes that a function's sites overwrite or displace, without the first byte of each.
fn displaced(function: &Function) -> Vec<Range<u64>> {
    let behind = |at: u64, length: u64| at + 1..at + length;
    let mut all = match function.form() {
        None => return Vec::new(),
        Some(SiteForm::Entry { at, .. }) => vec![behind(at.0, JUMP)],
        Some(SiteForm::Prefix { prefix, entry, .. }) => {
            vec![behind(prefix.0, JUMP), behind(entry.0, SHORT_JUMP)]
        }
        Some(SiteForm::PaddingJump { front, at, old, .. }) => {
            vec![behind(front.0, JUMP), behind(at.0, old.len() as u64)]
        }
        Some(SiteForm::Trap { at, .. }) => vec![behind(at.0, 1)],
        Some(
            SiteForm::Prologue { at, old }
            | SiteForm::Checked { at, old, .. }
            | SiteForm::Unchecked { at, old, .. }
            | SiteForm::AfterPrologue { at, old },
        ) => vec![behind(at.0, old.len() as u64)],
    };
    if let Returns::Exits { elsewhere, .. } = &function.returns {
        all.extend(elsewhere.iter().map(|exit| behind(exit.at.0, exit.old.len() as u64)));
    }
    all
}
