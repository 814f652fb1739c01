//! Wrong usages: each prints one line that says what failed, on what, why, and what to do.

use calltap_e2e::{GCC, Resident, calltap_run, changed_text, compile};

/// A command line, and the texts that its message must contain.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

/// Checks that each command line is refused in one line that contains the texts.
#[track_caller]
fn check_all(cases: &[Case<'_>]) {
    for (words, says) in cases {
        let run = calltap_run(words);
        assert!(!run.status.success(), "{words:?} succeeded: {}", run.stdout);
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert!(lines.len() == 1 && run.stdout.is_empty(), "{words:?}: {lines:#?} {}", run.stdout);
        assert!(lines[0].starts_with("calltap: "), "{words:?}: {}", lines[0]);
        for part in *says {
            assert!(lines[0].contains(part), "{words:?}: {part:?} is not in: {}", lines[0]);
        }
    }
}

#[test]
fn a_wrong_usage_is_told_in_one_line() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let directory = program.directory().to_string_lossy().into_owned();
    let (path, pid) = (program.path.to_string_lossy().into_owned(), resident.pid.to_string());
    let text = program.directory().join("text").to_string_lossy().into_owned();
    std::fs::write(&text, "no trace\n").expect("a file");
    let (p, t, x, d) = (pid.as_str(), text.as_str(), path.as_str(), directory.as_str());
    let cases: [Case<'_>; 45] = [
        (&["record", "-F", "naps", "--", x], &["no traceable function matches 'naps'", "nearest: nap"]),
        (&["record", "-F", "libc:nosuch", "--", x], &["no traceable function matches 'libc:nosuch'"]),
        (&["record", "--follw", "--", x], &["--follw: no option of record", "--follow"]),
        (&["record", "-F"], &["--filter", "calltap help record"]),
        (&["record"], &["nothing to record", "-p PID"]),
        (&["record", "-p", p, "--", x], &["exclude each other"]),
        (&["record", "--", "/no/such/program"], &["/no/such/program", "no such file"]),
        (&["record", "--", "no-such-program"], &["no-such-program", "PATH"]),
        (&["record", "--", d], &["is a directory"]),
        (&["record", "--", t], &["not executable"]),
        (&["record", "-o", d, "--", x], &["a directory, and a trace is a file", "calltap.data"]),
        (&["record", "-o", "/no/such/place/x", "--", x], &["/no/such/place/x"]),
        (&["record", "-o", "-", "--", x], &["standard output", "-p PID"]),
        (&["record", "--duration", "2", "--", x], &["--duration", "-p"]),
        (&["record", "--max-overhead", "5%", "--", x], &["--max-overhead", "-p"]),
        (&["record", "-p", p, "--duration", "2 hours"], &["'2 hours' is not a time", "seconds"]),
        (&["record", "-p", p, "--max-overhead", "little"], &["'little' is not a percentage", "5%"]),
        (&["record", "-p", p, "--buffer-size", "1X"], &["'1X' is not a size"]),
        (&["record", "-p", "4194305"], &["process 4194305: no such process"]),
        (&["record", "-p", "no-such-name"], &["no-such-name", "no process of this name"]),
        (&["record", "-p", "-5"], &["-5"]),
        (&["record", "--clock", "sundial", "--", x], &["sundial", "tsc"]),
        (&["record", "--slow", "main", "--", x], &["--slow: 'main'", "handle_request>10ms"]),
        (&["record", "-A", "nap@", "--clock", "sparse", "--", x], &["--clock sparse"]),
        (&["record", "--tracer", "functon", "--", x], &["no tracer named 'functon'", "function_graph"]),
        (&["report", "/no/such/trace"], &["/no/such/trace", "No such file"]),
        (&["report", d], &[d]),
        (&["count", "-F", "nap", "-p", p], &["-F: no option of count", "calltap count GLOB"]),
        (&["report", t], &[t, "not a calltap trace"]),
        (&["report", "-p", p], &["--profile", "calltap top"]),
        (&["report", "-s", "speed", t], &["speed", "total"]),
        (&["count", "nap"], &["no subject", "-p PID"]),
        (&["count", "nap", "-p", p, "-i", t], &["one of"]),
        (&["count", "nap", "/no/such.data"], &["/no/such.data", "No such file"]),
        (&["count", t], &["no subject", "FILE"]),
        (&["count", "nap", t], &[t, "is not a trace", "no subject"]),
        (&["locks", "/no/such.data"], &["/no/such.data", "No such file"]),
        (&["slower", "nap", "-p", p], &["'nap' is not a time"]),
        (&["latency", "napp", "-p", p], &["no traceable function matches 'napp'", "nearest: nap"]),
        (&["set", "-F", "nap"], &["no process named", "-p PID"]),
        (&["detach", "-p", p], &[p, "not attached"]),
        (&["recrod", "--", x], &["recrod", "record"]),
        (&["count", "--childen", "nap", "-p", p], &["--childen: no option of count", "is it --children?"]),
        (&["watch", "--by", "caller", "nap", "-p", p], &["--by: no option of watch", "calltap help watch"]),
        (&["tracefs", "get", "tracing_on", "-p", "1,2"], &["2 processes", "takes one"]),
    ];
    check_all(&cases);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn a_contradiction_is_told_and_so_is_a_word_in_the_place_of_a_file() {
    let t = "no-such.data";
    check_all(&[
        (&["report", t, "-i", t], &["cannot be used with", "--input"]),
        (&["report", t, "--json", "--format", "csv"], &["--json", "cannot be used with", "--format"]),
        (&["graph", "nap"], &["nap: cannot open", "-F nap names a function"]),
        (&["replay", "nap"], &["nap: cannot open", "--graph nap names a function"]),
        (&["export", "chrome"], &["chrome: cannot open", "--to chrome a format"]),
    ]);
}
