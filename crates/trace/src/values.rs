//! Decodes the bytes of values that come with events.

use crate::meta::{Captured, Value, ValueForm};
use std::fmt;

/// Kinds of Python objects, the first byte of each: those of the agent
/// (`calltap_abi::python::arguments::kind`).
pub mod kind {
    /// False.
    pub const FALSE: u8 = 0;
    /// True.
    pub const TRUE: u8 = 1;
    /// An integer of 8 bytes.
    pub const INTEGER: u8 = 2;
    /// A floating-point number of 8 bytes.
    pub const FLOAT: u8 = 3;
    /// A text, as in [`ValueForm::Text`](crate::ValueForm::Text).
    pub const TEXT: u8 = 4;
    /// A word that stands for the object, in the form of a text.
    pub const WORD: u8 = 5;
}

/// A value of a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Datum<'a> {
    /// The value could not be read.
    Unreadable,
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// An integer that is shown in hexadecimal.
    Hex(u64),
    /// An address.
    Pointer(u64),
    /// A floating-point number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A character.
    Char(u8),
    /// A null pointer instead of a text.
    Null,
    /// A text, and whether it was cut off.
    Text(&'a [u8], bool),
    /// A word that stands for a Python object, and whether it was cut off.
    Word(&'a [u8], bool),
    /// Callers of eight bytes each, and whether they are all of them.
    Callers(&'a [u8], bool),
}

/// The callers of a call, unwound when it was made.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Callers {
    /// Return addresses, innermost first. For a caller that a signal interrupted, the address
    /// behind the first byte of the interrupted instruction: so the address before each belongs to
    /// the caller's function.
    pub addresses: Vec<u64>,
    /// Whether the last is where the thread began. Otherwise its caller is not known.
    pub whole: bool,
}

impl Callers {
    /// Maximum number of callers that are kept of a call.
    const MAX_CALLERS: usize = 1 << 15;

    /// Writes the callers behind the bytes of other values.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let kept = &self.addresses[..self.addresses.len().min(Self::MAX_CALLERS - 1)];
        let whole = self.whole && kept.len() == self.addresses.len();
        bytes.extend_from_slice(&((kept.len() as u16) << 1 | u16::from(whole)).to_le_bytes());
        kept.iter().for_each(|address| bytes.extend_from_slice(&address.to_le_bytes()));
    }
}

impl Captured {
    /// Returns the values that come with an entry or a return, as far as the bytes go.
    pub fn read<'a>(&'a self, returns: bool, bytes: &'a [u8]) -> impl Iterator<Item = (&'a str, Datum<'a>)> {
        let values = if returns { &self.results } else { &self.arguments };
        let (mask, mut rest) = bytes.split_at_checked(2).unwrap_or((&[0, 0], &[]));
        let mask = u16::from_le_bytes([mask[0], mask[1]]);
        let known = values.iter().zip(0..).filter(|_| !bytes.is_empty());
        known.map_while(move |(Value { name, form }, n)| {
            let datum = if mask >> (n % 16) & 1 == 1 { Datum::Unreadable } else { form.take(&mut rest)? };
            Some((name.as_str(), datum))
        })
    }
}

impl Captured {
    /// Whether callers are unwound when the function is entered.
    pub fn unwinds(&self) -> bool {
        self.arguments.iter().any(|value| value.form == ValueForm::Callers)
    }

    /// Returns the callers that come with an entry.
    pub fn callers(&self, bytes: &[u8]) -> Option<Callers> {
        self.read(false, bytes).find_map(|(_, datum)| match datum {
            Datum::Callers(all, whole) => {
                let addresses =
                    all.as_chunks().0.iter().map(|address| u64::from_le_bytes(*address)).collect();
                Some(Callers { addresses, whole })
            }
            _ => None,
        })
    }
}

