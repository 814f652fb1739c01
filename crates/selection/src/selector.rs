//! Compiled filters, notrace sets and values: decides which tracers want a function.

use crate::candidates::Candidates;
use crate::error::Error;
use crate::named::{Named, names_of};
use crate::words::{EVALUATOR, KINDS, SAVE_THREAD, Selection, TracerSelection, is_go_wait};
use calltap_names::{FunctionNames, GlobSet, ModuleNames, Word};
use calltap_sites::{Function, SiteKind};
use calltap_trace::{TracerInfo, TracerKind};
use calltap_values::{DescribedFunction, Program, Reason, Rules};
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// Tracers with their compiled filters.
pub struct Selector {
    /// The tracers; `id` is their index.
    pub(crate) tracers: Vec<TracerInfo>,
    filters: Vec<(GlobSet, GlobSet)>,
    /// Whether globs may match no function at the start.
    later: bool,
    /// Whether Python functions are traced.
    python: bool,
    /// Globs for each of which a function must be traced.
    pub(crate) about: Vec<Word>,
    /// Globs for each of which the returns of a function must be recorded.
    pub(crate) timed: Vec<Word>,
    /// Whether functions that poll futures are traced, even if no filter names them.
    futures: bool,
    /// Whether only functions that poll futures are traced.
    only_futures: bool,
    /// Whether the program's calls into libraries are traced.
    libcalls: bool,
    /// Rules for values that are read.
    rules: Rules,
    /// Reach of the selection, once the candidates are known.
    reached: OnceLock<Reached>,
    /// Names of functions that programs call in libraries without a linker's stub, if such calls
    /// are traced. More are added with each program that a process executes.
    called: RwLock<BTreeSet<String>>,
}

/// Reach of a selection among functions that were not built for tracing, of which every process has
/// thousands.
#[derive(Debug)]
struct Reached {
    /// Whether any functions were built for tracing: then the others are wanted only by name.
    built: bool,
    /// For each tracer's filter, the globs that match nothing else: they also mean functions of
    /// libraries.
    filters: Vec<GlobSet>,
}

/// Maximum number of tracers at a time: a word has a bit for each.
const TRACERS: usize = 32;

impl Selector {
    pub(crate) fn new(words: &Selection, later: bool) -> Result<Selector, Error> {
        if words.tracers.len() > TRACERS {
            return Err(Error::TooMany(TRACERS));
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
        let rules = Rules::new(&words.arguments, &words.results, &words.conditions)?;
        let futures = words.polls();
        let rules = rules.with_futures(futures);
        let only_futures = futures && filters.iter().all(|(filter, _)| filter.is_empty());
        let (about, timed, reached, python) =
            (Vec::new(), Vec::new(), OnceLock::new(), !words.python.is_empty());
        let libcalls = words.libcalls;
        Ok(Selector {
            tracers: infos,
            filters,
            later,
            python,
            about,
            timed,
            futures,
            only_futures,
            libcalls,
            rules,
            reached,
            called: RwLock::default(),
        })
    }
}

impl Selector {
    /// Whether a tracer records the returns of functions.
    pub fn records_returns(&self) -> bool {
        self.tracers.iter().any(|tracer| tracer.kind == TracerKind::FunctionGraph)
    }

    /// Whether Python functions are traced.
    pub fn traces_python(&self) -> bool {
        self.python
    }

    /// Returns the tracers that want a function (bit mask of [`TracerInfo::id`]s).
    pub fn choose(&self, function: &Function, module: ModuleNames<'_>) -> u32 {
        self.choose_by(function, module, true)
    }

    /// Whether calls of a function are traced only where the program makes them, as calls into a
    /// library.
    pub fn is_library_call(&self, function: &Function, module: ModuleNames<'_>) -> bool {
        self.is_called(function) && self.choose_by_filters(function, module, true) == 0
    }

    /// Whether the program calls a function, of a library, without a stub of the linker, and these
    /// calls are traced.
    fn is_called(&self, function: &Function) -> bool {
        self.libcalls && function.is_on_demand() && {
            let called = self.called();
            [&function.name].into_iter().chain(&function.aliases).any(|name| called.contains(name))
        }
    }

    fn called(&self) -> RwLockReadGuard<'_, BTreeSet<String>> {
        self.called.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tracers that want a function, with notrace sets or without.
    fn choose_by(&self, function: &Function, module: ModuleNames<'_>, excludes: bool) -> u32 {
        if function.kind() == SiteKind::Plt {
            return self.choose_library_call(function, module, excludes);
        }
        match self.choose_by_filters(function, module, excludes) {
            0 if self.is_called(function) => self.choose_library_call(function, module, excludes),
            tracers => tracers,
        }
    }

