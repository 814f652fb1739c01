//! Functions are found by any part of their names that identifies them, and the first message tells
//! which are on.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Records the functions that a word selects. Returns the functions that were called, and calltap's
/// messages.
fn called(program: &Program, word: &str) -> (BTreeSet<String>, String) {
    let trace = program.directory().join("named.data").to_string_lossy().into_owned();
    let path = program.path.to_string_lossy().into_owned();
    let run = calltap_run(&["record", "-o", &trace, "-F", word, "--", &path]);
    assert!(run.status.success(), "{word}: {}", run.stderr);
    // This uses other forms of the command line: the file behind the options, and --json.
    let report = calltap_run(&["report", &trace, "--json"]);
    let rows = rows_of(&report.stdout);
    let names = rows.iter().map(|row| row["function"].as_str().expect("a name").to_owned());
    (names.collect(), run.stderr)
}

fn program() -> Option<Program> {
    let is_there = have("g++");
    if !is_there {
        skipped("g++");
    }
    is_there.then(|| compile(GCC, &["names.cpp"], &[]))
}

#[test]
fn words_select_compiler_generated_variants() {
    let Some(program) = program() else { return };
    let check = |word: &str, expected: &[&str]| {
        let (names, said) = called(&program, word);
        assert_eq!(names, expected.iter().map(|name| (*name).to_owned()).collect(), "{word}: {said}");
    };
    let handles = ["net::Srv::handle(int)", "net::Srv::handle(char const*)"];
    check("handle_request", &["handle_request(Request&)"]);
    check("Srv::handle", &handles);
    check("net::Srv::handle", &handles);
    check("Srv::handle(int)", &handles[..1]);
    check("compute", &["compute<int>(int)", "compute<double>(double)"]);
    check("compute<int>,handle_request", &["compute<int>(int)", "handle_request(Request&)"]);
    check("Srv::*", &handles);
}

#[test]
fn start_line_lists_enabled_functions_and_other_modules() {
    let Some(program) = program() else { return };
    let name = program.path.file_name().expect("a name").to_string_lossy().into_owned();
    let (_, said) = called(&program, "free*");
    assert!(said.contains(&format!("1 function on, in {name}; libc.so.6 has ")), "{said}");
    assert!(said.contains(" more: -F 'libc:free*'"), "{said}");
    let (names, said) = called(&program, "free");
    assert!(said.contains("1 function on, in libc.so.6") && names.len() == 1, "{names:?} {said}");
    let (_, said) = called(&program, "libc:mall*");
    assert!(said.contains(" on, in libc.so.6\n"), "{said}");
    let (_, said) = called(&program, "mall*:mod:libc");
    assert!(said.contains(" on, in libc.so.6\n"), "{said}");
}

#[test]
fn names_on_a_terminal_are_short_and_in_full_elsewhere() {
    let Some(program) = program() else { return };
    called(&program, "Srv::handle,compute,handle_request");
    let trace = program.directory().join("named.data").to_string_lossy().into_owned();
    let terminal = Terminal::start(&["report", &trace, "--columns", "calls"]);
    // Overloads keep the part of their names in which they differ.
    for name in ["Srv::handle(int)", "compute<..>(int)", "handle_request\r\n"] {
        terminal.wait_for(name);
    }
    assert!(end_of(terminal.child).success());
    let terminal = Terminal::start(&["report", &trace, "--columns", "calls", "--full-names"]);
    terminal.wait_for("handle_request(Request&)");
    assert!(end_of(terminal.child).success());
    assert!(calltap_run(&["report", &trace]).stdout.contains("handle_request(Request&)"));
}

// In live questions, questions about a trace, and views of it.
#[test]
fn an_exclusion_has_one_meaning_everywhere() {
    let program = compile(GCC, &["paced.c"], &[]);
    let [path, trace] = [program.path.clone(), program.directory().join("all.data")]
        .map(|path| path.to_string_lossy().into_owned());
    assert!(calltap_run(&["record", "-q", "-o", &trace, "--", &path]).status.success());
    let functions = |words: &[&str]| {
        let run = calltap_run(words);
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        let rows = rows_of(&run.stdout);
        let names = rows.iter().map(|row| row["function"].as_str().expect("a name").to_owned());
        names.collect::<BTreeSet<String>>()
    };
    let all = functions(&["report", "--json", &trace]);
    assert!(all.contains("nap") && all.contains("main"), "{all:?}");
    let others: BTreeSet<String> = all.iter().filter(|name| *name != "nap").cloned().collect();
    for words in ["*,!nap", "!nap", "main,*,!nap"] {
        assert_eq!(functions(&["report", "--json", "-F", words, &trace]), others, "{words}");
        assert_eq!(functions(&["count", "--json", words, &trace]), others, "{words}");
        let answer = program.directory().join("count.json").to_string_lossy().into_owned();
        assert!(calltap_run(&["count", "--json", "-o", &answer, words, "--", &path]).status.success());
        let counted: Value =
            serde_json::from_slice(&std::fs::read(&answer).expect("an answer")).expect("JSON");
        let rows = counted["functions"].as_array().expect("rows");
        assert!(
            rows.iter().all(|row| row["function"] != "nap") && rows.len() >= others.len(),
            "{words}: {counted}"
        );
    }
}

