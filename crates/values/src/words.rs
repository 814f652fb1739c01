//! The language of rules and conditions: `GLOB@ITEM,...`.
//!
//! ```text
//! rule      = GLOB [ "@" item { "," item } ]
//! item      = operand [ "/" form ] | "$callers" [ "/" BYTES ]
//! operand   = "argN" | "fpargN" | "retval" | "fpretval" | "$stack" | parameter | operand "->" field | operand "." field
//!           | ("+" | "-") NUMBER "(" operand ")"                     memory at that address, as the kernel's probes write it
//! form      = ("d" | "u" | "x" | "f") [ bits ] | "s" [ bytes ] | "c" | "b" | "p"
//! condition = [ GLOB "@" ] term { "&&" term }
//! term      = operand [ "/" form ] [ "&" number ] [ ("==" | "!=" | "<" | "<=" | ">" | ">=") number ]
//! ```

use crate::syntax::Syntax;
use calltap_abi::frames::MAX_STACK_COPY;
use calltap_abi::values::{TEXT, compare};
use calltap_names::Word;

/// A value that can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// An argument, from 1: the parameter of that number; without debugging information, the
    /// integer argument of that number.
    Argument(u8),
    /// A floating-point argument, from 1, by its register.
    Vector(u8),
    /// The result.
    Result,
    /// A result of a Go function, from 2.
    FurtherResult(u8),
    /// The result in a vector register.
    VectorResult,
    /// The stack pointer: the address of the return address.
    Stack,
    /// The callers, unwound from a copy of this many bytes of the stack.
    Callers(u32),
    /// A parameter by its name.
    Named(String),
    /// A member of the structure that the operand is, or points to.
    Field(Box<Operand>, String),
    /// Memory at this offset from the address that the operand is.
    At(i32, Box<Operand>),
}

/// Form in which a value is stored and shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// A signed number of this many bytes.
    Signed(u8),
    /// An unsigned number of this many bytes.
    Unsigned(u8),
    /// A hexadecimal number of this many bytes.
    Hex(u8),
    /// A floating-point number of this many bytes.
    Float(u8),
    /// A text of at most this many bytes.
    Text(u8),
    /// A character.
    Char,
    /// A truth value.
    Bool,
    /// An address.
    Pointer,
}

/// An operand with its form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The item as written, without the form.
    pub name: String,
    /// The value.
    pub operand: Operand,
    /// The form; None for that of the value's type.
    pub form: Option<Form>,
}

/// A comparison, part of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// The value that is compared.
    pub item: Item,
    /// Bits of the value that are compared; None for all.
    pub mask: Option<u64>,
    /// The comparison: one of [`compare`].
    pub how: u8,
    /// The number that the value is compared with.
    pub with: u64,
}

/// The values read of the functions that a glob names. Without items, all known ones.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Glob of the functions.
    pub glob: Word,
    /// The values.
    pub items: Vec<Item>,
}

/// A condition: calls of the functions that a glob names are recorded only if all terms hold.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Glob of the functions; None for all.
    pub glob: Option<Word>,
    /// The terms.
    pub terms: Vec<Term>,
}

/// Bytes of text that are read unless the user gives a number.
const TEXT_BYTES: u8 = 64;
/// Least bytes of stack that are worth a copy.
const STACK_LEAST: u32 = 64;
/// Bytes of stack that are copied to find the callers of a call, unless the user gives a number.
/// The frame of a signal alone takes 3.5 KiB where the processor has AVX-512.
const STACK_BYTES: u32 = 8 << 10;
/// The default number of copied bytes of stack, as users write it.
pub const STACK_SIZE: &str = "8K";
/// Deepest nesting of operands.
const MAX_NESTING: usize = 16;

/// Parses `GLOB@ITEM,...`.
pub fn rule(text: &str) -> Result<Rule, Syntax> {
    let (glob, items) = text.split_once('@').unwrap_or((text, ""));
    if glob.is_empty() {
        return Err(Syntax::NoFunction { rule: text.to_owned() });
    }
    let items =
        items.split(',').filter(|item| !item.trim().is_empty()).map(item).collect::<Result<_, _>>()?;
    Ok(Rule { glob: Word::new(glob), items })
}

/// Parses a condition.
pub fn condition(text: &str) -> Result<Condition, Syntax> {
    let (glob, terms) = match text.split_once('@') {
        Some((glob, terms)) => (Some(Word::new(glob.trim())), terms),
        None => (None, text),
    };
    if terms.contains("||") {
        return Err(Syntax::OrJoined { condition: text.to_owned() });
    }
    let terms = terms.split("&&").map(term).collect::<Result<_, _>>()?;
    Ok(Condition { glob, terms })
}

