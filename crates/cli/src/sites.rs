//! `calltap sites`: every function of a binary, traceable or not.

use crate::arguments::Arguments;
use crate::output::Output;
use anyhow::{Context, Result};
use calltap_analysis::demangle;
use calltap_sites::{Function, SiteForm};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::Path;

/// A row of the list.
#[derive(Serialize)]
struct Row<'a> {
    function: String,
    module: &'a str,
    address: u64,
    size: u64,
    kind: &'a str,
    traceable: bool,
    /// Only if a filter names it.
    on_demand: bool,
    reason: &'a str,
}

/// Lists the functions of the binary given as operand.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = arguments.path("operand").unwrap_or_default();
    let shown = path.display();
    let data = fs::read(&path).with_context(|| shown.to_string())?;
    let module = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut binary = calltap_sites::read(&data, &module).with_context(|| shown.to_string())?;
    calltap_sites::find_prologues(&data, &mut binary).with_context(|| shown.to_string())?;
    calltap_session::name_functions(&mut binary, &data, &fs::canonicalize(&path)?, Path::new("/"));
    for complaint in &binary.complaints {
        eprintln!("calltap: {shown}: {complaint}");
    }
    let linker_names = arguments.is_set("linker-names");
    let row = |function: &'_ Function| (function.form.is_some(), row_name(function, linker_names));
    let mut out = Output::create(arguments)?;
    if arguments.text("format").as_deref() == Some("json") {
        let rows: Vec<Row<'_>> = binary
            .functions
            .iter()
            .map(|function| {
                let (traceable, name) = row(function);
                Row {
                    function: name,
                    module: &module,
                    address: function.address.0,
                    size: function.size,
                    kind: function.kind.name(),
                    traceable,
                    on_demand: function.on_demand,
                    reason: &function.reason,
                }
            })
            .collect();
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
    } else {
        text(&mut out, &binary.functions, &path, linker_names)?;
    }
    out.finish()
}

fn row_name(function: &Function, linker_names: bool) -> String {
    if linker_names { function.name.clone() } else { demangle(&function.name) }
}

fn text(out: &mut dyn Write, functions: &[Function], path: &Path, linker_names: bool) -> Result<()> {
    let traceable = functions.iter().filter(|function| function.form.is_some()).count();
    writeln!(out, "# {}: {} functions, {traceable} traceable", path.display(), functions.len())?;
    writeln!(out, "# {:>14}  {:>7}  {:<10}  function", "address", "size", "kind")?;
    for function in functions {
        let name = row_name(function, linker_names);
        write!(out, "{:>16x}  {:>7}  {:<10}  {name}", function.address.0, function.size, function.kind)?;
        if let Some(SiteForm::Prefix { .. }) = function.form {
            write!(out, "  (jump in front of the function)")?;
        }
        if function.on_demand && function.form.is_some() {
            write!(out, "  (if a filter names it)")?;
        }
        if !function.aliases.is_empty() {
            write!(out, "  = {}", function.aliases.join(", "))?;
        }
        if !function.reason.is_empty() {
            write!(out, "  # {}", function.reason)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
