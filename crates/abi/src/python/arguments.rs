//! Arguments of Python functions: the rules that choose them, and the values that entries carry.
//!
//! A rule is a line, `GLOB`, a tab, and names of parameters with commas between them; without
//! names, all parameters. The agent applies the rules when it learns of a function. An entry then
//! carries a value for each chosen parameter: a [`kind`], and what follows it.

use super::{Entry, Table, matches};
use core::sync::atomic::{AtomicU8, Ordering::*};

/// Bytes of the rules.
pub const RULES: usize = 1016;
/// Most arguments of a function that are read.
pub const MOST: usize = 7;
/// Bytes of the names of a function's arguments.
pub const NAMES: usize = 104;
/// Most bytes of a text, and of a word.
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
    pub const WORD: u8 = 5;
}

impl Table {
    /// Returns the names of parameters of each rule that matches the function of an entry. Empty
    /// names stand for all.
    pub fn rules_for<'t>(&'t self, entry: &'t Entry) -> impl Iterator<Item = &'t [AtomicU8]> {
        let length = (self.header.rules_length.load(Acquire) as usize).min(RULES);
        let rules = self.header.rules.get(..length).unwrap_or_default();
        rules.split(|byte| byte.load(Relaxed) == b'\n').filter_map(move |rule| {
            let tab = rule.iter().position(|byte| byte.load(Relaxed) == b'\t')?;
            let (glob, names) = rule.split_at_checked(tab)?;
            let at = |at| glob.get(at).map(|byte: &AtomicU8| byte.load(Relaxed));
            entry.with_name(|name| matches(&at, name)).then(|| names.get(1..).unwrap_or_default())
        })
    }

    /// Recorder: sets the rules, for functions that become known later. False if they are too long.
    pub fn set_rules(&self, rules: &[u8]) -> bool {
        let Some(places) = self.header.rules.get(..rules.len()) else { return false };
        self.header.rules_length.store(0, SeqCst);
        places.iter().zip(rules).for_each(|(place, byte)| place.store(*byte, Relaxed));
        self.header.rules_length.store(rules.len() as u64, SeqCst);
        true
    }
}
