//! Filters, notrace sets and tracers of the command line: which function is wanted by whom.

use crate::arguments::Arguments;
use anyhow::{Error, Result, bail};
use calltap_analysis::{Glob, GlobSet, demangle, nearest_names};
use calltap_session::{
    Candidates, Error as SessionError, Named, ParsedSelection, Selection, Selector, TracerSelection,
    inlined_functions, most_missing_names,
};
use calltap_sites::{Function, Inlined, SiteKind};
use calltap_trace::{TracerInfo, TracerKind};
use calltap_values::{Known, Program, Rules, Trouble};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// Tracers with their compiled filters.
struct GlobSelector {
    tracers: Vec<TracerInfo>,
    filters: Vec<(GlobSet, GlobSet)>,
    /// Globs may match nothing at the start.
    later: bool,
    /// Of each of these a function must be traced.
    about: Vec<Glob>,
    /// What polls futures is traced, also if no filter names it.
    futures: bool,
    /// Nothing else is.
    only_futures: bool,
    /// What is read of calls besides.
    rules: Rules,
    /// What was found out about what there is to choose from.
    reached: OnceLock<Reached>,
}

/// How far a selection reaches among functions that were not built for tracing. There are thousands of them in every process.
#[derive(Debug)]
struct Reached {
    /// There are functions that were built for it: then the others are wanted only by name.
    built: bool,
    /// Of each tracer's filter the globs that match nothing else: they also mean functions of libraries.
    filters: Vec<GlobSet>,
}