fn item(text: &str) -> Result<Item, Syntax> {
    let text = text.trim();
    if let Some(bytes) = text.strip_prefix("$callers") {
        let operand = Operand::Callers(stack_bytes(bytes)?);
        return Ok(Item { name: "callers".to_owned(), operand, form: None });
    }
    let (name, form) = match text.rsplit_once('/') {
        Some((name, form)) => (name.trim(), Some(self::form(form.trim())?)),
        None => (text, None),
    };
    let operand = operand(name, 0)?;
    let form = form.or(match operand {
        Operand::Vector(_) | Operand::VectorResult => Some(Form::Float(8)),
        Operand::Stack => Some(Form::Hex(8)),
        _ => None,
    });
    Ok(Item { name: name.to_owned(), operand, form })
}

/// Parses `/BYTES`, or nothing.
fn stack_bytes(text: &str) -> Result<u32, Syntax> {
    if text.is_empty() {
        return Ok(STACK_BYTES);
    }
    let bytes = text.strip_prefix('/').and_then(|bytes| bytes.trim().parse().ok());
    bytes.filter(|bytes| (STACK_LEAST..=MAX_STACK_COPY).contains(bytes)).ok_or_else(|| Syntax::StackBytes {
        text: text.to_owned(),
        least: STACK_LEAST,
        most: MAX_STACK_COPY,
    })
}

fn form(text: &str) -> Result<Form, Syntax> {
    let wrong = || Syntax::NoForm { form: text.to_owned() };
    let (letter, number) = text.split_at_checked(1).ok_or_else(wrong)?;
    let number = match number {
        "" => None,
        digits => Some(digits.parse::<u32>().map_err(|_| wrong())?),
    };
    let bytes = |known: &[u32]| {
        let bits = number.unwrap_or(64);
        known.contains(&bits).then_some((bits / 8) as u8).ok_or_else(wrong)
    };
    let numbers = [8, 16, 32, 64];
    Ok(match (letter, number) {
        ("d" | "i", _) => Form::Signed(bytes(&numbers)?),
        ("u", _) => Form::Unsigned(bytes(&numbers)?),
        ("x", _) => Form::Hex(bytes(&numbers)?),
        ("f", _) => Form::Float(bytes(&numbers[2..])?),
        ("s", None) => Form::Text(TEXT_BYTES),
        ("s", Some(most)) => match u8::try_from(most).ok().filter(|most| (1..=TEXT).contains(most)) {
            Some(most) => Form::Text(most),
            None => return Err(Syntax::LongText { form: text.to_owned(), most: TEXT }),
        },
        ("c", None) => Form::Char,
        ("b", None) => Form::Bool,
        ("p", None) => Form::Pointer,
        _ => return Err(wrong()),
    })
}

fn operand(text: &str, depth: usize) -> Result<Operand, Syntax> {
    let text = text.trim();
    let wrong = || Syntax::NoOperand { text: text.to_owned() };
    if depth == MAX_NESTING {
        return Err(wrong());
    }
    if let Some(inner) = text.strip_suffix(')') {
        let (offset, inner) = inner.split_once('(').ok_or_else(wrong)?;
        let offset = number(offset).and_then(|offset| i32::try_from(offset as i64).ok()).ok_or_else(wrong)?;
        return Ok(Operand::At(offset, Box::new(operand(inner, depth + 1)?)));
    }
    let arrow = text.rfind("->").map(|at| (at, 2));
    let dot = text.rfind('.').map(|at| (at, 1));
    if let Some((at, length)) = arrow.max(dot) {
        let field = text[at + length..].trim();
        if !is_name(field) {
            return Err(wrong());
        }
        return Ok(Operand::Field(Box::new(operand(&text[..at], depth + 1)?), field.to_owned()));
    }
    let numbered =
        |prefix: &str| text.strip_prefix(prefix)?.parse::<u8>().ok().filter(|n| (1..=64).contains(n));
    match text {
        "retval" => return Ok(Operand::Result),
        "retval2" | "retval3" | "retval4" => {
            return Ok(Operand::FurtherResult(text.as_bytes()[6] - b'0'));
        }
        "fpretval" => return Ok(Operand::VectorResult),
        "$stack" => return Ok(Operand::Stack),
        _ => {}
    }
    if let Some(n) = numbered("arg") {
        return Ok(Operand::Argument(n));
    }
    if let Some(n) = numbered("fparg") {
        return if n <= 8 { Ok(Operand::Vector(n)) } else { Err(wrong()) };
    }
    if is_name(text) { Ok(Operand::Named(text.to_owned())) } else { Err(wrong()) }
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.chars().next().is_some_and(|c| is_part(c) && !c.is_numeric()) && text.chars().all(is_part)
}

const COMPARISONS: [(&str, u8); 6] = [
    ("==", compare::EQUAL),
    ("!=", compare::UNEQUAL),
    ("<=", compare::AT_MOST),
    (">=", compare::AT_LEAST),
    ("<", compare::LESS),
    (">", compare::GREATER),
];

