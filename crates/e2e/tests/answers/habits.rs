//! Habits of users: such words are understood, or answered by a line that says what to type
//! instead.

use calltap_e2e::{
    GCC, Resident, calltap, calltap_run, compile, have_switches, have_tracepoints, write_program,
};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

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

#[test]
fn recordings_with_one_output_keep_all_traces() {
    let program = compile(GCC, &["paced.c"], &[]);
    let directory = program.directory().join("together");
    fs::create_dir(&directory).expect("a directory");
    let start = |_| {
        let mut command = Command::new(calltap());
        command.current_dir(&directory).args(["record", "-o", "same.data", "--"]).arg(&program.path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("calltap")
    };
    let mut recordings = (0..4).map(start).collect::<Vec<_>>();
    // No program ends before all of them run: a recording that ended leaves its name to the next.
    for recording in &mut recordings {
        let mut ready = String::new();
        let output = recording.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready "), "{ready}");
    }
    for mut recording in recordings {
        drop(recording.stdin.take());
        let run = recording.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{said}");
        // The last line names the file with the events of this recording.
        let (events, file) =
            said.lines().last().and_then(|line| line.split_once(", 0 lost, ")).expect("events and file");
        let events = events.trim_start_matches("calltap: ").split(" from").next().expect("a number");
        let file = directory.join(file.rsplit_once(" in ").expect("a file").1);
        let (report, _) = self::run(&["report", &file.to_string_lossy()]);
        assert!(report.starts_with(&format!("# {events}")), "{said}{report}");
    }
    let names =
        fs::read_dir(&directory).expect("a directory").map(|entry| entry.expect("a file").file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(names.len() == 4 && names.iter().all(|name| !name.contains("part")), "{names:?}");
}

/// Runs a script in a shell, with calltap as `$0`.
#[track_caller]
fn shell(script: &str, words: &[&str]) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(calltap()).args(words).stdin(Stdio::null());
    let output = command.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_hyphen_is_standard_output_of_every_command_that_writes_a_trace() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let [first, second] = ["first", "second"]
        .map(|name| program.directory().join(format!("{name}.data")).to_string_lossy().into_owned());
    run(&["attach", "-p", &pid]);
    resident.await_work(std::time::Duration::from_millis(2));
    let shown = shell("\"$0\" snapshot -p $1 -o - | tee \"$2\" | \"$0\" report -", &[&pid, &first]);
    assert!(shown.contains("leaf"), "{shown}");
    run(&["detach", "-p", &pid]);
    run(&["record", "-q", "-p", &pid, "-o", &second, "--duration", "100ms"]);
    let merge = "\"$0\" merge \"$1\" \"$2\" -o - | \"$0\" report -";
    let shown = shell(merge, &[&first, &second]);
    assert!(shown.contains("leaf") && shown.contains("2 threads"), "{shown}");
    let page = shell("\"$0\" view --save - \"$1\"", &[&first]);
    assert!(page.starts_with("<!") && page.trim_end().ends_with("</html>"), "{:.200}", page);
    assert!(resident.end().0.success());
}

#[test]
fn a_recorder_in_the_background_of_a_script_ends_by_sigint() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let trace = program.directory().join("script.data").to_string_lossy().into_owned();
    let script = "\"$0\" record -q -p $1 -o \"$2\" & recorder=$!
        until \"$0\" status -p $1 >/dev/null 2>&1; do sleep 0.05; done
        kill -INT $recorder; wait $recorder";
    shell(script, &[&resident.pid.to_string(), &trace]);
    assert!(run(&["info", &trace]).0.contains("detached"));
    assert!(resident.end().0.success());
}

#[test]
fn lines_in_a_file_are_in_the_order_of_their_times() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let file = program.directory().join("watched").to_string_lossy().into_owned();
    shell("\"$0\" watch '*' -p $1 --duration 300ms >\"$2\"", &[&resident.pid.to_string(), &file]);
    let text = fs::read_to_string(&file).expect("the lines");
    let time = |line: &str| line.split_whitespace().next()?.parse::<f64>().ok();
    let times: Vec<f64> = text.lines().filter_map(time).collect();
    assert!(times.len() > 1 && times.is_sorted(), "{text}");
    assert!(resident.end().0.success());
}

#[test]
fn an_existing_output_keeps_its_links_and_its_mode() {
    let program = compile(GCC, &["paced.c"], &[]);
    let path = |name: &str| program.directory().join(name).display().to_string();
    let (trace, file) = (path("runs.data"), path("tables/report.json"));
    run(&["record", "-q", "-o", &trace, "--", &program.path.to_string_lossy()]);
    fs::create_dir(path("tables")).expect("a directory");
    fs::write(&file, "before").expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("a mode");
    for (link, target) in [("linked", "tables/report.json"), ("new", "tables/other.json")] {
        symlink(target, path(link)).expect("a link");
        run(&["report", "--format", "json", "-i", &trace, "-o", &path(link)]);
        assert_eq!(fs::read_link(path(link)).expect("a link"), Path::new(target));
        let written = fs::read_to_string(path(target)).expect("a report");
        assert!(written.starts_with('{') && written.contains("calls"), "{written}");
    }
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o640);
    let left: Vec<_> = fs::read_dir(path("tables")).expect("a directory").flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
