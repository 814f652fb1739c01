//! Clients of the control directory: trace-cmd, and programs that read its recordings.

use calltap_e2e::*;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn trace_cmd_works_on_a_process() {
    if !have_fuse() || !have("trace-cmd") {
        return;
    }
    let mut mounted = Mounted::new("counted");
    let pid = mounted.resident.pid.to_string();
    let trace_cmd = |words: &[&str]| {
        let run = calltap_run(&[&["exec", "-p", &pid, "--", "trace-cmd"], words].concat());
        assert!(run.status.success(), "trace-cmd {words:?}: {}{}", run.stdout, run.stderr);
        run.stdout
    };
    assert_eq!(trace_cmd(&["list", "-t"]), "function_graph function nop\n");
    assert!(trace_cmd(&["list", "-f"]).lines().any(|line| line == "outer"));
    trace_cmd(&["start", "-p", "function_graph", "-l", "outer", "-l", "work"]);
    assert_eq!(mounted.cat("set_ftrace_filter").lines().count(), 2);
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    trace_cmd(&["stop"]);
    assert!(trace_cmd(&["show"]).contains("  outer() {"));
    assert!(trace_cmd(&["stat"]).contains("Tracer: function_graph"));
    trace_cmd(&["clear"]);
    assert!(!mounted.cat("trace").contains("outer"));
    trace_cmd(&["reset"]);
    assert_eq!(mounted.cat("current_tracer"), "nop\n");
    // The kernel's directory may be mounted a second time.
    let script =
        r#"mkdir "$0" && mount -t tracefs nodev "$0" && "$@"; code=$?; umount "$0"; rmdir "$0"; exit $code"#;
    let second = std::env::temp_dir().join(format!("calltap-tracefs-{pid}"));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&second).arg(calltap());
    command.args(["exec", "-p", &pid, "--", "trace-cmd", "list", "-t"]);
    assert_eq!(run(command, b"").stdout, "function_graph function nop\n");
    let run = calltap_run(&["exec", "-p", &pid, "--", "no-such-program"]);
    assert_eq!(run.status.code(), Some(127));
    one_line(&run, &["no-such-program", "no such program in PATH"]);
    mounted.end();
}

/// Returns the events in the output of `trace-cmd report`.
fn report(file: &Path) -> Vec<String> {
    let mut command = Command::new("trace-cmd");
    command.args(["report", "-O", "parent", "-i"]).arg(file);
    let run = run(command, b"");
    assert!(run.status.success(), "{}{}", run.stdout, run.stderr);
    run.stdout.lines().filter(|line| !line.starts_with("cpus=")).map(str::to_owned).collect()
}

/// Checks the program's calls one by one, as trace-cmd shows them: `outer` calls `work` ten times.
fn assert_calls(lines: &[String], expected: &[&str]) {
    let outers = 12_345;
    assert_eq!(lines.len(), outers * expected.len(), "{:#?}", lines.iter().take(20).collect::<Vec<_>>());
    let mut before = 0.0;
    for (n, line) in lines.iter().enumerate() {
        let (context, event) = line.split_once(": ").expect("an event");
        let time: f64 = context.rsplit(' ').next().and_then(|time| time.parse().ok()).expect("a time");
        assert!(context.trim_start().starts_with("resident-") && time >= before, "{n}: {line}");
        before = time;
        // A duration may stand between the event's name and its text.
        let what = event.rsplit('|').next().unwrap_or(event);
        assert_eq!(what.trim_start_matches("function:").trim(), expected[n % expected.len()], "{n}: {line}");
    }
}