fn term(text: &str) -> Result<Term, Syntax> {
    let text = text.trim();
    // The `>` of `->` is not a comparison.
    let hidden = text.replace("->", "\u{1}\u{1}");
    let found = COMPARISONS.iter().filter_map(|(sign, how)| Some((hidden.find(sign)?, *sign, *how)));
    let found = found.min_by_key(|(at, sign, _)| (*at, usize::MAX - sign.len()));
    let (left, how, right) = match found {
        Some((at, sign, how)) => (&text[..at], how, text[at + sign.len()..].trim()),
        None => (text, compare::UNEQUAL, "0"),
    };
    let value = |word: &str| {
        let no_number = || Syntax::NoNumber { word: word.to_owned(), condition: text.to_owned() };
        number(word).ok_or_else(no_number)
    };
    let (left, mask) = match left.split_once('&') {
        Some((left, mask)) => (left, Some(value(mask.trim())?)),
        None => (left, None),
    };
    if left.contains('=') {
        return Err(Syntax::NoComparison { condition: text.to_owned() });
    }
    if left.trim().is_empty() || right.is_empty() {
        return Err(Syntax::SideMissing { condition: text.to_owned() });
    }
    let item = item(left)?;
    if matches!(item.form, Some(Form::Float(_) | Form::Text(_))) {
        return Err(Syntax::NotWhole { condition: text.to_owned() });
    }
    Ok(Term { item, mask, how, with: value(right)? })
}

/// Parses a number in one of the forms that users write.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits {
        "NULL" | "false" => 0,
        "true" => 1,
        _ => {
            match (digits.strip_prefix("0x"), digits.strip_prefix('\'').and_then(|c| c.strip_suffix('\''))) {
                (Some(hex), _) => u64::from_str_radix(hex, 16).ok()?,
                (_, Some(c)) => u64::from(*c.as_bytes().first().filter(|_| c.len() == 1)?),
                _ => digits.parse().ok()?,
            }
        }
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let shown = rule(text).map_err(|why| why.to_string()).map(|rule| {
            format!("{:?}", rule.items.iter().map(|item| (&item.operand, item.form)).collect::<Vec<_>>())
        });
        match (shown, expected) {
            (Ok(shown), Ok(expected)) => assert_eq!(shown, expected, "{text}"),
            (Err(shown), Err(expected)) => assert!(shown.contains(expected), "{text}: {shown}"),
            (shown, _) => panic!("{text}: {shown:?}"),
        }
    }

    #[test]
    fn items_are_operands_with_forms() {
        check("f", Ok("[]"));
        check("open@arg1/s,arg2/x32", Ok("[(Argument(1), Some(Text(64))), (Argument(2), Some(Hex(4)))]"));
        check("f@fparg2,retval", Ok("[(Vector(2), Some(Float(8))), (Result, None)]"));
        check("f@req->head.size", Ok("[(Field(Field(Named(\"req\"), \"head\"), \"size\"), None)]"));
        check("f@+16(arg1)/u8", Ok("[(At(16, Argument(1)), Some(Unsigned(1)))]"));
        check("f@$stack,+8($stack)", Ok("[(Stack, Some(Hex(8))), (At(8, Stack), None)]"));
        check("f@$callers,arg1", Ok("[(Callers(8192), None), (Argument(1), None)]"));
        check("f@$callers/512", Ok("[(Callers(512), None)]"));
        check("f@-0x8(+0(arg2))", Ok("[(At(-8, At(0, Argument(2))), None)]"));
    }

    #[test]
    fn invalid_conditions_are_reported() {
        check("@arg1", Err("no function is named"));
        check("f@arg1/s500", Err("up to 127 bytes"));
        check("f@arg1/z", Err("is no form"));
        check("f@arg1->", Err("nothing that can be read"));
        check("f@1a", Err("nothing that can be read"));
        check("f@$callers/9", Err("64 to 131072 bytes"));
        check("f@$callersx", Err("bytes can be copied"));
        check("f@+0($callers)", Err("nothing that can be read"));
        check("f@+x(arg1)", Err("nothing that can be read"));
    }

    #[test]
    fn conditions_compare_operands_with_numbers() {
        let check = |text: &str, expected: Option<(u8, u64, Option<u64>)>| {
            let first = condition(text).ok().and_then(|condition| condition.terms.into_iter().next());
            assert_eq!(first.map(|term| (term.how, term.with, term.mask)), expected, "{text}");
        };
        check("arg2 > 4096", Some((compare::GREATER, 4096, None)));
        check("arg2>=-1", Some((compare::AT_LEAST, u64::MAX, None)));
        check("write@p->n <= 0x10 && arg1", Some((compare::AT_MOST, 16, None)));
        check("arg1->flags & 4 == 4", Some((compare::EQUAL, 4, Some(4))));
        check("c == 'x'", Some((compare::EQUAL, 120, None)));
        check("done", Some((compare::UNEQUAL, 0, None)));
        check("arg1 > many", None);
        check("arg1 >", None);
        check("> 5", None);
        check("", None);
        check("arg1 > 1 || arg2", None);
        check("arg1/s == 3", None);
    }
}
