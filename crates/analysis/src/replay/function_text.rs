//! Formats lines as the kernel's function tracer prints them, without processor and context
//! columns.

use super::Effect;
use super::graph_text::{call, lost};
use super::waits::Wait;
use crate::bytes::push_decimal;
use crate::names::Names;
use crate::sources::source::Source;
use crate::stamp::Stamp;
use crate::symbols::Symbols;
use crate::tree::Enter;
use crate::units::one_line;
use crate::values;
use calltap_trace::ThreadId;

pub(super) struct FunctionText<'a> {
    source: &'a dyn Source,
    names: &'a Names<'a>,
    symbols: Symbols<'a>,
    /// The task column of each thread, made on first use.
    tasks: Vec<String>,
    time: Stamp,
}

impl<'a> FunctionText<'a> {
    pub(super) fn new(source: &'a dyn Source, names: &'a Names<'a>, time: Option<Stamp>) -> Self {
        let tasks = vec![String::new(); source.meta().threads.len()];
        let time = time.unwrap_or(Stamp::Since(0));
        Self { source, names, symbols: Symbols::new(source.meta(), names), tasks, time }
    }

    pub(super) fn header(&self, buffer: &mut Vec<u8>) {
        let stored = self.source.event_count();
        let lost = crate::head::Lost::of_threads(self.source);
        let written = stored.saturating_add(lost.entries).saturating_add(lost.exits);
        let text = format!(
            "# tracer: function\n#\n# entries-in-buffer/entries-written: {stored}/{written}\n#\n\
             #           TASK-PID        TIMESTAMP  FUNCTION\n\
             #              | |              |         |\n"
        );
        buffer.extend_from_slice(text.as_bytes());
    }

    pub(super) fn line(
        &mut self,
        buffer: &mut Vec<u8>,
        thread: ThreadId,
        now: u64,
        effect: &Effect,
        values: &[u8],
    ) {
        match effect {
            Effect::Enter(enter) | Effect::Mark(enter) => self.call(buffer, thread, now, enter, values),
            Effect::Lost { entries, exits } => {
                lost(buffer, self.names, thread, u64::from(*entries) + u64::from(*exits));
            }
            Effect::Close(_) | Effect::Orphan { .. } => {}
        }
    }

    /// Prints a line for an interval in which the thread does not run.
    pub(super) fn wait(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, wait: &Wait) {
        self.begin(buffer, thread, wait.from);
        buffer.extend_from_slice(wait.text(self.source).as_bytes());
        buffer.push(b'\n');
    }

    fn call(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, now: u64, enter: &Enter, values: &[u8]) {
        self.begin(buffer, thread, now);
        let shown = values::show(self.source, enter.site, false, values, &mut |address| {
            self.symbols.code(thread, enter.ticks, address)
        });
        buffer.extend_from_slice(call(self.names, enter.site, &shown).as_bytes());
        if enter.parent != 0 {
            buffer.extend_from_slice(b" <-");
            let caller = self.symbols.caller(thread, enter.ticks, enter.parent);
            buffer.extend_from_slice(one_line(caller).as_bytes());
        }
        buffer.push(b'\n');
    }

    /// Appends the columns of thread and time.
    fn begin(&mut self, buffer: &mut Vec<u8>, thread: ThreadId, now: u64) {
        let task = &mut self.tasks[thread.0 as usize];
        if task.is_empty() {
            *task = format!("{:>16}-{:<7} ", one_line(self.names.comm(thread)), self.names.tid(thread));
        }
        buffer.extend_from_slice(task.as_bytes());
        if self.source.has_time() {
            let time = self.time.at(self.source.to_ns(now));
            buffer.extend_from_slice(format!("{time:>12}: ").as_bytes());
        } else {
            let start = buffer.len();
            push_decimal(buffer, now);
            // Raw clocks are aligned to the right in 12 columns.
            let missing = 12usize.saturating_sub(buffer.len() - start);
            buffer.splice(start..start, std::iter::repeat_n(b' ', missing));
            buffer.extend_from_slice(b": ");
        }
    }
}
