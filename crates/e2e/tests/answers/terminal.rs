//! What calltap says on a terminal, and nowhere else.

use calltap_e2e::{GCC, Resident, Terminal, calltap_run, compile};

/// Clears the line that it stands on.
const CLEARED: &str = "\r\x1b[K";

#[test]
fn a_recording_says_on_a_terminal_how_far_it_is() {
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
