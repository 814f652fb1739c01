//! `trace_options` and `options/`: the options of tracers, and which of them are on.

/// An option of tracers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceOption {
    /// Name of the option.
    pub name: &'static str,
    /// The only tracer with this option; `None` if all have it.
    pub tracer: Option<&'static str>,
    default: bool,
    /// Whether only the top instance has it.
    pub top_only: bool,
}

const fn core(name: &'static str, default: bool) -> TraceOption {
    TraceOption { name, tracer: None, default, top_only: false }
}

const fn top(name: &'static str, default: bool) -> TraceOption {
    TraceOption { name, tracer: None, default, top_only: true }
}

const fn of(tracer: &'static str, name: &'static str, default: bool) -> TraceOption {
    TraceOption { name, tracer: Some(tracer), default, top_only: false }
}

/// All options, in the kernel's order.
pub(crate) const OPTIONS: &[TraceOption] = &[
    core("print-parent", true),
    core("sym-offset", false),
    core("sym-addr", false),
    core("verbose", false),
    core("raw", false),
    core("hex", false),
    core("bin", false),
    core("block", false),
    core("fields", false),
    top("trace_printk", true),
    core("annotate", true),
    core("userstacktrace", false),
    core("sym-userobj", false),
    top("printk-msg-only", false),
    core("context-info", true),
    core("latency-format", false),
    top("record-cmd", true),
    core("record-tgid", false),
    core("overwrite", true),
    core("disable_on_free", false),
    core("irq-info", true),
    core("markers", true),
    core("event-fork", false),
    core("trace_printk_dest", true),
    core("pause-on-trace", false),
    core("hash-ptr", true),
    core("function-trace", true),
    core("function-fork", false),
    core("display-graph", false),
    core("stacktrace", false),
    of("function", "func_stack_trace", false),
    of("function", "func-no-repeats", false),
    of("function_graph", "funcgraph-overrun", false),
    of("function_graph", "funcgraph-cpu", true),
    of("function_graph", "funcgraph-overhead", true),
    of("function_graph", "funcgraph-proc", false),
    of("function_graph", "funcgraph-duration", true),
    of("function_graph", "funcgraph-abstime", false),
    of("function_graph", "funcgraph-irqs", true),
    of("function_graph", "funcgraph-tail", false),
    of("function_graph", "sleep-time", true),
    of("function_graph", "graph-time", true),
    of("nop", "test_nop_accept", false),
    of("nop", "test_nop_refuse", false),
];

/// The index of an option, computed at compile time, for options that are read for every record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag(usize);

impl Flag {
    /// Returns the option with a name.
    pub(crate) const fn named(name: &str) -> Flag {
        let mut at = 0;
        while at < OPTIONS.len() {
            if same(OPTIONS[at].name.as_bytes(), name.as_bytes()) {
                return Flag(at);
            }
            at += 1;
        }
        panic!("no such option");
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Whether the option with a literal name is on. The compiler looks up the name: printing a million
/// lines reads several options for each.
macro_rules! on {
    ($options:expr, $name:literal) => {
        $options.has(const { $crate::options::Flag::named($name) })
    };
}
pub(crate) use on;

/// The options that are on, as bits.
#[derive(Clone, Debug)]
pub(crate) struct Options(u64);

impl Default for Options {
    fn default() -> Self {
        let bits = OPTIONS.iter().enumerate().map(|(n, option)| u64::from(option.default) << n);
        Options(bits.sum())
    }
}

fn place(name: &str) -> Option<usize> {
    OPTIONS.iter().position(|option| option.name == name)
}

impl Options {
    /// Whether an option is on.
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.0 >> flag.0 & 1 != 0
    }

    /// Whether the option with a name is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        debug_assert!(place(name).is_some(), "{name}");
        place(name).is_some_and(|n| self.0 >> n & 1 != 0)
    }

    /// Switches an option. False if it does not exist, or refuses.
    pub(crate) fn set(&mut self, name: &str, on: bool) -> bool {
        let Some(n) = place(name).filter(|_| !(name == "test_nop_refuse" && on)) else { return false };
        self.0 = self.0 & !(1 << n) | u64::from(on) << n;
        true
    }

    /// Returns the contents of `trace_options`: the options of all tracers, then the current
    /// tracer's own.
    pub(crate) fn list(&self, tracer: &str, is_top: bool) -> String {
        let shown = |option: &&TraceOption| {
            option.tracer.is_none_or(|own| own == tracer) && (is_top || !option.top_only)
        };
        let line = |option: &TraceOption| {
            let no = if self.is_on(option.name) { "" } else { "no" };
            format!("{no}{}\n", option.name)
        };
        OPTIONS.iter().filter(shown).map(line).collect()
    }

    /// Applies a word written to `trace_options`. False if it names no option of the current
    /// tracer.
    pub(crate) fn change(&mut self, word: &str, tracer: &str, is_top: bool) -> bool {
        let known = |name: &str| {
            OPTIONS.iter().any(|option| {
                option.name == name
                    && option.tracer.is_none_or(|own| own == tracer)
                    && (is_top || !option.top_only)
            })
        };
        match word.strip_prefix("no").filter(|name| known(name)) {
            Some(name) => self.set(name, false),
            None => known(word) && self.set(word, true),
        }
    }
}
