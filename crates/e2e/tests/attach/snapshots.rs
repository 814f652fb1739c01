//! Snapshots of the rings of a process while recording continues.

use calltap_e2e::*;
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// Takes a snapshot. Returns the number of its events, and of events that were overwritten before.
fn snapshot(resident: &Resident, trace: &str) -> (u64, u64) {
    let run = calltap_run(&["snapshot", "-p", &resident.pid.to_string(), "-o", trace]);
    assert!(run.status.success(), "{}", run.stderr);
    let before = |word: &str| {
        let text = run.stderr.split_once(word).unwrap_or_else(|| panic!("{}", run.stderr)).0;
        let number = text.rsplit(' ').next().unwrap_or_default().replace(',', "");
        number.parse::<u64>().unwrap_or_else(|_| panic!("{}", run.stderr))
    };
    (before(" event"), before(" overwritten before"))
}

/// Checks that each thread's calls alternate between tick and tock, each of which returned before
/// the next began.
fn is_in_turns(trace: &str, said: &str) {
    let rows = calltap_run(&["export", "--to", "csv", trace]).stdout;
    let mut calls: Vec<(&str, u64, &str)> = Vec::new();
    for row in rows.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        calls.push((fields[1], fields[5].parse().expect("a start"), fields[2]));
    }
    // The last call of a thread may be open.
    calls.sort_unstable();
    assert!(calls.len() > 100, "{said}: {} calls", calls.len());
    for pair in calls.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert_ne!(pair[0].2, pair[1].2, "{said}: {pair:?}");
    }
}

fn unpaired(trace: &str) -> u64 {
    let report = calltap_run(&["report", "--json", trace]).stdout;
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
    report["returns_without_entry"].as_u64().expect("a number")
}

#[test]
fn a_program_records_on_while_snapshots_are_taken() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["in_turns.c"], &["-pthread"]);
        let mut resident = Resident::start(&program, &[]);
        let pid = resident.pid.to_string();
        let trace = program.directory().join("snapshot").to_string_lossy().into_owned();
        let attached = calltap_run(&["attach", "-p", &pid, "-F", "tick,tock", "--buffer-size", "4M"]);
        assert!(attached.status.success(), "{}", attached.stderr);
        resident.tell();
        resident.wait_for("begun");
        for n in 0..6 {
            thread::sleep(Duration::from_millis(30));
            snapshot(&resident, &trace);
            is_in_turns(&trace, &format!("{}, snapshot {n}", build.name));
            assert!(unpaired(&trace) <= 2, "one a thread, whose entry was overwritten");
        }
        resident.tell();
        let made: u64 = resident.wait_for("made ").parse().expect("a number");
        let (events, overwritten) = snapshot(&resident, &trace);
        // A call is an entry and a return. No event is missing from the time in which snapshots
        // were taken.
        assert_eq!(events + overwritten, 2 * made, "{}: {events}, {overwritten}", build.name);
        let left = calltap_run(&["detach", "-p", &pid]);
        assert!(left.status.success(), "{}", left.stderr);
        assert!(resident.end().0.success());
    }
}

/// Starts a program with a number of threads, each of which makes a number of calls on request.
fn rounds(threads: u64, calls: u64) -> (Program, Resident) {
    let program = compile(GCC, &["rounds.c"], &["-pthread"]);
    let resident = Resident::start(&program, &[&threads.to_string(), &calls.to_string()]);
    (program, resident)
}

/// Attaches, has the calls made, and takes a snapshot. Returns the messages of attaching, and the
/// number of events of each thread.
fn newest_of_each(resident: &mut Resident, flags: &[&str]) -> (String, Vec<u64>) {
    let (pid, trace) = (resident.pid.to_string(), resident.trace().to_string_lossy().into_owned());
    let attached = calltap_run(&[&["attach", "-p", &pid, "-F", "step"], flags].concat());
    assert!(attached.status.success(), "{}", attached.stderr);
    resident.tell();
    resident.wait_for("called");
    snapshot(resident, &trace);
    let info = calltap_run(&["info", "--json", &trace]).stdout;
    let info: Value = serde_json::from_str(&info).unwrap_or_else(|error| panic!("{error}: {info}"));
    let threads = info["threads"].as_array().unwrap_or_else(|| panic!("{info}"));
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    (
        attached.stderr,
        threads.iter().map(|thread| thread["calls"]["recorded"].as_u64().expect("calls")).collect(),
    )
}

/// Number of calls in half a chunk: the newest events are in a chunk that is being filled, after a
/// full one.
const NEWEST: u64 = 4_000;

#[test]
fn each_of_many_threads_keeps_its_newest_calls() {
    let (_program, mut resident) = rounds(600, 20_000);
    let (said, kept) = newest_of_each(&mut resident, &[]);
    assert!(!said.contains("room"), "{said}");
    let few: Vec<&u64> = kept.iter().filter(|calls| **calls < NEWEST).collect();
    assert_eq!((kept.len(), few), (600, vec![]));
    assert!(resident.end().0.success());
}

#[test]
fn attach_reports_thread_capacity_of_rings() {
    let (_program, mut resident) = rounds(99, 20_000);
    let (said, kept) = newest_of_each(&mut resident, &["--buffer-size", "8M"]);
    // There are a hundred threads with the first one.
    let before = said.split("calltap: attached to").next().unwrap_or_default();
    assert!(before.contains("calltap: the rings have room for 64 of 100 threads"), "{said}");
    assert!(before.contains("--buffer-size 13M"), "{said}");
    // There are 128 chunks: a thread has two, or one if another thread took its first one in
    // between.
    let (two, one): (Vec<u64>, Vec<u64>) =
        kept.iter().filter(|calls| **calls > 0).partition(|calls| **calls >= NEWEST);
    assert_eq!(2 * two.len() + one.len(), 128, "{kept:?}");
    assert!(two.len() > one.len(), "{kept:?}");
    assert!(resident.end().0.success());
}

/// A function by which a thread leaves calls stays watched when it is not traced any more, and then
/// has no name in traces.
#[test]
fn nonlocal_exits_that_were_traced_before_are_not_described() {
    let (_program, mut resident) = rounds(2, 1000);
    let (pid, trace) = (resident.pid.to_string(), resident.trace().to_string_lossy().into_owned());
    for words in [&["attach", "-F", "libc:*", "-F", "*"][..], &["set", "-F", "*"]] {
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
    }
    resident.tell();
    resident.wait_for("called");
    snapshot(&resident, &trace);
    let report = calltap_run(&["report", "-i", &trace]);
    assert!(report.status.success() && !report.stderr.contains("id far"), "{}", report.stderr);
    assert!(resident.end().0.success());
}
