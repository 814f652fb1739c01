//! Wrong usages: each prints one line that says what failed, on what, why, and what to do, and has
//! the exit status of docs/reference/exit-status.md.

use calltap_e2e::{GCC, Resident, calltap, calltap_run, changed_text, compile, end_of};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Exit status of calltap for a wrong usage.
const WRONG: i32 = 1;

/// A command line, and the texts that its message must contain.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

/// Exit statuses where the program to record cannot be started, by words of the message.
const NOT_STARTED: [(&str, i32); 4] =
    [("no such file", 127), ("PATH", 127), ("is a directory", 126), ("not executable", 126)];

/// Returns the exit status that a refusal must have.
fn status_of(words: &[&str], line: &str) -> i32 {
    let is_of_program = matches!(words, ["record", "--", _]);
    let known = NOT_STARTED.iter().find(|(words, _)| is_of_program && line.contains(words));
    known.map_or(WRONG, |(_, status)| *status)
}

/// Checks that each command line is refused in one line that contains the texts.
#[track_caller]
fn check_all(cases: &[Case<'_>]) {
    for (words, says) in cases {
        let run = calltap_run(words);
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert!(lines.len() == 1 && run.stdout.is_empty(), "{words:?}: {lines:#?} {}", run.stdout);
        assert!(lines[0].starts_with("calltap: "), "{words:?}: {}", lines[0]);
        assert_eq!(run.status.code(), Some(status_of(words, lines[0])), "{words:?}: {}", lines[0]);
        for part in *says {
            assert!(lines[0].contains(part), "{words:?}: {part:?} is not in: {}", lines[0]);
        }
    }
}

/// Checks command lines about a running program, its id, a text file and a directory, and that the
/// program goes on unchanged.
#[track_caller]
fn check_about_program(check: impl FnOnce([&str; 4])) {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let directory = program.directory().to_string_lossy().into_owned();
    let (path, pid) = (program.path.to_string_lossy().into_owned(), resident.pid.to_string());
    let text = program.directory().join("text").to_string_lossy().into_owned();
    std::fs::write(&text, "no trace\n").expect("a file");
    check([&path, &pid, &text, &directory]);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn wrong_usage_is_reported_in_one_line() {
    check_about_program(|[x, p, t, d]| {
        check_all(&[
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
            (
                &["count", "--childen", "nap", "-p", p],
                &["--childen: no option of count", "is it --children?"],
            ),
            (
                &["watch", "--by", "caller", "nap", "-p", p],
                &["--by: no option of watch", "calltap help watch"],
            ),
            (&["tracefs", "get", "tracing_on", "-p", "1,2"], &["2 processes", "takes one"]),
        ]);
    });
}

#[test]
fn selections_without_match_or_meaning_are_refused_in_one_line() {
    check_about_program(|[x, p, t, _]| {
        check_all(&[
            (&["record", "-N", "*", "--", x], &["takes away all functions", "-F"]),
            (&["record", "-F", "nap", "-N", "nap", "--", x], &["takes away all functions"]),
            (&["record", "-p", p, "-N", "*", "--duration", "1"], &["takes away all functions"]),
            (&["record", "--if", "arg1 >", "--", x], &["'arg1 >'", "arg1 > 100"]),
            (&["record", "--if", "arg1 > many", "--", x], &["'many' is no number"]),
            (&["record", "--if", "nosuch@arg1 > 1", "--", x], &["no traceable function matches 'nosuch'"]),
            (&["record", "--if", "lap@retval > 1", "--", x], &["lap", "'retval'", "at its entry"]),
            (&["record", "-A", "lap@arg2", "--", x], &["lap", "'arg2'", "there are: n"]),
            (&["count", "nap", "--if", "arg1 > 5", "a.data"], &["a.data", "--if acts while"]),
            (&["latency", "nap", "--duration", "1", "a.data"], &["a.data", "--duration acts while"]),
            (&["view", "-F", "nap", "a.data"], &["a.data", "--filter acts while"]),
            (&["record", "--on", "nap:now", "--", x], &["--on: 'nap:now'", "trace_off"]),
            (&["record", "--repeat", "0", "--", x], &["--repeat: '0'", "(5)"]),
            (&["record", "--max-wait", "soon", "--", x], &["--max-wait: 'soon' is not a time"]),
            (&["record", "--python", "x", "--", x], &["--python", "no CPython interpreter", "--follow"]),
            (&["record", "--kernel", "", "--", x], &["--kernel names no function"]),
            (&["record", "--snapshot-on", "never", "--", x], &["--snapshot-on: 'never'", "crash"]),
            (&["report", "--format", "xml", t], &["'xml'", "json"]),
            (&["report", "--limit", "-3", t], &["-3: no option of report"]),
            (&["diff", t], &["two traces", "calltap diff A B"]),
            (&["sites"], &["<BINARY>", "calltap help sites"]),
            (&["histogram", "nap", "-p", p], &["'nap@arg1'"]),
            (&["span", "nap@arg1", "-p", p], &["BEGIN@ITEM .. END@ITEM"]),
            (&["why", "nap", "-p", p], &["handle_request>10ms"]),
            (&["set", "-p", p, "-N", "*"], &[p, "not attached"]),
            (&["slower", "nap", "1ms", "-p", p], &["calltap slower 1ms", "'nap' is not a time"]),
            (&["top", "-p", p, "--", x], &["top takes no such word", "calltap help top"]),
            (&["merge", t], &["fewer than two recordings", "calltap merge"]),
            (&["tracefs", "mount", "/no/such/place", "-p", p], &["/no/such/place"]),
        ]);
    });
}

#[test]
fn newcomers_mistakes_get_one_line_of_advice() {
    check_about_program(|[x, p, t, d]| {
        let trace = format!("{d}/good.data");
        assert!(calltap_run(&["record", "-q", "-o", &trace, "--", x]).status.success());
        let (g, words) = (trace.as_str(), format!("{x} 3"));
        check_all(&[
            (&[x], &[x, "calltap record -- "]),
            (&[g], &[g, "calltap report "]),
            (&["top", p], &["top takes no such word", "calltap top -p", p]),
            (&["-p", p], &["-p: an option, and no command", "calltap record -p", p]),
            (&["detach", p], &["calltap detach -p", p]),
            (&["snapshot", "no-such-process"], &["snapshot takes no such word", "calltap help snapshot"]),
            (&["record", "-f", "nap", "--", x], &["-f: no option of record", "is it -F?"]),
            (&["record", "-e", "cycles", "--", x], &["-e: no option of record", "calltap help record"]),
            (&["record", "-p", "pacd"], &["-p pacd: no process of this name", "paced"]),
            (&["record", "-p", p, "--duration", "10d"], &["'10d' is not a time", "ns, us, ms, s, m or h"]),
            (&["record", "--buffer-size", "0", "--", x], &["--buffer-size: 0 bytes", "16M"]),
            (&["record", "-A", "nap@what", "--", x], &["nap", "'what'"]),
            (&["record", "--if", "arg1 = 5", "--", x], &["'arg1 = 5'", "=="]),
            (&["record", "--graph", "@", "--", x], &["no traceable function matches '@'", "calltap sites"]),
            (&["record", "--python", "x.py"], &["nothing to record", "-- PROGRAM"]),
            (&["report", "no-such.data"], &["no-such.data", "calltap record -- PROGRAM", "makes a trace"]),
            (&["report", x], &[x, "not a calltap trace", "calltap record -- "]),
            (&["report", "-F", "@@", g], &["no function of the trace matches '@@'", "calltap report"]),
            (&["report", "--columns", "total,speed", g], &["'speed' is not a column", "self"]),
            (&["report", "--from", "5", "--until", "2", g], &["--until", "is not after"]),
            (&["report", "--time", "wall", g], &["--time: no option of report"]),
            (&["graph", "nap", g], &["graph takes one FILE", "behind -F"]),
            (&["replay", "--depth", "0", g], &["--depth", "1 is the outermost"]),
            (&["export", g, "chrome"], &["chrome: export takes no such word", "is it --to chrome?"]),
            (&["export", "chrome", g], &["chrome: export takes no such word", "is it --to chrome?"]),
            (&["export", "--format", "chrome", g], &["--format: no option of export; is it --to?"]),
            (&["export", "--to", "parquet", g], &["--to parquet", "a directory", "-o"]),
            (&["count", g, "nap"], &[g, "is the last word"]),
            (&["histogram", "nap@", g], &["'nap@'", "'nap@arg1'"]),
            (&["import", g], &[g, "a trace of calltap already", "calltap report"]),
            (&["merge", g, g], &["are the same recording"]),
            (&["diff", g, g, "--fail-if", "total>2x"], &["no function in parentheses", "total(f)>1.1x"]),
            (&["tracefs", "get", "@", "-p", p], &["no such control file", "calltap tracefs get"]),
            (&["tracefs", "mount", "/no/such/place"], &["/no/such/place", "mkdir"]),
            (&["view", t], &[t, "not a calltap trace"]),
        ]);
        for (word, says) in [(words.as_str(), "separate words"), ("A=1", "env A=1")] {
            let run = calltap_run(&["record", word]);
            assert!(run.status.code() == Some(127) && run.stderr.lines().count() == 1, "{}", run.stderr);
            assert!(run.stderr.contains(says), "{}", run.stderr);
        }
    });
}

#[test]
fn empty_words_and_unsuitable_values_get_one_line_of_advice() {
    check_about_program(|[x, p, t, d]| {
        let trace = format!("{d}/good.data");
        assert!(calltap_run(&["record", "-q", "-o", &trace, "--", x]).status.success());
        let (g, two) = (trace.as_str(), format!("{p},,1"));
        check_all(&[
            (&["record", "-o", "", "--", x], &["--output: the name of the file is empty"]),
            (&["record", "--", ""], &["record: the name of the program is empty"]),
            (&["report", ""], &["report: the name of the file is empty"]),
            (&["sites", ""], &["sites: the name of the file is empty"]),
            (&["report", "--thread", "", g], &["no thread ''", "calltap info"]),
            (&["count", "", "-p", p], &["the name of a function is empty"]),
            (&["record", "-p", &two], &["a process is missing", "separated by commas"]),
            (&["record", "--repeat", "2/1", "--", x], &["'2/1'", "(2/5)"]),
            (&["record", "--repeat", "3", "-p", p], &["--repeat needs '-- PROGRAM'"]),
            (&["record", "--slow", "nap<1ms", "--", x], &["'nap<1ms'", "handle_request>10ms"]),
            (&["record", "--events", "sched,disk", "--", x], &["'disk'", "syscalls"]),
            (&["record", "--events", "", "--", x], &["--events", "sched, syscalls, faults"]),
            (&["record", "-F", ",", "--", x], &["--filter: the name of a function is empty"]),
            (
                &["record", "--tracer", "profile", "-A", "nap@arg1", "--", x],
                &["-A and -R need recorded calls"],
            ),
            (&["record", "--snapshot-on", "exit", "--last", "0", "--", x], &["--last 0", "no calls"]),
            (&["report", "-F", "*,!nosuch", g], &["no function of the trace matches '!nosuch'"]),
            (&["replay", "--to", "5", g], &["--to: no option of replay; is it --until?"]),
            (&["histogram", "nap@arg1", g], &["does not have nap@arg1", "calltap record -A nap@arg1"]),
            (&["histogram", "nap@arg1", "--each", "--linear", "5", g], &["--each and --linear exclude"]),
            (&["view", g, "--idle", "5s"], &["--idle needs '-p PID'"]),
            (&["record", "-A", "nap@arg1/q", "--", x], &["'q' is no form", "d, u, x"]),
            (&["record", "-A", "nap@arg1/s999", "--", x], &["127 bytes"]),
            (&["record", "-A", "nap@retval", "--", x], &["belongs to -R"]),
            (&["record", "-R", "nap@arg1", "--", x], &["belongs to -A"]),
            (&["record", "--if", "arg1 > 1 || arg1 < 0", "--", x], &["joined by && only"]),
            (&["record", "--if", "arg1 > 1.5", "--", x], &["'1.5' is no number"]),
            (&["record", "--tracer", "profile", "--slow", "nap>1ms", "--", x], &["--slow needs calls"]),
            (&["record", "--children", "--", x], &["--children needs a process", "-p PID"]),
            (&["report", "--limit", "1k", g], &["--limit: '1k' is not a number"]),
            (&["report", "--from", "25:00:00", g], &["'25:00:00' is not a time", "14:03:21.5"]),
            (&["report", "-o", d, g], &[d, "irectory"]),
            (&["graph", "--min-percent", "x", g], &["--min-percent: 'x' is not a number"]),
            (&["diff", g, g, "--fail-if", "p50(nap)>1.5"], &["'1.5' is neither a ratio (1.1x) nor a time"]),
            (&["export", "--to", "otlp", g], &["--to otlp needs -F"]),
            (&["export", "--by", "cpu", "--from", "0.001", g], &["--by needs '--to flamegraph'"]),
            (&["top", "-p", p, "--interval", "0"], &["--interval must be at least 10ms"]),
            (&["latency", "nap", "--linear", "0", g], &["'0' is not a width", "100us"]),
            (&["span", "nap@arg1..", g], &["'nap@arg1..'", "BEGIN@ITEM .. END@ITEM"]),
            (&["stacks", "nap", "--stack-size", "1", "-p", p], &["64 to 131072 bytes"]),
            (&["set", "--on", "--off", "-p", p], &["--on and --off exclude each other"]),
            (&["attach", x], &["attach takes no such word", "calltap attach -p ", x]),
            (&["attach", t], &["attach takes a process, behind -p", "calltap record -- "]),
            (&["status", g], &["status takes a process, behind -p", "calltap report "]),
            (&["tracefs", "run", "--", x], &["no directory named", "--mount DIRECTORY"]),
            (&["tools", "audit", x], &[x, "not a log of code changes", "--patch-log"]),
            (&["completions", "bash"], &["is it --shell bash?"]),
            (&["merge", g, t], &[t, "not a trace.dat of trace-cmd"]),
        ]);
    });
}

// A hard link and a copy are the same recording by another name.
#[test]
fn no_output_replaces_a_file_that_is_read() {
    check_about_program(|[x, _, _, d]| {
        let [trace, link, copy] = ["good.data", "link.data", "copy.data"].map(|name| format!("{d}/{name}"));
        assert!(calltap_run(&["record", "-q", "-o", &trace, "--", x]).status.success());
        std::fs::hard_link(&trace, &link).expect("a link");
        std::fs::copy(&trace, &copy).expect("a copy");
        let before = [&trace, x].map(|path| std::fs::read(path).expect("a file"));
        let other = format!("{d}/other.data");
        assert!(calltap_run(&["record", "-q", "-o", &other, "--", x]).status.success());
        let (g, l, c, other) = (trace.as_str(), link.as_str(), copy.as_str(), other.as_str());
        let says = &["the command reads this file", "name another file"][..];
        check_all(&[
            (&["report", g, "-o", g], says),
            (&["export", g, "--to", "csv", "-o", l], says),
            (&["replay", "-i", g, "-o", g], says),
            (&["latency", "nap", g, "-o", g], says),
            (&["diff", g, c, "-o", c], says),
            (&["view", g, "--save", g], says),
            (&["view", g, "--base", c, "--save", c], says),
            (&["view", g, "--save", other], &["this is a trace", "name another file"]),
            (&["report", g, "-o", other], &["this is a trace", "name another file"]),
            (&["merge", g, c, "-o", g], says),
            (&["record", "-o", x, "--", x], says),
            (&["merge", g, l], &["are the same recording"]),
            (&["merge", g, c], &["are the same recording"]),
        ]);
        assert!([&trace, x].map(|path| std::fs::read(path).expect("a file")) == before);
    });
}

#[test]
fn a_trace_may_come_from_a_pipe() {
    let program = compile(GCC, &["paced.c"], &[]);
    let (path, trace) = (program.path.display().to_string(), program.directory().join("piped.data"));
    let trace = trace.display().to_string();
    assert!(calltap_run(&["record", "-q", "-o", &trace, "--", &path]).status.success());
    let bytes = std::fs::read(&trace).expect("a trace");
    for words in
        [&["report", "--json"][..], &["replay"], &["graph"], &["export", "--to", "folded"], &["count", "nap"]]
    {
        let whole = calltap_run(&[words, &[&trace]].concat());
        let mut command = Command::new(calltap());
        command.args(words).arg("-");
        let piped = calltap_e2e::run(command, &bytes);
        assert!(piped.status.success(), "{words:?}: {}", piped.stderr);
        assert_eq!(piped.stdout, whole.stdout, "{words:?}");
    }
    let line = format!("'{}' report --json <(cat '{trace}')", calltap().display());
    let whole = calltap_run(&["report", "--json", &trace]).stdout;
    assert_eq!(calltap_e2e::output_of("bash", &["-c", &line]).expect("bash"), whole);
}

#[test]
fn conflicting_options_and_words_for_files_are_reported() {
    let t = "no-such.data";
    check_all(&[
        (&["report", t, "-i", t], &["cannot be used with", "--input"]),
        (&["report", t, "--json", "--format", "csv"], &["--json", "cannot be used with", "--format"]),
        (&["graph", "nap"], &["nap: cannot open", "-F nap names a function"]),
        (&["replay", "nap"], &["nap: cannot open", "--graph nap names a function"]),
        (&["report", "-"], &["standard input", "not a calltap trace"]),
        (&["export", "chrome"], &["chrome: cannot open", "--to chrome a format"]),
    ]);
}

#[test]
fn a_command_without_words_shows_its_help() {
    for (words, says) in [(&[][..], "Record:"), (&["tracefs"], "mount"), (&["tools"], "audit")] {
        let run = calltap_run(words);
        assert!(run.status.code() == Some(WRONG) && run.stdout.is_empty(), "{words:?}: {}", run.status);
        assert!(run.stderr.contains(says), "{words:?}: {}", run.stderr);
    }
}

#[test]
fn a_reader_that_ends_early_is_no_error() {
    for words in [&["completions"][..], &["sites", "/bin/sh", "--json"], &["sites", "/bin/sh"]] {
        let mut command = Command::new(calltap());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("calltap");
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("its messages");
        assert!(end_of(child).success() && said.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn a_named_pipe_waits_for_its_reader_and_says_so() {
    let program = compile(GCC, &["paced.c"], &[]);
    let pipe = program.directory().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let recorded = program.directory().join("trace.data").display().to_string();
    let path = program.path.display().to_string();
    assert!(calltap_run(&["record", "-q", "-o", &recorded, "--", &path]).status.success());
    let whole = calltap_run(&["report", &recorded, "--json"]).stdout;
    for words in [&["report", &recorded, "--json", "-o"][..], &["record", "-q", "-o"]] {
        let mut command = Command::new(calltap());
        command.args(words).arg(&pipe);
        if words[0] == "record" {
            command.args(["--", &path]);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("calltap");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("calltap: ") && line.contains("waits for a reader"), "{words:?}: {line}");
        let mut read = Vec::new();
        File::open(&pipe).expect("the pipe").read_to_end(&mut read).expect("its bytes");
        assert!(end_of(child).success(), "{words:?}");
        if words[0] == "report" {
            assert_eq!(String::from_utf8_lossy(&read), whole);
            continue;
        }
        let copy = program.directory().join("copy.data");
        std::fs::write(&copy, &read).expect("a file");
        let report = calltap_run(&["report", &copy.display().to_string(), "--json"]);
        assert!(report.status.success() && report.stdout.contains("\"nap\""), "{}", report.stderr);
    }
}

#[test]
fn flags_without_effect_are_refused_in_one_line() {
    check_about_program(|[x, p, t, _]| {
        check_all(&[
            (
                &["record", "--slow", "frame_dummy>1ns", "--", x],
                &["the calls of frame_dummy have no known durations", "tail call", "name one of its callers"],
            ),
            (
                &["record", "--snapshot-on", "frame_dummy>1ns", "--", x],
                &["the calls of frame_dummy have no known durations"],
            ),
            (&["why", "frame_dummy>1ns", "-p", p], &["the calls of frame_dummy have no known durations"]),
            (
                &["record", "-F", "frame_dummy", "-R", "frame_dummy", "--", x],
                &["its returns are not recorded: "],
            ),
            (&["record", "--last", "1s", "--", x], &["--last needs --snapshot-on or --on"]),
            (&["record", "--history", "8M", "--", x], &["--history needs --snapshot-on or --on"]),
            (&["record", "--snapshots", "3", "--", x], &["--snapshots needs --snapshot-on or --on"]),
            (&["record", "--slow-memory", "8M", "--", x], &["--slow-memory needs --slow"]),
            (&["record", "--max-wait", "1s", "-p", p], &["--max-wait needs '-- PROGRAM'"]),
            (
                &["record", "--no-sched", "--events", "sched", "--", x],
                &["--no-sched and '--events sched' exclude each other"],
            ),
            (&["view", t, "--save", "x.html", "--port", "80"], &["--port and --save exclude each other"]),
        ]);
    });
}
