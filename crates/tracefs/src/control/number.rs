//! Files that hold a number.

use super::Refusal;
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

/// Adds a number to a text, with so many digits and blanks at least (20 at most). What is shown a million times has no time for more.
pub fn write(text: &mut String, number: u64, width: usize, fill: u8) {
    let mut digits = [fill; LONGEST];
    let start = put(&mut digits, number);
    // In one piece: that is what takes time.
    let shown = &digits[start.min(LONGEST.saturating_sub(width))..];
    text.push_str(std::str::from_utf8(shown).unwrap_or_default());
}

/// Digits of the largest number.
const LONGEST: usize = 20;

/// Puts a number at the end of a field: where it begins.
pub fn put(field: &mut [u8], mut number: u64) -> usize {
    let mut at = field.len();
    while at > 0 && (number > 0 || at == field.len()) {
        at -= 1;
        field[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    at
}
