//! Sets of functions, as users write them: words in order; a word with `!` in front removes
//! functions.

use crate::dotted;
use crate::function::{FunctionNames, Shape};
use crate::word::Word;
use std::collections::{HashMap, HashSet};

/// Words in order: the last one that names a function decides whether the function is in the set.
///
/// A filter may be a list of thousands of names: names are looked up, and only patterns are tried
/// one by one.
#[derive(Clone, Debug, Default)]
pub struct GlobSet {
    words: Vec<(bool, Word)>,
    /// Positions of each word without wildcards, by its whole text.
    whole: HashMap<String, Vec<usize>>,
    /// Positions of each word without wildcards, by its text in its shape.
    short: HashMap<String, Vec<usize>>,
    /// The shapes of the words in `short`.
    shapes: Vec<Shape>,
    /// Positions of each word without wildcards that may be the end of a name of Go or Python, by
    /// its parts, and the numbers of these.
    dotted: HashMap<String, Vec<usize>>,
    dotted_parts: Vec<usize>,
    /// Positions of patterns.
    patterns: Vec<usize>,
}

impl GlobSet {
    /// Makes a set of words. A list that begins with a removal removes from all functions.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a String>) -> GlobSet {
        let word = |word: &String| match word.strip_prefix('!') {
            Some(word) => (false, Word::new(word)),
            None => (true, Word::new(word)),
        };
        let mut words = words.into_iter().map(word).peekable();
        let all = words.peek().is_some_and(|(adds, _)| !adds).then(|| (true, Word::new("*")));
        GlobSet::of(all.into_iter().chain(words))
    }

    fn of(words: impl Iterator<Item = (bool, Word)>) -> GlobSet {
        let mut set = GlobSet { words: words.collect(), ..GlobSet::default() };
        let (mut shapes, mut dotted_parts) = (HashSet::new(), HashSet::new());
        for (place, (_, word)) in set.words.iter().enumerate() {
            // A word with a module or `()` is rare, and may also be a whole name, so that it is
            // tried like a pattern.
            let Some(name) = word.whole.exact().filter(|_| word.is_looked_up()) else {
                set.patterns.push(place);
                continue;
            };
            set.whole.entry(name.to_owned()).or_default().push(place);
            if let Some(ending) = &word.dotted {
                set.dotted.entry(ending.text.clone()).or_default().push(place);
                dotted_parts.insert(ending.parts);
            }
            if let Some((shape, name)) =
                word.short.as_ref().and_then(|(shape, glob)| Some((shape, glob.exact()?)))
            {
                set.short.entry(name.to_owned()).or_default().push(place);
                shapes.insert(*shape);
            }
        }
        set.shapes = shapes.into_iter().collect();
        set.dotted_parts = dotted_parts.into_iter().collect();
        set
    }

    /// Iterates over the positions of words without wildcards that name a function, possibly with
    /// duplicates.
    fn named<'s>(&'s self, function: &'s FunctionNames<'_>) -> impl Iterator<Item = &'s Vec<usize>> {
        let whole =
            function.whole().filter_map(|name| self.whole.get(name)).filter(|_| !self.whole.is_empty());
        let short = self.shapes.iter().flat_map(|shape| function.spelled(*shape));
        let last = |parts: &usize| {
            function.symbols().filter_map(|name| dotted::last(name, *parts)).collect::<Vec<_>>()
        };
        let dotted = self.dotted_parts.iter().flat_map(last);
        whole
            .chain(short.filter_map(|name| self.short.get(&name)))
            .chain(dotted.filter_map(|name| self.dotted.get(&name)))
    }

    /// Whether a function is in the set.
    pub fn has(&self, function: &FunctionNames<'_>) -> bool {
        let named = self.named(function).filter_map(|places| places.last()).max();
        let mut later =
            self.patterns.iter().rev().take_while(|place| named.is_none_or(|named| *place > named));
        let pattern = later.find(|place| self.words[**place].1.matches(function));
        pattern.or(named).is_some_and(|place| self.words[*place].0)
    }

    /// Whether the set would have a function if no word took functions away.
    pub fn would_have(&self, function: &FunctionNames<'_>) -> bool {
        self.adding().any(|word| word.matches(function))
    }

    /// Returns the words that name none of the functions.
    pub fn unmatched<'f, 'n: 'f>(
        &self,
        functions: impl Iterator<Item = &'f FunctionNames<'n>>,
    ) -> Vec<&Word> {
        let mut missing: HashSet<usize> = (0..self.words.len()).collect();
        let mut patterns = self.patterns.clone();
        for function in functions {
            for place in self.named(function).flatten() {
                missing.remove(place);
            }
            patterns.retain(|place| {
                let is_missing = !self.words[*place].1.matches(function);
                if !is_missing {
                    missing.remove(place);
                }
                is_missing
            });
            if missing.is_empty() {
                break;
            }
        }
        self.words().enumerate().filter(|(place, _)| missing.contains(place)).map(|(_, word)| word).collect()
    }

    /// Returns the set of the words for which `keep` is true.
    pub fn only(&self, keep: impl Fn(&Word) -> bool) -> GlobSet {
        GlobSet::of(self.words.iter().filter(|(_, word)| keep(word)).cloned())
    }

    /// Whether the set was made of no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Iterates over all words.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.words.iter().map(|(_, word)| word)
    }

    /// Iterates over the words that add functions.
    pub fn adding(&self) -> impl Iterator<Item = &Word> {
        self.words.iter().filter(|(adds, _)| *adds).map(|(_, word)| word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [&[&str]; 5] =
        [&["malloc", "__libc_malloc"], &["free"], &["parse_line"], &["parse_all"], &["_ZN1a1bEv", "a::b"]];

    /// Checks the first names of the functions in a set, and the words that match none.
    fn check(words: &str, has: &str, unmatched: &str) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let set = GlobSet::new(&words);
        let functions: Vec<FunctionNames<'_>> =
            FUNCTIONS.iter().map(|names| FunctionNames::new(names.iter().copied(), None)).collect();
        let chosen = FUNCTIONS.iter().zip(&functions).filter(|(_, function)| set.has(function));
        let found: Vec<&str> = chosen.map(|(names, _)| names[0]).collect();
        let missing: Vec<&str> = set.unmatched(functions.iter()).iter().map(|word| word.text()).collect();
        assert_eq!((found.join(" "), missing.join(" ")), (has.to_owned(), unmatched.to_owned()), "{words:?}");
    }

    #[test]
    fn last_matching_word_decides() {
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
    fn words_without_match_are_listed_in_order() {
        check("nothing parse_line no* free nothing", "free parse_line", "nothing no* nothing");
        check("", "", "");
    }
}
