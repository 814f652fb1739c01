//! Arguments of Python functions: the rules that choose them, and the values that entries carry.
//!
//! A rule is a line, `GLOB`, a tab, and names of parameters with commas between them; without
//! names, all parameters. The agent applies the rules when it learns of a function. An entry then
//! carries a value for each chosen parameter: a [`kind`], and what follows it.

use super::{Entry, Table, is_named, state};
use core::sync::atomic::{AtomicU8, Ordering::*};

/// Bytes of the rules.
pub const RULES: usize = 1016;
/// Maximum number of arguments of a function that are read.
pub const MAX_ARGUMENTS: usize = 7;
/// Bytes of the names of a function's arguments.
pub const NAMES: usize = 104;
/// Maximum number of bytes of a text, and of a word.
pub const TEXT: usize = 64;

/// Kinds of values, the first byte of each.
pub mod kind {
    /// `False`.
    pub const FALSE: u8 = 0;
    /// `True`.
    pub const TRUE: u8 = 1;
    /// An integer: 8 bytes, signed.
    pub const INTEGER: u8 = 2;
    /// A floating-point number: 8 bytes.
    pub const FLOAT: u8 = 3;
    /// A text: a byte with its length, whose top bit tells that it was cut off, and as many bytes.
    pub const TEXT: u8 = 4;
    /// A word that stands for the value, in the form of a text: `None`, or the type in angle
    /// brackets.
    pub const WORD: u8 = crate::values::WORD_KIND;
}

/// Returns the names of parameters of each of these rules that matches the function of an entry.
/// Empty names stand for all.
fn matching<'r>(rules: &'r [AtomicU8], entry: &Entry) -> impl Iterator<Item = &'r [AtomicU8]> {
    rules.split(|byte| byte.load(Relaxed) == b'\n').filter_map(move |rule| {
        let tab = rule.iter().position(|byte| byte.load(Relaxed) == b'\t')?;
        let (glob, names) = rule.split_at_checked(tab)?;
        let at = |at| glob.get(at).map(|byte: &AtomicU8| byte.load(Relaxed));
        entry.with_name(|name| is_named(&at, name)).then(|| names.get(1..).unwrap_or_default())
    })
}

impl Table {
    fn rules(&self) -> &[AtomicU8] {
        let length = (self.header.rules_length.load(Acquire) as usize).min(RULES);
        self.header.rules.get(..length).unwrap_or_default()
    }

    /// Returns the names of parameters of each rule that matches the function of an entry. Empty
    /// names stand for all.
    pub fn rules_for(&self, entry: &Entry) -> impl Iterator<Item = &[AtomicU8]> {
        matching(self.rules(), entry)
    }

    /// Whether the arguments of an entry may be chosen by other rules than the present ones.
    /// `version`: that of the rules before they were chosen.
    pub fn has_other_rules(&self, version: u32) -> bool {
        !version.is_multiple_of(2) || self.header.rules_version.load(SeqCst) != version
    }

    /// Recorder: sets the rules. Known functions that they concern become unknown, so that their
    /// next call has the arguments. False if the rules are too long.
    pub fn set_rules(&self, rules: &[u8]) -> bool {
        let header = &self.header;
        let Some(places) = header.rules.get(..rules.len()) else { return false };
        let before: [AtomicU8; RULES] =
            core::array::from_fn(|n| AtomicU8::new(header.rules.get(n).map_or(0, |byte| byte.load(Relaxed))));
        let before = before.get(..self.rules().len()).unwrap_or_default();
        // Odd already if a recorder was killed here.
        let writing = header.rules_version.load(SeqCst) | 1;
        header.rules_version.store(writing, SeqCst);
        header.rules_length.store(0, SeqCst);
        places.iter().zip(rules).for_each(|(place, byte)| place.store(*byte, Relaxed));
        header.rules_length.store(rules.len() as u32, SeqCst);
        header.rules_version.store(writing.wrapping_add(1), SeqCst);
        for entry in self.taken().iter().filter(|entry| entry.state.load(SeqCst) != state::FILLING) {
            let (mut old, mut new) = (matching(before, entry), matching(self.rules(), entry));
            let is_same = loop {
                match (old.next(), new.next()) {
                    (None, None) => break true,
                    (Some(one), Some(other)) if is_equal(one, other) => {}
                    _ => break false,
                }
            };
            if !is_same {
                entry.retire();
            }
        }
        true
    }
}

fn is_equal(one: &[AtomicU8], other: &[AtomicU8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| one.load(Relaxed) == other.load(Relaxed))
}
