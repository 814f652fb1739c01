//! Options of a file: small facts with numbers.

use super::lossy;

/// Numbers of options; those of parts occur only in files of version 7.
pub(super) mod id {
    pub(in crate::head) const DONE: u16 = 0;
    pub(super) const DATE: u16 = 1;
    pub(in crate::head) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const SYSTEM: u16 = 5;
    pub(super) const WRITER: u16 = 9;
    pub(super) const TSC_TO_NS: u16 = 14;
    pub(in crate::head) const HEADER_INFO: u16 = 16;
    pub(in crate::head) const FTRACE_EVENTS: u16 = 17;
    pub(in crate::head) const EVENT_FORMATS: u16 = 18;
    pub(in crate::head) const KALLSYMS: u16 = 19;
    pub(in crate::head) const CMDLINES: u16 = 21;
    pub(in crate::head) const BUFFER_TEXT: u16 = 22;
}

/// The values of the options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Options {
    /// Microseconds from the clock's times to the time of day.
    pub(crate) date_us: Option<i64>,
    /// The clock of the top directory.
    pub(crate) clock: Option<String>,
    /// The machine's `uname`.
    pub(crate) system: String,
    /// The program that wrote the file.
    pub(crate) writer: String,
    /// Multiplier and shift from ticks of the time stamp counter to nanoseconds.
    pub(crate) tsc_to_ns: Option<(u32, u32)>,
}

impl Options {
    /// Stores the value of an option; unused ones are ignored.
    pub(super) fn take(&mut self, id: u16, value: &[u8]) {
        let text = || lossy(value.split(|byte| *byte == 0).next().unwrap_or_default());
        match id {
            id::DATE => self.date_us = number(&text()),
            id::CLOCK => self.clock = clock(&text()),
            id::SYSTEM => self.system = text(),
            id::WRITER => self.writer = text(),
            id::TSC_TO_NS => self.tsc_to_ns = tsc_to_ns(value),
            _ => {}
        }
    }
}

/// Returns the clock in brackets, as in the file `trace_clock`, or the text itself.
pub(super) fn clock(text: &str) -> Option<String> {
    let chosen =
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(clock, _)| clock);
    Some(chosen.trim().to_owned()).filter(|clock| !clock.is_empty())
}

fn number(text: &str) -> Option<i64> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?.cast_signed(),
        None => digits.parse().ok()?,
    };
    Some(if is_negative { number.wrapping_neg() } else { number })
}

fn tsc_to_ns(value: &[u8]) -> Option<(u32, u32)> {
    let (mult, rest) = value.split_first_chunk()?;
    let (shift, _) = rest.split_first_chunk()?;
    let (mult, shift) = (u32::from_le_bytes(*mult), u32::from_le_bytes(*shift));
    (mult != 0 && shift < 64).then_some((mult, shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_trace_cmd_are_read() {
        let mut options = Options::default();
        options.take(id::DATE, b"0x10\0");
        options.take(id::CLOCK, b"local [x86-tsc] mono\n\0");
        options.take(id::TSC_TO_NS, &[5, 0, 0, 0, 2, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!((options.date_us, options.tsc_to_ns), (Some(16), Some((5, 2))));
        assert_eq!(options.clock.as_deref(), Some("x86-tsc"));
        assert_eq!(
            (number("-5"), number("x"), clock("mono"), clock(" ")),
            (Some(-5), None, Some("mono".into()), None)
        );
        assert_eq!((tsc_to_ns(&[1, 0, 0, 0, 64, 0, 0, 0]), tsc_to_ns(&[1, 0, 0])), (None, None));
    }
}
