//! The stack tracer: the deepest stack of any thread while the tracer was on.
//!
//! It knows the slot of every call's return address, so the size of a frame is the distance between
//! two slots. The depth is counted from the end of the mapping of the thread's stack. Calls on
//! another stack, such as those of signal handlers and coroutines, are left out, as the kernel
//! leaves out those of interrupts.

use crate::stack::{Call, Level, MAX_LEVELS, places};
use crate::symbols::{Style, Symbols};
use crate::tokens::present;
use calltap_names::GlobSet;
use std::fmt::Write;
use std::ops::Range;

/// The value that is read of every call while the stack tracer is on.
pub(crate) const READ: &str = "*@$stack";

const DISABLED: &str = "\
#\n\
#  Stack tracer disabled\n\
#\n\
# To enable the stack tracer, either add 'stacktrace' to the\n\
# kernel command line\n\
# or 'echo 1 > /proc/sys/kernel/stack_tracer_enabled'\n\
#\n";

/// Returns the slot from the value of [`READ`] that was stored for a call; 0 if none was.
pub(crate) fn slot(stored: &[u8]) -> u64 {
    match stored {
        [0, 0, word @ ..] => word.try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}

/// State of the stack tracer.
#[derive(Default, Debug)]
pub(crate) struct StackTracer {
    /// `stack_tracer_enabled`.
    pub is_on: bool,
    /// `stack_trace_filter`: the functions at whose calls the stack is measured.
    pub filter: Vec<String>,
    /// `stack_max_size`: only deeper stacks are kept.
    pub max: u64,
    /// The open calls of the deepest stack, innermost first.
    deepest: Vec<Call>,
    /// The end of its mapping.
    end: u64,
}

impl StackTracer {
    /// Returns the sets of the functions at whose calls the stack is measured, if the tracer is on.
    pub(crate) fn sets(&self) -> Option<(GlobSet, GlobSet)> {
        self.is_on.then(|| (GlobSet::new(&present(&self.filter)), GlobSet::new(&[])))
    }

    /// Measures the stack at a call. `open`: the open calls around it, innermost first.
    pub(crate) fn meet(&mut self, stack: &Range<u64>, call: Call, open: impl Iterator<Item = Call>) {
        if !stack.contains(&call.slot) || stack.end - call.top() <= self.max {
            return;
        }
        (self.max, self.end) = (stack.end - call.top(), stack.end);
        self.deepest.clear();
        self.deepest.push(call);
        self.deepest.extend(open.take(MAX_LEVELS));
    }

    /// Returns the contents of `stack_trace`.
    pub(crate) fn text(&self, symbols: &Symbols) -> String {
        let stack = self.stack(symbols);
        let mut text = format!("        Depth    Size   Location    ({} entries)\n", stack.len());
        text += "        -----    ----   --------\n";
        if !self.is_on && self.max == 0 {
            text += DISABLED;
        }
        for (n, (level, depth)) in stack.iter().enumerate() {
            let size = depth - stack.get(n + 1).map_or(0, |(_, outer)| *outer);
            let _ = write!(text, "{n:3}) {depth:8}   {size:5}   ");
            let style = Style { offset: true, address: false };
            match level {
                Level::In(site) => symbols.write_site(&mut text, *site, style),
                Level::Return(address) => symbols.write_address(&mut text, *address, style),
            }
            text.push('\n');
        }
        text
    }

    /// Returns the deepest stack with the depth of each level. It ends at the first level that is
    /// not known to lie above the one before: its function was called before the tracer was on.
    fn stack(&self, symbols: &Symbols) -> Vec<(Level, u64)> {
        let Some((first, open)) = self.deepest.split_first() else { return Vec::new() };
        let mut depth = u64::MAX;
        let mut deep = |(level, at): (Level, u64)| {
            depth = self.end.checked_sub(at).filter(|outer| at != 0 && *outer <= depth)?;
            Some((level, depth))
        };
        places(*first, open.iter().copied(), symbols).into_iter().map_while(&mut deep).collect()
    }
}
