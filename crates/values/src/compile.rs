//! Compiles operands to the steps that read them.

use crate::futures::about_future;
use crate::program::{Program, assemble};
use crate::reason::{Reason, Reasons};
use crate::steps::{DescribedFunction, WORD, go_register, register as argument, store};
use crate::words::{Condition, Form, Item, Operand, Rule, Term};
use calltap_abi::values::{SIGNED, TEXT, VALUES, addresses, compare, register, step, word};
use calltap_sites::Poll;
use calltap_sites::types::{Parameter, Passed, Shape, Signature, Type};
use calltap_trace::{Captured, Value, ValueForm};
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes of text that are read unless the user gives a number.
const TEXT_BYTES: u8 = 64;
/// A value computed by the steps so far.
struct Computed {
    steps: Vec<u64>,
    content: Content,
}

enum Content {
    /// A word of unknown type.
    Plain,
    /// A value of a type.
    Of(Type),
    /// The address of a value of a type.
    AddressOf(Type),
    /// The address of a value of unknown type.
    Address,
    /// Two words of a type: the steps compute the first, and these steps the second.
    Pair(Vec<u64>, Type),
}

/// Compiles the program of a function; None if it would read nothing.
pub(crate) fn compile(
    poll: Option<&Poll>,
    arguments: &[&Rule],
    results: &[&Rule],
    conditions: &[&Condition],
    known: Option<&DescribedFunction>,
) -> Result<Option<Program>, Reason> {
    let mut builder = Builder::default();
    for term in conditions.iter().flat_map(|condition| &condition.terms) {
        decide(term, known, &mut builder.entry)?;
    }
    if let Some(poll) = poll {
        about_future(poll, known, &mut builder.captured, &mut builder.entry, &mut builder.exit);
    }
    for rule in arguments {
        builder.add_arguments(rule, known)?;
    }
    for rule in results {
        builder.add_results(rule, known)?;
    }
    builder.finish()
}

/// A program that is being built.
#[derive(Default)]
struct Builder {
    /// Steps at the entry.
    entry: Vec<u64>,
    /// Steps at the exit.
    exit: Vec<u64>,
    captured: Captured,
    /// Items that are read already, with their forms: several rules may name a function.
    arguments: HashSet<(String, Option<Form>)>,
    results: HashSet<(String, Option<Form>)>,
    left_out: Vec<Reason>,
    /// Bytes of the stack that are copied.
    copied: Option<u32>,
}