    /// Returns the tracers whose filters want a function, with notrace sets or without.
    fn choose_by_filters(&self, function: &Function, module: ModuleNames<'_>, excludes: bool) -> u32 {
        let polls = self.futures && function.poll.is_some();
        if self.only_futures && !polls {
            return 0;
        }
        let reached = self.reached.get();
        let by_name =
            function.is_on_demand() || !function.has_room() && reached.is_some_and(|reached| reached.built);
        let has_words =
            |(filter, notrace): &(GlobSet, GlobSet)| !filter.is_empty() || excludes && !notrace.is_empty();
        if !self.filters.iter().any(has_words) {
            return if by_name && !polls { 0 } else { ((1u64 << self.tracers.len()) - 1) as u32 };
        }
        let names = names_of(function, module);
        let has = |set: &GlobSet| if excludes { set.has(&names) } else { set.would_have(&names) };
        let wanted = |n: usize, (filter, notrace): &(GlobSet, GlobSet)| {
            let included = match by_name {
                _ if polls => true,
                true => reached.is_some_and(|reached| has(&reached.filters[n])),
                false => filter.is_empty() || has(filter),
            };
            included && !(excludes && notrace.has(&names))
        };
        let bits = self.tracers.iter().zip(self.filters.iter().enumerate());
        bits.fold(0, |mask, (info, (n, filter))| if wanted(n, filter) { mask | 1 << info.id } else { mask })
    }

    /// Returns the tracers that want a library function because the program calls it: all or none,
    /// except those whose notrace set has it.
    fn choose_library_call(&self, function: &Function, module: ModuleNames<'_>, excludes: bool) -> u32 {
        let names = names_of(function, module);
        let is_wanted = |(_, (_, notrace)): &(_, &(_, GlobSet))| !(excludes && notrace.has(&names));
        let tracers = self.tracers.iter().zip(&self.filters).filter(is_wanted);
        tracers.filter(|_| self.libcalls).fold(0, |mask, (info, _)| mask | 1 << info.id)
    }

    /// Returns the program that reads values of a function's calls, or the reason why they cannot
    /// be read.
    pub fn values(
        &self,
        function: &Function,
        module: ModuleNames<'_>,
        known: &dyn Fn() -> Option<DescribedFunction>,
    ) -> Result<Option<Arc<Program>>, Reason> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let names = names_of(function, module);
        self.rules.of(&|word| word.matches(&names), function.poll.as_ref(), known)
    }

    /// Returns the globs of the functions of which values are named.
    pub fn naming_values(&self) -> impl Iterator<Item = &Word> {
        self.rules.naming()
    }

    /// Whether the calls of a function are recorded on a condition.
    pub fn is_conditional(&self, function: &Function, module: ModuleNames<'_>) -> bool {
        // Names are demangled, which takes long for all functions of a large file.
        self.rules.have_conditions() && {
            let names = names_of(function, module);
            self.rules.have_condition_for(&|word| word.matches(&names))
        }
    }

