//! Formats durations, counts and plain text.

/// Formats a duration with a fitting unit: `999 ns`, `1.234 us`, `56.789 ms`, `10.000 s`. Cut, not
/// rounded.
pub fn duration(ns: u64) -> String {
    let (unit, thousandth) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("us", 1),
        1_000_000..1_000_000_000 => ("ms", 1_000),
        _ => ("s", 1_000_000),
    };
    let thousandths = ns / thousandth;
    format!("{}.{:03} {unit}", thousandths / 1000, thousandths % 1000)
}

/// Formats a number with commas: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 thread`, `2 threads`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match noun.ends_with('s') {
        _ if number == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {noun}{plural}", count(number))
}

/// Maximum number of names in a list.
pub(crate) const MAX_NAMES: usize = 5;

/// Names the first five: `a, b, c, d, e and 7 more`.
pub(crate) fn first_names<T: AsRef<str>>(names: &[T]) -> String {
    first_of(names, names.len() as u64)
}

/// Names the first five of `all`, some of which have no name in the list.
pub(crate) fn first_of<T: AsRef<str>>(names: &[T], all: u64) -> String {
    let first: Vec<&str> = names.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    let shown = one_line(&first.join(", ")).into_owned();
    match all.saturating_sub(first.len() as u64) {
        0 => shown,
        more => format!("{shown} and {} more", count(more)),
    }
}

/// Returns `part` of `whole` as a percentage; 0.0 if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Makes text printable on one line.
pub use calltap_names::printable as one_line;

#[cfg(test)]
mod tests {
    use super::{count, counted, duration};

    #[test]
    fn units_change_where_a_thousand_is_reached() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.000 us"),
            (999_999, "999.999 us"),
            (1_000_000, "1.000 ms"),
            (10_000_000_000, "10.000 s"),
            (u64::MAX, "18446744073.709 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn nouns_have_their_plural_behind_every_number_but_one() {
        let words =
            [(0, "thread", "0 threads"), (1, "process", "1 process"), (1_000, "process", "1,000 processes")];
        for (number, noun, text) in words {
            assert_eq!(counted(number, noun), text);
        }
    }
}
