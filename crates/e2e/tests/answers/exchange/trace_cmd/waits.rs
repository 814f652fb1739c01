//! Times in which threads slept or were runnable, as trace-cmd shows them.

use super::{Call, Report, calls, displayed, export};
use calltap_e2e::*;

impl Report {
    /// Takes a context switch, `divided:123 [-1] S ==> swapper:0 [-1]`, and the one back. The first
    /// one of a thread leads to it.
    pub(super) fn switch(&mut self, time: u64, info: &str) {
        let (from, to) = info.split_once(" ==> ").unwrap_or_else(|| panic!("{info}"));
        let tid = |side: &str| {
            side.split_once(" [").and_then(|(task, _)| task.rsplit_once(':')?.1.parse::<u64>().ok())
        };
        let (from_tid, to_tid) = (tid(from).expect("a thread"), tid(to).expect("a thread"));
        assert!((from_tid == 0) != (to_tid == 0), "{info}");
        if to_tid == 0 {
            self.waiting.insert(from_tid, (time, from.ends_with('S')));
        } else {
            let is_first = !self.waits.contains_key(&to_tid);
            let waits = self.waits.entry(to_tid).or_default();
            match self.waiting.remove(&to_tid) {
                Some((start, sleeps)) => waits.push((start, time, sleeps)),
                None => assert!(is_first, "it waits: {info}"),
            }
        }
    }
}

#[test]
fn waits_are_context_switches_to_no_thread() {
    if !have("trace-cmd") || !have_switches() {
        return;
    }
    let program = compile(GCC, &["divided.c"], &["-pthread"]);
    let recording = record(&program, &[], &Expect::default());
    displayed(&recording);
    let report = Report::of(&Report::lines(&export(&recording, "trace-cmd", "6")), true);
    let all = calls(&recording);
    let main = |calls: &Vec<Call>| calls.iter().find(|call| call.name == "main").cloned();
    let (tid, main) = all.iter().find_map(|(tid, calls)| Some((tid, main(calls)?))).expect("main");
    let (start, length) = (main.start.expect("a time"), main.duration.expect("a duration"));
    let [mut slept, mut could_run] = [0, 0];
    for (from, to, sleeps) in &report.waits[tid] {
        let inside = (*to).min(start + length).saturating_sub((*from).max(start));
        *(if *sleeps { &mut slept } else { &mut could_run }) += inside;
    }
    let rows = recording.rows();
    let row = rows.iter().find(|row| row["function"] == "main").expect("main");
    for (shown, key) in [(slept, "blocked_ns"), (could_run, "runnable_ns")] {
        assert!(shown.abs_diff(row[key].as_u64().expect("a time")) < 1000, "{key}: {shown}: {row}");
    }
}
