//! A word by which a user names functions. docs/reference/names.md has the rule for users.

use crate::dotted;
use crate::function::{FunctionNames, Shape};
use crate::glob::Glob;
use crate::module::ModuleNames;

/// Template arguments that a table has left out.
const FOLDED: &str = "<..>";
/// Separates a function from its module, as in ftrace.
const MOD: &str = ":mod:";

/// A compiled word for functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The user's text.
    text: String,
    /// Whether it removes functions from a list ([`selects`]).
    excludes: bool,
    /// The whole text as a pattern, as names with a single colon exist.
    raw: Option<Glob>,
    module: Option<Module>,
    /// Pattern for whole names.
    pub(crate) whole: Glob,
    /// Pattern for names reduced to the shape of the word.
    pub(crate) short: Option<(Shape, Glob)>,
    /// The word as the end of names of Go and Python.
    pub(crate) dotted: Option<dotted::LastParts>,
    /// The word without an ending that the names of some functions do not have.
    bare: Option<(Ending, Box<Word>)>,
    /// The word with the types that its aliases stand for.
    spelled_out: Option<Box<Word>>,
    /// Of `<T as Trait>::function`, `T::function` and `Trait::function`: both name it.
    qualified: Option<Box<[Word; 2]>>,
}

/// Splits the name of a trait's function into its names by the type and by the trait.
fn qualified(pattern: &str) -> Option<Box<[Word; 2]>> {
    let [of, of_trait, own] = crate::fit::implementation(pattern)?;
    let (of_trait, own) = (of_trait.strip_prefix(" as ")?, own.strip_prefix('>')?);
    Some(Box::new([of, of_trait].map(|path| Word::new(&format!("{path}{own}")))))
}

/// Types by the names that sources have, and as demangled names have them.
const ALIASES: [(&str, &str); 2] = [
    ("std::string", "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"),
    ("std::string_view", "std::basic_string_view<char, std::char_traits<char> >"),
];

/// Replaces aliases of types in argument lists and template arguments. None if there are none.
fn spell_out(pattern: &str) -> Option<String> {
    let inside = pattern.find(['(', '<'])?;
    let (mut text, mut rest) = (pattern[..inside].to_owned(), &pattern[inside..]);
    let mut is_changed = false;
    while !rest.is_empty() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let found = ALIASES.iter().find(|(alias, _)| {
            rest.strip_prefix(alias)
                .is_some_and(|behind| !text.ends_with(is_part) && !behind.starts_with(is_part))
        });
        let length = match found {
            Some((alias, whole)) => {
                text.push_str(whole);
                is_changed = true;
                alias.len()
            }
            None => {
                let first = rest.chars().next().unwrap_or_default();
                text.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    is_changed.then_some(text)
}

/// Whether a list of words selects a function: the last word that names it decides. A list that
/// begins with an exclusion excludes from all functions. `is`: whether a word names the function.
pub fn selects(words: &[Word], is: impl Fn(&Word) -> bool) -> bool {
    let last = words.iter().rev().find(|word| is(word));
    last.map_or(words.first().is_some_and(|word| word.excludes), |word| !word.excludes)
}

/// The ending of a word, and of which functions the rest is a name.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ending {
    /// `()`: those without argument lists, as of C, Rust and Go.
    Empty,
    /// Rust's hash, `::h0123456789abcdef`: those with it in their symbols. It is the part of a
    /// symbol.
    Hash(String),
}

impl Ending {
    /// Splits a word at its ending.
    fn split(text: &str) -> Option<(Ending, &str)> {
        if let Some(name) = text.strip_suffix("()") {
            return Some((Ending::Empty, name)).filter(|_| !name.is_empty() && !name.ends_with("operator"));
        }
        let (name, hash) = text.rsplit_once("::h")?;
        let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hash && !name.is_empty()).then(|| (Ending::Hash(format!("17h{hash}E")), name))
    }

    fn is_of(&self, function: &FunctionNames<'_>) -> bool {
        match self {
            Ending::Empty => !function.has_arguments(),
            Ending::Hash(hash) => function.whole().any(|name| name.contains(hash.as_str())),
        }
    }
}

