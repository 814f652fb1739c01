//! The functions from which a selection can choose, and hints for one that chooses none.

use crate::debug_files::{inlined_functions, most_missing_names};
use crate::named::names_of;
use crate::words::EVALUATOR;
use calltap_names::{ModuleNames, Word, demangle, in_message, is_named, last_parts, nearest_names};
use calltap_sites::{Binary, Function, Inlined, Reason, SiteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The functions from which a selection can choose, kept for messages.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The modules whose files were read.
    pub modules: Vec<ReadModule>,
    /// Files of the modules: root directory of the mount namespace, and path in it.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Files that were not decoded, as none of their names matches: module, root directory and path
    /// as above.
    pub undecoded: Vec<(String, PathBuf, PathBuf)>,
}

/// A module whose file was read.
#[derive(Clone, Debug)]
pub struct ReadModule {
    /// Name of the file.
    pub name: String,
    /// Name of the symbolic link through which a program was started from it.
    pub link: Option<String>,
    /// Functions of the file.
    pub binary: Arc<Binary>,
}

impl ReadModule {
    /// Returns the names by which words select it.
    pub fn names(&self) -> ModuleNames<'_> {
        ModuleNames { file: &self.name, link: self.link.as_deref() }
    }
}

impl Candidates {
    /// Returns all functions, each with the names of its module.
    pub fn functions(&self) -> impl Iterator<Item = (&Function, ModuleNames<'_>)> {
        self.modules
            .iter()
            .flat_map(|module| module.binary.functions.iter().map(move |function| (function, module.names())))
    }

    /// Returns the traceable functions.
    pub fn traceable(&self) -> impl Iterator<Item = (&Function, ModuleNames<'_>)> {
        self.functions().filter(|(function, _)| function.is_traceable())
    }

    /// Returns the names of library functions that programs among the modules call without a
    /// linker's stub.
    pub(crate) fn called_without_stub(&self) -> impl Iterator<Item = &String> {
        self.modules.iter().flat_map(|module| &module.binary.calls_without_stub.alone)
    }

    /// Whether programs among the modules call libraries.
    pub(crate) fn has_library_calls(&self) -> bool {
        self.functions().any(|(function, _)| function.kind() == SiteKind::Plt)
            || self.has_calls_without_stub()
    }

    /// Whether programs among the modules call libraries without a linker's stub.
    pub fn has_calls_without_stub(&self) -> bool {
        self.called_without_stub().next().is_some()
    }

    /// Returns those of these functions that cannot be traced, with the reason. A function that no
    /// library has is not called.
    pub fn untraceable_library_calls(&self) -> BTreeMap<&str, &Reason> {
        let called: BTreeSet<&String> = self.called_without_stub().collect();
        let (mut traceable, mut refused) = (BTreeSet::new(), BTreeMap::new());
        for function in self.functions().map(|(function, _)| function).filter(|_| !called.is_empty()) {
            let names = [&function.name].into_iter().chain(&function.aliases);
            for name in names.filter(|name| called.contains(name)) {
                match function.reason() {
                    Some(reason) => drop(refused.insert(name.as_str(), reason)),
                    None => drop(traceable.insert(name.as_str())),
                }
            }
        }
        refused.retain(|name, _| !traceable.contains(name));
        refused
    }

    /// Whether a word names a traceable function of a module.
    pub fn can_be_traced(&self, word: &Word, module: &str) -> bool {
        let mut of_module = self.traceable().filter(|(_, other)| other.file == module);
        of_module.any(|(function, module)| word.matches(&names_of(function, module)))
    }

