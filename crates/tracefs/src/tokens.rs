//! Files that take words: filters and graph functions. A writer changes a copy of the set, which
//! replaces the set when the file is closed.

use crate::control::{Which, add, matches};
use crate::errors::Wrong;
use crate::trigger::Triggers;
use calltap_names::{Glob, Word};
use calltap_selection::Listed;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Maximum length of a word.
const WORD: usize = 516;
const TOO_LONG: &str = "too long a word";

/// A set that words are added to.
#[derive(Clone, Debug)]
pub(crate) enum Set {
    /// Globs of a tracer's set.
    Words(Which, Vec<String>),
    /// Functions of `set_graph_function` (0) or `set_graph_notrace` (1).
    Functions(usize, BTreeSet<String>),
    /// Globs of `stack_trace_filter`.
    Stack(Vec<String>),
}

/// A writer's copy of a set.
#[derive(Debug)]
pub(crate) struct PendingFilter {
    /// The copy.
    pub set: Set,
    /// The beginning of a word that the next write may continue.
    partial: String,
    /// Whether the copy differs from the set that was last taken over.
    changed: bool,
    /// Whether a word was accepted.
    accepted: bool,
    /// Whether a word was refused.
    refused: bool,
    /// The last refused word with its error, until it is logged.
    wrong: Option<(String, Wrong)>,
}

impl PendingFilter {
    /// Returns a copy of a set; it is empty if the file was truncated.
    pub(crate) fn new(mut set: Set, truncated: bool) -> PendingFilter {
        if truncated {
            match &mut set {
                Set::Words(_, words) | Set::Stack(words) => words.clear(),
                Set::Functions(_, functions) => functions.clear(),
            }
        }
        PendingFilter {
            set,
            partial: String::new(),
            changed: truncated,
            accepted: false,
            refused: false,
            wrong: None,
        }
    }

    /// Takes at most one word, as the kernel does. Returns the number of bytes taken, and whether a
    /// trigger was changed.
    pub(crate) fn write(
        &mut self,
        data: &[u8],
        functions: &[Listed],
        triggers: &mut Triggers,
    ) -> Result<(usize, bool), Errno> {
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        let start = match self.partial.is_empty() {
            true => text.len() - text.trim_start().len(),
            false => 0,
        };
        let word = &text[start..];
        let Some(end) = word.find(char::is_whitespace) else {
            if self.partial.len() + word.len() > WORD {
                return Err(self.refuse(word, Wrong::argument(TOO_LONG)));
            }
            self.partial += word;
            // An empty line alone is a change as well, to an empty set.
            return Ok((text.len(), false));
        };
        let word = std::mem::take(&mut self.partial) + &word[..end];
        let blank = text[start + end..].chars().next().map_or(0, char::len_utf8);
        let triggered = self.add(&word, functions, triggers)?;
        Ok((start + end + blank, triggered))
    }

    /// Adds the rest as the last word when the file is closed. Its error cannot be returned any
    /// more.
    pub(crate) fn finish(&mut self, functions: &[Listed], triggers: &mut Triggers) -> bool {
        let word = std::mem::take(&mut self.partial);
        !word.is_empty() && self.add(&word, functions, triggers).unwrap_or(false)
    }

    fn add(&mut self, word: &str, functions: &[Listed], triggers: &mut Triggers) -> Result<bool, Errno> {
        let triggered = self.try_add(word, functions, triggers).map_err(|wrong| self.refuse(word, wrong))?;
        if !triggered {
            (self.changed, self.accepted) = (true, true);
        }
        Ok(triggered)
    }

    /// Records the error of a word. The old set is kept unless another word was accepted: a wrong
    /// name must not make an empty filter, which traces everything.
    fn refuse(&mut self, word: &str, wrong: Wrong) -> Errno {
        self.refused = true;
        let errno = wrong.errno;
        self.wrong = Some((word.chars().take(WORD).collect(), wrong));
        errno
    }

    /// Returns the last refused word with its error, once.
    pub(crate) fn take_wrong(&mut self) -> Option<(String, Wrong)> {
        self.wrong.take()
    }

    fn try_add(&mut self, word: &str, functions: &[Listed], triggers: &mut Triggers) -> Result<bool, Wrong> {
        if word.len() > WORD {
            return Err(Wrong::argument(TOO_LONG));
        }
        let (which, words) = match &mut self.set {
            Set::Functions(_, set) => return add_functions(set, word, functions).map(|()| false),
            Set::Words(which, words) => (Some(*which), words),
            Set::Stack(words) => (None, words),
        };
        let plain = word.replace("::", "");
        if let Some((_, command)) = plain.split_once(':') {
            if command == "mod" || command.starts_with("mod:") {
                return add_module(words, word, functions).map(|()| false);
            }
            if which != Some(Which::Filter) {
                let wrong = Wrong::argument("commands are for set_ftrace_filter");
                let errno = if which.is_none() { Errno::NODEV } else { wrong.errno };
                return Err(Wrong { errno, ..wrong }.at(word.len() - command.len()));
            }
            return triggers.change(word, functions).map(|()| true);
        }
        Ok(add(words, word, functions).map(|()| false)?)
    }

    /// Returns the set to take over, if it has changed.
    pub(crate) fn take(&mut self) -> Option<Set> {
        let due = self.changed && (self.accepted || !self.refused);
        due.then(|| {
            self.changed = false;
            self.set.clone()
        })
    }
}

