//! The open calls at a call: what `func_stack_trace` and the trigger `stacktrace` record.
//!
//! The stack of a running thread is not walked. The open calls of a thread are known from its events, and each has said where it returns to; so a function
//! that is not traced is seen where it called one that is, and not where it only called another such.

use crate::symbols::Symbols;
use std::sync::Arc;

/// Longest stack: what still fits into a page.
pub const DEEPEST: usize = 480;

/// A place on a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Somewhere in the function of this site.
    In(u32),
    /// The call behind which this address is.
    Return(u64),
}

impl Level {
    /// As a number.
    pub fn address(self, symbols: &Symbols) -> u64 {
        match self {
            Level::In(site) => symbols.code(site),
            Level::Return(address) => address,
        }
    }
}

/// An open call, as far as its stack is concerned.
#[derive(Clone, Copy, Default, Debug)]
pub struct Call {
    /// The function.
    pub site: u32,
    /// Where it returns to, 0 if that is not known.
    pub parent: u64,
    /// It was jumped to by the one before, which is on the stack no more.
    pub tail: bool,
    /// Where its return address lies, 0 if that is not known.
    pub slot: u64,
}

impl Call {
    /// The top of its stack as it begins: the function that looks was called, too.
    pub fn top(&self) -> u64 {
        self.slot.saturating_sub(8)
    }
}

/// All callers of a call, to the outermost. `open`: the calls that are open around it, innermost first.
pub fn levels(call: Call, open: impl Iterator<Item = Call>, symbols: &Symbols) -> Arc<[Level]> {
    places(call, open, symbols).into_iter().map(|(level, _)| level).collect()
}

/// The same, each with the address of the word where its frame ends, 0 if that is not known: there lies where its callee returns to.
pub fn places(call: Call, open: impl Iterator<Item = Call>, symbols: &Symbols) -> Vec<(Level, u64)> {
    let mut levels = vec![(Level::In(call.site), call.top())];
    let Call { mut parent, mut tail, mut slot, .. } = call;
    for outer in open {
        if levels.len() + 2 > DEEPEST {
            break;
        }
        if tail {
            // A function that jumped has left its own return address behind.
            parent = if parent == 0 { outer.parent } else { parent };
            slot = if slot == 0 { outer.slot } else { slot };
        } else {
            let within = symbols.begin(parent) == Some(symbols.code(outer.site));
            levels.extend((parent != 0).then_some((Level::Return(parent), slot)));
            // How much of it is its own and how much that of functions that are not traced is not known.
            levels.extend((!within).then_some((Level::In(outer.site), outer.slot)));
            (parent, slot) = (outer.parent, outer.slot);
        }
        tail = outer.tail;
    }
    levels.extend((parent != 0).then_some((Level::Return(parent), slot)));
    levels
}
