//! Sets of functions, as users write them: globs in order, with `!` in front to take away.

use crate::Glob;

/// Globs in order: the last that matches a function says whether it is in the set.
#[derive(Clone, Debug)]
pub struct GlobSet(Vec<(bool, Glob)>);

impl GlobSet {
    /// Of words. Who begins by taking away takes from all.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a String>) -> GlobSet {
        let word = |word: &String| match word.strip_prefix('!') {
            Some(word) => (false, Glob::new(word)),
            None => (true, Glob::new(word)),
        };
        let mut words = words.into_iter().map(word).peekable();
        let all = words.peek().is_some_and(|(adds, _)| !adds).then(|| (true, Glob::new("*")));
        GlobSet(all.into_iter().chain(words).collect())
    }

    /// Is a function in it? `matches` tells whether a glob is about the function.
    pub fn has(&self, matches: impl Fn(&Glob) -> bool) -> bool {
        self.0.iter().rev().find(|(_, glob)| matches(glob)).is_some_and(|(adds, _)| *adds)
    }

    /// Nothing was ever put there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its globs.
    pub fn globs(&self) -> impl Iterator<Item = &Glob> {
        self.0.iter().map(|(_, glob)| glob)
    }
}
