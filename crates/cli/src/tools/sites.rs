//! `calltap sites`: every function of a binary, traceable or not.

use crate::command_line::arguments::Arguments;
use crate::terminal::output::{self, Output};
use anyhow::{Context, Result, bail};
use calltap_analysis::units::{self, one_line};
use calltap_analysis::{ShortNames, demangle};
use calltap_selection::debug_files::missing_names;
use calltap_sites::{Binary, Function, Inlined, Reason, Returns, SiteForm};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A function of the list.
#[derive(Serialize)]
struct FunctionRow<'a> {
    function: String,
    module: &'a str,
    address: u64,
    size: u64,
    kind: &'a str,
    traceable: bool,
    /// Whether the function is traced only if a filter names it.
    on_demand: bool,
    reason: String,
    reason_code: Option<&'static str>,
    /// Number of rewritten exits; `None` if the return address is replaced by a stub's instead.
    exits: Option<usize>,
    /// The reason why exits are not rewritten.
    exits_reason: String,
    exits_reason_code: Option<&'static str>,
    /// The reason why only the entry of a function with rewritten exits is traced: the end of a
    /// call that leaves by a tail call would not be seen.
    unseen_reason: String,
    unseen_reason_code: Option<&'static str>,
    /// The function's other names.
    aliases: &'a [String],
    /// The addresses of the implementations that a resolver (IFUNC) selects from.
    choices: Vec<u64>,
}

/// A row of the list of inlined functions.
#[derive(Serialize)]
struct InlinedRow {
    function: String,
    places: u64,
    /// Whether the function also has a body that can be called.
    remains: bool,
}

/// Returns the path of a program that is named as for a shell: without a directory, and not in this
/// one.
fn in_path(name: PathBuf) -> PathBuf {
    if name.exists() || name.components().count() != 1 {
        return name;
    }
    let all = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&all).map(|directory| directory.join(&name)).find(|path| path.is_file());
    found.unwrap_or(name)
}

/// Lists the functions of the binary that is the operand.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = in_path(arguments.path("operand").unwrap_or_default());
    let shown = one_line(&path.to_string_lossy()).into_owned();
    if !shown.contains('/') && !path.exists() {
        bail!("{shown}: no such file here, and no such program in PATH; a library is named by its path");
    }
    if arguments.is_set("inlined") {
        return inlined(arguments, &path);
    }
    let data = calltap_sites::open(&path)
        .and_then(|file| calltap_sites::load(&file))
        .with_context(|| shown.to_string())?;
    // A process maps the target of a symbolic link and is traced by the target's name.
    let file = fs::canonicalize(&path)?;
    let module = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let module = one_line(&module).into_owned();
    let mut binary = calltap_sites::read(&data, &module).with_context(|| shown.to_string())?;
    calltap_sites::find_prologues(&data, &mut binary, arguments.is_set("allow-int3"))
        .with_context(|| shown.to_string())?;
    let link = || calltap_sites::debug_link(&data);
    calltap_selection::debug_files::name_functions(&mut binary, link, &file, Path::new("/"));
    for complaint in &binary.complaints {
        tell!("calltap: {shown}: {complaint}");
    }
    let linker_names = arguments.is_set("linker-names");
    let row = |function: &'_ Function| (function.is_traceable(), row_name(function, linker_names));
    let mut out = Output::whole(arguments)?;
    if arguments.format().as_deref() == Some("json") {
        let rows: Vec<FunctionRow<'_>> = binary
            .functions
            .iter()
            .map(|function| {
                let (traceable, name) = row(function);
                FunctionRow {
                    function: name,
                    module: &module,
                    address: function.address.0,
                    size: function.size,
                    kind: function.kind().name(),
                    traceable,
                    on_demand: traceable && function.is_on_demand(),
                    reason: text_of(function.reason()),
                    reason_code: function.reason().map(Reason::code),
                    exits: exits(function),
                    exits_reason: text_of(exits_reason(function)),
                    exits_reason_code: exits_reason(function).map(Reason::code),
                    unseen_reason: text_of(function.returns.unrecorded_end()),
                    unseen_reason_code: function.returns.unrecorded_end().map(Reason::code),
                    aliases: &function.aliases,
                    choices: choices(&binary, function).collect(),
                }
            })
            .collect();
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
    } else {
        let is_short = output::is_short(arguments) && !linker_names;
        let names = ListedNames::new(&binary, linker_names, is_short);
        text(&mut out, &binary, &path, &names)?;
    }
    out.finish()
}

/// Returns the number of rewritten exits of a function.
fn exits(function: &Function) -> Option<usize> {
    match &function.returns {
        Returns::Exits { at_entry, elsewhere, .. } => {
            let others: usize = elsewhere.iter().map(|exit| exit.leaves.len()).sum();
            Some(at_entry.len() + others)
        }
        Returns::Stub(_) => None,
    }
}

/// Returns in one word how returns of a function are seen.
fn returns(function: &Function) -> String {
    match exits(function) {
        Some(exits) if function.returns.unrecorded_end().is_none() => format!("exits:{exits}"),
        Some(_) => "none".to_owned(),
        // Functions of Go have entries only.
        None if function.form().is_some_and(SiteForm::is_of_go) => "none".to_owned(),
        None if function.is_traceable() => "stub".to_owned(),
        None => "-".to_owned(),
    }
}

fn exits_reason(function: &Function) -> Option<&Reason> {
    match &function.returns {
        Returns::Stub(reason) => reason.as_ref(),
        Returns::Exits { .. } => None,
    }
}

