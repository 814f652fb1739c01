//! Lines about a session that has ended.

use crate::terminal::units::ms;
use calltap_analysis::units::counted;
use calltap_analysis::{demangle, disabled};
use calltap_process::ptrace::stop_times::Stops;
use calltap_session::SessionOutcome;

/// Returns the notes of a session, how long it stopped the process, and which functions the
/// overhead limit disabled: the line names only a few, those first whose full names `is_first`.
pub fn lines(outcome: &SessionOutcome, is_first: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut lines = outcome.notes.clone();
    lines.extend(outcome.stops.as_ref().map(|[attaching, detaching]| stopped(attaching, detaching)));
    let mut functions = outcome.disabled_by_limit.clone();
    functions.sort_by_key(|(name, _)| !is_first(&demangle(name)));
    let with_rates = functions.iter().map(|(name, rate)| disabled::with_rate(name, *rate)).collect();
    lines.extend(disabled::sentence(with_rates, None));
    lines
}

/// Returns a sentence such as `stopped for 0.31 ms to attach, 0.8 ms to detach (3 threads)`.
fn stopped(attaching: &Stops, detaching: &Stops) -> String {
    format!(
        "stopped for {} to attach, {} to detach ({})",
        ms(attaching.total),
        ms(detaching.total),
        counted(attaching.threads as u64, "thread")
    )
}
