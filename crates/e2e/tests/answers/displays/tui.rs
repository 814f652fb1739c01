//! `calltap tui` of a trace and of a process.

use calltap_e2e::{
    GCC, Resident, State, Terminal, changed_text, compile, end_of, jumps, trace_of_naps, wait_until,
};

#[test]
fn a_trace_is_looked_around_in_by_keys() {
    let (_program, path) = trace_of_naps();
    let mut terminal = Terminal::start(&["tui", &path]);
    terminal.wait_for("leaf");
    assert!(terminal.is_raw());
    terminal.press("/nap\r");
    terminal.wait_for("lap");
    terminal.press("2");
    terminal.wait_for("zoom");
    terminal.press("n");
    terminal.wait_for("nap: ");
    terminal.press("q");
    terminal.wait_for_leave();
    assert!(end_of(terminal.child).success());
}

#[test]
fn tui_switches_function_by_key_and_detaches() {
    let program = compile(GCC, &["paced.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let before = State::at_rest(resident.pid, &["State"]);
    let pid = resident.pid.to_string();
    let mut terminal = Terminal::start(&["tui", "-p", &pid, "--interval", "100ms", "--max-overhead", "none"]);
    terminal.wait_for("leaf");
    let all = jumps(resident.pid);
    terminal.press("/leaf\r ");
    terminal.wait_for("ff(user)");
    wait_until("its site to go off", || jumps(resident.pid) == all - 1);
    terminal.press(" ");
    wait_until("its site to go on again", || jumps(resident.pid) == all);
    terminal.press("q");
    terminal.wait_for_leave();
    assert!(end_of(terminal.child).success());
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let after = State::of(resident.pid, &["State"]);
    assert_eq!((&after.files, &after.threads), (&before.files, &before.threads));
    assert!(resident.end().0.success());
}

#[test]
fn each_of_several_processes_is_shown_by_a_key() {
    let program = compile(GCC, &["paced.c"], &[]);
    let residents = [Resident::start(&program, &[]), Resident::start(&program, &[])];
    let [first, second] = residents.each_ref().map(|resident| resident.pid);
    let list = format!("{first},{second}");
    let flags = ["tui", "-p", &list, "-F", "leaf", "--interval", "100ms", "--max-overhead", "none"];
    let mut terminal = Terminal::start(&flags);
    terminal.wait_for(&format!("1 of 2: paced ({first})"));
    terminal.wait_for("leaf");
    let all = [first, second].map(jumps);
    terminal.press("]/leaf\r ");
    wait_until("its site to go off", || [first, second].map(jumps) == [all[0], all[1] - 1]);
    terminal.press("q");
    terminal.wait_for_leave();
    assert!(end_of(terminal.child).success());
    assert!([first, second].iter().all(|pid| changed_text(*pid).is_empty()));
    for resident in residents {
        assert!(resident.end().0.success());
    }
}
