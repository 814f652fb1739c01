//! System calls are calls within those of the program that made them: as many, with the arguments
//! and results that the program knows.

use calltap_e2e::{GCC, Program, calltap_run, compile, have_tracepoints, rows_of};
use serde_json::Value;
use std::collections::HashMap;

/// Number of writes in `save`, in two processes, and of reads in `load`.
const WRITES: u64 = 203;
const READS: u64 = 7;

fn ask(arguments: &[&str]) -> String {
    let run = calltap_run(arguments);
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
    run.stdout
}

/// Records a program with its system calls. Returns the path of the trace.
fn record(program: &Program, flags: &[&str], words: &[&str]) -> String {
    let trace = program.directory().join("called.data").display().to_string();
    let path = program.path.display().to_string();
    let record = ["record", "-q", "--events", "sched,syscalls", "-o", &trace];
    ask(&[&record[..], flags, &["--", &path], words].concat());
    trace
}

/// Counts the calls of a function whose innermost caller is another one, by their results.
fn results_within(trace: &str, inner: &str, outer: &str) -> HashMap<String, u64> {
    let replay = ask(&["replay", "--json", "-i", trace]);
    let (mut open, mut results) = (HashMap::<String, Vec<String>>::new(), HashMap::new());
    for line in replay.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let (Some(thread), Some(function)) = (event["thread"].as_str(), event["function"].as_str()) else {
            continue;
        };
        let open = open.entry(thread.to_owned()).or_default();
        match event["event"].as_str() {
            Some("entry") => open.push(function.to_owned()),
            Some("exit") => {
                assert_eq!(open.pop().as_deref(), Some(function), "{line}");
                if function == inner && open.last().is_some_and(|caller| caller == outer) {
                    *results.entry(event["results"]["retval"].to_string()).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    results
}

fn calls(rows: &Value, function: &str) -> u64 {
    let own = rows.as_array().expect("rows").iter().filter(|row| row["function"] == function);
    own.map(|row| row["calls"].as_u64().expect("a number")).sum()
}

#[test]
fn system_calls_are_nested_in_their_callers() {
    if !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["files.c"], &["-pthread"]);
    let file = program.directory().join("file").display().to_string();
    let trace = record(&program, &[], &[&file]);
    assert_eq!(results_within(&trace, "sys_write", "save"), HashMap::from([("1".to_owned(), WRITES)]));
    assert_eq!(results_within(&trace, "sys_pread64", "load"), HashMap::from([("1".to_owned(), READS)]));
    let rows: Value = rows_of(&ask(&["report", "--format", "json", "-i", &trace])).into();
    assert_eq!([calls(&rows, "sys_write"), calls(&rows, "sys_pread64")], [WRITES, READS], "{rows}");
    assert_eq!([calls(&rows, "save"), calls(&rows, "load")], [21, 1], "{rows}");
    let of_kernel = |row: &&Value| row["module"] == "[system calls]";
    assert!(rows.as_array().is_some_and(|rows| rows.iter().filter(of_kernel).count() > 2), "{rows}");
    let replay = ask(&["replay", "-i", &trace]);
    let reads = replay.lines().filter(|line| line.contains("sys_pread64(fd="));
    // The result is on a line of its own if the thread was descheduled in the call.
    let is_read = |line: &str| line.contains(", count=1, offset=0)");
    assert_eq!(reads.filter(|line| is_read(line)).count() as u64, READS, "{replay}");
    let graph = ask(&["graph", "-F", "load", "-i", &trace]);
    assert!(graph.lines().any(|line| line.ends_with("  sys_pread64")), "{graph}");
    // An export is read back with them, and does not get them twice.
    let [kernel, again] = ["called.dat", "again.data"].map(|name| program.directory().join(name));
    let [kernel, again] = [kernel.display().to_string(), again.display().to_string()];
    ask(&["export", "--to", "trace-cmd", "-o", &kernel, "-i", &trace]);
    ask(&["import", &kernel, "-o", &again]);
    let rows: Value = rows_of(&ask(&["report", "--format", "json", "-i", &again])).into();
    assert_eq!([calls(&rows, "sys_write"), calls(&rows, "sys_pread64")], [WRITES, READS], "{rows}");
}

#[test]
fn futexes_are_named() {
    if !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["kept_waiting.c"], &["-pthread"]);
    let trace = record(&program, &[], &[]);
    let replay = ask(&["replay", "-i", &trace]);
    let lines: Vec<&str> = replay.lines().collect();
    let call = "sys_futex(uaddr=cache.lock, operation=FUTEX_WAIT";
    let at = lines.iter().position(|line| line.contains(call)).unwrap_or_else(|| panic!("{replay}"));
    // The wait is shown in the system call.
    assert!(lines[at..].iter().take(4).any(|line| line.contains("/* blocked ")), "{replay}");
    // The other thread unlocks it.
    assert!(lines.iter().any(|line| line.contains(", woken by kept_waiting")), "{replay}");
}
