//! Words that calls are counted by: names of functions and of threads, and values. Each has a number.

use std::collections::HashMap;

/// Words that are kept; the rest is `(others)`.
const WORDS: usize = 1 << 16;
const OTHERS: &str = "(others)";
/// The word in the place of functions that are not known, by its number.
pub const UNKNOWN: &str = "[unknown]";
pub const UNKNOWN_WORD: u32 = 1;

/// Words by number, and numbers by word.
pub struct Numbers {
    /// As they are shown.
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
    /// The number of a word; a new one is shown in this form.
    pub fn of(&mut self, word: String, shown: impl FnOnce(&str) -> String) -> u32 {
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

    /// The word of a number, as it is shown.
    pub fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or(OTHERS, String::as_str)
    }
}
