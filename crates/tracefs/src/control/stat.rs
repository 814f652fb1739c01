//! `trace_stat/function0`: the table of the function profiler, in the kernel's form.

use super::number::put;
use calltap_selection::Profiled;
use std::fmt::Write;

/// Returns the table, its rows sorted by time in descending order.
pub fn table(rows: &[Profiled]) -> String {
    let mut rows: Vec<&Profiled> = rows.iter().collect();
    rows.sort_by(|a, b| {
        b.profile.total_ns.cmp(&a.profile.total_ns).then_with(|| a.function.cmp(&b.function))
    });
    let mut text = String::from(
        "  Function                               Hit    Time            Avg             s^2\n  \
         --------                               ---    ----            ---             ---\n",
    );
    for Profiled { function, profile, .. } in rows {
        let average = profile.average_ns().unwrap_or(0);
        // The unit is microseconds squared, and the kernel formats it as if it were a time.
        let variance = (profile.variance_ns2() / 1000.0) as u64;
        let [time, average, variance] = [profile.total_ns, average, variance].map(duration);
        let _ =
            writeln!(text, "  {function:<30.30}  {:>10}    {time}    {average}    {variance}", profile.hits);
    }
    text
}

/// Appends microseconds in seven digits at most, as function_graph prints them: up to three
/// decimals, ` us `, and blanks up to the end of the column.
pub(crate) fn write_duration(text: &mut String, ns: u64) {
    let (us, below) = (ns / 1000, ns % 1000);
    // Every line of function_graph has a duration, so the cell is appended in one piece.
    let mut cell = [b' '; 28];
    let mut length = us.checked_ilog10().map_or(1, |more| more as usize + 1);
    put(&mut cell[..length], us);
    let room = 7usize.saturating_sub(length).min(3);
    if room > 0 {
        let digits = [below / 100, below / 10 % 10, below % 10].map(|digit| b'0' + digit as u8);
        cell[length] = b'.';
        cell[length + 1..length + 4].copy_from_slice(&digits);
        length += 1 + room;
    }
    // The unit overwrites decimals that do not fit.
    cell[length..length + 4].copy_from_slice(b" us ");
    let shown = &cell[..length.max(8) + 4];
    text.push_str(std::str::from_utf8(shown).unwrap_or_default());
}

fn duration(ns: u64) -> String {
    let mut text = String::new();
    write_duration(&mut text, ns);
    text
}
