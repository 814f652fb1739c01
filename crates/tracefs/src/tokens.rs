//! Files that take words: filters and graph functions. A writer works on a copy that takes the place of the set when the file is closed.

use crate::control::{Which, add, matches};
use crate::errors::Wrong;
use crate::trigger::Triggers;
use calltap_names::{Glob, Word};
use calltap_selection::Listed;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Longest word.
const WORD: usize = 516;
const TOO_LONG: &str = "too long a word";

/// What words are added to.
#[derive(Clone, Debug)]
pub enum Set {
    /// Globs.
    Words(Which, Vec<String>),
    /// Functions (0: `set_graph_function`, 1: `set_graph_notrace`).
    Functions(usize, BTreeSet<String>),
    /// Globs of `stack_trace_filter`.
    Stack(Vec<String>),
}

/// The copy of a writer.
#[derive(Debug)]
pub struct PendingFilter {
    /// Of this set.
    pub set: Set,
    /// A word that may go on.
    partial: String,
    /// It differs from what was last taken over.
    changed: bool,
    /// A word was taken,
    good: bool,
    /// or refused.
    failed: bool,
    /// The last that was, until it is read.
    wrong: Option<(String, Wrong)>,
}

impl PendingFilter {
    /// A copy, empty if the file was truncated.
    pub fn new(mut set: Set, truncated: bool) -> PendingFilter {
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
            good: false,
            failed: false,
            wrong: None,
        }
    }

    /// Takes one word at most, as the kernel does: how many bytes that took, and whether a trigger was changed.
    pub fn write(
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
            // An empty line alone is a change, too: to nothing.
            return Ok((text.len(), false));
        };
        let word = std::mem::take(&mut self.partial) + &word[..end];
        let blank = text[start + end..].chars().next().map_or(0, char::len_utf8);
        let triggered = self.add(&word, functions, triggers)?;
        Ok((start + end + blank, triggered))
    }

    /// The file is closed: what is left is a word. No write is left to return its error.
    pub fn finish(&mut self, functions: &[Listed], triggers: &mut Triggers) -> bool {
        let word = std::mem::take(&mut self.partial);
        !word.is_empty() && self.add(&word, functions, triggers).unwrap_or(false)
    }

    fn add(&mut self, word: &str, functions: &[Listed], triggers: &mut Triggers) -> Result<bool, Errno> {
        let triggered = self.try_add(word, functions, triggers).map_err(|wrong| self.refuse(word, wrong))?;
        if !triggered {
            (self.changed, self.good) = (true, true);
        }
        Ok(triggered)
    }

    /// What was there stays, unless something good was written, too: a wrong name must not have everything traced.
    fn refuse(&mut self, word: &str, wrong: Wrong) -> Errno {
        self.failed = true;
        let errno = wrong.errno;
        self.wrong = Some((word.chars().take(WORD).collect(), wrong));
        errno
    }

    /// What was wrong last, if that was not read yet: the word, and why.
    pub fn take_wrong(&mut self) -> Option<(String, Wrong)> {
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

    /// What is to be taken over now, if anything is.
    pub fn take(&mut self) -> Option<Set> {
        let due = self.changed && (self.good || !self.failed);
        due.then(|| {
            self.changed = false;
            self.set.clone()
        })
    }
}

/// A word of `set_graph_function`: functions, or with `!` to take them away.
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

/// Separates a function from its module.
const MOD: &str = ":mod:";

/// A word about functions of a module.
struct OfModule<'a> {
    pattern: Glob,
    module: &'a str,
    /// Of all others.
    not: bool,
}

impl<'a> OfModule<'a> {
    fn parse(word: &'a str) -> Option<OfModule<'a>> {
        let (pattern, module) = word.split_once(MOD)?;
        let (not, module) = module.strip_prefix('!').map_or((false, module), |module| (true, module));
        Some(OfModule { pattern: Glob::new(if pattern.is_empty() { "*" } else { pattern }), module, not })
    }

    /// Is the module loaded?
    fn is_there(&self, functions: &[Listed]) -> bool {
        let module = Glob::new(self.module);
        functions.iter().any(|function| is_of(&module, function))
    }

    /// The functions as words that mean them alone.
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

/// Is a function of a library whose file name, with or without `.so` and what follows, matches?
fn is_of(module: &Glob, function: &Listed) -> bool {
    let short = function.module.split(".so").next().unwrap_or_default();
    function.library && (module.matches(&function.module) || module.matches(short))
}

/// `FUNCTION:mod:LIBRARY`: functions of a shared object, or (`!LIBRARY`) of all others. `!` in front takes them away. What is not loaded is waited for.
fn add_module(words: &mut Vec<String>, word: &str, functions: &[Listed]) -> Result<(), Wrong> {
    let (takes, word) = word.strip_prefix('!').map_or((false, word), |word| (true, word));
    let wanted = OfModule::parse(word).ok_or_else(|| Wrong::argument("which library?").at(word.len()))?;
    let at = word.len() - wanted.module.len() + usize::from(takes);
    let found = wanted.words(functions, if takes { "!" } else { "" });
    if !found.is_empty() {
        words.extend(found);
        return Ok(());
    }
    let before = words.len();
    if takes {
        // `!*:mod:x` takes away all that wait for x.
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

/// The words that wait for their module, the newest first.
pub fn waiting(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().rev().filter(|word| word.contains(MOD))
}

/// The words that name functions by now. Where all wait for their modules that is nothing, which is not the same as no words.
pub fn present(words: &[String]) -> Vec<String> {
    let mut present: Vec<String> = words.iter().filter(|word| !word.contains(MOD)).cloned().collect();
    if present.is_empty() && !words.is_empty() {
        present.push("!*".into());
    }
    present
}

/// Modules were loaded: words that waited for them become those of their functions. True if any did.
pub fn resolve(words: &mut Vec<String>, functions: &[Listed]) -> bool {
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
