//! Dates in UTC.

/// Nanoseconds of a day.
pub(crate) const NS: i64 = 86_400_000_000_000;

/// Formats the day with this number since 1970-01-01: `2026-11-22`.
pub(crate) fn text(day: i64) -> String {
    // Eras of 400 years begin in March, so that the leap day comes last.
    let days = day + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{date:02}", year + era * 400 + next)
}

#[cfg(test)]
mod tests {
    use super::text;

    fn check(day: i64, expected: &str) {
        assert_eq!(text(day), expected);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        check(0, "1970-01-01");
        check(-1, "1969-12-31");
        check(59, "1970-03-01");
        check(11_016, "2000-02-29");
        check(11_017, "2000-03-01");
        check(20_779, "2026-11-22");
        check(47_540, "2100-02-28");
        check(47_541, "2100-03-01");
    }
}
