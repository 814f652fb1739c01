//! Imported recordings of trace-cmd: calls of calltap's own exports are unchanged, and events of
//! the kernel are those of `trace-cmd report`.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn import(file: &Path) -> (PathBuf, Run) {
    let output = file.with_extension("imported");
    let (from, into) = (file.to_string_lossy(), output.to_string_lossy());
    let run = calltap_run(&["import", &from, "-o", &into]);
    (output, run)
}

/// Returns the lines of a view.
fn view(arguments: &[&str], trace: &Path) -> Vec<String> {
    let trace = trace.to_string_lossy();
    let run = calltap_run(&[arguments, &["-i", &trace]].concat());
    assert!(run.status.success(), "{arguments:?}: {}", run.stderr);
    run.stdout.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns function, calls, total and longest time, sorted.
fn rows(trace: &Path) -> Vec<(String, u64, u64, u64)> {
    let text = view(&["report", "--format", "json"], trace).join("\n");
    let rows = rows_of(&text);
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_u64().unwrap_or(0);
        let name = row["function"].as_str().expect("a name").replace(", ", ",").replace(' ', "_");
        (name, number("calls"), number("total_ns"), number("max_ns"))
    };
    let mut rows: Vec<_> = rows.iter().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn an_exported_trace_comes_back() {
    let program = compile(GCC, &["timeline.c"], &[]);
    let both = ["--tracer", "function", "--tracer", "function_graph"];
    for tracers in [&both[..2], &both[2..], &both] {
        let recording = record(&program, tracers, &Expect::default());
        for version in ["6", "7"] {
            let file = recording.trace.with_extension(format!("{version}.dat"));
            let (from, into) = (recording.trace.to_string_lossy(), file.to_string_lossy());
            let exported = calltap_run(&[
                "export",
                "--to",
                "trace-cmd",
                "--format-version",
                version,
                "-i",
                &from,
                "-o",
                &into,
            ]);
            assert!(exported.status.success(), "{}", exported.stderr);
            let (imported, run) = import(&file);
            assert!(run.status.success(), "{}", run.stderr);
            assert!(!run.stderr.contains(" not shown"), "{}", run.stderr);
            let (ours, theirs) = (rows(&recording.trace), rows(&imported));
            let names = |rows: &[(String, u64, u64, u64)]| {
                rows.iter().map(|row| (row.0.clone(), row.1)).collect::<Vec<_>>()
            };
            assert!(!ours.is_empty());
            assert_eq!(names(&theirs), names(&ours), "{tracers:?}, version {version}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                // A moment is converted with the clock readings around it, a duration with those of
                // the whole recording.
                let slack = ours.1 * 2 + ours.2 / 1000;
                assert!(ours.2.abs_diff(theirs.2) <= slack, "{ours:?} {theirs:?}");
            }
            let graph = calltap_run(&["graph", "-i", &imported.to_string_lossy()]);
            let diff = calltap_run(&["diff", &from, &imported.to_string_lossy()]);
            assert!(graph.status.success() && diff.status.success(), "{}{}", graph.stderr, diff.stderr);
        }
    }
}

/// A script that records the kernel's events of a program as pages of an instance of tracefs, from
/// which trace-cmd makes a file. Arguments: directory, size of the buffers in kilobytes, command,
/// clock, filter of context switches.
pub const RECORD: &str = "set -e
mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing
I=/sys/kernel/tracing/instances/calltap-e2e-$$
mkdir $I; trap 'for e in sched/sched_switch sched/sched_waking raw_syscalls kmem/kmalloc; do echo 0 >$I/events/$e/enable; done; rmdir $I' EXIT
echo ${4:-mono} >$I/trace_clock; echo $2 >$I/buffer_size_kb
echo 1 >$I/options/event-fork; echo $$ >$I/set_event_pid
[ -z \"$5\" ] || echo \"$5\" >$I/events/sched/sched_switch/filter
for e in sched/sched_switch sched/sched_waking raw_syscalls kmem/kmalloc; do echo 1 >$I/events/$e/enable; done
sh -c \"$3\"
echo 0 >$I/tracing_on
mount --bind $I/trace_clock /sys/kernel/tracing/trace_clock
cd $1; set --
for c in $I/per_cpu/cpu*; do
  n=pages.${c##*/}; timeout 5 dd if=$c/trace_pipe_raw of=$n bs=4096 iflag=nonblock 2>/dev/null || true
  set -- \"$@\" $n
done
trace-cmd restore -c -o head.dat >/dev/null
trace-cmd restore -i head.dat -o trace.dat \"$@\" >/dev/null
";

/// Records events of the kernel; `None` without access to the kernel's events or without trace-cmd.
fn kernel(directory: &Path, kilobytes: &str, command: &str) -> Option<PathBuf> {
    filtered(directory, kilobytes, command, "")
}

/// Records events of the kernel, with only those context switches that pass a filter.
fn filtered(directory: &Path, kilobytes: &str, command: &str, filter: &str) -> Option<PathBuf> {
    if !have("trace-cmd") {
        return None;
    }
    let mut recorder = Command::new("unshare");
    recorder.args(["-m", "sh", "-c", RECORD, "sh"]).arg(directory).args([kilobytes, command, "mono", filter]);
    let run = run(recorder, b"");
    let file = directory.join("trace.dat");
    if !run.status.success() || !file.exists() {
        skipped(&format!("no events of the kernel here: {}", run.stderr.trim()));
        return None;
    }
    Some(file)
}

/// Returns the counts of `trace-cmd report`: system calls, other events, and dropped ones.
fn reported(file: &Path) -> (BTreeMap<String, u64>, BTreeMap<String, u64>, u64) {
    let mut command = Command::new("trace-cmd");
    command.args(["report", "-i"]).arg(file);
    let run = run(command, b"");
    let (mut calls, mut events, mut dropped) = (BTreeMap::new(), BTreeMap::new(), 0);
    for line in run.stdout.lines() {
        if let Some((_, count)) = line.strip_prefix("CPU:").and_then(|rest| rest.split_once('[')) {
            dropped += count.split(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a count");
            continue;
        }
        let Some((_, rest)) = line.split_once("] ") else { continue };
        let mut words = rest.split_whitespace().skip(1);
        let Some(event) = words.next().map(|event| event.trim_end_matches(':')) else { continue };
        *events.entry(event.to_owned()).or_default() += 1;
        if event == "sys_enter" {
            assert_eq!(words.next(), Some("NR"));
            *calls.entry(words.next().expect("a number").to_owned()).or_default() += 1;
        }
    }
    (calls, events, dropped)
}

/// Returns the duration of the sleep, and the part of it that was blocked; `None` if the recording
/// does not say.
fn nap(imported: &Path) -> Option<(u64, u64)> {
    let flags = ["report", "--format", "json", "-F", "sys_clock_nanosleep", "--thread", "sleep"];
    let nap = rows_of(&view(&flags, imported).join("\n"));
    Some((nap[0]["max_ns"].as_u64()?, nap[0]["blocked_ns"].as_u64()?))
}

#[test]
fn a_system_call_that_waits_is_blocked() {
    let recorded = || {
        let directory = tempfile::tempdir().expect("a directory");
        let file = kernel(directory.path(), "20480", "sleep 0.3")?;
        let (imported, run) = import(&file);
        assert!(run.status.success(), "{}", run.stderr);
        Some(nap(&imported))
    };
    let Some(first) = recorded() else { return };
    // The kernel may have omitted a switch of the thread, whose states are unknown then.
    let nap = first.or_else(|| (0..9).find_map(|_| recorded().flatten()));
    let (total, blocked) = nap.expect("a recording in which the states are known");
    assert!(total >= 300_000_000 && blocked >= 299_000_000, "{total} {blocked}");
}

/// A recording without switches to the thread still shows its switches away from a processor, and
/// its wakings.
#[test]
fn import_infers_sleep_until_wakeup_without_switch_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let filter = "prev_comm == \"sleep\"";
    let Some(file) = filtered(directory.path(), "20480", "sleep 0.3", filter) else { return };
    let (imported, run) = import(&file);
    assert!(run.status.success(), "{}", run.stderr);
    let flags = ["report", "--format", "json", "-F", "sys_clock_nanosleep", "--thread", "sleep"];
    let rows = rows_of(&view(&flags, &imported).join("\n"));
    assert!(rows[0]["max_ns"].as_u64().is_some_and(|ns| ns >= 300_000_000), "{rows:?}");
    for key in ["cpu_ns", "runnable_ns", "blocked_ns", "self_blocked_ns"] {
        assert!(rows[0][key].is_null(), "{key}: {rows:?}");
    }
    let replay = view(&["replay", "--thread", "sleep"], &imported);
    let nap = replay.iter().position(|line| line.contains("sys_clock_nanosleep")).expect("the nap");
    let waits = &replay[nap + 1..nap + 3];
    assert!(
        waits[0].contains("/* blocked 3") && waits[0].contains(" ms, woken by an interrupt */"),
        "{waits:?}"
    );
    assert!(waits[1].contains("/* not known when it ran in the next "), "{waits:?}");
    let csv = view(&["export", "--to", "csv", "--thread", "sleep"], &imported);
    let nap = csv.iter().find(|line| line.contains("sys_clock_nanosleep")).expect("the nap");
    assert!(nap.ends_with(",,,,,returned"), "{nap}");
    let why = calltap_run(&["why", "sys_clock_nanosleep>100ms", &imported.to_string_lossy()]);
    assert!(
        why.stdout.contains("blocked in clock_nanosleep") && why.stdout.contains("unknown: "),
        "{}{}",
        why.stdout,
        why.stderr
    );
}

#[test]
fn kernel_events_equal_trace_cmd_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(file) = kernel(directory.path(), "20480", "sleep 0.3; ls / >/dev/null") else { return };
    let (calls, events, dropped) = reported(&file);
    let (imported, run) = import(&file);
    assert!(run.status.success(), "{}", run.stderr);
    if let Some(count) = events.get("kmalloc") {
        let told = format!("import: {count} events of 1 kind not shown: kmalloc {count}\n");
        assert!(run.stderr.contains(&told), "{}", run.stderr);
    }
    let rows = rows(&imported);
    let of = |name: &str| rows.iter().find(|row| row.0 == name);
    let total: u64 = rows.iter().map(|row| row.1).sum();
    assert_eq!(Some(&total), events.get("sys_enter"));
    for (number, name) in
        [("0", "sys_read"), ("1", "sys_write"), ("59", "sys_execve"), ("230", "sys_clock_nanosleep")]
    {
        assert_eq!(of(name).map(|row| row.1), calls.get(number).copied(), "{name}");
    }
    let info: Value =
        serde_json::from_str(&view(&["info", "--format", "json"], &imported).join("\n")).expect("JSON");
    assert_eq!(info["calls"]["lost"], dropped);
    for name in ["sleep", "ls"] {
        let threads = info["threads"].as_array().expect("threads");
        assert!(threads.iter().any(|thread| thread["thread"] == name), "{name}: {threads:?}");
    }
    // A compressed file with the same events.
    let packed = file.with_extension("7.dat");
    let mut convert = Command::new("trace-cmd");
    convert
        .args(["convert", "--file-version", "7", "--compression", "zstd", "-i"])
        .arg(&file)
        .arg("-o")
        .arg(&packed);
    if calltap_e2e::run(convert, b"").status.success() {
        let (unpacked, run) = import(&packed);
        assert!(run.status.success(), "{}", run.stderr);
        assert_eq!(view(&["replay"], &unpacked), view(&["replay"], &imported));
    }
}

#[test]
fn events_lost_by_kernel_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let busy = "dd if=/dev/zero of=/dev/null bs=1 count=30000 2>/dev/null";
    let Some(file) = kernel(directory.path(), "8", busy) else { return };
    let (_, _, dropped) = reported(&file);
    assert!(dropped > 0, "a buffer of 8 kB holds 60,000 events");
    let (imported, run) = import(&file);
    assert!(run.status.success(), "{}", run.stderr);
    assert!(run.stderr.contains("of all kinds lost in the kernel's buffers"), "{}", run.stderr);
    let info: Value =
        serde_json::from_str(&view(&["info", "--format", "json"], &imported).join("\n")).expect("JSON");
    assert_eq!(info["calls"]["lost"], dropped);
    let exported = calltap_run(&["report", "--format", "json", "-i", &imported.to_string_lossy()]);
    assert!(exported.stderr.contains("lost: the output is not complete"), "{}", exported.stderr);
}

#[test]
fn other_files_are_refused_in_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    let cases = [
        (file("text", b"hello"), "text: not a trace.dat of trace-cmd\n"),
        (file("empty", b""), "empty: not a trace.dat of trace-cmd\n"),
        (
            file("old", b"\x17\x08\x44tracing5\0"),
            "old: a trace.dat of version 5; versions 6 and 7 can be imported\n",
        ),
        (file("cut", b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header"), "the file is cut off: "),
        (
            file("lzma", b"\x17\x08\x44tracing7\0\0\x08\0\x10\0\0lzma\0\x31\0"),
            "compressed by 'lzma'; zstd and zlib",
        ),
        (directory.path().to_owned(), "not a regular file\n"),
        (directory.path().join("absent"), "absent: No such file"),
    ];
    for (path, expected) in cases {
        let (output, run) = import(&path);
        assert!(!run.status.success() && run.stderr.contains(expected), "{path:?}: {}", run.stderr);
        assert!(run.stderr.starts_with("calltap: ") && run.stderr.lines().count() == 1, "{}", run.stderr);
        assert!(!output.exists());
    }
}