/// Returns a reason's text, empty without a reason.
fn text_of(reason: Option<&Reason>) -> String {
    match reason {
        Some(Reason::ColdPartOf { function }) => {
            Reason::ColdPartOf { function: demangle(function) }.to_string()
        }
        _ => reason.map(Reason::to_string).unwrap_or_default(),
    }
}

fn row_name(function: &Function, linker_names: bool) -> String {
    if linker_names { function.name.clone() } else { demangle(&function.name) }
}

/// Returns the addresses of the implementations that a resolver selects from.
fn choices(binary: &Binary, function: &Function) -> impl Iterator<Item = u64> {
    let found = binary.resolvers.binary_search_by_key(&function.address, |resolver| resolver.address);
    let choices = found.map_or(&[][..], |n| &binary.resolvers[n].choices);
    choices.iter().map(|address| address.0)
}

/// Lists the functions that were inlined.
fn inlined(arguments: &Arguments, path: &Path) -> Result<()> {
    let Some(found) =
        calltap_selection::debug_files::inlined_functions(&fs::canonicalize(path)?, Path::new("/"))
    else {
        bail!(
            "{}: the file has no debugging information, which lists inlined functions: compile with -g",
            path.display()
        );
    };
    let name = |found: &Inlined| match arguments.is_set("linker-names") {
        true => found.name.clone(),
        false => demangle(&found.name),
    };
    let mut out = Output::create(arguments)?;
    if arguments.format().as_deref() == Some("json") {
        let row = |found| InlinedRow { function: name(found), places: found.places, remains: found.remains };
        let rows: Vec<InlinedRow> = found.iter().map(row).collect();
        serde_json::to_writer(&mut out, &rows)?;
        writeln!(out)?;
        return out.finish();
    }
    writeln!(out, "# {}: {} inlined", path.display(), units::counted(found.len() as u64, "function"))?;
    writeln!(out, "# {:>6}  {:<10}  function", "places", "own code")?;
    for found in &found {
        let own_code = if found.remains { "yes" } else { "no" };
        writeln!(out, "{:>8}  {own_code:<10}  {}", found.places, name(found))?;
    }
    out.finish()
}

/// The names in the list as text.
struct ListedNames {
    linker_names: bool,
    /// The names that a terminal shows; `None`: full names.
    short: Option<ShortNames>,
}

impl ListedNames {
    fn new(binary: &Binary, linker_names: bool, is_short: bool) -> ListedNames {
        let names = || binary.functions.iter().map(|function| demangle(&function.name));
        let short = || {
            let mut short = ShortNames::default();
            names().for_each(|name| short.add(&name));
            short
        };
        ListedNames { linker_names, short: is_short.then(short) }
    }

    fn of(&self, function: &Function) -> String {
        let name = row_name(function, self.linker_names);
        self.short.as_ref().map_or_else(|| name.clone(), |short| short.of(&name))
    }

    /// Returns a function's other names: with short names only those that differ in more than the
    /// symbol, as the constructors of a class do not.
    fn aliases(&self, function: &Function) -> Vec<String> {
        let Some(short) = &self.short else { return function.aliases.clone() };
        let own = demangle(&function.name);
        let others = function.aliases.iter().map(|alias| demangle(alias)).filter(|alias| *alias != own);
        others.map(|alias| short.of(&alias)).collect()
    }
}

fn text(out: &mut dyn Write, binary: &Binary, path: &Path, names: &ListedNames) -> Result<()> {
    let functions = &binary.functions;
    let traceable = functions.iter().filter(|function| function.is_traceable()).count();
    // Cold parts are listed, as they have addresses of their own, but no call can enter them.
    let parts = functions.iter().filter(|function| function.is_part()).count();
    write!(
        out,
        "# {}: {} functions, {traceable} traceable",
        one_line(&path.to_string_lossy()),
        functions.len() - parts
    )?;
    match functions.iter().filter(|function| returns(function).starts_with("exits")).count() {
        0 => {}
        rewritten => write!(out, ", {rewritten} of them with their exits rewritten")?,
    }
    match parts {
        0 => writeln!(out)?,
        1 => writeln!(out, "; and 1 cold part of a function")?,
        parts => writeln!(out, "; and {parts} cold parts of functions")?,
    }
    if let Some(missing) = missing_names(binary, &fs::canonicalize(path)?) {
        writeln!(out, "# {missing}")?;
    }
    writeln!(out, "# {:>14}  {:>7}  {:<10}  {:<8}  function", "address", "size", "kind", "returns")?;
    for function in functions {
        let (name, aliases) = (names.of(function), names.aliases(function));
        write!(out, "{:>16x}  {:>7}  {:<10}  ", function.address.0, function.size, function.kind())?;
        write!(out, "{:<8}  {name}", returns(function))?;
        match function.form() {
            Some(SiteForm::Prefix { .. }) => write!(out, "  (jump in front of the function)")?,
            Some(SiteForm::Trap { .. }) => write!(out, "  (by a breakpoint)")?,
            _ => {}
        }
        if function.is_traceable() && function.is_on_demand() {
            write!(out, "  (if a filter names it)")?;
        }
        if !aliases.is_empty() {
            write!(out, "  = {}", aliases.join(", "))?;
        }
        let choices = choices(binary, function).count();
        if choices > 0 {
            write!(out, "  (chooses one of {choices} functions)")?;
        }
        match (function.reason(), exits_reason(function), function.returns.unrecorded_end()) {
            (None, None, None) => {}
            (None, None, Some(reason)) => write!(out, "  # only its entry: {reason}")?,
            (None, Some(reason), _) => write!(out, "  # return stub: {reason}")?,
            (reason, ..) => write!(out, "  # {}", text_of(reason))?,
        }
        writeln!(out)?;
    }
    Ok(())
}
