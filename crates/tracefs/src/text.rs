//! The formats of `trace` and `trace_pipe`, byte for byte as the kernel prints them.

mod function;
mod graph;

use crate::options::{Options, on};
use crate::ring::Record;
use crate::symbols::{Style, Symbols};
use std::collections::HashMap;
use std::fmt::Write;

/// The format of records.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    /// Name of the tracer.
    pub tracer: &'static str,
    /// The instance's options.
    pub options: Options,
    /// `tracing_thresh` in nanoseconds: function_graph prints only returns of calls that took
    /// longer.
    pub threshold_ns: u64,
    /// Number of processors.
    pub processors: usize,
    /// Whether times are nanoseconds.
    pub in_ns: bool,
    /// Time of the clock when the buffer was last cleared.
    pub start: u64,
}

/// State that later lines depend on.
#[derive(Default, Debug)]
pub(crate) struct PrintState {
    /// The thread of the last line, for function_graph.
    task: Option<u32>,
    /// Functions that the current thread has entered, by depth.
    entered: Vec<u32>,
    /// Functions that the other threads have entered.
    others: HashMap<u32, Vec<u32>>,
    turn: u32,
    /// Time of the next record, for latency-format.
    pub next: Option<u64>,
}

impl PrintState {
    /// Makes a thread the current one.
    fn turn_to(&mut self, tid: u32) {
        if self.turn != tid {
            let next = self.others.remove(&tid).unwrap_or_default();
            let last = std::mem::replace(&mut self.entered, next);
            self.others.insert(std::mem::replace(&mut self.turn, tid), last);
        }
    }
}

/// Appends blanks.
fn blanks(text: &mut String, mut count: usize) {
    const BLANKS: &str = "                                                                ";
    while count > 0 {
        let now = count.min(BLANKS.len());
        text.push_str(&BLANKS[..now]);
        count -= now;
    }
}

impl Format {
    fn is_graph(&self) -> bool {
        self.tracer == "function_graph"
    }

    fn style(&self) -> Style {
        Style { offset: on!(self.options, "sym-offset"), address: on!(self.options, "sym-addr") }
    }

    /// Returns the header. `counts`: the number of records in the buffer, and of all since it was
    /// cleared.
    pub(crate) fn header(&self, symbols: &Symbols, counts: (u64, u64)) -> String {
        let mut text = format!("# tracer: {}\n#\n", self.tracer);
        let on = |name| self.options.is_on(name);
        let latency = on("latency-format") && on("context-info");
        if latency {
            self.banner(&mut text, symbols, counts);
        }
        if !on("context-info") || on("verbose") || on("raw") || on("hex") || on("bin") {
            return text;
        }
        if self.is_graph() {
            graph::header(self, &mut text);
            return text;
        }
        if latency {
            text.push_str(function::LATENCY_HEAD);
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

    /// Appends the banner of latency-format, with no latency measured, and no task.
    fn banner(&self, text: &mut String, symbols: &Symbols, (left, written): (u64, u64)) {
        let Format { tracer, processors, .. } = self;
        let (rule, release) = ("-".repeat(68), symbols.release());
        let _ = write!(
            text,
            "# {tracer} latency trace v1.1.5 on {release}\n# {rule}\n\
             # latency: 0 us, #{left}/{written}, CPU#0 | (M:desktop VP:0, KP:0, SP:0 HP:0 #P:{processors})\n\
             #    -----------------\n\
             #    | task: -0 (uid:0 nice:0 policy:0 rt_prio:0)\n\
             #    -----------------\n#\n"
        );
    }

    /// Appends a record. `next`: the thread's next record, if it is known. True if the text
    /// includes it.
    pub(crate) fn write(
        &self,
        text: &mut String,
        symbols: &Symbols,
        shown: &mut PrintState,
        record: &Record,
        next: Option<&Record>,
    ) -> bool {
        if self.is_graph() {
            return graph::write(self, text, symbols, shown, record, next);
        }
        function::write(self, text, symbols, shown, record);
        false
    }
}