#[test]
fn scripts_are_recorded_by_their_interpreters() {
    let program = compile(GCC, &["paced.c"], &[]);
    let script = program.directory().join("script");
    let trace = program.directory().join("script.data").to_string_lossy().into_owned();
    for line in ["#!/bin/sh\necho \"told $1\"\n", "#!/usr/bin/env sh\necho \"told $1\"\n"] {
        write_program(&script, line.as_bytes(), 0o755);
        let run = calltap_run(&["record", "-o", &trace, "--", &script.to_string_lossy(), "a word"]);
        assert!(run.status.success() && run.stdout == "told a word\n", "{} {}", run.stdout, run.stderr);
        assert!(run.stderr.contains(" functions on, in "), "{}", run.stderr);
    }
    // After an exec, the message tells how to trace the new program.
    let run = calltap_run(&["record", "-o", &trace, "--", "timeout", "5", "sleep", "0.5"]);
    assert!(
        run.stderr.contains("timeout ran another program, sleep") && run.stderr.contains("--follow"),
        "{}",
        run.stderr
    );
}

#[test]
fn programs_that_end_at_once_are_noticed_after_an_exec() {
    let program = compile(GCC, &["resident.c"], &[]);
    let trace = program.directory().join("exec.data").to_string_lossy().into_owned();
    let record = |command: &[&str]| {
        let run = calltap_run(&[&["record", "-o", &trace, "--"], command].concat());
        assert!(run.status.success(), "{}", run.stderr);
        run.stderr
    };
    // In the process itself, in a child, and in a child that has recorded events.
    for command in [&["env", "true"][..], &["timeout", "5", "true"], &["sh", "-c", "timeout 5 true; :"]] {
        let said = record(command);
        let (wrapper, last) = (command[0], command[command.len() - 1]);
        let forms = [
            format!("{wrapper} ran another program, "),
            format!("{wrapper} ended under the name {last}: "),
            format!("{wrapper} executed a program named "),
            format!("{wrapper} ran other processes, "),
        ];
        assert!(forms.iter().any(|form| said.contains(form)) && said.contains("record --follow"), "{said}");
    }
    // Children that execute no program are recorded.
    let said = record(&[&program.path.to_string_lossy(), "forks"]);
    assert!(!said.contains("--follow"), "{said}");
    assert!(!record(&["true"]).contains("--follow"));
}

#[test]
fn several_processes_by_name_and_the_trace_before_is_kept() {
    let program = compile(GCC, &["paced.c"], &[]);
    let (a, b) = (Resident::start(&program, &[]), Resident::start(&program, &[]));
    let pids = format!("{},{}", a.pid, b.pid);
    let output = program.directory().join("many").to_string_lossy().into_owned();
    let run = calltap_run(&["record", "-p", &pids, "--duration", "0.3", "-o", &output]);
    assert!(run.status.success(), "{}", run.stderr);
    for pid in [a.pid, b.pid] {
        let info = calltap_run(&["info", "--json", &format!("{output}.{pid}")]);
        assert!(info.status.success(), "{}", info.stderr);
        assert_eq!(changed_text(pid), [""; 0]);
    }
    let name = program.path.file_name().expect("a name").to_string_lossy().into_owned();
    let one = calltap_run(&["tracefs", "get", "tracing_on", "-p", &name]);
    one_line(&one, &["this command takes one", &a.pid.to_string(), &b.pid.to_string()]);
    assert!(a.end().0.success() && b.end().0.success());
    let path = program.path.to_string_lossy().into_owned();
    let record = || {
        let mut command = Command::new(calltap());
        command.args(["record", "-q", "-F", "main", "--", &path]).current_dir(program.directory());
        assert!(command.stdin(std::process::Stdio::null()).output().expect("calltap").status.success());
    };
    record();
    let first = std::fs::read(program.directory().join("calltap.data")).expect("a trace");
    record();
    assert_eq!(std::fs::read(program.directory().join("calltap.data.old")).expect("the one before"), first);
}

#[test]
fn untraceable_functions_are_reported_at_start_and_in_views() {
    if !have("g++") {
        return skipped("g++");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let [source, program, trace] = ["short.cc", "short", "trace"].map(|name| directory.path().join(name));
    let text = "template<class T> __attribute__((noinline)) T compute(T a) { T b = a; for (int i = 0; i < 3; i++) { asm volatile(\"\" : \"+m\"(b)); b = b + a; } return b; }\n\
                template<> __attribute__((noinline)) char compute(char a) { return a; }\n\
                int main(int n, char **) { return int(compute(double(n))) + compute(char(n)) == 0; }\n";
    std::fs::write(&source, text).expect("a file");
    let [source, program, trace] = [source, program, trace].map(|path| path.to_string_lossy().into_owned());
    output_of("g++", &["-O1", "-o", &program, &source]).expect("g++");
    let record = |word: &str| calltap_run(&["record", "-o", &trace, "-F", word, "--", &program]);
    let both = record("compute");
    assert!(both.status.success(), "{}", both.stderr);
    let said = "1 function on, in short; not compute<char>(char): a jump needs 5 bytes, and it has ";
    assert!(both.stderr.contains(said), "{}", both.stderr);
    let one = record("compute<double>");
    assert!(one.stderr.contains("1 function on, in short\n"), "{}", one.stderr);
    let report = || calltap_run(&["report", &trace]).stdout;
    assert!(!report().contains("cannot be traced"), "{}", report());
    // Globs select thousands: the start line counts, and the views name the first.
    let all = record("*compute*");
    assert!(all.stderr.contains("1 function on, in short; 1 cannot be traced\n"), "{}", all.stderr);
    let why = "1 selected function cannot be traced (compute<char>(char)): calls are missing, ";
    assert!(report().starts_with(&format!("# {why}")), "{}", report());
    let info = calltap_run(&["info", &trace]).stdout;
    assert!(info.contains("\ncompute<char>(char) (short): a jump needs 5 bytes, and it has "), "{info}");
    let json = calltap_run(&["info", &trace, "--json"]).stdout;
    let json: serde_json::Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let module = &json["modules"][0];
    assert_eq!(module["untraceable_count"], 1, "{module}");
    assert_eq!(module["untraceable"][0]["code"], "only-breakpoint", "{module}");
}
