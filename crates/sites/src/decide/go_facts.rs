//! Facts of one Go function.

use iced_x86::{FlowControl, Instruction};

use crate::code::decode::decoder;
use crate::code::stack_check::Check;
use crate::elf::image::Image;
use crate::elf::pclntab::Entry;
use crate::site::GOffsets;

/// All that rules look at in a Go function.
pub(super) struct GoFacts<'a> {
    pub address: u64,
    /// The function's row in Go's table of functions.
    pub entry: Option<&'a Entry<'a>>,
    /// The function's code, with the padding behind it.
    pub code: &'a [u8],
    pub goid: Option<GOffsets>,
    pub check: Option<Check>,
    /// Address of the jump back to its beginning, after the stack has grown.
    pub back: Option<u64>,
}

impl<'a> GoFacts<'a> {
    pub(super) fn of(
        image: &'a Image<'_>,
        entry: Option<&'a Entry<'a>>,
        goid: Option<GOffsets>,
    ) -> GoFacts<'a> {
        let (address, size) = entry.map_or((0, 0), |entry| (entry.address, entry.size));
        let code = image.tail(address, size);
        let check = Check::of(code, address);
        let inside = check.as_ref().filter(|check| (address..address + size).contains(&check.more));
        let back = inside.and_then(|check| check.way_back(code, address));
        GoFacts { address, entry, code, goid, check, back }
    }

    /// Whether a goroutine that a signal has preempted may resume at this offset.
    pub(super) fn may_resume_at(&self, offset: u64) -> bool {
        self.entry.is_none_or(|entry| {
            entry.facts.as_ref().is_none_or(|facts| facts.may_resume_at(offset, entry.name))
        })
    }

    /// Returns the function's branches.
    pub(super) fn branches(&self) -> impl Iterator<Item = Instruction> {
        decoder(self.code, self.address).into_iter().filter(|instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            )
        })
    }
}