/// The files that a word selects.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Module {
    glob: Glob,
    /// Whether it selects all other files.
    not: bool,
}

/// Whether a pattern names everything. A `?` selects names by their length.
fn is_for_all(pattern: &str) -> bool {
    pattern.bytes().all(|byte| byte == b'*')
}

impl Word {
    /// Compiles a word. Any text is one.
    pub fn new(text: &str) -> Word {
        if let Some(name) = text.strip_prefix('=') {
            return Word {
                text: text.to_owned(),
                excludes: false,
                raw: None,
                module: None,
                whole: Glob::new(name),
                short: None,
                dotted: None,
                bare: None,
                spelled_out: None,
                qualified: None,
            };
        }
        // Tables fold template arguments to `<..>`: these may be any.
        let unfolded = text.replace(FOLDED, "");
        let (module, pattern) = split(&unfolded);
        let raw = module.is_some().then(|| Glob::new(text));
        // A pattern for all names needs no shape.
        let short = Shape::of(pattern)
            .filter(|_| !is_for_all(pattern))
            .map(|(shape, text)| (shape, Glob::new(&text)));
        let bare = Ending::split(text).map(|(ending, name)| (ending, Box::new(Word::new(name))));
        let (whole, dotted) = (Glob::new(pattern), dotted::LastParts::of(pattern));
        let spelled_out = spell_out(&unfolded).map(|text| Box::new(Word::new(&text)));
        let qualified = qualified(pattern);
        let (text, excludes) = (text.to_owned(), false);
        Word { text, excludes, raw, module, whole, short, dotted, bare, spelled_out, qualified }
    }

    /// Compiles a word of a list, in which `!` in front excludes functions.
    pub fn listed(text: &str) -> Word {
        match text.strip_prefix('!') {
            Some(rest) => Word { text: text.to_owned(), excludes: true, ..Word::new(rest) },
            None => Word::new(text),
        }
    }

    /// Whether the word removes functions from a list.
    pub fn excludes(&self) -> bool {
        self.excludes
    }

    /// Returns the word for the function with exactly this linker symbol.
    pub fn exactly(symbol: &str) -> String {
        format!("={}", Glob::escape(symbol))
    }

    /// Returns the word for a pattern with ftrace's own rules: whole names only.
    pub fn whole(pattern: &str) -> String {
        format!("={pattern}")
    }

    /// Returns the user's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the word is compared with whole names only, as in ftrace's own rules.
    pub fn is_whole(&self) -> bool {
        self.text.starts_with('=')
    }

    /// Whether the word has no wildcards.
    pub fn is_exact(&self) -> bool {
        self.whole.exact().is_some()
    }

    /// Whether names are looked up in tables instead of being compared with the word.
    pub(crate) fn is_looked_up(&self) -> bool {
        self.is_exact()
            && self.module.is_none()
            && self.bare.is_none()
            && self.spelled_out.is_none()
            && self.qualified.is_none()
    }

    /// Whether the word names a module.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// Whether the word names all functions of all modules.
    pub fn is_for_all(&self) -> bool {
        self.module.is_none() && is_for_all(self.whole.pattern())
    }

    /// Whether the word names a function.
    pub fn matches(&self, function: &FunctionNames<'_>) -> bool {
        if self.raw.as_ref().is_some_and(|raw| function.whole().any(|name| raw.matches(name))) {
            return true;
        }
        if self.bare.as_ref().is_some_and(|(ending, bare)| ending.is_of(function) && bare.matches(function)) {
            return true;
        }
        if self.spelled_out.as_ref().is_some_and(|word| word.matches(function)) {
            return true;
        }
        self.is_in(function)
            && (function.whole().any(|name| self.whole.matches(name))
                || self
                    .dotted
                    .as_ref()
                    .is_some_and(|dotted| function.symbols().any(|name| dotted.is_of(name)))
                || self.qualified.as_ref().is_some_and(|both| both.iter().all(|word| word.matches(function)))
                || self.short.as_ref().is_some_and(|(shape, glob)| {
                    function.spelled(*shape).any(|name| glob.matches(&name))
                        || !self.is_exact() && function.spelled_longer(*shape).any(|name| glob.matches(&name))
                }))
    }

