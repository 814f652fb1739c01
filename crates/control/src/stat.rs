//! `trace_stat/function0`: the table of the function profiler, in the kernel's form.

use crate::number::write as write_number;
use calltap_session::Profiled;
use std::fmt::Write;

/// The rows, most time first.
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
        // (In microseconds squared, shown as if it were a time.)
        let variance = (profile.variance_ns2() / 1000.0) as u64;
        let [time, average, variance] = [profile.total_ns, average, variance].map(duration);
        let _ =
            writeln!(text, "  {function:<30.30}  {:>10}    {time}    {average}    {variance}", profile.hits);
    }
    text
}

/// Microseconds in seven digits at most, as function_graph prints them: up to three decimals, ` us `, and blanks up to the end of the column.
pub fn write_duration(text: &mut String, ns: u64) {
    let start = text.len();
    write_number(text, ns / 1000, 1, ' ');
    let room = 7usize.saturating_sub(text.len() - start).min(3);
    if room > 0 {
        text.push('.');
        let scale = [1000, 100, 10, 1][room];
        write_number(text, ns % 1000 / scale, room, '0');
    }
    let padding = 8usize.saturating_sub(text.len() - start);
    text.push_str(" us ");
    (0..padding).for_each(|_| text.push(' '));
}

fn duration(ns: u64) -> String {
    let mut text = String::new();
    write_duration(&mut text, ns);
    text
}
