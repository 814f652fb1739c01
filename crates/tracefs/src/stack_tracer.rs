//! The stack tracer: the deepest stack that any thread had while it was on.
//!
//! It is told where the return address of every call lies, so the bytes of a frame are the distance between two. The depth is counted from the end of the
//! mapping that the thread's stack is; calls on another one, as signal handlers and coroutines may have, are left out, as the kernel leaves out interrupts'.

use crate::stack::{Call, DEEPEST, Level, places};
use crate::symbols::{Style, Symbols};
use crate::tokens::present;
use calltap_names::GlobSet;
use std::fmt::Write;
use std::ops::Range;

/// What is read of every call while it is on.
pub const READ: &str = "*@$stack";

const DISABLED: &str = "\
#\n\
#  Stack tracer disabled\n\
#\n\
# To enable the stack tracer, either add 'stacktrace' to the\n\
# kernel command line\n\
# or 'echo 1 > /proc/sys/kernel/stack_tracer_enabled'\n\
#\n";

/// Of [`READ`], what was stored of a call: 0 if nothing was.
pub fn slot(stored: &[u8]) -> u64 {
    match stored {
        [0, 0, word @ ..] => word.try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}

/// The stack tracer.
#[derive(Default, Debug)]
pub struct StackTracer {
    /// `stack_tracer_enabled`.
    pub is_on: bool,
    /// `stack_trace_filter`: it looks when one of these is called.
    pub filter: Vec<String>,
    /// `stack_max_size`: it keeps what is deeper.
    pub max: u64,
    /// The calls that were open then, innermost first,
    deepest: Vec<Call>,
    /// and where their stack ended.
    end: u64,
}

impl StackTracer {
    /// The functions that it looks at, if it is on.
    pub fn sets(&self) -> Option<(GlobSet, GlobSet)> {
        self.is_on.then(|| (GlobSet::new(&present(&self.filter)), GlobSet::new(&[])))
    }

    /// A function was called, on this stack. `open`: the calls that are open around it, innermost first.
    pub fn meet(&mut self, stack: &Range<u64>, call: Call, open: impl Iterator<Item = Call>) {
        if !stack.contains(&call.slot) || stack.end - call.top() <= self.max {
            return;
        }
        (self.max, self.end) = (stack.end - call.top(), stack.end);
        self.deepest.clear();
        self.deepest.push(call);
        self.deepest.extend(open.take(DEEPEST));
    }

    /// `stack_trace`.
    pub fn text(&self, symbols: &Symbols) -> String {
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

    /// The deepest stack, with the depth of each place. What is not known to lie above the one before is left out: functions that were called before it was on.
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
