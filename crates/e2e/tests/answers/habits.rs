//! Habits of users: such words are understood, or answered by a line that says what to type
//! instead.

use calltap_e2e::{GCC, Resident, calltap_run, compile, have_switches, have_tracepoints, write_program};

/// Runs calltap, which has to succeed, and returns its output and messages.
#[track_caller]
fn run(words: &[&str]) -> (String, String) {
    let run = calltap_run(words);
    assert!(run.status.success(), "{words:?}: {}", run.stderr);
    (run.stdout, run.stderr)
}

/// Runs calltap, which has to fail with one line that has these parts.
#[track_caller]
fn refused(words: &[&str], parts: &[&str]) {
    let run = calltap_run(words);
    assert!(!run.status.success() && run.stderr.lines().count() == 1, "{words:?}: {}", run.stderr);
    assert!(parts.iter().all(|part| run.stderr.contains(part)), "{words:?}: {}", run.stderr);
}

#[test]
fn a_path_names_a_process_and_parentheses_a_function() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let (path, pid) = (program.path.to_string_lossy().into_owned(), resident.pid.to_string());
    let (counted, _) = run(&["count", "leaf()", "-p", &path, "--duration", "200ms", "--json"]);
    assert!(counted.contains("\"leaf\""), "{counted}");
    refused(&["count", "leaf", "-p", "/bin/no-such"], &["/bin/no-such: no process runs this file"]);
    assert!(!run(&["status"]).0.lines().any(|line| line.trim_start().starts_with(&pid)));
    run(&["attach", "-p", &pid]);
    let (listed, _) = run(&["status"]);
    let line = listed.lines().find(|line| line.trim_start().starts_with(&pid)).expect("a line");
    assert!(line.contains("attached for") && line.ends_with("functions on"), "{line}");
    let (listed, _) = run(&["status", "--format", "json"]);
    assert!(listed.lines().any(|line| line.contains(&format!("\"pid\":{pid},"))), "{listed}");
    run(&["detach", "-p", &pid]);
    assert!(resident.end().0.success());
}

#[test]
fn words_of_other_tools_lead_to_those_of_calltap() {
    let program = compile(GCC, &["paced.c"], &[]);
    let path = program.path.to_string_lossy().into_owned();
    refused(&["record", "-F", "^na.*$", "--", &path], &["not a regular expression: 'na*'"]);
    refused(&["record", "-F", "nap|leaf", "--", &path], &["not a regular expression: 'nap,leaf'"]);
    refused(&["record", "-F", "nanosleep@plt", "--", &path], &["--libcalls -F 'nanosleep'"]);
    let script = program.directory().join("start.sh").to_string_lossy().into_owned();
    write_program(script.as_ref(), format!("#!/bin/sh\nexec {path}\n").as_bytes(), 0o755);
    let parts = ["no traceable function matches 'leaf'", "start.sh is a script of", "--follow traces"];
    refused(&["record", "-F", "leaf", "--", &script], &parts);
}

#[test]
fn traces_with_numbers_are_found_and_merged() {
    let program = compile(GCC, &["paced.c"], &[]);
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("runs.data").to_string_lossy().into_owned();
    run(&["record", "-q", "--repeat", "2", "-o", &trace, "--", &path]);
    refused(&["report", &trace], &["there is ", "runs.data.1 and 1 more"]);
    let [first, second] = [1, 2].map(|n| format!("{trace}.{n}"));
    refused(&["report", &first, &second], &["report takes one FILE", "calltap merge"]);
}

#[test]
fn values_of_all_filtered_functions_and_of_results() {
    let program = compile(GCC, &["paced.c"], &["-g"]);
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("all.data").to_string_lossy().into_owned();
    run(&["record", "-q", "-o", &trace, "-F", "l*p,leaf", "-A", "all", "--", &path]);
    let (calls, _) = run(&["replay", "-n", "40", &trace]);
    assert!(calls.contains("lap(n=0)") && calls.contains("leaf(n=9)"), "{calls}");
    run(&["record", "-q", "-o", &trace, "-F", "l*,!leaf", "-A", "all", "--", &path]);
    let (calls, _) = run(&["replay", "-n", "40", &trace]);
    assert!(calls.contains("lap(n=0)") && !calls.contains("leaf"), "{calls}");
    run(&["record", "-q", "-o", &trace, "-A", "lap,leaf", "-R", "lap,leaf", "--", &path]);
    let (calls, _) = run(&["replay", "-n", "40", &trace]);
    assert!(calls.contains("lap(n=0)") && calls.contains("leaf(n=9); /* ret=10 */"), "{calls}");
    run(&["record", "-q", "-o", &trace, "-A", "all", "-R", "all", "--", &path]);
    let (calls, _) = run(&["replay", "-n", "40", &trace]);
    assert!(calls.contains("lap(n=0)") && calls.contains("leaf(n=9); /* ret=10 */"), "{calls}");
    run(&["record", "-q", "-o", &trace, "-A", "all,leaf@n,lap@arg1/x64", "--", &path]);
    let (calls, _) = run(&["replay", "-n", "40", &trace]);
    assert!(calls.contains("lap(n=0, arg1=0x0)") && calls.contains("leaf(n=9);"), "{calls}");
    let (calls, _) = run(&["watch", "leaf", "-R", "retval/x64", "-n", "12", "--", &path]);
    assert!(calls.contains("ret=0xa"), "{calls}");
}

#[test]
fn line_tables_alone_describe_no_values() {
    let program = compile(GCC, &["paced.c"], &["-g1"]);
    let path = program.path.to_string_lossy().into_owned();
    let reason = "leaf: no debugging information describes its arguments";
    refused(&["watch", "leaf", "-A", "all", "--", &path], &[reason]);
    let (calls, _) = run(&["watch", "leaf", "-A", "arg1", "-R", "-n", "12", "--", &path]);
    assert!(calls.contains("leaf(arg1=9)") && calls.contains("ret=10"), "{calls}");
}

#[test]
fn waits_for_calltap_at_the_start_are_no_locks_of_the_program() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["paced.c"], &[]);
    let (locks, _) = run(&["locks", "--", &program.path.to_string_lossy()]);
    assert!(locks.ends_with("no waits\n"), "{locks}");
}
