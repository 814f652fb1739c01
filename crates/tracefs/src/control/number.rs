//! Numbers in control files.

use super::Refusal;
use rustix::io::Errno;

/// Returns 0 or 1 with an end of line.
pub(super) fn text(on: bool) -> String {
    format!("{}\n", u8::from(on))
}

/// Returns the digits of a number and their base, as in C: `0x1f`, `017`, `15`.
pub fn base(word: &str) -> (&str, u32) {
    match word.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    }
}

/// Parses a decimal number: an optional plus, digits, at most one end of line.
pub fn parse(text: &str) -> Result<u64, Refusal> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let digits = line.strip_prefix('+').unwrap_or(line);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::invalid("not a number"));
    }
    digits.parse().map_err(|_| Refusal::new(Errno::RANGE, "too large a number"))
}

/// Appends a number to a text, padded with `fill` to at least `width` characters, at most 20.
/// Formatting macros would be too slow for a million lines.
pub fn write(text: &mut String, number: u64, width: usize, fill: u8) {
    let mut digits = [fill; MAX_DIGITS];
    let start = put(&mut digits, number);
    // A single append is faster than one per digit.
    let shown = &digits[start.min(MAX_DIGITS.saturating_sub(width))..];
    text.push_str(std::str::from_utf8(shown).unwrap_or_default());
}

/// Number of digits of the largest number.
const MAX_DIGITS: usize = 20;

/// Writes a number at the end of a field, and returns the position of its first digit.
pub(super) fn put(field: &mut [u8], mut number: u64) -> usize {
    let mut at = field.len();
    while at > 0 && (number > 0 || at == field.len()) {
        at -= 1;
        field[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    at
}
