//! Fast writers of numbers and fields into byte buffers, for the exports.

use std::io::{self, Write};

/// Appends `number` in decimal.
pub fn push_decimal(buffer: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.extend_from_slice(&digits[at..]);
}

/// Appends nanoseconds as microseconds with three decimals.
pub fn push_micros(buffer: &mut Vec<u8>, ns: u64) {
    push_decimal(buffer, ns / 1000);
    let rest = ns % 1000;
    buffer.extend_from_slice(&[
        b'.',
        b'0' + (rest / 100) as u8,
        b'0' + (rest / 10 % 10) as u8,
        b'0' + (rest % 10) as u8,
    ]);
}

/// Appends a CSV field (RFC 4180), quoted if necessary.
pub fn push_csv(buffer: &mut Vec<u8>, field: &str) {
    if field.contains([',', '"', '\n', '\r']) {
        buffer.push(b'"');
        buffer.extend_from_slice(field.replace('"', "\"\"").as_bytes());
        buffer.push(b'"');
    } else {
        buffer.extend_from_slice(field.as_bytes());
    }
}

/// Writes the buffer out and empties it, if it holds at least 64 KiB or `everything` is set.
pub fn drain(buffer: &mut Vec<u8>, out: &mut dyn Write, everything: bool) -> io::Result<()> {
    if everything || buffer.len() >= 64 << 10 {
        out.write_all(buffer)?;
        buffer.clear();
    }
    Ok(())
}
