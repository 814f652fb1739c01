//! `set_ftrace_filter` and `set_ftrace_notrace`.
//!
//! Words are separated by blanks: a name or glob adds functions, a `!` in front removes them, a
//! number is a position in `available_filter_functions`. With two tracers or more, every line names
//! its tracer.

use super::{Model, Open, Refusal, number};
use calltap_names::{FunctionNames, Glob, GlobSet, Word, demangle, nearest_names};
use calltap_selection::{Listed, TracerSelection};
use std::fmt::Write;

/// Selector of one of a tracer's sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Which {
    /// The functions that are traced.
    Filter,
    /// The functions that are not traced.
    Notrace,
}

/// Whether a set contains a function.
pub fn has(set: &GlobSet, function: &Listed) -> bool {
    let linker = function.aliases.iter().chain([&function.function]).map(String::as_str);
    set.has(&FunctionNames::new(linker, Some(function.module.as_str().into())))
}

/// Whether a glob matches a function's linker symbol, another name of it, or its demangled name.
pub fn matches(glob: &Glob, function: &Listed) -> bool {
    let demangled = demangled(function);
    names(function, &demangled).any(|name| glob.matches(name))
}

fn demangled(function: &Listed) -> Option<String> {
    // Only names with these first characters can be mangled.
    function.function.starts_with(['_', 'R', 'Z']).then(|| demangle(&function.function))
}

fn names<'f>(function: &'f Listed, demangled: &'f Option<String>) -> impl Iterator<Item = &'f str> + Clone {
    let linker = function.aliases.iter().chain([&function.function]);
    linker.chain(demangled).map(String::as_str)
}

impl Model<'_> {
    pub(crate) fn read_set(&self, which: Which) -> String {
        let registered: Vec<&TracerSelection> = self.registered().collect();
        let list = |tracer: Option<&TracerSelection>| {
            let set = self.set(tracer, which);
            if set.is_empty() {
                let none = match which {
                    Which::Filter => "#### all functions enabled ####",
                    Which::Notrace => "#### no functions disabled ####",
                };
                return vec![none.to_owned()];
            }
            self.functions
                .iter()
                .filter(|function| has(&set, function))
                .map(|function| self.name(function))
                .collect()
        };
        let mut text = String::new();
        if registered.len() < 2 {
            list(self.default_tracer()).into_iter().for_each(|line| text += &(line + "\n"));
            return text;
        }
        for tracer in registered {
            for line in list(Some(tracer)) {
                let _ = writeln!(text, "[ {}] {line}", tracer.name);
            }
        }
        text
    }

    /// Returns a tracer's set, joined with the set that applies to all tracers.
    pub(crate) fn set(&self, tracer: Option<&TracerSelection>, which: Which) -> GlobSet {
        let (own, all) = match which {
            Which::Filter => (tracer.map(|tracer| &tracer.filter), &self.words.filter),
            Which::Notrace => (tracer.map(|tracer| &tracer.notrace), &self.words.notrace),
        };
        GlobSet::new(own.into_iter().flatten().chain(all))
    }

    pub(crate) fn write_set(&mut self, which: Which, text: &str, open: Open) -> Result<(), Refusal> {
        let functions = self.functions;
        let set = self.set_mut(which);
        if open == Open::Truncate {
            set.clear();
        }
        for word in text.split_whitespace() {
            add(set, word, functions)?;
        }
        Ok(())
    }

    /// Returns the words of the default tracer's set.
    pub(crate) fn set_mut(&mut self, which: Which) -> &mut Vec<String> {
        let tracer = self.default_tracer_mut();
        match which {
            Which::Filter => &mut tracer.filter,
            Which::Notrace => &mut tracer.notrace,
        }
    }
}

/// Adds a word to a set. A refused word changes nothing.
pub fn add(set: &mut Vec<String>, word: &str, functions: &[Listed]) -> Result<(), Refusal> {
    let (takes, pattern) = match word.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, word),
    };
    if pattern.contains(':') && !pattern.contains("::") {
        return Err(Refusal::invalid(format!("'{word}': this file takes no triggers and modules")));
    }
    let pattern = match pattern.starts_with(|c: char| c.is_ascii_digit()) {
        true => by_number(pattern, functions)?,
        false => pattern.to_owned(),
    };
    let glob = Glob::new(&pattern);
    // Demangling all names is slow, and most words are linker symbols.
    let named = functions.iter().any(|function| glob.matches(&function.function));
    if pattern.is_empty() || !named && !functions.iter().any(|function| matches(&glob, function)) {
        let names: Vec<String> = functions.iter().map(|function| demangle(&function.function)).collect();
        let near = nearest_names(&pattern, names.iter().map(String::as_str), 3);
        let hint = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
        return Err(Refusal::invalid(format!("no function matches '{pattern}'{hint}")));
    }
    // As in ftrace, a pattern is compared with whole names.
    let word = Word::whole(&pattern);
    if !takes {
        set.push(word);
        return Ok(());
    }
    // Removing from an empty set does nothing. A set that becomes empty is as if it had never been
    // written.
    if !set.is_empty() {
        set.push(format!("!{word}"));
        let left = GlobSet::new(&*set);
        if !functions.iter().any(|function| has(&left, function)) {
            set.clear();
        }
    }
    Ok(())
}

/// Returns the function at a position in the list: decimal, 0x... or 0... (octal).
fn by_number(word: &str, functions: &[Listed]) -> Result<String, Refusal> {
    let lower = word.to_ascii_lowercase();
    let (digits, base) = number::base(&lower);
    let number = usize::from_str_radix(digits, base);
    let place = number.ok().and_then(|number| number.checked_sub(1));
    let function = place.and_then(|place| functions.get(place));
    function.map(|function| Glob::escape(&function.function)).ok_or_else(|| {
        Refusal::invalid(format!("'{word}' is not a place among the {} functions", functions.len()))
    })
}