    /// Returns the functions that a word names and that cannot be traced, each with its module and
    /// the reason. Parts of functions are left out.
    pub fn untraceable<'a>(
        &'a self,
        words: &'a [&Word],
    ) -> impl Iterator<Item = (&'a Function, ModuleNames<'a>, &'a Reason)> {
        let not = self.functions().filter(|(function, _)| !words.is_empty() && !function.is_traceable());
        let reasoned = not.filter_map(|(function, module)| Some((function, module, function.reason()?)));
        let is_function = |reason: &Reason| !matches!(reason, Reason::ColdPart | Reason::ColdPartOf { .. });
        reasoned.filter(move |(function, module, reason)| {
            is_function(reason) && words.iter().any(|word| word.matches(&names_of(function, *module)))
        })
    }

    /// Explains why nothing matches a word: the function exists and cannot be traced, it may be one
    /// of Python, or similar names. `python`: Python functions are selected.
    pub(crate) fn hint(&self, word: &Word, python: bool) -> String {
        if !self.modules.iter().any(|module| word.may_be_in(Some(module.names()))) {
            return "; no file of that name is loaded ('calltap info' lists those of a trace); --later waits until it is".to_owned();
        }
        let exists = self
            .functions()
            .filter(|(function, _)| !function.is_traceable())
            .find(|(function, module)| word.matches(&names_of(function, *module)));
        if let Some((function, reason)) =
            exists.and_then(|(function, _)| Some((function, function.reason()?)))
        {
            return format!(" ({} cannot be traced: {reason})", in_message(&function.name));
        }
        if let Some(hint) = self.inlined(word) {
            return hint + &self.body(word).unwrap_or_default();
        }
        if let Some(instead) = instead_of_pattern(word.pattern()) {
            return instead;
        }
        let all_names = |function: &Function| {
            let aliases = function.aliases.iter().map(|alias| demangle(alias));
            [demangle(&function.name)].into_iter().chain(aliases).collect::<Vec<_>>()
        };
        let decoded = self.traceable().flat_map(|(function, _)| all_names(function));
        let names: BTreeSet<String> =
            decoded.chain(self.undecoded_names()).map(|name| last_parts(&name, word.pattern())).collect();
        let near = nearest_names(word.pattern(), names.iter().map(String::as_str), 3);
        // If a name is similar, a library without names is not the reason.
        let asked = if near.is_empty() { self.modules.len() } else { 1 };
        let near: Vec<String> = near.into_iter().map(in_message).collect();
        let near = match near.is_empty() {
            true => "; 'calltap sites FILE' lists those of a program or library".to_owned(),
            false => format!("; nearest: {}", near.join(", ")),
        };
        let files = self.modules.iter().zip(&self.files).take(asked);
        let files = files.map(|(module, (_, path))| (module.name.as_str(), &*module.binary, path.as_path()));
        let missing = most_missing_names(files).map(|(name, place)| format!(" ({name}: {place})"));
        let python = if !python && self.runs_python() { python_hint(word) } else { String::new() };
        python + &near + &missing.unwrap_or_default()
    }

    /// Whether one of the files is a Python interpreter.
    fn runs_python(&self) -> bool {
        let is_evaluator = |function: &Function| {
            [&function.name].into_iter().chain(&function.aliases).any(|name| name == EVALUATOR)
        };
        self.functions().any(|(function, _)| is_evaluator(function))
            || self.undecoded_names().any(|name| name == EVALUATOR)
    }

    /// Names the closure of a function that a word names: the body of the function, if it is async.
    fn body(&self, word: &Word) -> Option<String> {
        let is_body = |name: &String| {
            let closure = name.rsplit_once("::");
            let closure = closure.filter(|(_, last)| *last == "{{closure}}" || last.starts_with("{closure#"));
            closure.is_some_and(|(function, _)| is_named(word, [function].into_iter(), None))
        };
        let body = self.traceable().map(|(function, _)| demangle(&function.name)).find(is_body)?;
        Some(format!("; if it is async, its body is '{}'", in_message(&body)))
    }

    /// Returns the names of functions in the symbol tables of files that were not decoded.
    fn undecoded_names(&self) -> impl Iterator<Item = String> {
        let open = |root: &Path, path: &Path| {
            calltap_sites::open(&root.join(path.strip_prefix("/").unwrap_or(path))).ok()
        };
        let files = self.undecoded.iter().filter_map(move |(_, root, path)| open(root, path));
        files.flat_map(|file| calltap_sites::function_names(&file, |_| true)).map(|name| demangle(&name))
    }

    /// Explains that the function was inlined everywhere, according to a file's debugging
    /// information.
    fn inlined(&self, word: &Word) -> Option<String> {
        let is_it = |(found, module): &(Inlined, &str)| {
            !found.remains && is_named(word, [found.name.as_str()].into_iter(), Some((*module).into()))
        };
        let decoded = self.files.iter().zip(&self.modules);
        let decoded = decoded.map(|((root, path), module)| (&module.name, root, path));
        let undecoded = self.undecoded.iter().map(|(module, root, path)| (module, root, path));
        let all = decoded.chain(undecoded).filter_map(|(module, root, path)| {
            Some(inlined_functions(path, root)?.into_iter().map(move |found| (found, module.as_str())))
        });
        let (found, _) = all.flatten().find(is_it)?;
        let (name, places) = (in_message(&found.name), found.places);
        Some(format!(" ({name} was inlined wherever it is called, in {places} places: it cannot be traced)"))
    }
}

/// Returns what to write for a word in the syntax of other tools: a regular expression, or the
/// linker's stub of a function.
fn instead_of_pattern(pattern: &str) -> Option<String> {
    if let Some(function) = pattern.strip_suffix("@plt") {
        return Some(format!("; --libcalls traces calls into libraries: --libcalls -F '{function}'"));
    }
    let is_expression = pattern.contains(".*")
        || pattern.contains('|')
        || pattern.starts_with('^')
        || pattern.len() > 1 && pattern.ends_with('$');
    let glob = |one: &str| {
        let one = one.strip_prefix('^').unwrap_or(one);
        one.strip_suffix('$').unwrap_or(one).replace(".*", "*")
    };
    is_expression.then(|| {
        let globs: Vec<String> = pattern.split('|').map(glob).filter(|glob| !glob.is_empty()).collect();
        format!("; a word is a glob, not a regular expression: '{}'", globs.join(","))
    })
}

/// Returns a hint that a word may name a function of the Python program that the process runs.
fn python_hint(word: &Word) -> String {
    let name = word.pattern();
    let is_whole = name.contains('.') || name.starts_with('*');
    let glob = if is_whole { name.to_owned() } else { format!("*.{name}") };
    format!("; functions of the Python program: --python '{glob}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_are_translated() {
        for (word, says) in [
            ("^process$", "not a regular expression: 'process'"),
            ("process.*", "not a regular expression: 'process*'"),
            ("^a.*z|b$", "not a regular expression: 'a*z,b'"),
            ("malloc@plt", "--libcalls -F 'malloc'"),
        ] {
            assert!(instead_of_pattern(word).is_some_and(|text| text.contains(says)), "{word}");
        }
        for word in ["process*", "f.cold", "operator$", "$", "f@@V1", "a[b-c]?"] {
            assert_eq!(instead_of_pattern(word).is_some(), word == "operator$", "{word}");
        }
    }
}
