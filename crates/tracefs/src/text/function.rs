//! One line for each record, with its thread, processor and time.

use super::Format;
use crate::ring::{Record, What};
use crate::symbols::{Style, Symbols};
use std::fmt::Write;

/// Writes a record.
pub fn write(format: &Format, text: &mut String, symbols: &Symbols, record: &Record) {
    let on = |name| format.options.is_on(name);
    if on("raw") || on("hex") || on("bin") {
        return raw(text, symbols, record);
    }
    if on("context-info") {
        context(format, text, symbols, record);
    }
    let style = format.style();
    let with_parent = |text: &mut String, site, parent| {
        symbols.write_site(text, site, style);
        if on("print-parent") {
            text.push_str(" <-");
            symbols.write_address(text, parent, style);
        }
    };
    match &record.what {
        What::Function { site, parent } => {
            with_parent(text, *site, *parent);
            text.push('\n');
        }
        What::Repeats { site, parent, count, last_ns } => {
            with_parent(text, *site, *parent);
            let (seconds, micros) = time(*last_ns);
            let _ = writeln!(text, " (repeats: {count}, last_ts: {seconds:>5}.{micros:06})");
        }
        // (The other tracer's, from before a switch that kept the buffer.)
        What::Enter { site, depth } => {
            let _ = write!(text, "graph_ent: func=");
            symbols.write_site(text, *site, Style::default());
            let _ = writeln!(text, " depth={depth}");
        }
        What::Exit { site, depth, start_ns } => {
            let _ = write!(text, "graph_ret: func=");
            symbols.write_site(text, *site, Style::default());
            let _ = writeln!(text, " depth={depth} duration={}", record.ns.saturating_sub(*start_ns));
        }
        What::Stack { site, parent } => stack(text, symbols, *site, *parent),
        What::Mark(mark) => {
            let _ =
                write!(text, "tracing_mark_write: {mark}{}", if mark.ends_with('\n') { "" } else { "\n" });
        }
        What::RawMark(bytes) => raw_mark(text, bytes),
    }
}

/// Functions that called each other, innermost first.
pub fn stack(text: &mut String, symbols: &Symbols, site: u32, parent: u64) {
    text.push_str("<stack trace>\n => ");
    symbols.write_site(text, site, Style::default());
    text.push_str("\n => ");
    symbols.write_address(text, parent, Style::default());
    text.push('\n');
}

pub fn raw_mark(text: &mut String, bytes: &[u8]) {
    let (id, rest) = bytes.split_at(bytes.len().min(4));
    let id = id.iter().rev().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let _ = write!(text, "# {} buf:", id.trim_start_matches('0'));
    for byte in rest {
        let _ = write!(text, " {byte:02x}");
    }
    text.push('\n');
}

/// Seconds and microseconds.
pub fn time(ns: u64) -> (u64, u64) {
    (ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

fn context(format: &Format, text: &mut String, symbols: &Symbols, record: &Record) {
    let _ = write!(text, "{:>16}-{:<7} ", symbols.comm(record.tid), record.tid);
    if format.options.is_on("record-tgid") {
        let _ = match symbols.group(record.tid) {
            Some(group) => write!(text, "({group:>7}) "),
            None => write!(text, "(-------) "),
        };
    }
    text.push_str("[000] ");
    if format.options.is_on("irq-info") {
        text.push_str(".....");
    }
    let (seconds, micros) = time(record.ns);
    let _ = write!(text, " {seconds:>5}.{micros:06}: ");
}

fn raw(text: &mut String, symbols: &Symbols, record: &Record) {
    let _ = write!(text, "{} 0 {}", record.tid, record.ns);
    let mut sites = |site: u32| {
        let _ = write!(text, " {:x}", symbols.site(site).map_or(0, |traced| traced.address));
    };
    match &record.what {
        What::Function { site, parent }
        | What::Repeats { site, parent, .. }
        | What::Stack { site, parent } => {
            sites(*site);
            let _ = write!(text, " {parent:x}");
        }
        What::Enter { site, .. } | What::Exit { site, .. } => sites(*site),
        What::Mark(mark) => {
            let _ = write!(text, " {}", mark.trim_end());
        }
        What::RawMark(bytes) => {
            text.push(' ');
            return raw_mark(text, bytes);
        }
    }
    text.push('\n');
}