/// Checks the same calls in KernelShark, if installed.
fn assert_shown(file: &Path, is_graph: bool) {
    let Some(program) = kernelshark() else { return };
    let mut command = Command::new(program);
    command.arg(file);
    let run = run(command, b"");
    assert!(run.status.success(), "{:?} {}", run.status, run.stderr);
    let (mut calls, mut returns, mut before) = (Vec::new(), 0, 0);
    for line in run.stdout.lines() {
        let [time, _, task, event, info] = line.splitn(5, '\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let time: u64 = time.parse().expect("a time");
        assert!(task == "resident" && time >= before, "{line}");
        before = time;
        match event {
            "ftrace/funcgraph_entry" if is_graph => {
                calls.push(info.split_once('|').expect("a column").1.trim())
            }
            "ftrace/funcgraph_exit" if is_graph => returns += 1,
            "ftrace/function" if !is_graph => calls.push(info.split(" <-- ").next().unwrap_or(info)),
            _ => panic!("{line}"),
        }
    }
    let expected = ["outer"].into_iter().chain(["work"; 10]);
    let expected: Vec<&str> = std::iter::repeat_n(expected, 12_345).flatten().collect();
    let calls: Vec<&str> =
        calls.iter().map(|call| call.trim_end_matches(['(', ')', ' ', ';', '{'])).collect();
    assert!(calls == expected, "{:#?}", &calls[..calls.len().min(20)]);
    assert_eq!(returns, if is_graph { expected.len() } else { 0 });
}

#[test]
fn trace_cmd_records_and_extracts_every_call() {
    if !have_fuse() || !have("trace-cmd") {
        return;
    }
    let mut mounted = Mounted::new("counted");
    let pid = mounted.resident.pid.to_string();
    let files = tempfile::tempdir().expect("a directory");
    let file = |name: &str| files.path().join(name);
    let graph: Vec<&str> = ["outer() {"].into_iter().chain(["work();"; 10]).chain(["}"]).collect();
    let function: Vec<&str> = ["outer <-- check"].into_iter().chain(["work <-- outer"; 10]).collect();
    for (tracer, expected) in [("function_graph", &graph), ("function", &function)] {
        // KernelShark chooses its reader by the file's extension.
        let data = file(&format!("{tracer}.dat"));
        let mut command = Command::new(calltap());
        command.args(["exec", "-p", &pid, "--", "trace-cmd", "record", "-p", tracer, "-b", "30000"]);
        command.args(["-l", "outer", "-l", "work", "-o"]).arg(&data).args(["sh", "-c"]);
        // trace-cmd records while this command runs: until the program has done its work.
        let (begun, over) = (file("begun"), file("over"));
        // trace-cmd does not wait until its reading processes have started, and one that is ended
        // before leaves no events. A reader has started when it sleeps for lack of events, or has
        // written some.
        let wait = r#"
            touch "$0"
            while [ ! -e "$1" ]; do sleep 0.02; done
            for reader in $(cat /proc/$PPID/task/$PPID/children); do
                while [ $reader != $$ ] && [ -e /proc/$reader ] && ! [ -s "$2.cpu0" ]; do
                    grep -qE 'nanosleep|poll' /proc/$reader/wchan && break
                    sleep 0.02
                done
            done"#;
        command.arg(wait).arg(&begun).arg(&over).arg(&data);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("calltap");
        let start = Instant::now();
        while !begun.exists() && start.elapsed() < Duration::from_secs(120) {
            thread::sleep(Duration::from_millis(10));
        }
        mounted.resident.tell();
        mounted.resident.wait_for("done");
        fs::write(&over, "").expect("a file");
        let output = child.wait_with_output().expect("calltap");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_calls(&report(&data), expected);
        assert_shown(&data, tracer == "function_graph");
        fs::remove_file(begun).and(fs::remove_file(over)).expect("files");
    }
    let data = file("extracted");
    let trace_cmd = |words: &[&str]| {
        let run = calltap_run(&[&["exec", "-p", &pid, "--", "trace-cmd"], words].concat());
        assert!(run.status.success(), "trace-cmd {words:?}: {}{}", run.stdout, run.stderr);
    };
    trace_cmd(&["start", "-p", "function_graph", "-b", "30000", "-l", "outer", "-l", "work"]);
    mounted.resident.tell();
    mounted.resident.wait_for("done");
    trace_cmd(&["stop"]);
    trace_cmd(&["extract", "-o", &data.to_string_lossy()]);
    assert_calls(&report(&data), &graph);
    trace_cmd(&["reset"]);
    mounted.end();
}
