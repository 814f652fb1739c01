//! Filters, notrace sets and tracers of the command line: which function is wanted by whom.

use crate::arguments::Arguments;
use anyhow::{Result, bail};
use calltap_analysis::{Glob, GlobSet, demangle, nearest_names};
use calltap_session::{Candidates, Choice, Error, Selector, TracerWords, Words};
use calltap_sites::Function;
use calltap_trace::{TracerInfo, TracerKind};

/// Tracers with their compiled filters.
struct Selection {
    tracers: Vec<TracerInfo>,
    filters: Vec<(GlobSet, GlobSet)>,
    /// Globs may match nothing at the start.
    later: bool,
}

/// Most tracers at a time: a site's are the bits of a word.
const TRACERS: usize = 32;

/// The names of the kinds, as users write them.
const KINDS: [(&str, Option<TracerKind>); 4] = [
    ("function", Some(TracerKind::Function)),
    ("function_graph", Some(TracerKind::FunctionGraph)),
    ("profile", Some(TracerKind::Profile)),
    ("nop", None),
];

impl Selection {
    fn new(words: &Words, later: bool) -> Result<Selection> {
        if words.tracers.len() > TRACERS {
            bail!("at most {TRACERS} tracers");
        }
        let default = [TracerWords {
            name: String::new(),
            kind: Some(TracerKind::FunctionGraph),
            filter: Vec::new(),
            notrace: Vec::new(),
        }];
        let tracers = if words.tracers.is_empty() { &default[..] } else { &words.tracers };
        let mut infos: Vec<TracerInfo> = Vec::new();
        for tracer in tracers {
            let Some(kind) = tracer.kind.filter(|kind| *kind == TracerKind::Profile || !words.paused) else {
                continue;
            };
            // Names are unique: a second tracer of a kind gets a number.
            let twins = infos.iter().filter(|info| info.kind == kind).count();
            let (name, _) = KINDS.into_iter().find(|(_, known)| *known == Some(kind)).unwrap_or_default();
            let name = if twins == 0 { name.to_owned() } else { format!("{name}-{}", twins + 1) };
            // -F and a tracer's own globs add up.
            let (filter, notrace) = (
                [&tracer.filter[..], &words.filter].concat(),
                [&tracer.notrace[..], &words.notrace].concat(),
            );
            infos.push(TracerInfo { id: infos.len() as u32, name, kind, filter, notrace });
        }
        let filters =
            infos.iter().map(|info| (GlobSet::new(&info.filter), GlobSet::new(&info.notrace))).collect();
        Ok(Selection { tracers: infos, filters, later })
    }
}

/// `NAME[:GLOB,...]`
fn tracer(text: &str, before: &[TracerWords]) -> Result<TracerWords> {
    let (name, globs) = text.split_once(':').unwrap_or((text, ""));
    let Some((_, kind)) = KINDS.into_iter().find(|(known, _)| *known == name) else {
        bail!("no tracer named '{name}' (there are function, function_graph, profile and nop)");
    };
    let base = if kind == Some(TracerKind::Profile) { "trace_profile" } else { "trace" };
    let mut names = (1..).map(|n| if n == 1 { base.to_owned() } else { format!("{base}-{n}") });
    let name = names.find(|name| before.iter().all(|other| other.name != *name)).unwrap_or_default();
    let filter = globs.split(',').filter(|glob| !glob.is_empty()).map(str::to_owned).collect();
    Ok(TracerWords { name, kind, filter, notrace: Vec::new() })
}

/// The choice that words make; if `later`, globs may match nothing.
pub fn choice(words: &Words, later: bool) -> Result<Choice> {
    let selection = Selection::new(words, later)?;
    Ok(Choice { words: words.clone(), tracers: selection.tracers.clone(), selector: Box::new(selection) })
}

/// The same for whoever needs the reason as text.
pub fn parse(words: &Words, later: bool) -> Result<Choice, String> {
    choice(words, later).map_err(|error| error.to_string())
}

/// The words of the command line.
pub fn words(arguments: &Arguments) -> Result<Words> {
    let mut tracers = Vec::new();
    for text in arguments.texts("tracer") {
        // (An empty word clears what was set: what is left is the default.)
        tracers.push(tracer(if text.is_empty() { "function_graph" } else { &text }, &tracers)?);
    }
    let (filter, notrace) = (arguments.texts("filter"), arguments.texts("notrace"));
    Ok(Words { tracers, filter, notrace, ..Words::default() })
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

    fn any(&self, glob: &Glob) -> bool {
        let aliases = self.function.aliases.iter().map(String::as_str);
        let mut names = aliases.chain([self.function.name.as_str()]).chain(self.demangled.as_deref());
        names.any(|name| glob.matches(name))
    }
}

impl Selector for Selection {
    fn choose(&self, function: &Function) -> u32 {
        let all = self.filters.iter().all(|(filter, notrace)| filter.is_empty() && notrace.is_empty());
        if all {
            return ((1u64 << self.tracers.len()) - 1) as u32;
        }
        let names = NamesOf::new(function);
        let wanted = |(filter, notrace): &(GlobSet, GlobSet)| {
            let has = |set: &GlobSet| set.has(|glob| names.any(glob));
            (filter.is_empty() || has(filter)) && !has(notrace)
        };
        let bits = self.tracers.iter().zip(&self.filters);
        bits.fold(0, |mask, (info, filter)| if wanted(filter) { mask | 1 << info.id } else { mask })
    }

    fn check(&self, candidates: &Candidates) -> Result<(), Error> {
        if self.later {
            return Ok(());
        }
        for glob in self.filters.iter().flat_map(|(filter, _)| filter.globs()) {
            if !candidates.traceable().any(|function| NamesOf::new(function).any(glob)) {
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
        .find(|function| NamesOf::new(function).any(glob));
    if let Some(function) = exists {
        return format!(" ({} cannot be traced: {})", demangle(&function.name), function.reason);
    }
    let names: Vec<String> = candidates.traceable().map(|function| demangle(&function.name)).collect();
    let near = nearest_names(glob.pattern(), names.iter().map(String::as_str), 3);
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) }
}
