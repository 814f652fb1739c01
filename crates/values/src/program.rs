//! The program that reads the values of a function's calls.

use crate::reason::Reason;
use calltap_abi::values::{WORDS, step, word};
use calltap_trace::Captured;
use std::ops::Range;
use std::sync::Arc;

/// The values that are read at a function's calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Words of the program that the hook runs.
    pub words: Vec<u64>,
    /// Indices of words that are addresses of the function's file.
    pub addresses: Vec<usize>,
    /// Meaning of the bytes that the program stores.
    pub captured: Arc<Captured>,
    /// Reasons why some requested values are not read.
    pub left_out: Vec<Reason>,
}

impl Program {
    /// Returns the program that records only the calls that code between two addresses makes, and
    /// runs another program for them.
    pub fn of_caller(code: Range<u64>, program: Option<&Program>) -> Result<Program, Reason> {
        Program::beginning_with(&[word(step::CALLER, 0, 0), code.start, code.end], program)
    }

    /// Returns the program that runs the step of these words at the entry in front of another
    /// program.
    pub fn beginning_with(first: &[u64], program: Option<&Program>) -> Result<Program, Reason> {
        let Some(Program { words, addresses, captured, left_out }) = program else {
            let words = assemble(first.to_vec(), Vec::new())?;
            return Ok(Program {
                words,
                addresses: Vec::new(),
                captured: Arc::default(),
                left_out: Vec::new(),
            });
        };
        let (head, steps) = words.split_first().ok_or(Reason::TooLong)?;
        let behind = (head >> 8) as usize & 0xFF;
        let (entry, exit) = steps.split_at_checked(behind.wrapping_sub(1)).unwrap_or((steps, &[]));
        Ok(Program {
            words: assemble([first, entry].concat(), exit.to_vec())?,
            addresses: addresses.iter().map(|n| n + first.len()).collect(),
            captured: Arc::clone(captured),
            left_out: left_out.clone(),
        })
    }

    /// Returns the words where the function's file is mapped so far from its addresses.
    pub fn words_at(&self, bias: u64) -> Vec<u64> {
        let mut words = self.words.clone();
        for n in &self.addresses {
            if let Some(word) = words.get_mut(*n) {
                *word = word.wrapping_add(bias);
            }
        }
        words
    }
}

/// Returns the words of a program, from its steps at entry and exit.
pub(crate) fn assemble(mut entry: Vec<u64>, mut exit: Vec<u64>) -> Result<Vec<u64>, Reason> {
    let behind = 1 + entry.len();
    let length = behind + exit.len();
    if length > WORDS {
        return Err(Reason::TooLong);
    }
    let at = if exit.is_empty() { 0 } else { behind as u64 };
    let mut words = vec![at << 8 | (length as u64) << 16];
    words.append(&mut entry);
    words.append(&mut exit);
    Ok(words)
}
