//! Messages that calltap prints on a terminal only.

use calltap_e2e::{
    GCC, Program, Resident, Terminal, calltap_run, compile, end_of, have, kill, skipped, trace_of_naps,
    wait_until,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Escape sequence that clears the current line.
const CLEARED: &str = "\r\x1b[K";

#[test]
fn recording_shows_progress_on_terminal() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let (pid, trace) = (resident.pid.to_string(), program.directory().join("x.data"));
    let trace = trace.to_string_lossy().into_owned();
    let words = ["record", "-p", &pid, "--duration", "2.5", "-o", &trace];
    let mut terminal = Terminal::whole(&words, &[]);
    terminal.wait_for("recording 1 s, ");
    terminal.wait_for(" calls, Ctrl-C to stop");
    terminal.wait_for("recording 2 s, ");
    terminal.wait_for(&format!("Ctrl-C to stop{CLEARED}calltap: "));
    assert!(terminal.child.wait().expect("calltap").success());
    // In a pipe, and with --quiet, there is no such line.
    let run = calltap_run(&["record", "-p", &pid, "--duration", "1.5", "-o", &trace]);
    assert!(run.status.success() && !run.stderr.contains("recording"), "{}", run.stderr);
    let words = ["record", "-q", "-p", &pid, "--duration", "1.5", "-o", &trace];
    let mut terminal = Terminal::whole(&words, &[]);
    assert!(terminal.child.wait().expect("calltap").success());
    assert_eq!(terminal.shown(), "");
    assert!(resident.end().0.success());
}

#[test]
fn names_are_shortened_on_terminals() {
    let Some(program) = cpp() else { return };
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("named.data").to_string_lossy().into_owned();
    let words = ["record", "-o", &trace, "-F", "Srv::handle,compute,handle_request", "--", &path];
    assert!(calltap_run(&words).status.success());
    let check = |words: &[&str], short: &str, full: &str| {
        let terminal = Terminal::whole(&[words, &["--no-pager"]].concat(), &[]);
        terminal.wait_for(short);
        terminal.wait_for("Srv::handle(int)");
        assert!(!terminal.shown().contains(full), "{}", terminal.shown());
        let terminal = Terminal::whole(&[words, &["--no-pager", "--full-names"]].concat(), &[]);
        terminal.wait_for(full);
        assert!(calltap_run(words).stdout.contains(full), "{words:?}");
    };
    let (short, full) = ("handle_request", "handle_request(Request&)");
    check(&["replay", &trace], short, full);
    check(&["diff", &trace, &trace, "--all"], short, full);
    check(&["sites", &path], short, full);
    let words = ["watch", "handle_request,Srv::handle", &trace];
    let terminal = Terminal::whole(&words, &[]);
    terminal.wait_for("  handle_request\r\n");
    terminal.wait_for("Srv::handle(int)");
    assert!(!terminal.shown().contains(full), "{}", terminal.shown());
    assert!(calltap_run(&words).stdout.contains(full));
    let mut terminal = Terminal::whole(&["tui", &trace], &[]);
    terminal.wait_for("handle_request");
    terminal.wait_for("Srv::handle(int)");
    assert!(!terminal.shown().contains(full), "{}", terminal.shown());
    terminal.press("q");
    assert!(end_of(terminal.child).success());
}

#[test]
fn narrow_terminals_show_names_and_list_omitted_columns() {
    let Some(program) = cpp() else { return };
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("narrow.data").to_string_lossy().into_owned();
    assert!(calltap_run(&["record", "-o", &trace, "--", &path]).status.success());
    for words in [&["report", &trace][..], &["graph", &trace], &["diff", &trace, &trace, "--all"]] {
        let terminal = Terminal::start(&[words, &["--no-pager"]].concat());
        terminal.wait_for("FUNCTION\r\n");
        terminal.wait_for("  handle_request");
        terminal.wait_for("# no room for ");
    }
    // Columns that the user asked for are left out last: where no name could be read. How many,
    // depends on the durations.
    for (columns, last) in [
        ("total,self,calls,avg,max", "MAX"),
        ("total,self,calls,avg,min,max,stdev,p50,p90,p99", "p99, module "),
    ] {
        let terminal = Terminal::start(&["report", &trace, "--no-pager", "--columns", columns]);
        terminal.wait_for(last);
        terminal.wait_for("free_all");
    }
}

