//! What is known of a function, and the steps that all programs are made of.

use crate::words::Form;
use calltap_abi::values::{register, step, word};
use calltap_sites::types::{Signature, Types};
use calltap_trace::ValueForm;
use std::sync::Arc;

/// What is known of a function by debugging information.
#[derive(Clone, Debug)]
pub struct Known {
    /// The file's.
    pub types: Arc<Types>,
    /// The function's.
    pub signature: Signature,
    /// Its name there.
    pub name: Option<String>,
}

/// Bytes of the longest address that is still a number.
pub(crate) const WORD: u8 = 8;

/// Reads an argument, by its number.
pub(crate) fn register(n: u8) -> Vec<u64> {
    vec![word(step::REGISTER, register::ARGUMENTS[usize::from(n) % register::ARGUMENTS.len()], 0)]
}

/// Has what the steps have made stored in this form.
pub(crate) fn store(form: Form, made: Vec<u64>, steps: &mut Vec<u64>) -> ValueForm {
    steps.extend(made);
    let (last, form) = match form {
        Form::Signed(bytes) => (word(step::STORE, bytes, 0), ValueForm::Signed(bytes)),
        Form::Unsigned(bytes) => (word(step::STORE, bytes, 0), ValueForm::Unsigned(bytes)),
        Form::Hex(bytes) => (word(step::STORE, bytes, 0), ValueForm::Hex(bytes)),
        Form::Float(bytes) => (word(step::STORE, bytes, 0), ValueForm::Float(bytes)),
        Form::Char => (word(step::STORE, 1, 0), ValueForm::Char),
        Form::Bool => (word(step::STORE, 1, 0), ValueForm::Bool),
        Form::Pointer => (word(step::STORE, WORD, 0), ValueForm::Pointer),
        Form::Text(most) => (word(step::TEXT, most, 0), ValueForm::Text),
    };
    steps.push(last);
    form
}