    /// Determines the reach of the selection among the candidates. Returns the number of words by
    /// which it includes functions of libraries that were not built for tracing.
    pub fn reach(&self, candidates: &Candidates) -> usize {
        let reached = self.reached.get_or_init(|| {
            let own: Vec<(&Function, ModuleNames<'_>)> =
                candidates.traceable().filter(|(function, _)| !function.is_on_demand()).collect();
            let built: Vec<(&Function, ModuleNames<'_>)> =
                own.iter().copied().filter(|(function, _)| function.kind() != SiteKind::Prologue).collect();
            let is_built = !built.is_empty();
            let first = if is_built { built } else { own };
            let first: Vec<FunctionNames<'_>> =
                first.into_iter().map(|(function, module)| names_of(function, module)).collect();
            let reaching = |(filter, _): &(GlobSet, GlobSet)| {
                let unmatched: HashSet<&str> =
                    filter.unmatched(first.iter()).into_iter().map(Word::text).collect();
                let is_reaching = |word: &Word| !word.is_for_all() && !is_go_wait(word.text());
                filter.only(|word| is_reaching(word) && unmatched.contains(word.text()))
            };
            Reached { built: is_built, filters: self.filters.iter().map(reaching).collect() }
        });
        let by_filters = reached.filters.iter().map(|filter| filter.words().count()).sum::<usize>();
        by_filters + self.reach_library_calls(candidates)
    }

    /// Adds the calls into libraries of new programs to the traced ones. Returns the number of
    /// functions that are now traced for such calls.
    fn reach_library_calls(&self, candidates: &Candidates) -> usize {
        if !self.libcalls {
            return 0;
        }
        let mut called = self.called.write().unwrap_or_else(PoisonError::into_inner);
        called.extend(candidates.called_without_stub().cloned());
        called.len()
    }

    /// Whether functions so identified may be chosen, if they can be traced. Called before a file
    /// is decoded. `link`: as in [`ModuleNames`]. `library`: whether they are in a library that was
    /// not built for tracing.
    pub fn may_choose(&self, named: Named<'_>, link: Option<&str>, library: bool) -> bool {
        let may_be_in = |set: &GlobSet| match named {
            Named::By(names, file) => {
                let module = ModuleNames { file, link };
                names.iter().any(|name| set.has(&FunctionNames::new([*name], Some(module))))
            }
            Named::ByPlace(file) => {
                let module = ModuleNames { file, link };
                set.words().any(|word| word.may_be_in(Some(module)) && may_be_place(word.pattern(), file))
            }
        };
        if !library {
            let may_be = |(filter, _): &(GlobSet, GlobSet)| filter.is_empty() || may_be_in(filter);
            return self.filters.is_empty() || self.filters.iter().any(may_be);
        }
        let is_called = match named {
            Named::By(names, _) => names.iter().any(|name| self.called().contains(*name)),
            Named::ByPlace(_) => false,
        };
        is_called || self.reached.get().is_none_or(|reached| reached.filters.iter().any(may_be_in))
    }

    /// Returns the words by which functions of a file may be chosen, and its link if they depend on
    /// it. The same words choose the same functions. `link` and `library`: as for
    /// [`Selector::may_choose`].
    pub fn choosing_words(&self, link: Option<&str>, library: bool) -> Vec<Vec<String>> {
        let words = |set: &GlobSet| set.words().map(|word| word.text().to_owned()).collect();
        let mut all: Vec<Vec<String>> = match self.reached.get().filter(|_| library) {
            Some(reached) => {
                let called = self.called().iter().map(|name| Word::exactly(name)).collect();
                reached.filters.iter().map(words).chain([called]).collect()
            }
            None => self.filters.iter().map(|(filter, _)| words(filter)).collect(),
        };
        let has_modules = self.filters.iter().any(|(filter, _)| filter.words().any(Word::has_module));
        // The empty word, which no filter contains, sets the link apart.
        all.extend(link.filter(|_| has_modules).map(|link| vec![String::new(), link.to_owned()]));
        all
    }

    /// Returns the words of filters that name functions, without wildcards.
    pub fn names(&self) -> Vec<&Word> {
        let words = self.filters.iter().flat_map(|(filter, _)| filter.adding());
        words.filter(|word| word.is_exact()).collect()
    }

    /// Returns the words of filters that mean functions of the program, but might mean others:
    /// those without a module that reach no library.
    pub fn own_words(&self) -> Vec<&Word> {
        let reached = self.reached.get();
        let is_reaching = |n: usize, word: &Word| {
            reached.is_some_and(|reached| reached.filters[n].words().any(|other| other == word))
        };
        let mut words: Vec<&Word> = Vec::new();
        for (n, (filter, _)) in self.filters.iter().enumerate() {
            for word in filter.adding() {
                let is_own = !is_go_wait(word.text())
                    && !word.is_for_all()
                    && !word.is_whole()
                    && !word.has_module()
                    && !is_reaching(n, word);
                words.extend((is_own && !words.contains(&word)).then_some(word));
            }
        }
        words
    }

    /// Returns the functions that the filters choose, with notrace sets or without.
    fn chosen<'c>(
        &'c self,
        candidates: &'c Candidates,
        excludes: bool,
    ) -> impl Iterator<Item = (&'c Function, ModuleNames<'c>)> {
        let all = candidates
            .functions()
            .filter(|(function, _)| function.kind() == SiteKind::Plt || function.is_traceable());
        all.filter(move |(function, module)| self.choose_by(function, *module, excludes) != 0)
    }

    /// Whether `!` and the notrace sets leave no function of those that the filters choose.
    fn excludes_all(&self, candidates: &Candidates) -> bool {
        let is_chosen = |excludes: bool| self.chosen(candidates, excludes).next().is_some();
        let may_exclude = |(filter, notrace): &(GlobSet, GlobSet)| !filter.is_empty() || !notrace.is_empty();
        self.filters.iter().any(may_exclude) && !is_chosen(true) && is_chosen(false)
    }

    /// Returns the words of notrace sets that take no function away from those that the filters
    /// choose.
    pub fn idle_exclusions(&self, candidates: &Candidates) -> Vec<String> {
        // Functions of libraries that are opened later, and of Python, are not known yet.
        if self.later || self.python || self.filters.iter().all(|(_, notrace)| notrace.is_empty()) {
            return Vec::new();
        }
        let chosen: Vec<FunctionNames<'_>> =
            self.chosen(candidates, false).map(|(function, module)| names_of(function, module)).collect();
        let words = self.filters.iter().flat_map(|(_, notrace)| notrace.unmatched(chosen.iter()));
        let words: BTreeSet<&str> = words.map(Word::text).collect();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Returns an error if the program should not be run at all, given the candidates at its start.
    pub fn check(&self, candidates: &Candidates) -> Result<(), Error> {
        if self.later {
            return Ok(());
        }
        if self.futures && !candidates.traceable().any(|(function, _)| function.poll.is_some()) {
            return Err(Error::Values { name: "futures".to_owned(), why: Reason::NoFutures });
        }
        if self.libcalls && !candidates.has_library_calls() {
            return Err(Error::NoLibraryCalls);
        }
        let all: Vec<FunctionNames<'_>> = match self.filters.iter().all(|(filter, _)| filter.is_empty()) {
            true => Vec::new(),
            false => candidates.traceable().map(|(function, module)| names_of(function, module)).collect(),
        };
        for (filter, _) in &self.filters {
            // The program may have no room for a jump there. Threads are then found when they enter
            // the evaluator.
            let is_about = |word: &Word| self.about.iter().any(|about| about.text() == word.text());
            let may_miss = |word: &&Word| {
                let is_python = || self.python && is_about(word);
                word.text() == SAVE_THREAD || is_go_wait(word.text()) || is_python()
            };
            let unmatched = filter.unmatched(all.iter());
            if let Some(word) = unmatched.into_iter().find(|word| !may_miss(word)) {
                if word.text() == EVALUATOR {
                    return Err(Error::NoInterpreter);
                }
                let (glob, hint) = (word.text().to_owned(), candidates.hint(word, self.python));
                return Err(Error::NoMatch { glob, hint });
            }
        }
        let is_chosen = |(function, module): (&Function, ModuleNames<'_>)| self.choose(function, module) != 0;
        // Python functions become known only when they are called.
        let about = self.about.iter().filter(|_| !self.python);
        for word in about.chain(self.rules.globs()) {
            let known = |(function, module): &(&Function, ModuleNames<'_>)| {
                word.matches(&names_of(function, *module))
            };
            if !candidates.traceable().filter(known).any(is_chosen) {
                let excluded = candidates.traceable().any(|function| known(&function));
                let hint = match excluded {
                    true if self.tracers.is_empty() => " (no tracer is selected)".to_owned(),
                    true => " (-N takes it away)".to_owned(),
                    false => candidates.hint(word, self.python),
                };
                return Err(Error::NoMatch { glob: word.text().to_owned(), hint });
            }
        }
        for word in self.timed.iter().filter(|_| !self.python) {
            let mut chosen = candidates.traceable().filter(|(function, module)| {
                word.matches(&names_of(function, *module)) && is_chosen((*function, *module))
            });
            let Some((first, _)) = chosen.next() else { continue };
            let has_ends = |function: &Function| function.returns.unrecorded_end().is_none();
            if let (Some(why), false) =
                (first.returns.unrecorded_end(), chosen.any(|(other, _)| has_ends(other)))
            {
                let name = calltap_names::in_message(&calltap_names::demangle(&first.name));
                return Err(Error::NoEnds { name, why: why.clone() });
            }
        }
        // The words above have messages of their own.
        if !self.python && self.excludes_all(candidates) {
            return Err(Error::AllExcluded);
        }
        Ok(())
    }
}

/// Whether a pattern may match a function that is named by its position in a file, as in
/// `libz.so.1+0x2470`. False only if no such name contains some literal part of it.
fn may_be_place(pattern: &str, file: &str) -> bool {
    let start = format!("{file}+0x");
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let may_contain = |part: &str| {
        let mut cuts = (0..=part.len()).filter(|cut| part.is_char_boundary(*cut));
        start.contains(part) || cuts.any(|cut| start.ends_with(&part[..cut]) && is_hex(&part[cut..]))
    };
    // A class or an escape is not evaluated, and may match anything.
    pattern.contains(['[', '\\']) || pattern.trim_start_matches('!').split(['*', '?']).all(may_contain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks whether a pattern may match functions without a name in `libz.so.1`. If not, it must
    /// match no such name.
    fn check(pattern: &str, expected: bool) {
        assert_eq!(may_be_place(pattern, "libz.so.1"), expected, "{pattern}");
        let matches = calltap_names::Glob::new(pattern).matches("libz.so.1+0xfade0");
        assert!(expected || !matches, "{pattern}");
    }

    #[test]
    fn unnamed_functions_are_omitted_if_no_pattern_can_select_any() {
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
