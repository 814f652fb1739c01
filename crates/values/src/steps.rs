//! Debugging information of a function, and the steps that all programs consist of.

use crate::words::Form;
use calltap_abi::values::{register, step, word};
use calltap_sites::types::{Signature, Types};
use calltap_trace::ValueForm;
use std::sync::Arc;

/// A function's description in debugging information.
#[derive(Clone, Debug)]
pub struct DescribedFunction {
    /// Types of the file.
    pub types: Arc<Types>,
    /// Signature of the function.
    pub signature: Signature,
    /// Name of the function in the debugging information.
    pub name: Option<String>,
}

/// Bytes of a word: an address, or the longest number.
pub(crate) const WORD: u8 = 8;

/// Returns the step that reads an integer argument, from 0.
pub(crate) fn register(n: u8) -> Vec<u64> {
    vec![word(step::REGISTER, register::ARGUMENTS[usize::from(n) % register::ARGUMENTS.len()], 0)]
}

/// Returns the step that reads an integer argument or result of a Go function, from 0.
pub(crate) fn go_register(n: u8) -> Vec<u64> {
    vec![word(step::REGISTER, register::GO[usize::from(n) % register::GO.len()], 0)]
}

/// Adds the steps that compute a value, and the one that stores it in this form.
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