#[test]
fn pager_shows_terminal_output() {
    let program = compile(GCC, &["paced.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("x.data"));
    let trace = trace.to_string_lossy().into_owned();
    assert!(calltap_run(&["record", "-o", &trace, "--", &path]).status.success());
    let ways: [(&[(&str, &str)], bool); 6] = [
        (&[("PAGER", "sed s/^/PAGED:/"), ("TERM", "xterm")], true),
        (&[("CALLTAP_PAGER", "sed s/^/PAGED:/"), ("PAGER", "cat"), ("TERM", "xterm")], true),
        (&[("CALLTAP_PAGER", ""), ("PAGER", "sed s/^/PAGED:/"), ("TERM", "xterm")], false),
        (&[("PAGER", "cat"), ("TERM", "xterm")], false),
        (&[("PAGER", "/no/such/pager"), ("TERM", "xterm")], false),
        (&[("PAGER", "sed s/^/PAGED:/"), ("TERM", "dumb")], false),
    ];
    for (environment, is_paged) in ways {
        let mut terminal = Terminal::whole(&["report", &trace], environment);
        assert!(terminal.child.wait().expect("calltap").success());
        terminal.wait_for("nap");
        assert_eq!(terminal.shown().contains("PAGED:"), is_paged, "{environment:?}: {}", terminal.shown());
    }
    // A pager that exits early ends calltap, without an error.
    let environment = [("PAGER", "head -1"), ("TERM", "xterm")];
    let mut terminal = Terminal::whole(&["replay", &trace], &environment);
    assert!(terminal.child.wait().expect("calltap").success());
    assert!(!terminal.shown().contains("calltap:"), "{}", terminal.shown());
    // Without a terminal there is no pager.
    assert!(!calltap_run(&["report", &trace]).stdout.contains("PAGED"));
}

#[test]
fn colours_are_left_out_where_the_user_wants_none() {
    let program = compile(GCC, &["paced.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("x.data"));
    let trace = trace.to_string_lossy().into_owned();
    assert!(calltap_run(&["record", "-o", &trace, "--", &path]).status.success());
    // An escape sequence for a colour of the foreground or background.
    let has_colour = |text: &str| {
        let codes =
            text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m')).map(|(codes, _)| codes);
        let sets = |code: &str| {
            matches!(code, "38" | "48")
                || code.parse().is_ok_and(|code: u32| matches!(code, 30..=37 | 40..=47 | 90..=107))
        };
        codes
            .filter(|codes| codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
            .any(|codes| codes.split(';').any(sets))
    };
    for (environment, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut terminal = Terminal::whole(&["tui", &trace], environment);
        terminal.wait_for("nap");
        let table = terminal.shown();
        terminal.press("2");
        terminal.wait_for(" .. ");
        // A key press clears the text drawn so far.
        let drawn = table + &terminal.shown();
        terminal.press("q");
        terminal.wait_for_leave();
        assert_eq!(has_colour(&drawn), coloured, "{environment:?}: {drawn:?}");
        assert!(end_of(terminal.child).success());
    }
}

/// Compiles a C++ program whose function names have arguments and templates.
fn cpp() -> Option<Program> {
    let is_there = have("g++");
    if !is_there {
        skipped("g++");
    }
    is_there.then(|| compile(GCC, &["names.cpp"], &[]))
}

#[test]
fn a_browser_opens_the_page_for_a_user_at_a_terminal() {
    let (program, trace) = trace_of_naps();
    let seen = program.directory().join("seen");
    let (script, seen_path) = (program.directory().join("browser"), seen.to_string_lossy());
    fs::write(
        &script,
        format!("#!/bin/sh\necho \"$*\" > {seen_path}.part && mv {seen_path}.part {seen_path}\n"),
    )
    .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
    .expect("a browser");
    let script = script.to_string_lossy().into_owned();
    let shown = |browser: &str, more: &[&str]| {
        let _ = fs::remove_file(&seen);
        let terminal = Terminal::whole(&[&["view", &trace], more].concat(), &[("BROWSER", browser)]);
        terminal.wait_for("/\r\n");
        let address = terminal.shown().lines().next().expect("an address").to_owned();
        if more.is_empty() {
            wait_until("the browser", || seen.exists());
        }
        kill(terminal.child.id(), libc::SIGINT);
        assert!(end_of(terminal.child).success());
        (address, fs::read_to_string(&seen).unwrap_or_default())
    };
    let (address, opened) = shown(&format!("{script}:other"), &[]);
    assert_eq!(opened, format!("{address}\n"));
    let (address, opened) = shown(&format!("{script} --page=%s"), &[]);
    assert_eq!(opened, format!("--page={address}\n"));
    assert_eq!(shown(&script, &["--no-browser"]).1, "");
    // A browser that cannot be started leaves the address.
    assert!(shown("/no/such/browser", &["--port", "0"]).0.starts_with("http://127.0.0.1:"));
}
