//! A program recorded by calltap while trace-cmd records events of the kernel: on one timeline,
//! both agree with the program's own measurements.

use crate::exchange::import::RECORD;
use calltap_e2e::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MS: u64 = 1_000_000;

/// Records a program by calltap and the kernel's events at the same time. Returns both files;
/// `None` without access to the kernel's events or without trace-cmd.
fn record_both(
    directory: &Path,
    program: &Program,
    clock: &str,
    calltap_clock: &str,
) -> Option<(PathBuf, PathBuf)> {
    if !have("trace-cmd") {
        return None;
    }
    let trace = directory.join("calltap.data");
    let command = format!(
        "{} record -q --no-sched --clock {calltap_clock} -o {} -- {}",
        calltap().display(),
        trace.display(),
        program.path.display()
    );
    let mut recorder = Command::new("unshare");
    recorder.args(["-m", "sh", "-c", RECORD, "sh"]).arg(directory).args(["20480", &command, clock]);
    let run = run(recorder, b"");
    let file = directory.join("trace.dat");
    if !run.status.success() || !file.exists() {
        skipped(&format!("no events of the kernel here: {}", run.stderr.trim()));
        return None;
    }
    Some((trace, file))
}

/// Two recordings of a program, and their merged trace.
struct Merged {
    directory: tempfile::TempDir,
    trace: PathBuf,
    merged: PathBuf,
    run: Run,
    /// The longest wait in each function that was asked for.
    waits: Vec<Value>,
}

/// Records until the longest waits in these functions are known to have taken at least these
/// nanoseconds. The kernel sometimes omits a switch to a thread of its filter without counting it
/// as dropped, and the thread's states around it are unknown then. `None` without access to the
/// kernel's events or without trace-cmd.
fn record_and_merge(
    program: &Program,
    clock: &str,
    calltap_clock: &str,
    asked: &[(&str, u64)],
) -> Option<Merged> {
    const TIMES: usize = 20;
    let mut last = Vec::new();
    for _ in 0..TIMES {
        let directory = tempfile::tempdir().expect("a directory");
        let (trace, file) = record_both(directory.path(), program, clock, calltap_clock)?;
        let merged = directory.path().join("merged.data");
        let run = merge(&[&trace, &file], &merged);
        assert!(run.status.success(), "{}", run.stderr);
        let waits: Vec<Value> = asked.iter().map(|(function, _)| longest_wait(&merged, function)).collect();
        let is_known = |(wait, (_, least)): (&Value, &(&str, u64))| wait["ns"].as_u64() >= Some(*least);
        if waits.iter().zip(asked).all(is_known) {
            return Some(Merged { directory, trace, merged, run, waits });
        }
        last = waits;
    }
    panic!("in {TIMES} recordings it is not known how long the threads waited: {last:#?}");
}

fn merge(files: &[&Path], output: &Path) -> Run {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let mut arguments = vec!["merge"];
    arguments.extend(files.iter().map(String::as_str));
    let output = output.display().to_string();
    arguments.extend(["-o", &output]);
    calltap_run(&arguments)
}

fn json(arguments: &[&str], trace: &Path) -> Value {
    let run = calltap_run(&[arguments, &["-i", &trace.display().to_string()]].concat());
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
    serde_json::from_str(&run.stdout).expect("JSON")
}

/// Returns the calls and total time of a function.
fn row(trace: &Path, function: &str, part: &[&str]) -> (u64, u64) {
    let rows = json(&[&["report", "--format", "json"], part].concat(), trace);
    let rows = rows["functions"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["function"] == function);
    row.map_or((0, 0), |row| (row["calls"].as_u64().unwrap_or(0), row["total_ns"].as_u64().unwrap_or(0)))
}

/// Returns the longest wait of a function's slowest call.
fn longest_wait(trace: &Path, function: &str) -> Value {
    let answer = json(&["why", &format!("{function}>60ms"), "--json"], trace);
    answer["calls"][0]["did"]["blocked"][0].clone()
}

