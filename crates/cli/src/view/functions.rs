//! The functions as the page has them: numbers, and short names.

use calltap_analysis::explore::Function;
use calltap_analysis::paths::By;
use calltap_analysis::{Off, ShortNames};
use serde_json::{Map, Value, json};

/// Returns a row for each function.
pub fn functions(all: &[Function]) -> Value {
    let row = |function: &Function| {
        let Function { site, name, module, calls, times, .. } = function;
        match times {
            None => json!([site.0, name, module, calls]),
            Some(t) => {
                let [p50, p90, p99, p999] = t.percentiles_ns.unwrap_or_default();
                let states = t.off_ns.map(|[off, _]| states(t.total_ns, &off));
                json!([
                    site.0, name, module, calls, t.total_ns, t.self_ns, t.avg_ns, t.min_ns, t.max_ns, p50,
                    p90, p99, p999, states
                ])
            }
        }
    };
    all.iter().map(row).collect()
}

/// Returns the short form of each function's name that has one, by function.
pub fn short_names(all: &[Function]) -> Map<String, Value> {
    let names: ShortNames = all.iter().map(|function| function.name.as_str()).collect();
    let short = all.iter().map(|function| (function, names.of(&function.name)));
    let differs = short.filter(|(function, short)| function.name != *short);
    differs.map(|(function, short)| (function.site.0.to_string(), short.into())).collect()
}

/// Returns the times in which a thread was running, runnable, blocked, held by calltap, unknown.
pub fn states(total: u64, off: &Off) -> Value {
    json!([By::Cpu.of(total, off), off.runnable, off.blocked, off.tracing, off.unknown])
}
