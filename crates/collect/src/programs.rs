//! The programs that read values of calls, by number: they lie in the control file, are written
//! once, and stay.

use crate::metadata::Metadata;
use crate::shm::Shared;
use calltap_trace::Record;
use std::collections::HashMap;

/// The programs that have a number.
#[derive(Debug, Default)]
pub struct Programs {
    /// Numbers of programs by their words; `None` until the control file was read.
    numbers: Option<HashMap<Box<[u64]>, u16>>,
    /// Whether the lack of room was noted.
    full: bool,
}

impl Programs {
    /// Returns the number of a program, adding it if it is new; 0 if there is no room.
    pub fn number(&mut self, shared: &Shared, words: &[u64], records: &mut Vec<Metadata>) -> u16 {
        // An earlier controller may have added programs.
        let numbers = self.numbers.get_or_insert_with(|| shared.programs().zip(1..).collect());
        if let Some(number) = numbers.get(words) {
            return *number;
        }
        if let Some(number) = shared.add_program(words) {
            numbers.insert(words.into(), number);
            return number;
        }
        if !std::mem::replace(&mut self.full, true) {
            let text =
                "there is no room for more combinations of values: of the other functions none are read";
            records.push(Record::Note { text: text.to_owned() }.into());
        }
        0
    }
}
