//! The stack at a call, for `func_stack_trace` and the trigger `stacktrace`.
//!
//! The stack of a running thread is not unwound. Its open calls are known from its events, each
//! with its return address. A function that is not traced therefore appears if it called a traced
//! one, and does not appear if it only called other untraced ones.

use crate::symbols::Symbols;
use std::sync::Arc;

/// Maximum number of levels, so that a stack fits into a page.
pub(crate) const MAX_LEVELS: usize = 480;

/// A level of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// The function of this site, at an unknown address.
    In(u32),
    /// A return address.
    Return(u64),
}

impl Level {
    /// Returns the level as an address.
    pub(crate) fn address(self, symbols: &Symbols) -> u64 {
        match self {
            Level::In(site) => symbols.code(site),
            Level::Return(address) => address,
        }
    }
}

/// An open call, with what is known of its frame.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Call {
    /// Site of the function.
    pub site: u32,
    /// Return address, 0 if it is not known.
    pub parent: u64,
    /// Whether the enclosing call jumped to this function, so that the caller's frame is no longer
    /// on the stack.
    pub tail: bool,
    /// Address of the slot of the return address, 0 if it is not known.
    pub slot: u64,
}

impl Call {
    /// Returns the stack pointer at the function's beginning, with the tracing function's own
    /// return address pushed, as in the kernel.
    pub(crate) fn top(&self) -> u64 {
        self.slot.saturating_sub(8)
    }
}

/// Returns the stack of a call, innermost level first. `open`: the open calls around it, innermost
/// first.
pub(crate) fn levels(call: Call, open: impl Iterator<Item = Call>, symbols: &Symbols) -> Arc<[Level]> {
    places(call, open, symbols).into_iter().map(|(level, _)| level).collect()
}

/// Returns the stack of a call, innermost level first, each level with the address where its frame
/// ends: the slot of its callee's return address, 0 if it is not known. `open`: the open calls
/// around it, innermost first.
pub(crate) fn places(call: Call, open: impl Iterator<Item = Call>, symbols: &Symbols) -> Vec<(Level, u64)> {
    let mut levels = vec![(Level::In(call.site), call.top())];
    let Call { mut parent, mut tail, mut slot, .. } = call;
    for outer in open {
        if levels.len() + 2 > MAX_LEVELS {
            break;
        }
        if tail {
            // A function that jumped to its callee has left its own return address to it.
            parent = if parent == 0 { outer.parent } else { parent };
            slot = if slot == 0 { outer.slot } else { slot };
        } else {
            let within = symbols.begin(parent) == Some(symbols.code(outer.site));
            levels.extend((parent != 0).then_some((Level::Return(parent), slot)));
            // Untraced functions may lie between the two calls; their part of the frame is unknown.
            levels.extend((!within).then_some((Level::In(outer.site), outer.slot)));
            (parent, slot) = (outer.parent, outer.slot);
        }
        tail = outer.tail;
    }
    levels.extend((parent != 0).then_some((Level::Return(parent), slot)));
    levels
}
