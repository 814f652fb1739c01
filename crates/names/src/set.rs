//! Sets of functions, as users write them: globs in order, with `!` in front to take away.

use crate::Glob;
use std::collections::{HashMap, HashSet};

/// Globs in order: the last that matches a function says whether it is in the set.
///
/// A filter may be a list of thousands of names: those are looked up, and only patterns are tried one after the other.
#[derive(Clone, Debug, Default)]
pub struct GlobSet {
    words: Vec<(bool, Glob)>,
    /// Of each word that is no pattern, the last place where it stands.
    names: HashMap<String, usize>,
    /// Where patterns stand.
    patterns: Vec<usize>,
}

impl GlobSet {
    /// Of words. A list that begins by taking away takes from all.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a String>) -> GlobSet {
        let word = |word: &String| match word.strip_prefix('!') {
            Some(word) => (false, Glob::new(word)),
            None => (true, Glob::new(word)),
        };
        let mut words = words.into_iter().map(word).peekable();
        let all = words.peek().is_some_and(|(adds, _)| !adds).then(|| (true, Glob::new("*")));
        GlobSet::of(all.into_iter().chain(words))
    }

    fn of(words: impl Iterator<Item = (bool, Glob)>) -> GlobSet {
        let mut set = GlobSet { words: words.collect(), ..GlobSet::default() };
        for (place, (_, glob)) in set.words.iter().enumerate() {
            match glob.exact() {
                Some(name) => drop(set.names.insert(name.to_owned(), place)),
                None => set.patterns.push(place),
            }
        }
        set
    }

    /// Is a function in it that has these names?
    pub fn has<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> bool {
        let named = names.clone().filter_map(|name| self.names.get(name)).max();
        let mut later =
            self.patterns.iter().rev().take_while(|place| named.is_none_or(|named| *place > named));
        let pattern = later.find(|place| names.clone().any(|name| self.words[**place].1.matches(name)));
        pattern.or(named).is_some_and(|place| self.words[*place].0)
    }

    /// Those of its globs that match no function of these, each of which is given by its names.
    pub fn unmatched<'n, N>(&self, functions: impl Iterator<Item = N>) -> Vec<&Glob>
    where
        N: Iterator<Item = &'n str> + Clone,
    {
        let (mut named, mut patterns) = (HashSet::new(), self.patterns.clone());
        for names in functions {
            named.extend(names.clone().filter_map(|name| Some(self.names.get_key_value(name)?.0.as_str())));
            patterns.retain(|place| !names.clone().any(|name| self.words[*place].1.matches(name)));
            if patterns.is_empty() && named.len() == self.names.len() {
                break;
            }
        }
        let is_unmatched = |(place, glob): &(usize, &Glob)| match glob.exact() {
            Some(name) => !named.contains(name),
            None => patterns.binary_search(place).is_ok(),
        };
        self.globs().enumerate().filter(is_unmatched).map(|(_, glob)| glob).collect()
    }

    /// The set of some of its globs.
    pub fn only(&self, keep: impl Fn(&Glob) -> bool) -> GlobSet {
        GlobSet::of(self.words.iter().filter(|(_, glob)| keep(glob)).cloned())
    }

    /// Nothing was ever put there.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Its globs.
    pub fn globs(&self) -> impl Iterator<Item = &Glob> {
        self.words.iter().map(|(_, glob)| glob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [&[&str]; 5] =
        [&["malloc", "__libc_malloc"], &["free"], &["parse_line"], &["parse_all"], &["_ZN1a1bEv", "a::b"]];

    /// The first names of the functions in a set, and its globs that match none.
    fn check(words: &str, has: &str, unmatched: &str) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let set = GlobSet::new(&words);
        let functions = || FUNCTIONS.iter().map(|names| names.iter().copied());
        let found: Vec<&str> =
            functions().filter(|names| set.has(names.clone())).filter_map(|mut names| names.next()).collect();
        let missing: Vec<&str> = set.unmatched(functions()).iter().map(|glob| glob.pattern()).collect();
        assert_eq!((found.join(" "), missing.join(" ")), (has.to_owned(), unmatched.to_owned()), "{words:?}");
    }

    #[test]
    fn the_last_word_that_matches_says_it() {
        check("free", "free", "");
        check("parse_* !parse_all", "parse_line", "");
        check("!parse_all parse_*", "malloc free parse_line parse_all _ZN1a1bEv", "");
        check("free !fr* free", "free", "");
        check("free !fr*", "", "");
        check("parse_all !parse_all", "", "");
        check("!free", "malloc parse_line parse_all _ZN1a1bEv", "");
    }

    #[test]
    fn any_of_its_names_will_do() {
        check("__libc_malloc a::*", "malloc _ZN1a1bEv", "");
        check("malloc !__libc_malloc", "", "");
        check("__libc_malloc !mal*", "", "");
    }

    #[test]
    fn what_matches_nothing_is_known_in_order() {
        check("nothing parse_line no* free nothing", "free parse_line", "nothing no* nothing");
        check("", "", "");
    }
}