impl ValueForm {
    fn take<'a>(self, rest: &mut &'a [u8]) -> Option<Datum<'a>> {
        let mut bytes = |length: usize| {
            let (taken, left) = rest.split_at_checked(length)?;
            *rest = left;
            Some(taken)
        };
        let mut number = |length: u8| {
            let taken = bytes(length.into())?;
            Some(taken.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
        };
        Some(match self {
            ValueForm::Signed(length @ 1..=8) => {
                let unused = 64 - 8 * u32::from(length);
                Datum::Signed(((number(length)? << unused) as i64) >> unused)
            }
            ValueForm::Unsigned(length @ 1..=8) => Datum::Unsigned(number(length)?),
            ValueForm::Hex(length @ 1..=8) => Datum::Hex(number(length)?),
            ValueForm::Pointer => Datum::Pointer(number(8)?),
            ValueForm::Float(4) => Datum::Float(f32::from_bits(number(4)? as u32).into()),
            ValueForm::Float(8) => Datum::Float(f64::from_bits(number(8)?)),
            ValueForm::Bool => Datum::Bool(number(1)? != 0),
            ValueForm::Char => Datum::Char(number(1)? as u8),
            ValueForm::Object => match number(1)? as u8 {
                kind::FALSE => Datum::Bool(false),
                kind::TRUE => Datum::Bool(true),
                kind::INTEGER => Datum::Signed(number(8)? as i64),
                kind::FLOAT => Datum::Float(f64::from_bits(number(8)?)),
                kind @ (kind::TEXT | kind::WORD) => {
                    let head = number(1)?;
                    let (text, more) = (bytes(head as usize & 0x7F)?, head & 0x80 != 0);
                    if kind == kind::TEXT { Datum::Text(text, more) } else { Datum::Word(text, more) }
                }
                _ => return None,
            },
            ValueForm::Text => {
                let head = number(1)?;
                if head == 0x80 {
                    return Some(Datum::Null);
                }
                Datum::Text(bytes(head as usize & 0x7F)?, head & 0x80 != 0)
            }
            ValueForm::Callers => {
                let head = number(2)?;
                Datum::Callers(bytes(8 * (head as usize >> 1))?, head & 1 != 0)
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Datum<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Datum::Unreadable => out.write_str("<unreadable>"),
            Datum::Null => out.write_str("NULL"),
            Datum::Signed(number) => write!(out, "{number}"),
            Datum::Unsigned(number) => write!(out, "{number}"),
            Datum::Hex(number) | Datum::Pointer(number) => write!(out, "{number:#x}"),
            Datum::Float(number) => write!(out, "{number:?}"),
            Datum::Bool(truth) => write!(out, "{truth}"),
            Datum::Char(c) => write!(out, "'{}'", c.escape_ascii()),
            Datum::Text(text, more) => {
                let text = String::from_utf8_lossy(text);
                // An apostrophe needs no escape within double quotes.
                let text = text.split('\'').map(|part| part.escape_debug().to_string());
                let text = text.collect::<Vec<_>>().join("'");
                write!(out, "\"{text}\"{}", if more { "..." } else { "" })
            }
            Datum::Word(text, more) => {
                let text = String::from_utf8_lossy(text);
                write!(out, "{}{}", text.escape_debug(), if more { "..." } else { "" })
            }
            Datum::Callers(all, whole) => {
                let addresses = all.as_chunks::<8>().0.iter().map(|address| u64::from_le_bytes(*address));
                let mut all: Vec<String> = addresses.map(|address| format!("{address:#x}")).collect();
                all.extend((!whole).then(|| "[unknown]".to_owned()));
                out.write_str(&all.join(" <- "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(forms: &[ValueForm], bytes: &[u8], expected: &str) {
        let value = |form: &ValueForm| Value { name: "v".to_owned(), form: *form };
        let captured =
            Captured { arguments: forms.iter().map(value).collect(), results: Vec::new(), future: None };
        let shown: Vec<String> = captured.read(false, bytes).map(|(_, datum)| datum.to_string()).collect();
        assert_eq!(shown.join(" "), expected);
        assert_eq!(captured.read(true, bytes).count(), 0);
    }

    #[test]
    fn bytes_are_read_by_their_forms() {
        use ValueForm::*;
        check(&[Signed(1), Unsigned(2), Hex(1), Char], &[0, 0, 0xFF, 1, 2, 0x2A, b'\n'], "-1 513 0x2a '\\n'");
        check(&[Text, Bool, Text], &[0, 0, 2, b'h', b'"', 1, 0x81, b'x'], "\"h\\\"\" true \"x\"...");
        check(&[Text, Char], &[0, 0, 0x80, b'c'], "NULL 'c'");
        check(&[Signed(4), Text, Signed(1)], &[2, 0, 5, 0, 0, 0, 7], "5 <unreadable> 7");
        check(
            &[Float(8), Float(4)],
            &[&[0, 0][..], &1.5f64.to_le_bytes(), &0.25f32.to_le_bytes()].concat(),
            "1.5 0.25",
        );
    }

    #[test]
    fn objects_have_the_form_of_their_kind() {
        use ValueForm::*;
        let bytes = [&[0, 0, kind::INTEGER][..], &(-5_i64).to_le_bytes(), &[kind::TRUE, kind::TEXT, 1, b'x']];
        let bytes =
            [&bytes.concat()[..], &[kind::WORD, 4], b"None", &[kind::WORD, 0x82, b'<', b'a']].concat();
        check(&[Object; 5], &bytes, "-5 true \"x\" None <a...");
        check(&[Object], &[0, 0, 99], "");
    }

    #[test]
    fn callers_round_trip() {
        let value = |name: &str, form| Value { name: name.to_owned(), form };
        let arguments = vec![value("n", ValueForm::Unsigned(1)), value("callers", ValueForm::Callers)];
        let captured = Captured { arguments, results: Vec::new(), future: None };
        for (addresses, whole, shown) in [
            (vec![0x5555_0000_1234, 0x7fff_0000_0001], true, "0x555500001234 <- 0x7fff00000001"),
            (vec![0x40_1000], false, "0x401000 <- [unknown]"),
            (vec![], false, "[unknown]"),
        ] {
            let (callers, mut bytes) = (Callers { addresses, whole }, vec![0, 0, 7]);
            callers.write(&mut bytes);
            assert_eq!(captured.callers(&bytes), Some(callers));
            let all: Vec<String> = captured.read(false, &bytes).map(|(_, datum)| datum.to_string()).collect();
            assert_eq!(all, ["7", shown]);
            // Without the bytes of the callers, the other values can still be read.
            assert_eq!((captured.callers(&bytes[..3]), captured.read(false, &bytes[..3]).count()), (None, 1));
        }
        let deep = Callers { addresses: vec![1; 40_000], whole: true };
        let mut bytes = vec![0, 0, 7];
        deep.write(&mut bytes);
        assert!(
            captured.callers(&bytes).is_some_and(|found| !found.whole && found.addresses.len() == 32_767)
        );
    }

    #[test]
    fn truncated_and_invalid_values_are_not_shown() {
        use ValueForm::*;
        check(&[Signed(4), Signed(4)], &[0, 0, 1, 0, 0, 0, 2], "1");
        check(&[Text], &[0, 0, 9, b'x'], "");
        check(&[Signed(99)], &[0, 0, 1], "");
        check(&[Signed(1)], &[0], "");
        check(&[Signed(1)], &[], "");
    }
}