impl Builder {
    /// Adds the values that a rule of `-A` names, at the entry; without items, all parameters.
    fn add_arguments(&mut self, rule: &Rule, known: Option<&DescribedFunction>) -> Result<(), Reason> {
        let all = rule.items.is_empty();
        if all && known.is_none() {
            return Err(Reason::NoArguments);
        }
        for item in if all { parameters(known) } else { rule.items.clone() } {
            if let Operand::Callers(bytes) = item.operand {
                self.copied = self.copied.max(Some(bytes));
                continue;
            }
            if is_result(&item.operand) {
                return Err(Reason::ResultOnly { name: item.name });
            }
            if !self.arguments.insert((item.name.clone(), item.form)) {
                continue;
            }
            match read(&item, known, &mut self.entry) {
                Ok(form) => self.captured.arguments.push(Value { name: item.name, form }),
                Err(why) if all => self.left_out.push(why),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Adds the values that a rule of `-R` names, at the exit; without items, the result.
    fn add_results(&mut self, rule: &Rule, known: Option<&DescribedFunction>) -> Result<(), Reason> {
        let all = rule.items.is_empty();
        for item in if all { result(known) } else { rule.items.clone() } {
            if !is_result(&item.operand) {
                return Err(Reason::EntryOnly { name: item.name });
            }
            if !self.results.insert((item.name.clone(), item.form)) {
                continue;
            }
            match read(&item, known, &mut self.exit) {
                Ok(form) => self.captured.results.push(Value { name: item.name, form }),
                Err(why) if all => self.left_out.push(why),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Returns the program, if it reads anything.
    fn finish(mut self) -> Result<Option<Program>, Reason> {
        if let Some(bytes) = self.copied {
            // The recorder appends the callers to all other values.
            let callers = Value { name: "callers".to_owned(), form: ValueForm::Callers };
            self.captured.arguments.push(callers);
            self.entry.push(word(step::FRAMES, 0, bytes as i32));
        }
        let Builder { entry, exit, captured, left_out, .. } = self;
        if captured.arguments.len().max(captured.results.len()) > VALUES {
            return Err(Reason::TooMany { most: VALUES });
        }
        if entry.is_empty() && exit.is_empty() {
            return if left_out.is_empty() {
                Ok(None)
            } else {
                Err(Reason::Several { all: Reasons(left_out) })
            };
        }
        let words = assemble(entry, exit)?;
        let addresses = addresses(&words).collect();
        Ok(Some(Program { words, addresses, captured: Arc::new(captured), left_out }))
    }
}

/// Returns items for all parameters.
fn parameters(known: Option<&DescribedFunction>) -> Vec<Item> {
    let parameters = known.map_or(&[][..], |known| &known.signature.parameters);
    let name = |parameter: &Parameter, n: usize| parameter.name.clone().unwrap_or_else(|| format!("arg{n}"));
    let item = |(n, parameter): (usize, &Parameter)| Item {
        name: name(parameter, n),
        operand: Operand::Argument(n as u8),
        form: None,
    };
    (1..).zip(parameters).take(VALUES).map(item).collect()
}

/// Returns an item for the result, unless the function returns nothing.
fn result(known: Option<&DescribedFunction>) -> Vec<Item> {
    if let Some(results) = known.and_then(|known| known.signature.go_results.as_ref()) {
        let item = |n: u8| match n {
            1 => Item { name: "retval".to_owned(), operand: Operand::Result, form: None },
            n => Item { name: format!("retval{n}"), operand: Operand::FurtherResult(n), form: None },
        };
        return (1..).zip(results).take(VALUES).map(|(n, _)| item(n)).collect();
    }
    let nothing = known.is_some_and(|known| known.signature.result.is_none());
    let item = Item { name: "retval".to_owned(), operand: Operand::Result, form: None };
    if nothing { Vec::new() } else { vec![item] }
}

fn is_result(operand: &Operand) -> bool {
    match operand {
        Operand::Result | Operand::VectorResult | Operand::FurtherResult(_) => true,
        Operand::Field(inner, _) | Operand::At(_, inner) => is_result(inner),
        _ => false,
    }
}

fn stack(n: u8) -> Vec<u64> {
    vec![word(step::STACK, n, 0)]
}

fn evaluate(operand: &Operand, known: Option<&DescribedFunction>) -> Result<Computed, Reason> {
    let have = |steps: Vec<u64>, content: Content| Ok(Computed { steps, content });
    let parameter = |n: u8| known?.signature.parameters.get(usize::from(n) - 1);
    let go = known.and_then(|known| known.signature.go_results.as_deref());
    let register = if go.is_some() { go_register } else { argument };
    match operand {
        Operand::Argument(n) => match parameter(*n) {
            Some(found) => passed(found, &format!("arg{n}"), register),
            None if known.is_some_and(|known| !known.signature.takes_more) => {
                Err(Reason::NoParameter { name: format!("arg{n}"), others: names(known) })
            }
            None if *n <= 6 => have(argument(n - 1), Content::Plain),
            None => have(stack(n - 6), Content::Plain),
        },
        Operand::Vector(n) => have(vec![word(step::XMM, n - 1, 0)], Content::Plain),
        Operand::VectorResult => have(vec![word(step::XMM, 0, 0)], Content::Plain),
        Operand::Stack => have(vec![word(step::SLOT, 0, 0)], Content::Plain),
        Operand::Callers(_) => Err(Reason::CallersAreNoNumber),
        Operand::Result if go.is_some() => go_result(go, 1),
        Operand::FurtherResult(n) => go_result(go, *n),
        Operand::Result => {
            let [first, second] = register::RESULTS.map(|register| vec![word(step::REGISTER, register, 0)]);
            match known.map(|known| &known.signature) {
                None => have(first, Content::Plain),
                Some(Signature { result: None, .. }) => Err(Reason::Nothing),
                Some(Signature { result: Some(of), returned, .. }) => match returned {
                    Some(Passed::Integer(_)) => have(first, Content::Of(*of)),
                    Some(Passed::Pair(_)) => have(first, Content::Pair(second, *of)),
                    Some(Passed::Vector(_)) => have(vec![word(step::XMM, 0, 0)], Content::Of(*of)),
                    Some(Passed::Address(_)) => Ok(in_memory(first, 0, *of)),
                    Some(Passed::Unread(why)) => Err(Reason::Result { why: *why }),
                    Some(Passed::Stack(_) | Passed::AddressOnStack(_)) | None => Err(Reason::Returned),
                },
            }
        }
        Operand::Named(name) => {
            let Some(known) = known else {
                return Err(Reason::NoNames { name: name.clone() });
            };
            let found = known.signature.parameters.iter().find(|found| found.name.as_deref() == Some(name));
            let missing = || Reason::NoParameter { name: name.clone(), others: names(Some(known)) };
            passed(found.ok_or_else(missing)?, name, register)
        }
        Operand::Field(inner, name) => field(evaluate(inner, known)?, name, known),
        Operand::At(offset, inner) => {
            let mut inner = value(evaluate(inner, known)?)?;
            inner.steps.push(word(step::ADD, 0, *offset));
            have(inner.steps, Content::Address)
        }
    }
}

/// Lists the names of a function's parameters.
fn names(known: Option<&DescribedFunction>) -> String {
    let parameters = known.map_or(&[][..], |known| &known.signature.parameters);
    listed(&parameters.iter().filter_map(|found| found.name.as_deref()).collect::<Vec<_>>())
}

/// Computes a result of a Go function, from 1.
fn go_result(results: Option<&[Parameter]>, n: u8) -> Result<Computed, Reason> {
    let results = results.ok_or(Reason::Returned)?;
    let Some(found) = results.get(usize::from(n) - 1) else { return Err(Reason::Nothing) };
    match found.passed {
        Passed::Unread(why) => Err(Reason::Result { why }),
        _ => passed(found, "retval", go_register),
    }
}

/// Computes a parameter. `argument`: reads an integer register by its number.
fn passed(parameter: &Parameter, name: &str, argument: fn(u8) -> Vec<u64>) -> Result<Computed, Reason> {
    let of = Content::Of(parameter.of);
    Ok(match parameter.passed {
        Passed::Integer(n) => Computed { steps: argument(n), content: of },
        Passed::Pair(n) => {
            Computed { steps: argument(n), content: Content::Pair(argument(n + 1), parameter.of) }
        }
        Passed::Vector(n) => Computed { steps: vec![word(step::XMM, n, 0)], content: of },
        Passed::Stack(n) => Computed { steps: stack(n), content: of },
        Passed::Address(n) => in_memory(argument(n), 0, parameter.of),
        Passed::AddressOnStack(n) => in_memory(stack(n), 0, parameter.of),
        Passed::Unread(why) => return Err(Reason::Parameter { name: name.to_owned(), why }),
    })
}

fn field(have: Computed, name: &str, known: Option<&DescribedFunction>) -> Result<Computed, Reason> {
    let Computed { steps, content } = have;
    let owned = || name.to_owned();
    let is_value = matches!(content, Content::Of(of) if matches!(of.shape, Shape::Other(_)));
    let (of, known) = match (content, known) {
        (Content::Of(of) | Content::AddressOf(of), Some(known)) => (of, known),
        (_, None) => return Err(Reason::NoOffsets { name: owned() }),
        _ => return Err(Reason::NoWhole { name: owned() }),
    };
    let Some((offset, of)) = known.types.member(of, name) else {
        let members = known.types.members(of);
        return Err(match members.iter().any(|member| member == name) {
            true => Reason::BitField { name: owned() },
            false => Reason::NoMember { name: owned(), members: listed(&members) },
        });
    };
    let offset = i32::try_from(offset).map_err(|_| Reason::FarMember { name: owned() })?;
    if is_value {
        return in_word(steps, offset, of).ok_or_else(|| Reason::NoWhole { name: owned() });
    }
    Ok(in_memory(steps, offset, of))
}

/// Computes a value of a type that lies at an offset, in bytes, in the computed word: a member of a
/// structure that is in a register. None if the word does not have it.
fn in_word(mut steps: Vec<u64>, offset: i32, of: Type) -> Option<Computed> {
    let size = i32::try_from(of.shape.size()).ok()?;
    let whole = if matches!(size, 1 | 2 | 4) { size as u8 } else { WORD };
    let width = width(of.shape).unwrap_or(whole);
    if offset.checked_add(size).is_none_or(|end| end > WORD.into()) {
        return None;
    }
    steps.push(word(step::NARROW, width, 8 * offset));
    Some(Computed { steps, content: Content::Of(of) })
}

/// Computes a value of a type that lies at an offset from the computed address: loads it if it can
/// be loaded as a whole.
fn in_memory(mut steps: Vec<u64>, offset: i32, of: Type) -> Computed {
    let content = match width(of.shape) {
        Some(width) => {
            steps.push(word(step::LOAD, width, offset));
            Content::Of(of)
        }
        None => {
            if offset != 0 {
                steps.push(word(step::ADD, 0, offset));
            }
            Content::AddressOf(of)
        }
    };
    Computed { steps, content }
}

/// Width in which a value of this shape is loaded from memory; None if it is not loaded as a whole.
fn width(shape: Shape) -> Option<u8> {
    Some(match shape {
        Shape::Signed(bytes) => bytes | SIGNED,
        Shape::Unsigned(bytes) | Shape::Float(bytes) => bytes,
        Shape::Char { signed: true } => 1 | SIGNED,
        Shape::Bool | Shape::Char { signed: false } => 1,
        Shape::Pointer | Shape::Text | Shape::String => WORD,
        Shape::Slice | Shape::View | Shape::Interface { .. } | Shape::Other(_) => return None,
    })
}

/// Loads the value if only its address is known.
fn value(mut have: Computed) -> Result<Computed, Reason> {
    if let Content::Address = have.content {
        have.steps.push(word(step::LOAD, WORD, 0));
        have.content = Content::Plain;
    }
    Ok(have)
}

fn decide(term: &Term, known: Option<&DescribedFunction>, steps: &mut Vec<u64>) -> Result<(), Reason> {
    if is_result(&term.item.operand) {
        return Err(Reason::ResultInCondition { name: term.item.name.clone() });
    }
    let have = value(evaluate(&term.item.operand, known)?)?;
    let shape = match have.content {
        Content::Of(of) => Some(of.shape),
        _ => None,
    };
    steps.extend(have.steps);
    let (width, signed) = match (term.item.form, shape) {
        // `c == 200` is about the byte, although it is a signed number.
        (None | Some(Form::Char), Some(Shape::Char { signed: true }))
            if matches!(term.how, compare::EQUAL | compare::UNEQUAL) && (128..=255).contains(&term.with) =>
        {
            (Some(1), false)
        }
        (Some(Form::Signed(bytes)), _) => (Some(bytes | SIGNED), true),
        (Some(Form::Unsigned(bytes) | Form::Hex(bytes)), _) => (Some(bytes), false),
        (Some(Form::Char), Some(Shape::Char { signed: true })) => (Some(1 | SIGNED), true),
        (Some(Form::Char | Form::Bool), _) => (Some(1), false),
        (Some(_), _) => (None, false),
        (None, Some(Shape::Float(_))) => {
            return Err(Reason::Float { name: term.item.name.clone() });
        }
        (None, Some(shape)) => {
            (width(shape), matches!(shape, Shape::Signed(_) | Shape::Char { signed: true }))
        }
        (None, None) => (None, true),
    };
    steps.extend(width.map(|width| word(step::NARROW, width, 0)));
    if let Some(mask) = term.mask {
        steps.extend([word(step::AND, 0, 0), mask]);
    }
    steps.extend([word(step::IF, term.how | if signed { compare::SIGNED } else { 0 }, 0), term.with]);
    Ok(())
}

/// Adds the steps that read and store a value. Returns its form.
fn read(item: &Item, known: Option<&DescribedFunction>, steps: &mut Vec<u64>) -> Result<ValueForm, Reason> {
    let have = evaluate(&item.operand, known)?;
    // The steps of a text may end with its address, or with the address of a pointer to it.
    let is_text = matches!(item.form, Some(Form::Text(_)));
    let Computed { steps: mut made, content } =
        if is_text && matches!(have.content, Content::Address) { have } else { value(have)? };
    let shape = match (&content, item.form) {
        (_, Some(form)) => return Ok(store(form, made, steps)),
        (Content::Of(of) | Content::AddressOf(of) | Content::Pair(_, of), None) => of.shape,
        (Content::Plain | Content::Address, None) => Shape::Signed(WORD),
    };
    let slice = |steps: &mut Vec<u64>, length: Vec<u64>, start: Vec<u64>| {
        steps.extend(length);
        steps.push(word(step::KEEP, 0, 0));
        steps.extend(start);
        steps.push(word(step::SLICE, TEXT_BYTES.min(TEXT), 0));
        ValueForm::Text
    };
    let base = made.clone();
    let at = |offset: i32| {
        let mut steps = base.clone();
        steps.push(word(step::LOAD, WORD, offset));
        steps
    };
    let form = match shape {
        Shape::Signed(bytes) => Form::Signed(bytes),
        Shape::Unsigned(bytes) => Form::Unsigned(bytes),
        Shape::Float(bytes) => Form::Float(bytes),
        Shape::Bool => Form::Bool,
        Shape::Char { .. } => Form::Char,
        Shape::Text => Form::Text(TEXT_BYTES),
        Shape::Pointer => Form::Pointer,
        Shape::Slice => {
            return Ok(match content {
                Content::Pair(second, _) => slice(steps, second, made),
                _ => slice(steps, at(i32::from(WORD)), at(0)),
            });
        }
        Shape::View => {
            return Ok(match content {
                Content::Pair(second, _) => slice(steps, made, second),
                _ => slice(steps, at(0), at(i32::from(WORD))),
            });
        }
        Shape::Interface { has_methods, types } => {
            if let Content::Pair(value, _) = content {
                steps.extend(value);
            }
            steps.push(word(step::KEEP, 0, 0));
            steps.extend(made);
            steps.extend([word(step::INTERFACE, has_methods.into(), 0), types.0]);
            return Ok(ValueForm::Object);
        }
        Shape::String => return Ok(slice(steps, at(i32::from(WORD)), at(0))),
        Shape::Other(_) if is_string(&content, known) => {
            return Ok(slice(steps, at(i32::from(WORD)), at(0)));
        }
        Shape::Other(_) if matches!(content, Content::AddressOf(_)) => Form::Pointer,
        Shape::Other(size @ (1 | 2 | 4)) => Form::Hex(size as u8),
        Shape::Other(size) => {
            // The rest of the register is undefined.
            if size < WORD.into() {
                made.extend([word(step::AND, 0, 0), (1 << (8 * size)) - 1]);
            }
            Form::Hex(WORD)
        }
    };
    Ok(store(form, made, steps))
}

/// Whether the computed address is that of a C++ string.
fn is_string(content: &Content, known: Option<&DescribedFunction>) -> bool {
    let Content::AddressOf(of) = content else { return false };
    known.is_some_and(|known| known.types.is_string(*of))
}

/// Lists names, for a message.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
