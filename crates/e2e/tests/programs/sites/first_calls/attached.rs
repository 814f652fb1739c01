//! Calls of mcount found by a calltap that attaches, and their effect on other commands.

use super::{BUILDS, program};
use calltap_e2e::{Resident, calltap, calltap_run, compile, kill, succeeds};
use std::process::Command;

#[test]
fn running_process_is_recorded_at_first_call_and_restored() {
    for build in &BUILDS[..4] {
        let program = program(build);
        let mut resident = Resident::start(&program, &["plain"]);
        let text = calltap_e2e::changed_text(resident.pid);
        let mut calltap = resident.attach_beside(&["--discovery", "first-call"]);
        resident.await_recorder();
        let pid = resident.pid.to_string();
        // The daemon would convert in the middle of the first round.
        let disabled = calltap_run(&["put", "ftraced_enabled", "disable", "-p", &pid]);
        assert!(disabled.status.success(), "{}", disabled.stderr);
        resident.tell();
        resident.wait_for("done");
        let put = calltap_run(&["put", "ftraced_enabled", "1", "-p", &pid]);
        assert!(put.status.success(), "{}", put.stderr);
        resident.tell();
        resident.wait_for("done");
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        assert_eq!(calltap_e2e::changed_text(resident.pid), text, "{}", build.name);
        let rows = resident.view("report");
        let work = rows.as_array().expect("rows").iter().find(|row| row["function"] == "work");
        assert_eq!(work.and_then(|row| row["calls"].as_u64()), Some(1000), "{}", build.name);
        assert!(resident.end().0.success());
    }
}

#[test]
fn attached_without_a_controller_calls_are_converted_by_the_next_command() {
    for build in &BUILDS {
        let program = program(build);
        let mut resident = Resident::start(&program, &["plain"]);
        let text = calltap_e2e::changed_text(resident.pid);
        let pid = resident.pid.to_string();
        let on = |words: &[&str]| {
            let run = calltap_run(&[words, &["-p", &pid]].concat());
            assert!(run.status.success(), "{}: {words:?}: {}", build.name, run.stderr);
            run.stdout
        };
        let round = |resident: &mut Resident| {
            resident.tell();
            resident.wait_for("done");
        };
        on(&["attach", "--discovery", "first-call", "--tracer", "profile"]);
        round(&mut resident);
        on(&["status"]);
        round(&mut resident);
        // The next round calls `late` for the first time.
        round(&mut resident);
        let available = on(&["get", "available_filter_functions"]);
        for name in ["work", "outer", "late"] {
            assert!(available.contains(name), "{}: {available}", build.name);
        }
        round(&mut resident);
        let table = on(&["stat", "--format", "csv"]);
        let calls = |name: &str| {
            let row = table.lines().map(|row| row.split(',').collect::<Vec<_>>());
            row.filter(|row| row.contains(&name)).flat_map(|row| row.into_iter().map(str::to_owned)).collect()
        };
        let has = |name: &str, number: &str| {
            let row: Vec<String> = calls(name);
            assert!(row.iter().any(|word| word == number), "{}: {name}: {table}", build.name);
        };
        has("work", "3000");
        has("outer", "300");
        has("late", "100");
        on(&["detach"]);
        assert_eq!(calltap_e2e::changed_text(resident.pid), text, "{}", build.name);
        round(&mut resident);
        assert!(resident.end().0.success());
    }
}

#[test]
fn attached_without_a_controller_a_disabled_daemon_is_not_woken_but_by_a_write() {
    let program = program(&BUILDS[2]);
    let mut resident = Resident::start(&program, &["plain"]);
    let pid = resident.pid.to_string();
    let on = |words: &[&str]| {
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
        run.stdout
    };
    on(&["attach", "--discovery", "first-call"]);
    on(&["put", "ftraced_enabled", "disable"]);
    resident.tell();
    resident.wait_for("done");
    on(&["status"]);
    assert!(on(&["get", "dyn_ftrace_total_info"]).starts_with("0 "));
    assert_eq!(on(&["get", "ftraced_enabled"]), "disabled\n");
    on(&["put", "ftraced_enabled", "0"]);
    assert!(on(&["get", "dyn_ftrace_total_info"]).starts_with("2 "));
    on(&["set", "-F", "work"]);
    assert_eq!(on(&["get", "enabled_functions"]), "work (1)\n");
    on(&["detach"]);
    assert!(resident.end().0.success());
}

#[test]
fn other_controllers_find_a_program_that_was_started() {
    let program = compile(&BUILDS[2], &["first_calls.c"], &[]);
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", "started.calltap", "--tracer", "profile", "--"]);
    command.arg(&program.path).arg("plain").current_dir(program.directory());
    let mut calltap = Resident::spawn(command, program.directory().to_owned());
    let pid = calltap.wait_for("ready");
    calltap.tell();
    calltap.wait_for("done");
    let on = |words: &[&str]| calltap_run(&[words, &["-p", &pid]].concat());
    let table = on(&["stat", "--format", "csv"]).stdout;
    assert!(table.contains("work,") && table.contains(",1000,"), "{table}");
    assert!(on(&["status"]).stdout.contains("being recorded"));
    let set = on(&["set", "-F", "outer"]);
    assert!(set.status.success(), "{}", set.stderr);
    assert_eq!(on(&["get", "enabled_functions"]).stdout, "outer (1)\n");
    assert!(!on(&["detach"]).status.success(), "who has started it records it until it ends");
    assert!(calltap.end().0.success());
}

#[test]
fn by_default_there_is_no_daemon() {
    let program = program(&BUILDS[0]);
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", "default.calltap", "--"]).arg(&program.path).arg("plain");
    command.current_dir(program.directory());
    let mut calltap = Resident::spawn(command, program.directory().to_owned());
    let pid = calltap.wait_for("ready");
    let get = |name: &str| calltap_run(&["get", name, "-p", &pid]).stdout;
    assert_eq!(get("ftraced_enabled"), "disabled\n");
    assert_eq!(get("dyn_ftrace_total_info").lines().count(), 1);
    assert!(get("available_filter_functions").contains("late"), "found at load");
    let refused = calltap_run(&["put", "ftraced_enabled", "1", "-p", &pid]);
    assert!(refused.stderr.contains("the daemon has no sites to convert"), "{}", refused.stderr);
    assert!(calltap.end().0.success());
}
