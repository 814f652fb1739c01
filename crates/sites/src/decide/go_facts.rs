//! Facts of one Go function.

use iced_x86::{FlowControl, Instruction, Register};

use crate::code::decode::decoder;
use crate::code::stack_check::Check;
use crate::discover::goid::GLayout;
use crate::elf::image::Image;
use crate::elf::pclntab::Entry;
use crate::site::{GPlace, Goroutine};

/// All that rules look at in a Go function.
pub(super) struct GoFacts<'a> {
    pub address: u64,
    /// The function's row in Go's table of functions.
    pub entry: Option<&'a Entry<'a>>,
    /// The function's code, with the padding behind it.
    pub code: &'a [u8],
    pub layout: Option<GLayout>,
    pub check: Option<Check>,
    /// Address of the jump back to its beginning, after the stack has grown.
    pub back: Option<u64>,
}

impl<'a> GoFacts<'a> {
    pub(super) fn of(
        image: &'a Image<'_>,
        entry: Option<&'a Entry<'a>>,
        layout: Option<GLayout>,
    ) -> GoFacts<'a> {
        let (address, size) = entry.map_or((0, 0), |entry| (entry.address, entry.size));
        let code = image.tail(address, size);
        let check = Check::of(code, address);
        let inside = check.as_ref().filter(|check| (address..address + size).contains(&check.more));
        let back = inside.and_then(|check| check.way_back(code, address));
        GoFacts { address, entry, code, layout, check, back }
    }

    /// Returns how the goroutine that runs the function is found behind this check. Assembly may
    /// use r14 for a caller's value, so r14 stays as it is there.
    pub(super) fn goroutine(&self, check: &Check) -> Option<Goroutine> {
        let layout = self.layout?;
        let is_compiled = self.entry.is_some_and(|entry| entry.is_compiled);
        let g = match check.loaded_from {
            _ if check.g == Register::R14 => Some(GPlace::R14),
            place if !layout.is_in_r14 && is_compiled => place,
            _ => None,
        };
        Some(layout.goroutine(g?))
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
