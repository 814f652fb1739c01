//! `trace_options` and `options/`.

/// An option: its name, whose it is, and whether it is on at first.
#[derive(Clone, Copy, Debug)]
pub struct TraceOption {
    /// Its name.
    pub name: &'static str,
    /// The tracer that alone has it; none: all.
    pub tracer: Option<&'static str>,
    default: bool,
    /// Instances do not have it.
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

/// Those that exist, in the kernel's order.
pub const OPTIONS: &[TraceOption] = &[
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

/// An option that is asked for at every record: its place is known when this is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Flag(usize);

impl Flag {
    /// The option of that name.
    pub const fn named(name: &str) -> Flag {
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

/// Is an option on that is named in the source? Looked up by the compiler: a million lines ask for several each.
macro_rules! on {
    ($options:expr, $name:literal) => {
        $options.has(const { $crate::options::Flag::named($name) })
    };
}
pub(crate) use on;

/// What is on.
#[derive(Clone, Debug)]
pub struct Options(u64);

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
    /// Is it on?
    pub fn has(&self, flag: Flag) -> bool {
        self.0 >> flag.0 & 1 != 0
    }

    /// The same by name.
    pub fn is_on(&self, name: &str) -> bool {
        debug_assert!(place(name).is_some(), "{name}");
        place(name).is_some_and(|n| self.0 >> n & 1 != 0)
    }

    /// Switches it. False if there is no such option, or it refuses.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        let Some(n) = place(name).filter(|_| !(name == "test_nop_refuse" && on)) else { return false };
        self.0 = self.0 & !(1 << n) | u64::from(on) << n;
        true
    }

    /// The file `trace_options`: those of all tracers, then the current one's own.
    pub fn list(&self, tracer: &str, is_top: bool) -> String {
        let shown = |option: &&TraceOption| {
            option.tracer.is_none_or(|own| own == tracer) && (is_top || !option.top_only)
        };
        let line = |option: &TraceOption| {
            let no = if self.is_on(option.name) { "" } else { "no" };
            format!("{no}{}\n", option.name)
        };
        OPTIONS.iter().filter(shown).map(line).collect()
    }

    /// A word written there: false if it names no option that the current tracer has.
    pub fn change(&mut self, word: &str, tracer: &str, is_top: bool) -> bool {
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
