//! Calls and returns, indented.

use super::{Format, Shown, function};
use crate::ring::{Record, What};
use crate::symbols::{Style, Symbols};
use std::fmt::Write;

const LINE: &str = " ------------------------------------------\n";

/// The column heads.
pub fn header(format: &Format, text: &mut String) {
    let on = |name| format.options.is_on(name);
    let columns = [
        ("funcgraph-abstime", "       TIME       ", "        |         "),
        ("funcgraph-cpu", " CPU", " |  "),
        ("funcgraph-proc", "  TASK/PID       ", "   |    |        "),
        ("funcgraph-duration", "  DURATION   ", "   |   |      "),
    ];
    let mut lines = [String::from("#"), String::from("#")];
    for (_, head, bar) in columns.into_iter().filter(|(option, ..)| on(option)) {
        lines[0] += head;
        lines[1] += bar;
    }
    let [heads, bars] = lines;
    let _ = write!(text, "{heads}               FUNCTION CALLS\n{bars}               |   |   |   |\n");
}

/// Writes a record. True if it said what `next` says, too: a call without traced calls inside is one line.
pub fn write(
    format: &Format,
    text: &mut String,
    symbols: &Symbols,
    shown: &mut Shown,
    record: &Record,
    next: Option<&Record>,
) -> bool {
    if format.threshold_ns > 0 {
        match record.what {
            What::Enter { .. } => return false,
            What::Exit { start_ns, .. } if record.ns.saturating_sub(start_ns) < format.threshold_ns => {
                return false;
            }
            _ => {}
        }
    }
    let tail = format.options.is_on("funcgraph-tail");
    let entered = shown.entered.entry(record.tid).or_default();
    match &record.what {
        What::Enter { site, depth } => {
            let (site, depth) = (*site, usize::from(*depth));
            let leaf = next.and_then(|next| match next.what {
                What::Exit { site: of, depth: at, start_ns } if of == site && usize::from(at) == depth => {
                    Some(next.ns.saturating_sub(start_ns))
                }
                _ => None,
            });
            entered.resize(depth + 1, u32::MAX);
            entered[depth] = if leaf.is_some() { u32::MAX } else { site };
            before(format, text, symbols, &mut shown.task, record);
            duration(format, text, leaf);
            indent(text, depth);
            symbols.write_site(text, site, format.style());
            text.push_str(if leaf.is_some() { "();\n" } else { "() {\n" });
            leaf.is_some()
        }
        What::Exit { site, depth, start_ns } => {
            let depth = usize::from(*depth);
            let seen = entered.get(depth) == Some(site);
            entered.truncate(depth);
            before(format, text, symbols, &mut shown.task, record);
            duration(format, text, Some(record.ns.saturating_sub(*start_ns)));
            indent(text, depth);
            if seen && !tail {
                text.push_str("}\n");
            } else {
                text.push_str("} /* ");
                symbols.write_site(text, *site, format.style());
                text.push_str(" */\n");
            }
            if format.options.is_on("funcgraph-overrun") {
                text.push_str(" (Overruns: 0)\n");
            }
            false
        }
        other => {
            let depth = entered.len();
            before(format, text, symbols, &mut shown.task, record);
            duration(format, text, None);
            indent(text, depth);
            text.push_str("/* ");
            match other {
                What::Mark(mark) => text.push_str(mark.trim_end()),
                What::RawMark(bytes) => {
                    function::raw_mark(text, bytes);
                    text.truncate(text.trim_end().len());
                }
                What::Stack { site, parent } => {
                    function::stack(text, symbols, *site, *parent);
                    text.truncate(text.trim_end().len());
                }
                What::Function { site, parent } | What::Repeats { site, parent, .. } => {
                    symbols.write_site(text, *site, Style::default());
                    text.push_str(" <-");
                    symbols.write_address(text, *parent, Style::default());
                }
                What::Enter { .. } | What::Exit { .. } => {}
            }
            text.push_str(" */\n");
            false
        }
    }
}

/// Everything in front of the duration.
fn before(format: &Format, text: &mut String, symbols: &Symbols, task: &mut Option<u32>, record: &Record) {
    let on = |name| format.options.is_on(name);
    let last = task.replace(record.tid);
    if let Some(last) = last.filter(|last| *last != record.tid) {
        let _ = write!(text, "{LINE} 0) ");
        process(text, symbols, last);
        text.push_str(" => ");
        process(text, symbols, record.tid);
        let _ = write!(text, "\n{LINE}\n");
    }
    if !on("context-info") {
        return;
    }
    if on("funcgraph-abstime") {
        let (seconds, micros) = function::time(record.ns);
        let _ = write!(text, "{seconds:>5}.{micros:06} |  ");
    }
    if on("funcgraph-cpu") {
        text.push_str(" 0) ");
    }
    if on("funcgraph-proc") {
        process(text, symbols, record.tid);
        text.push_str(" | ");
    }
}

/// `comm-pid`, in the middle of 14 columns.
fn process(text: &mut String, symbols: &Symbols, tid: u32) {
    let comm: String = symbols.comm(tid).chars().take(7).collect();
    let name = format!("{comm}-{tid}");
    let blanks = 14usize.saturating_sub(name.len());
    let _ = write!(text, "{:1$}", "", blanks / 2);
    let _ = write!(text, "{name}{:1$}", "", blanks - blanks / 2);
}

/// The duration column; blank without one.
fn duration(format: &Format, text: &mut String, ns: Option<u64>) {
    let on = |name| format.options.is_on(name);
    if !on("context-info") || !on("funcgraph-duration") {
        return;
    }
    let Some(ns) = ns else {
        text.push_str("              |  ");
        return;
    };
    let mark = match ns {
        _ if !on("funcgraph-overhead") => ' ',
        1_000_000_001.. => '$',
        100_000_001.. => '@',
        10_000_001.. => '*',
        1_000_001.. => '#',
        100_001.. => '!',
        10_001.. => '+',
        _ => ' ',
    };
    let _ = write!(text, "{mark} ");
    text.push_str(&calltap_control::duration(ns));
    text.push_str("|  ");
}

fn indent(text: &mut String, depth: usize) {
    (0..2 * depth).for_each(|_| text.push(' '));
}
