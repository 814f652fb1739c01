//! Filters, notrace sets and tracers of the command line: which function is wanted by whom.

use crate::arguments::Arguments;
use anyhow::{Result, bail};
use calltap_analysis::{Glob, demangle, nearest_names};
use calltap_session::{Candidates, Choice, Error, Selector, Words};
use calltap_sites::Function;
use calltap_trace::{TracerInfo, TracerKind};

/// Tracers with their compiled filters.
struct Selection {
    tracers: Vec<TracerInfo>,
    filters: Vec<(Vec<Glob>, Vec<Glob>)>,
    /// Globs may match nothing at the start.
    later: bool,
}

impl Selection {
    /// From the values of `--tracer`, `-F` and `-N`.
    fn new(tracers: &[String], filter: &[String], notrace: &[String], later: bool) -> Result<Selection> {
        let default = ["function_graph".to_owned()];
        let tracers = if tracers.is_empty() { &default[..] } else { tracers };
        if tracers.len() > 32 {
            bail!("at most 32 tracers");
        }
        let mut infos: Vec<TracerInfo> = Vec::new();
        for text in tracers {
            let (name, globs) = text.split_once(':').unwrap_or((text, ""));
            let kind = match name {
                "function" => TracerKind::Function,
                "function_graph" => TracerKind::FunctionGraph,
                _ => bail!("no tracer named '{name}' (there are function and function_graph)"),
            };
            let own = globs.split(',').filter(|glob| !glob.is_empty()).map(str::to_owned);
            let filter: Vec<String> = own.collect();
            // Names are unique: a second tracer of a kind gets a number.
            let twins = infos.iter().filter(|info| info.kind == kind).count();
            let name = if twins == 0 { name.to_owned() } else { format!("{name}-{}", twins + 1) };
            infos.push(TracerInfo { id: infos.len() as u32, name, kind, filter, notrace: notrace.to_vec() });
        }
        // -F and a tracer's own globs add up.
        for info in &mut infos {
            info.filter.extend_from_slice(filter);
        }
        let compile = |globs: &[String]| globs.iter().map(|glob| Glob::new(glob)).collect();
        let filters = infos.iter().map(|info| (compile(&info.filter), compile(&info.notrace))).collect();
        Ok(Selection { tracers: infos, filters, later })
    }
}

/// The choice that words make; if `later`, globs may match nothing.
pub fn choice(words: &Words, later: bool) -> Result<Choice> {
    let selection = Selection::new(&words.tracers, &words.filter, &words.notrace, later)?;
    Ok(Choice { words: words.clone(), tracers: selection.tracers.clone(), selector: Box::new(selection) })
}

/// The same for whoever needs the reason as text.
pub fn parse(words: &Words, later: bool) -> Result<Choice, String> {
    choice(words, later).map_err(|error| error.to_string())
}

/// The words of the command line.
pub fn words(arguments: &Arguments) -> Words {
    Words {
        tracers: arguments.texts("tracer"),
        filter: arguments.texts("filter"),
        notrace: arguments.texts("notrace"),
    }
}

/// The names a function answers to.
struct NamesOf<'a> {
    function: &'a Function,
    demangled: Option<String>,
}

impl<'a> NamesOf<'a> {
    fn new(function: &'a Function) -> Self {
        let demangled = demangle(&function.name);
        NamesOf { function, demangled: (demangled != function.name).then_some(demangled) }
    }

    fn any(&self, globs: &[Glob]) -> bool {
        let aliases = self.function.aliases.iter().map(String::as_str);
        let mut names = aliases.chain([self.function.name.as_str()]).chain(self.demangled.as_deref());
        names.any(|name| globs.iter().any(|glob| glob.matches(name)))
    }
}

impl Selector for Selection {
    fn choose(&self, function: &Function) -> u32 {
        let all = self.filters.iter().all(|(filter, notrace)| filter.is_empty() && notrace.is_empty());
        if all {
            return ((1u64 << self.tracers.len()) - 1) as u32;
        }
        let names = NamesOf::new(function);
        let wanted = |(filter, notrace): &(Vec<Glob>, Vec<Glob>)| {
            (filter.is_empty() || names.any(filter)) && !names.any(notrace)
        };
        let bits = self.tracers.iter().zip(&self.filters);
        bits.fold(0, |mask, (info, filter)| if wanted(filter) { mask | 1 << info.id } else { mask })
    }

    fn check(&self, candidates: &Candidates) -> Result<(), Error> {
        if self.later {
            return Ok(());
        }
        for glob in self.filters.iter().flat_map(|(filter, _)| filter) {
            if !candidates.traceable().any(|function| NamesOf::new(function).any(std::slice::from_ref(glob)))
            {
                return Err(Error::NoMatch { glob: glob.pattern().to_owned(), hint: hint(glob, candidates) });
            }
        }
        Ok(())
    }
}

/// Why nothing matches: the function exists and cannot be traced, or names that look alike.
fn hint(glob: &Glob, candidates: &Candidates) -> String {
    let exists = candidates
        .functions()
        .filter(|function| function.form.is_none())
        .find(|function| NamesOf::new(function).any(std::slice::from_ref(glob)));
    if let Some(function) = exists {
        return format!(" ({} cannot be traced: {})", demangle(&function.name), function.reason);
    }
    let names: Vec<String> = candidates.traceable().map(|function| demangle(&function.name)).collect();
    let near = nearest_names(glob.pattern(), names.iter().map(String::as_str), 3);
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) }
}
