//! The formats of `trace` and `trace_pipe`: what the kernel prints, byte for byte.

mod function;
mod graph;

use crate::options::Options;
use crate::ring::Record;
use crate::symbols::{Style, Symbols};
use std::collections::HashMap;
use std::fmt::Write;

/// How records are written.
#[derive(Clone, Debug)]
pub struct Format {
    /// Name of the tracer.
    pub tracer: &'static str,
    /// The instance's.
    pub options: Options,
    /// `tracing_thresh`, nanoseconds: with function_graph only returns that took longer are shown.
    pub threshold_ns: u64,
    /// Processors.
    pub processors: usize,
}

/// What the lines so far have said.
#[derive(Default, Debug)]
pub struct Shown {
    /// The thread of the last line, for function_graph.
    task: Option<u32>,
    /// Functions that were entered, by thread and depth.
    entered: HashMap<u32, Vec<u32>>,
}

impl Format {
    fn is_graph(&self) -> bool {
        self.tracer == "function_graph"
    }

    fn style(&self) -> Style {
        Style { offset: self.options.is_on("sym-offset"), address: self.options.is_on("sym-addr") }
    }

    /// What stands above the records. `counts`: those that are in the buffer, and all that were.
    pub fn header(&self, counts: (u64, u64)) -> String {
        let mut text = format!("# tracer: {}\n#\n", self.tracer);
        let on = |name| self.options.is_on(name);
        if !on("context-info") || on("verbose") || on("raw") || on("hex") || on("bin") {
            return text;
        }
        if self.is_graph() {
            graph::header(self, &mut text);
            return text;
        }
        let (left, written) = counts;
        let _ = write!(
            text,
            "# entries-in-buffer/entries-written: {left}/{written}   #P:{}\n#\n",
            self.processors
        );
        let tgid = on("record-tgid");
        if on("irq-info") {
            let (blank, name, bar) =
                if tgid { ("            ", "     TGID   ", "       |    ") } else { ("  ", "  ", "  ") };
            let _ = write!(
                text,
                "#                            {blank}  _-----=> irqs-off/BH-disabled\n\
                 #                            {blank} / _----=> need-resched\n\
                 #                            {blank}| / _---=> hardirq/softirq\n\
                 #                            {blank}|| / _--=> preempt-depth\n\
                 #                            {blank}||| / _-=> migrate-disable\n\
                 #                            {blank}|||| /     delay\n\
                 #           TASK-PID  {name} CPU#  |||||  TIMESTAMP  FUNCTION\n\
                 #              | |    {bar}   |   |||||     |         |\n"
            );
        } else {
            let (name, bar) = if tgid { ("   TGID   ", "     |    ") } else { ("", "") };
            let _ = write!(
                text,
                "#           TASK-PID    {name} CPU#     TIMESTAMP  FUNCTION\n\
                 #              | |      {bar}   |         |         |\n"
            );
        }
        text
    }

    /// Writes a record. `next`: the one that the same thread made after it, as far as it is known. True if that was said, too.
    pub fn write(
        &self,
        text: &mut String,
        symbols: &Symbols,
        shown: &mut Shown,
        record: &Record,
        next: Option<&Record>,
    ) -> bool {
        if self.is_graph() {
            return graph::write(self, text, symbols, shown, record, next);
        }
        function::write(self, text, symbols, record);
        false
    }
}
