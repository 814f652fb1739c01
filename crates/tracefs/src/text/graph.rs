//! The format of function_graph: calls and returns, indented.

use super::{Format, PrintState, blanks, function};
use crate::control::write_duration;
use crate::options::on;
use crate::ring::{Payload, Record};
use crate::symbols::{Style, Symbols};
use std::fmt::Write;

const LINE: &str = " ------------------------------------------\n";

/// Appends the column heads.
pub(super) fn header(format: &Format, text: &mut String) {
    let on = |name| format.options.is_on(name);
    let columns = [
        ("funcgraph-abstime", "       TIME       ", "        |         "),
        ("funcgraph-cpu", " CPU", " |  "),
        ("funcgraph-proc", "  TASK/PID       ", "   |    |        "),
        ("funcgraph-duration", "  DURATION   ", "   |   |      "),
    ];
    let latency = on("latency-format");
    let mut lines = [String::from("#"), String::from("#")];
    for (option, head, bar) in columns {
        if latency && option == "funcgraph-duration" {
            let blanks = " ".repeat(lines[0].len() - 1);
            let _ = write!(
                text,
                "#{blanks}  _-----=> irqs-off        \n\
                 #{blanks} / _----=> need-resched    \n\
                 #{blanks}| / _---=> hardirq/softirq \n\
                 #{blanks}|| / _--=> preempt-depth   \n\
                 #{blanks}||| /                      \n"
            );
            lines.iter_mut().for_each(|line| line.push_str("||||   "));
        }
        if on(option) {
            lines[0] += head;
            lines[1] += bar;
        }
    }
    let [heads, bars] = lines;
    let _ = write!(text, "{heads}               FUNCTION CALLS\n{bars}               |   |   |   |\n");
}

/// Appends a record. True if the line includes `next`: a call without recorded calls inside is one
/// line.
pub(super) fn write(
    format: &Format,
    text: &mut String,
    symbols: &Symbols,
    shown: &mut PrintState,
    record: &Record,
    next: Option<&Record>,
) -> bool {
    if format.threshold_ns > 0 {
        match record.payload {
            Payload::Enter { .. } => return false,
            Payload::Exit { ns, .. } if ns < format.threshold_ns => {
                return false;
            }
            _ => {}
        }
    }
    let tail = on!(format.options, "funcgraph-tail");
    shown.turn_to(record.tid);
    let PrintState { task, entered, .. } = shown;
    match &record.payload {
        Payload::Enter { site, depth } => {
            let (site, depth) = (*site, usize::from(*depth));
            let leaf = next.and_then(|next| match next.payload {
                Payload::Exit { site: of, depth: at, ns } if of == site && usize::from(at) == depth => {
                    Some(ns)
                }
                _ => None,
            });
            entered.resize(depth + 1, u32::MAX);
            entered[depth] = if leaf.is_some() { u32::MAX } else { site };
            before(format, text, symbols, task, record);
            duration(format, text, leaf);
            indent(text, depth);
            symbols.write_site(text, site, format.style());
            text.push_str(if leaf.is_some() { "();\n" } else { "() {\n" });
            leaf.is_some()
        }
        Payload::Exit { site, depth, ns } => {
            let depth = usize::from(*depth);
            let seen = entered.get(depth) == Some(site);
            entered.truncate(depth);
            before(format, text, symbols, task, record);
            duration(format, text, Some(*ns));
            indent(text, depth);
            if seen && !tail {
                text.push_str("}\n");
            } else {
                text.push_str("} /* ");
                symbols.write_site(text, *site, format.style());
                text.push_str(" */\n");
            }
            if on!(format.options, "funcgraph-overrun") {
                text.push_str(" (Overruns: 0)\n");
            }
            false
        }
        other => {
            let depth = entered.len();
            before(format, text, symbols, task, record);
            duration(format, text, None);
            indent(text, depth);
            comment(text, symbols, other, format.style());
            false
        }
    }
}

/// Appends a record of another kind as a comment between the calls.
fn comment(text: &mut String, symbols: &Symbols, payload: &Payload, style: Style) {
    text.push_str("/* ");
    match payload {
        Payload::Mark(mark) => text.push_str(mark.trim_end()),
        Payload::RawMark(bytes) => {
            function::raw_mark(text, bytes);
            text.truncate(text.trim_end().len());
        }
        Payload::Stack(levels) => {
            function::stack(text, symbols, levels, style);
            text.truncate(text.trim_end().len());
        }
        Payload::Function { site, parent } | Payload::Repeats { site, parent, .. } => {
            symbols.write_site(text, *site, Style::default());
            text.push_str(" <-");
            symbols.write_address(text, *parent, Style::default());
        }
        Payload::Enter { .. } | Payload::Exit { .. } => {}
    }
    text.push_str(" */\n");
}

/// Appends the columns in front of the duration.
fn before(format: &Format, text: &mut String, symbols: &Symbols, task: &mut Option<u32>, record: &Record) {
    let last = task.replace(record.tid);
    if let Some(last) = last.filter(|last| *last != record.tid) {
        let _ = write!(text, "{LINE} 0) ");
        process(text, symbols, last);
        text.push_str(" => ");
        process(text, symbols, record.tid);
        let _ = write!(text, "\n{LINE}\n");
    }
    if !on!(format.options, "context-info") {
        return;
    }
    if on!(format.options, "funcgraph-abstime") {
        function::write_time(format, text, record.time);
        text.push_str(" |  ");
    }
    if on!(format.options, "funcgraph-cpu") {
        text.push_str(" 0) ");
    }
    if on!(format.options, "funcgraph-proc") {
        process(text, symbols, record.tid);
        text.push_str(" | ");
    }
    if on!(format.options, "latency-format") {
        text.push_str(" ..... | ");
    }
}

/// Appends `comm-pid`, centred in 14 columns.
fn process(text: &mut String, symbols: &Symbols, tid: u32) {
    let comm: String = symbols.comm(tid).chars().take(7).collect();
    let name = format!("{comm}-{tid}");
    let blanks = 14usize.saturating_sub(name.len());
    let _ = write!(text, "{:1$}", "", blanks / 2);
    let _ = write!(text, "{name}{:1$}", "", blanks - blanks / 2);
}

/// Appends the duration column, blank without a duration.
fn duration(format: &Format, text: &mut String, ns: Option<u64>) {
    if !on!(format.options, "context-info") || !on!(format.options, "funcgraph-duration") {
        return;
    }
    let Some(ns) = ns else {
        text.push_str("              |  ");
        return;
    };
    let mark = match ns {
        _ if !on!(format.options, "funcgraph-overhead") => "  ",
        1_000_000_001.. => "$ ",
        100_000_001.. => "@ ",
        10_000_001.. => "* ",
        1_000_001.. => "# ",
        100_001.. => "! ",
        10_001.. => "+ ",
        _ => "  ",
    };
    text.push_str(mark);
    write_duration(text, ns);
    text.push_str("|  ");
}

fn indent(text: &mut String, depth: usize) {
    blanks(text, 2 * depth);
}