#[test]
fn the_kernel_is_beneath_the_calls_of_the_program() {
    let program = compile(GCC, &["kept_waiting.c"], &["-pthread"]);
    let Some(found) =
        record_and_merge(&program, "x86-tsc", "tsc", &[("handle_nap", 70 * MS), ("handle_lock", 1)])
    else {
        return;
    };
    let Merged { directory, trace, merged, run, waits } = found;
    let [nap, lock] = &waits[..] else { panic!("{waits:#?}") };
    assert!(!run.stderr.contains("without a return"), "{}", run.stderr);
    assert!(run.stderr.contains("the kernel's calls are within the program's"), "{}", run.stderr);
    let left = fs::read_dir(directory.path()).expect("a directory").flatten();
    assert!(
        !left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(".part")),
        "imported for the time being"
    );
    // Calls by function are the same in the recording alone and in the merged trace.
    for function in ["handle_lock", "handle_nap", "hold_lock", "wait_pipe", "fill_pipe"] {
        let (alone, together) = (row(&trace, function, &[]), row(&merged, function, &[]));
        assert_eq!((alone.0, alone.1), (together.0, together.1), "{function}");
    }
    // The program sleeps once for 80 ms in this function, and makes no other system call there.
    let (naps, total) = row(&merged, "sys_clock_nanosleep", &["--graph", "handle_nap"]);
    assert!(naps == 1 && total >= 80 * MS && total <= row(&merged, "handle_nap", &[]).1, "{naps} {total}");
    let (reads, total) = row(&merged, "sys_read", &["--graph", "wait_pipe"]);
    assert!(reads == 1 && total >= 40 * MS, "{reads} {total}");
    assert!(nap["in"].as_str().is_some_and(|told| told.starts_with("clock_nanosleep(")), "{nap:#}");
    assert_eq!(nap["woken_by"]["kind"], "interrupt", "{nap:#}");
    assert!(lock["in"].as_str().is_some_and(|told| told.starts_with("futex(")), "{lock:#}");
    assert_eq!(
        (&lock["woken_by"]["kind"], &lock["woken_by"]["thread"]),
        (&"thread".into(), &"holder".into()),
        "{lock:#}"
    );
    let path = lock["woken_by"]["path"].as_array().expect("a path");
    assert!(path.iter().any(|frame| frame == "hold_lock"), "{lock:#}");
    let graph = calltap_run(&["replay", "--graph", "wait_pipe", "-i", &merged.display().to_string()]);
    assert!(graph.stdout.contains("sys_read()"), "{}", graph.stdout);
}

#[test]
fn by_clock_monotonic_the_kernel_is_beside_the_program() {
    let program = compile(GCC, &["kept_waiting.c"], &["-pthread"]);
    let Some(Merged { merged, trace, run, waits, directory: _directory }) =
        record_and_merge(&program, "mono", "coarse", &[("handle_nap", 70 * MS)])
    else {
        return;
    };
    assert!(!run.stderr.contains("within the program's"), "{}", run.stderr);
    assert_eq!(waits[0]["woken_by"]["kind"], "interrupt", "{waits:#?}");
    assert!(row(&merged, "sys_clock_nanosleep", &[]).1 >= 80 * MS);
    // The kernel also names threads of other programs, to which it switches.
    let holders = |trace: &Path| -> Vec<u64> {
        let info = json(&["info", "--format", "json"], trace);
        let threads = info["threads"].as_array().expect("threads").iter();
        threads
            .filter(|thread| thread["thread"] == "holder")
            .filter_map(|thread| thread["tid"].as_u64())
            .collect()
    };
    let (own, all) = (holders(&trace), holders(&merged));
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(all.iter().filter(|tid| **tid == own[0]).count(), 2, "{own:?} {all:?}");
}

#[test]
fn incompatible_traces_are_refused_in_one_line() {
    let program = compile(GCC, &["timeline.c"], &[]);
    let counted = record(&program, &["--clock", "counter"], &Expect::default());
    let timed = record(&program, &[], &Expect::default());
    let output = program.directory().join("merged.data");
    let run = merge(&[&timed.trace, &counted.trace], &output);
    assert!(
        !run.status.success() && run.stderr.contains("have no times (--clock counter)"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.lines().count() == 1 && !output.exists(), "{}", run.stderr);
    if let Some((_, file)) = record_both(program.directory(), &program, "global", "tsc") {
        let run = merge(&[&timed.trace, &file], &output);
        assert!(
            !run.status.success() && run.stderr.contains("the kernel's clock 'global' cannot be related"),
            "{}",
            run.stderr
        );
        assert!(run.stderr.lines().count() == 1 && !output.exists(), "{}", run.stderr);
    }
    let run = merge(&[&timed.trace], &output);
    assert!(!run.status.success() && run.stderr.contains("calltap merge"), "{}", run.stderr);
}
