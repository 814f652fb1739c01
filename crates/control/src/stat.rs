//! `trace_stat/function0`: the table of the function profiler, in the kernel's form.

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
pub fn duration(ns: u64) -> String {
    let mut text = (ns / 1000).to_string();
    if text.len() < 7 {
        let decimals = format!("{:03}", ns % 1000);
        let room = (7 - text.len()).min(3);
        text = format!("{text}.{}", &decimals[..room]);
    }
    let padding = 8usize.saturating_sub(text.len());
    format!("{text} us {:padding$}", "")
}