    /// Whether a function is in a module that the word selects.
    pub(crate) fn is_in(&self, function: &FunctionNames<'_>) -> bool {
        self.may_be_in(function.module())
    }

    /// Whether the word may name functions of a module.
    pub fn may_be_in(&self, module: Option<ModuleNames<'_>>) -> bool {
        let Some(Module { glob, not }) = &self.module else { return true };
        module.is_some_and(|names| names.spelled().any(|name| glob.matches(name)) != *not)
    }

    /// Whether the word may name a function with this linker symbol. False only if demangling can
    /// be spared: identifiers occur in symbols unchanged, but for those that C++ abbreviates.
    pub fn may_name(&self, symbol: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let pattern = self.whole.pattern();
        // Text in brackets may be a class, or arguments that a symbol abbreviates.
        let open = pattern.find(['[', '(', '<', '\\', '{']).unwrap_or(pattern.len());
        let longest =
            pattern[..open].split(|c| !is_plain(c)).max_by_key(|part| part.len()).unwrap_or_default();
        let is_abbreviated = || ABBREVIATED.iter().any(|name| name.contains(longest));
        symbol.contains(longest) || !symbol.is_ascii() || symbol.starts_with("_Z") && is_abbreviated()
    }

    /// Returns the pattern of names, without the module.
    pub fn pattern(&self) -> &str {
        self.whole.pattern()
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        Word::new(text)
    }
}

/// Identifiers and keywords that symbols of C++ abbreviate: `St`, `Sa`, `Ss`, `nw`.
const ABBREVIATED: [&str; 9] =
    ["std", "allocator", "basic_string", "istream", "ostream", "iostream", "operator", "new", "delete"];

/// Splits a word into its module and its pattern of names: `MODULE:PATTERN`, or
/// `PATTERN:mod:MODULE` as in ftrace.
fn split(word: &str) -> (Option<Module>, &str) {
    let or_all = |pattern| if str::is_empty(pattern) { "*" } else { pattern };
    if let Some((pattern, module)) = word.split_once(MOD).filter(|(_, module)| !module.is_empty()) {
        let (not, module) = module.strip_prefix('!').map_or((false, module), |module| (true, module));
        return (Some(Module { glob: Glob::new(module), not }), or_all(pattern));
    }
    let bytes = word.as_bytes();
    let is_single = |at: &usize| {
        bytes[*at] == b':' && bytes.get(at + 1) != Some(&b':') && (*at == 0 || bytes[at - 1] != b':')
    };
    let colon = (0..bytes.len()).find(is_single).filter(|at| *at > 0);
    match colon {
        // A colon in brackets is part of a name, `f[abi:cxx11]`, or of a class.
        Some(at) if !word[..at].contains(['[', '(', '<', '{']) => {
            // A file may be named by its path.
            let file = word[..at].rsplit('/').next().unwrap_or_default();
            (Some(Module { glob: Glob::new(file), not: false }), or_all(&word[at + 1..]))
        }
        _ => (None, word),
    }
}

/// Splits a list at commas. A comma inside of brackets, or in the name of an operator, does not
/// separate: `max<int, int>`, `f(int, int)`.
pub fn split_list(list: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), list);
    while let Some(at) = crate::path::at_top(rest, ",") {
        words.push(rest[..at].trim().to_owned());
        rest = &rest[at + 1..];
    }
    words.push(rest.trim().to_owned());
    // An empty list is an empty word, which clears the setting.
    if words.iter().any(|word| !word.is_empty()) {
        words.retain(|word| !word.is_empty());
    } else {
        words.truncate(1);
    }
    words
}