/// Is it meant for all functions, whatever they are called?
fn is_for_all(glob: &Glob) -> bool {
    glob.pattern().bytes().all(|byte| byte == b'*' || byte == b'?')
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

impl GlobSelector {
    fn new(words: &Selection, later: bool) -> Result<GlobSelector> {
        if words.tracers.len() > TRACERS {
            bail!("at most {TRACERS} tracers");
        }
        let default = [TracerSelection {
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
        let filters: Vec<(GlobSet, GlobSet)> =
            infos.iter().map(|info| (GlobSet::new(&info.filter), GlobSet::new(&info.notrace))).collect();
        let rules = Rules::new(&words.arguments, &words.results, &words.conditions).map_err(Error::msg)?;
        let futures = words.futures;
        let rules = rules.with_futures(futures);
        let only_futures = futures && filters.iter().all(|(filter, _)| filter.is_empty());
        let (about, reached) = (Vec::new(), OnceLock::new());
        Ok(GlobSelector { tracers: infos, filters, later, about, futures, only_futures, rules, reached })
    }
}

/// `NAME[:GLOB,...]`
fn tracer(text: &str, before: &[TracerSelection]) -> Result<TracerSelection> {
    let (name, globs) = text.split_once(':').unwrap_or((text, ""));
    let Some((_, kind)) = KINDS.into_iter().find(|(known, _)| *known == name) else {
        bail!("no tracer named '{name}' (there are function, function_graph, profile and nop)");
    };
    let base = if kind == Some(TracerKind::Profile) { "trace_profile" } else { "trace" };
    let mut names = (1..).map(|n| if n == 1 { base.to_owned() } else { format!("{base}-{n}") });
    let name = names.find(|name| before.iter().all(|other| other.name != *name)).unwrap_or_default();
    let filter = globs.split(',').filter(|glob| !glob.is_empty()).map(str::to_owned).collect();
    Ok(TracerSelection { name, kind, filter, notrace: Vec::new() })
}

/// The choice that words make; if `later`, globs may match nothing.
pub fn resolve(words: &Selection, later: bool) -> Result<ParsedSelection> {
    let selection = GlobSelector::new(words, later)?;
    Ok(ParsedSelection {
        words: words.clone(),
        tracers: selection.tracers.clone(),
        selector: Box::new(selection),
    })
}

/// The same; a function of each of these globs must be among those that are traced.
pub fn selection_about(words: &Selection, later: bool, about: &[String]) -> Result<ParsedSelection> {
    let mut selection = GlobSelector::new(words, later)?;
    selection.about = about.iter().map(|glob| Glob::new(glob)).collect();
    Ok(ParsedSelection {
        words: words.clone(),
        tracers: selection.tracers.clone(),
        selector: Box::new(selection),
    })
}

/// Has functions traced besides those that are chosen: also those that are traced only if a filter names them.
pub fn add(words: &mut Selection, globs: &[String]) {
    if globs.is_empty() {
        return;
    }
    let name = |filter: &mut Vec<String>| {
        if filter.is_empty() {
            filter.push("*".to_owned());
        }
        filter.extend(globs.iter().cloned());
    };
    if words.filter.is_empty() && words.tracers.iter().any(|tracer| !tracer.filter.is_empty()) {
        let graphs = words.tracers.iter_mut().filter(|tracer| tracer.kind == Some(TracerKind::FunctionGraph));
        graphs.for_each(|tracer| name(&mut tracer.filter));
    } else {
        name(&mut words.filter);
    }
}

/// Has the functions traced of which something is to be read.
pub fn add_valued(words: &mut Selection) -> Result<()> {
    let rules = Rules::new(&words.arguments, &words.results, &words.conditions).map_err(Error::msg)?;
    let globs: Vec<String> = rules.globs().map(|glob| glob.pattern().to_owned()).collect();
    add(words, &globs);
    Ok(())
}

/// Tracers of these kinds.
pub fn tracers(kinds: &[TracerKind]) -> Vec<TracerSelection> {
    let mut all = Vec::new();
    for (name, _) in kinds.iter().filter_map(|kind| KINDS.iter().find(|(_, known)| *known == Some(*kind))) {
        all.extend(tracer(name, &all));
    }
    all
}

/// The same, with the reason as text.
pub fn parse(words: &Selection, later: bool) -> Result<ParsedSelection, String> {
    resolve(words, later).map_err(|error| error.to_string())
}

/// The words of the command line.
pub fn words(given: &Arguments) -> Result<Selection> {
    let mut tracers = Vec::new();
    for text in given.texts("tracer") {
        // An empty word clears what was set: what is left is the default.
        tracers.push(tracer(if text.is_empty() { "function_graph" } else { &text }, &tracers)?);
    }
    let (filter, notrace) = (given.texts("filter"), given.texts("notrace"));
    let [arguments, results, conditions] = ["arguments", "results", "if"].map(|flag| given.texts(flag));
    let (futures, int3) = (given.is_set("async"), given.is_set("allow-int3"));
    let words =
        Selection { tracers, filter, notrace, arguments, results, conditions, ..Selection::default() };
    Ok(Selection { futures, int3, ..words })
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

    fn all(&self) -> impl Iterator<Item = &str> + Clone {
        let aliases = self.function.aliases.iter().map(String::as_str);
        aliases.chain([self.function.name.as_str()]).chain(self.demangled.as_deref())
    }

    fn any(&self, glob: &Glob) -> bool {
        self.all().any(|name| glob.matches(name))
    }
}

impl Selector for GlobSelector {
    fn choose(&self, function: &Function) -> u32 {
        let polls = self.futures && function.poll.is_some();
        if self.only_futures && !polls {
            return 0;
        }
        let reached = self.reached.get();
        let by_name = function.on_demand
            || function.kind == SiteKind::Prologue && reached.is_some_and(|reached| reached.built);
        let all = self.filters.iter().all(|(filter, notrace)| filter.is_empty() && notrace.is_empty());
        if all {
            return if by_name && !polls { 0 } else { ((1u64 << self.tracers.len()) - 1) as u32 };
        }
        let names = NamesOf::new(function);
        let wanted = |n: usize, (filter, notrace): &(GlobSet, GlobSet)| {
            let included = match by_name {
                _ if polls => true,
                true => reached.is_some_and(|reached| reached.filters[n].has(names.all())),
                false => filter.is_empty() || filter.has(names.all()),
            };
            included && !notrace.has(names.all())
        };
        let bits = self.tracers.iter().zip(self.filters.iter().enumerate());
        bits.fold(0, |mask, (info, (n, filter))| if wanted(n, filter) { mask | 1 << info.id } else { mask })
    }

    fn values(
        &self,
        function: &Function,
        known: &dyn Fn() -> Option<Known>,
    ) -> Result<Option<Arc<Program>>, Trouble> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let names = NamesOf::new(function);
        self.rules.of(&|glob| names.any(glob), function.poll.as_ref(), known)
    }

    fn reach(&self, candidates: &Candidates) -> bool {
        let reached = self.reached.get_or_init(|| {
            let own: Vec<&Function> = candidates.traceable().filter(|function| !function.on_demand).collect();
            let built: Vec<&Function> =
                own.iter().copied().filter(|function| function.kind != SiteKind::Prologue).collect();
            let is_built = !built.is_empty();
            let first = if is_built { built } else { own };
            let first: Vec<NamesOf<'_>> = first.into_iter().map(NamesOf::new).collect();
            let reaching = |(filter, _): &(GlobSet, GlobSet)| {
                let unmatched: HashSet<&str> =
                    filter.unmatched(first.iter().map(NamesOf::all)).into_iter().map(Glob::pattern).collect();
                filter.only(|glob| !is_for_all(glob) && unmatched.contains(glob.pattern()))
            };
            Reached { built: is_built, filters: self.filters.iter().map(reaching).collect() }
        });
        reached.filters.iter().any(|filter| !filter.is_empty())
    }

    fn may_choose(&self, named: Named<'_>, library: bool) -> bool {
        let may_be_in = |set: &GlobSet| match named {
            Named::By(names) => names.iter().any(|name| {
                let demangled = demangle(name);
                set.has([*name].into_iter())
                    || demangled != *name && set.has([demangled.as_str()].into_iter())
            }),
            Named::ByPlace(file) => set.globs().any(|glob| may_be_place(glob.pattern(), file)),
        };
        if !library {
            let may_be = |(filter, _): &(GlobSet, GlobSet)| filter.is_empty() || may_be_in(filter);
            return self.filters.is_empty() || self.filters.iter().any(may_be);
        }
        self.reached.get().is_none_or(|reached| reached.filters.iter().any(may_be_in))
    }

    fn check(&self, candidates: &Candidates) -> Result<(), SessionError> {
        if self.later {
            return Ok(());
        }
        if self.futures && !candidates.traceable().any(|function| function.poll.is_some()) {
            let why = "nothing polls futures, as far as names tell: a program in Rust, and not stripped?";
            return Err(SessionError::Values { name: "futures".to_owned(), why: why.to_owned() });
        }
        let all: Vec<NamesOf<'_>> = match self.filters.iter().all(|(filter, _)| filter.is_empty()) {
            true => Vec::new(),
            false => candidates.traceable().map(NamesOf::new).collect(),
        };
        for (filter, _) in &self.filters {
            if let [glob, ..] = filter.unmatched(all.iter().map(NamesOf::all))[..] {
                let (glob, hint) = (glob.pattern().to_owned(), hint(glob, candidates));
                return Err(SessionError::NoMatch { glob, hint });
            }
        }
        for glob in self.about.iter().chain(self.rules.globs()) {
            let known = |function: &&Function| NamesOf::new(function).any(glob);
            if !candidates.traceable().filter(known).any(|function| self.choose(function) != 0) {
                let excluded = candidates.traceable().any(|function| known(&function));
                let hint = if excluded { " (-N takes it away)".to_owned() } else { hint(glob, candidates) };
                return Err(SessionError::NoMatch { glob: glob.pattern().to_owned(), hint });
            }
        }
        Ok(())
    }
}

/// May a pattern match the name of a function that is called by its place in a file, as in `libz.so.1+0x2470`? False only if some literal part of it is in no such name.
fn may_be_place(pattern: &str, file: &str) -> bool {
    let start = format!("{file}+0x");
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let may_contain = |part: &str| {
        let mut cuts = (0..=part.len()).filter(|cut| part.is_char_boundary(*cut));
        start.contains(part) || cuts.any(|cut| start.ends_with(&part[..cut]) && is_hex(&part[cut..]))
    };
    // What a class or an escape stands for is not worked out: it may be anything.
    pattern.contains(['[', '\\']) || pattern.trim_start_matches('!').split(['*', '?']).all(may_contain)
}

/// Why nothing matches: the function exists and cannot be traced, or names that look alike.
fn hint(glob: &Glob, candidates: &Candidates) -> String {
    let exists = candidates
        .functions()
        .filter(|function| function.form.is_none())
        .find(|function| NamesOf::new(function).any(glob));
    if let Some((function, reason)) = exists.and_then(|function| Some((function, function.reason.as_ref()?)))
    {
        return format!(" ({} cannot be traced: {reason})", demangle(&function.name));
    }
    if let Some(hint) = inlined(glob, candidates) {
        return hint;
    }
    let names: Vec<String> = candidates.traceable().map(|function| demangle(&function.name)).collect();
    let near = nearest_names(glob.pattern(), names.iter().map(String::as_str), 3);
    // A library without names is no reason where something looks alike.
    let asked = if near.is_empty() { candidates.modules.len() } else { 1 };
    let near = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
    let files = candidates.modules.iter().zip(&candidates.files).take(asked);
    let files = files.map(|((name, binary), (_, path))| (name.as_str(), &**binary, path.as_path()));
    let missing = most_missing_names(files).map(|(name, place)| format!(" ({name}: {place})"));
    near + &missing.unwrap_or_default()
}

/// It is no function any more, as a file's debugging information says.
fn inlined(glob: &Glob, candidates: &Candidates) -> Option<String> {
    let is_it = |found: &Inlined| {
        !found.remains && (glob.matches(&found.name) || glob.matches(&demangle(&found.name)))
    };
    let all = candidates.files.iter().filter_map(|(root, path)| inlined_functions(path, root));
    let found = all.flatten().find(is_it)?;
    let (name, places) = (demangle(&found.name), found.places);
    Some(format!(" ({name} was inlined wherever it is called, in {places} places: it cannot be traced)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a pattern may match what has no name in `libz.so.1`. Where it may not, it matches no such name.
    fn check(pattern: &str, expected: bool) {
        assert_eq!(may_be_place(pattern, "libz.so.1"), expected, "{pattern}");
        let matches = Glob::new(pattern).matches("libz.so.1+0xfade0");
        assert!(expected || !matches, "{pattern}");
    }

    #[test]
    fn functions_without_a_name_are_left_out_only_where_no_pattern_can_mean_them() {
        for pattern in
            ["libz.so.1+0xfade0", "libz*", "*", "*fade*", "*0xfa*", "lib?.so*", "l[hi]bz*", "*1+0xf*0"]
        {
            check(pattern, true);
        }
        for pattern in ["malloc", "*alloc*", "inflate*", "*_init", "libm.so*", "libz.so.1+1"] {
            check(pattern, false);
        }
    }
}
