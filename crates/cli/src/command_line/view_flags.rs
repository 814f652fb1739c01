//! Flags that several views share: functions that the trace must have, lists of columns, forms of
//! tables.

use crate::command_line::arguments::Arguments;
use anyhow::{Result, anyhow, bail};
use calltap_analysis::futures::Role;
use calltap_analysis::{Names, NotOneOf, Word, demangle, nearest_names, report, why};
use calltap_trace::{Meta, TracerKind};
use std::str::FromStr;

/// Returns an error, with the nearest names, if a pattern matches no function of the trace.
pub fn must_match(meta: &Meta, pattern: &str) -> Result<()> {
    let (word, names) = (Word::listed(pattern), Names::new(meta, false));
    if meta.sites.iter().any(|site| names.is(site.id, &word)) {
        return Ok(());
    }
    let readable: Vec<String> = meta.sites.iter().map(|site| demangle(&site.name)).collect();
    let near = nearest_names(word.pattern(), readable.iter().map(String::as_str), 3);
    let hint = if near.is_empty() {
        "; 'calltap report' lists those it has".to_owned()
    } else {
        format!("; nearest: {}", near.join(", "))
    };
    bail!("no function of the trace matches '{pattern}'{hint}")
}

/// Returns an error if the trace has no returns, and so no durations.
pub fn must_have_returns(meta: &Meta) -> Result<()> {
    let tracers = meta.session.iter().flat_map(|session| &session.tracers);
    let kinds: Vec<TracerKind> = tracers.map(|tracer| tracer.kind).collect();
    // A file without a session record may have the events of any tracer.
    if !kinds.is_empty() && !kinds.contains(&TracerKind::FunctionGraph) {
        bail!("the trace was recorded without the function_graph tracer: it has no durations");
    }
    Ok(())
}

/// Returns an error if the trace has no polled futures.
pub fn must_have_futures(meta: &Meta) -> Result<()> {
    if !meta.sites.iter().any(|site| Role::of(site).is_some()) {
        bail!("the trace was recorded without --async: it does not have the polled futures");
    }
    Ok(())
}

/// Returns an error, with the nearest names, if a pattern matches no future of the trace.
pub fn must_be_future(meta: &Meta, pattern: &str) -> Result<()> {
    let futures: Vec<String> = meta.sites.iter().filter_map(Role::of).map(|role| role.name).collect();
    if futures.iter().any(|future| why::is_called(future, pattern)) {
        return Ok(());
    }
    let near = nearest_names(Word::new(pattern).pattern(), futures.iter().map(String::as_str), 3);
    let hint = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
    bail!("no future of the trace matches '{pattern}'{hint}")
}

/// Parses a list of columns.
pub fn list<T: FromStr<Err = NotOneOf>>(arguments: &Arguments, flag: &str) -> Result<Vec<T>> {
    let list = arguments.text(flag).unwrap_or_default();
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.parse().map_err(|error| anyhow!("--{flag}: {error}"))).collect()
}

/// Returns the value of a table's `--format`.
pub fn table_format(arguments: &Arguments) -> report::Format {
    match arguments.format().as_deref() {
        Some("csv") => report::Format::Csv,
        Some("json") => report::Format::Json,
        _ => report::Format::Text,
    }
}
