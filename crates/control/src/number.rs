//! Files that hold a number.

use crate::Refusal;
use rustix::io::Errno;

/// 0 or 1, and the end of the line.
pub fn text(on: bool) -> String {
    format!("{}\n", u8::from(on))
}

/// The digits of a number and their base, as C has it: `0x1f`, `017`, `15`.
pub fn base(word: &str) -> (&str, u32) {
    match word.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    }
}

/// A decimal number: perhaps a plus, digits, at most one end of line.
pub fn parse(text: &str) -> Result<u64, Refusal> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let digits = line.strip_prefix('+').unwrap_or(line);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::invalid("not a number"));
    }
    digits.parse().map_err(|_| Refusal::new(Errno::RANGE, "too large a number"))
}

/// Adds a number to a text, with so many digits and blanks at least. (What is shown a million times has no time for more.)
pub fn write(text: &mut String, mut number: u64, width: usize, fill: char) {
    let (mut digits, mut at) = ([0; 20], 20);
    while number > 0 || at == 20 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    (20 - at..width).for_each(|_| text.push(fill));
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}
