//! The format of all tracers but function_graph: one line for each record, with its thread,
//! processor and time.

use super::{Format, PrintState, blanks};
use crate::control::write_number;
use crate::options::on;
use crate::ring::{Payload, Record};
use crate::stack::Level;
use crate::symbols::{Style, Symbols};
use std::fmt::Write;

/// The column heads of latency-format.
pub(super) const LATENCY_HEAD: &str = "\
#                    _------=> CPU#            \n\
#                   / _-----=> irqs-off/BH-disabled\n\
#                  | / _----=> need-resched    \n\
#                  || / _---=> hardirq/softirq \n\
#                  ||| / _--=> preempt-depth   \n\
#                  |||| / _-=> migrate-disable \n\
#                  ||||| /     delay           \n\
#  cmd     pid     |||||| time  |   caller     \n\
#     \\   /        ||||||  \\    |    /       \n";

/// Appends a record.
pub(super) fn write(
    format: &Format,
    text: &mut String,
    symbols: &Symbols,
    shown: &PrintState,
    record: &Record,
) {
    if on!(format.options, "hex") {
        return hex(text, symbols, record);
    }
    if on!(format.options, "raw") || on!(format.options, "bin") {
        return raw(text, symbols, record);
    }
    if on!(format.options, "context-info") {
        match on!(format.options, "latency-format") {
            true => latency(format, text, symbols, shown, record),
            false => context(format, text, symbols, record),
        }
    }
    let style = format.style();
    let with_parent = |text: &mut String, site, parent| {
        symbols.write_site(text, site, style);
        if on!(format.options, "print-parent") {
            text.push_str(" <-");
            symbols.write_address(text, parent, style);
        }
    };
    match &record.payload {
        Payload::Function { site, parent } => {
            with_parent(text, *site, *parent);
            text.push('\n');
        }
        Payload::Repeats { site, parent, count, last } => {
            with_parent(text, *site, *parent);
            let _ = write!(text, " (repeats: {count}, last_ts: ");
            write_time(format, text, *last);
            text.push_str(")\n");
        }
        // A record of the other tracer, from before a switch that kept the buffer.
        Payload::Enter { site, depth } => {
            let _ = write!(text, "graph_ent: func=");
            symbols.write_site(text, *site, Style::default());
            let _ = writeln!(text, " depth={depth}");
        }
        Payload::Exit { site, depth, ns } => {
            let _ = write!(text, "graph_ret: func=");
            symbols.write_site(text, *site, Style::default());
            let _ = writeln!(text, " depth={depth} duration={ns}");
        }
        Payload::Stack(levels) => stack(text, symbols, levels, style),
        Payload::Mark(mark) => {
            let _ =
                write!(text, "tracing_mark_write: {mark}{}", if mark.ends_with('\n') { "" } else { "\n" });
        }
        Payload::RawMark(bytes) => raw_mark(text, bytes),
    }
}

/// Appends a stack, innermost function first.
pub(super) fn stack(text: &mut String, symbols: &Symbols, levels: &[Level], style: Style) {
    text.push_str("<stack trace>\n");
    for level in levels {
        text.push_str(" => ");
        match level {
            Level::In(site) => symbols.write_site(text, *site, style),
            Level::Return(address) => symbols.write_address(text, *address, style),
        }
        text.push('\n');
    }
}

pub(super) fn raw_mark(text: &mut String, bytes: &[u8]) {
    let (id, rest) = bytes.split_at(bytes.len().min(4));
    let id = id.iter().rev().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let _ = write!(text, "# {} buf:", id.trim_start_matches('0'));
    for byte in rest {
        let _ = write!(text, " {byte:02x}");
    }
    text.push('\n');
}

/// Appends a time as seconds and microseconds, or as the number that the clock counts.
pub(super) fn write_time(format: &Format, text: &mut String, time: u64) {
    if format.in_ns {
        write_number(text, time / 1_000_000_000, 5, b' ');
        text.push('.');
        write_number(text, time / 1000 % 1_000_000, 6, b'0');
    } else {
        write_number(text, time, 12, b' ');
    }
}

fn context(format: &Format, text: &mut String, symbols: &Symbols, record: &Record) {
    let comm = symbols.comm(record.tid);
    blanks(text, 16usize.saturating_sub(comm.chars().count()));
    text.push_str(comm);
    text.push('-');
    let start = text.len();
    write_number(text, record.tid.into(), 1, b' ');
    blanks(text, 7usize.saturating_sub(text.len() - start));
    text.push(' ');
    if on!(format.options, "record-tgid") {
        let _ = match symbols.group(record.tid) {
            Some(group) => write!(text, "({group:>7}) "),
            None => write!(text, "(-------) "),
        };
    }
    text.push_str("[000] ");
    if on!(format.options, "irq-info") {
        text.push_str(".....");
    }
    text.push(' ');
    write_time(format, text, record.time);
    text.push_str(": ");
}

/// Appends the beginning of a line in latency-format: the time since the buffer was cleared, and a
/// mark for the time until the next record.
fn latency(format: &Format, text: &mut String, symbols: &Symbols, shown: &PrintState, record: &Record) {
    let comm: String = symbols.comm(record.tid).chars().take(8).collect();
    let _ = write!(text, "{comm:>8}-{:<7}   0..... ", record.tid);
    let since = record.time.saturating_sub(format.start);
    let _ = match format.in_ns {
        true => {
            let next = shown.next.map_or(0, |next| next.saturating_sub(record.time) / 1000);
            let mark = [(100, '!'), (1, '+')].into_iter().find(|(more, _)| next > *more);
            write!(text, "{:>4}us{}: ", since / 1000, mark.map_or(' ', |(_, mark)| mark))
        }
        false => write!(text, "{since:>4}: "),
    };
}

/// Appends a record with the numbers of `raw`, in hexadecimal digits of fixed width.
fn hex(text: &mut String, symbols: &Symbols, record: &Record) {
    let _ = write!(text, "{:08x} {:08x} {:016x} ", record.tid, 0, record.time);
    match &record.payload {
        Payload::Function { site, parent } | Payload::Repeats { site, parent, .. } => {
            let _ = write!(text, "{:016x} {parent:016x} ", symbols.code(*site));
        }
        Payload::Stack(levels) => levels.iter().for_each(|level| {
            let _ = write!(text, "{:016x} ", level.address(symbols));
        }),
        Payload::Enter { site, .. } | Payload::Exit { site, .. } => {
            let _ = write!(text, "{:016x} ", symbols.code(*site));
        }
        Payload::Mark(_) | Payload::RawMark(_) => {}
    }
    text.push('\n');
}

fn raw(text: &mut String, symbols: &Symbols, record: &Record) {
    let _ = write!(text, "{} 0 {}", record.tid, record.time);
    let mut sites = |site: u32| {
        let _ = write!(text, " {:x}", symbols.code(site));
    };
    match &record.payload {
        Payload::Function { site, parent } | Payload::Repeats { site, parent, .. } => {
            sites(*site);
            let _ = write!(text, " {parent:x}");
        }
        Payload::Stack(levels) => levels.iter().for_each(|level| {
            let _ = write!(text, " {:x}", level.address(symbols));
        }),
        Payload::Enter { site, .. } | Payload::Exit { site, .. } => sites(*site),
        Payload::Mark(mark) => {
            let _ = write!(text, " {}", mark.trim_end());
        }
        Payload::RawMark(bytes) => {
            text.push(' ');
            return raw_mark(text, bytes);
        }
    }
    text.push('\n');
}
