//! Numbers for the words that calls are grouped by: names of functions and threads, and values.

pub(super) use crate::names::UNKNOWN;
use std::collections::HashMap;

/// Maximum number of words; further ones are all `(others)`.
const WORDS: usize = 1 << 16;
const OTHERS: &str = "(others)";
/// Number of the word [`UNKNOWN`].
pub(super) const UNKNOWN_WORD: u32 = 1;

/// Words by number, and numbers by word.
pub(super) struct Numbers {
    /// Display forms, by number.
    words: Vec<String>,
    by_word: HashMap<String, u32>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            words: vec![OTHERS.to_owned(), UNKNOWN.to_owned()],
            by_word: HashMap::from([(UNKNOWN.to_owned(), UNKNOWN_WORD)]),
        }
    }
}

impl Numbers {
    /// Returns the number of `word`; `shown` makes the display form of a new one.
    pub(super) fn of(&mut self, word: String, shown: impl FnOnce(&str) -> String) -> u32 {
        if let Some(number) = self.by_word.get(&word) {
            return *number;
        }
        if self.words.len() >= WORDS {
            return 0;
        }
        let number = self.words.len() as u32;
        self.words.push(shown(&word));
        self.by_word.insert(word, number);
        number
    }

    /// Returns the display form of the word that has this number.
    pub(super) fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or(OTHERS, String::as_str)
    }
}