/// Applies a word of `set_graph_function`: adds functions, or removes them with `!`.
fn add_functions(set: &mut BTreeSet<String>, word: &str, functions: &[Listed]) -> Result<(), Wrong> {
    let (takes, pattern) = word.strip_prefix('!').map_or((false, word), |pattern| (true, pattern));
    if let Some(colon) = pattern.replace("::", "..").find(':') {
        return Err(
            Wrong::argument("commands are for set_ftrace_filter").at(word.len() - pattern.len() + colon)
        );
    }
    let glob = Glob::new(pattern);
    let mut any = false;
    for function in functions.iter().filter(|function| matches(&glob, function)) {
        any |= if takes { set.remove(&function.function) } else { true };
        if !takes {
            set.insert(function.function.clone());
        }
    }
    match (any && !pattern.is_empty(), takes) {
        (true, _) => Ok(()),
        (false, false) => Err(Wrong::argument(format!("no function matches '{pattern}'"))),
        (false, true) => Err(Wrong::argument(format!("no function of the set matches '{pattern}'"))),
    }
}

/// Separator of a function and its module.
const MOD: &str = ":mod:";

/// A word about functions of a module.
struct OfModule<'a> {
    pattern: Glob,
    module: &'a str,
    /// Whether the functions are those of all other modules.
    not: bool,
}

impl<'a> OfModule<'a> {
    fn parse(word: &'a str) -> Option<OfModule<'a>> {
        let (pattern, module) = word.split_once(MOD)?;
        let (not, module) = module.strip_prefix('!').map_or((false, module), |module| (true, module));
        Some(OfModule { pattern: Glob::new(if pattern.is_empty() { "*" } else { pattern }), module, not })
    }

    /// Whether the module is loaded.
    fn is_there(&self, functions: &[Listed]) -> bool {
        let module = Glob::new(self.module);
        functions.iter().any(|function| is_of(&module, function))
    }

    /// Returns the functions as words for each of them alone.
    fn words(&self, functions: &[Listed], sign: &str) -> Vec<String> {
        let module = Glob::new(self.module);
        let wanted =
            |function: &&Listed| is_of(&module, function) != self.not && matches(&self.pattern, function);
        functions
            .iter()
            .filter(wanted)
            .map(|function| format!("{sign}{}", Word::exactly(&function.function)))
            .collect()
    }
}

/// Whether a function belongs to a library whose file name matches, with or without `.so` and the
/// rest.
fn is_of(module: &Glob, function: &Listed) -> bool {
    let short = function.module.split(".so").next().unwrap_or_default();
    function.library && (module.matches(&function.module) || module.matches(short))
}

/// Applies `FUNCTION:mod:LIBRARY`: adds functions of a shared object, or (`!LIBRARY`) of all
/// others, and removes them with `!` in front. A word for a library that is not loaded is kept
/// until it is.
fn add_module(words: &mut Vec<String>, word: &str, functions: &[Listed]) -> Result<(), Wrong> {
    let (takes, word) = word.strip_prefix('!').map_or((false, word), |word| (true, word));
    let wanted = OfModule::parse(word).ok_or_else(|| Wrong::argument("no library named").at(word.len()))?;
    let at = word.len() - wanted.module.len() + usize::from(takes);
    let found = wanted.words(functions, if takes { "!" } else { "" });
    if !found.is_empty() {
        words.extend(found);
        return Ok(());
    }
    let before = words.len();
    if takes {
        // `!*:mod:x` removes all words that wait for x.
        let all = format!("{MOD}{}", wanted.module);
        let every = word == format!("*{all}");
        words.retain(|other| other != word && !(every && other.ends_with(&all)));
        let none = || Wrong::argument("nothing waits for this library").at(at);
        return if words.len() == before { Err(none()) } else { Ok(()) };
    }
    let is_name = Glob::new(wanted.module).exact().is_some() && !wanted.module.is_empty();
    if wanted.not || !is_name {
        return Err(Wrong::argument(
            "nothing matches, and what is waited for has to be the name of a library",
        )
        .at(at));
    }
    if wanted.is_there(functions) {
        return Err(Wrong::argument(format!("{} has no such function", wanted.module)));
    }
    if !words.iter().any(|other| other == word) {
        words.push(word.to_owned());
    }
    Ok(())
}

/// Returns the words that wait for their module, newest first.
pub(crate) fn waiting(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().rev().filter(|word| word.contains(MOD))
}

/// Returns the words of loaded modules. If all words wait, the result is a set without functions:
/// no words at all would mean every function.
pub(crate) fn present(words: &[String]) -> Vec<String> {
    let mut present: Vec<String> = words.iter().filter(|word| !word.contains(MOD)).cloned().collect();
    if present.is_empty() && !words.is_empty() {
        present.push("!*".into());
    }
    present
}

/// Replaces the words whose modules are loaded by their functions. True if there were any.
pub(crate) fn resolve(words: &mut Vec<String>, functions: &[Listed]) -> bool {
    let mut any = false;
    let resolved = words.drain(..).flat_map(|word| match OfModule::parse(&word) {
        Some(wanted) if wanted.is_there(functions) => {
            any = true;
            wanted.words(functions, "")
        }
        _ => vec![word],
    });
    let resolved: Vec<String> = resolved.collect();
    *words = resolved;
    any
}
