//! Other tools that change code of a traced program.

use calltap_e2e::*;

/// Runs calltap, which must succeed.
fn check_run(build: &Build, words: &[&str]) {
    let run = calltap_run(words);
    assert!(run.status.success(), "{}: {}", build.name, run.stderr);
}

/// Checks that the code is as in the file, and ends the program, which has checked its calls.
fn check_end(build: &Build, resident: Resident) {
    assert_eq!(changed_text(resident.pid), [""; 0], "{}", build.name);
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{}: {status} {output}{errors}", build.name);
}

/// Attaches to a program in which another tool hooks a traced function, and removes the hook after
/// calltap was to detach.
fn check(build: &Build) {
    let program = compile(build, &["hooked.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let mut recorder = resident.attach_beside(&["-F", "target"]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("changed");
    kill(recorder.id(), libc::SIGINT);
    let status = recorder.wait().expect("a child of this process");
    assert!(!status.success(), "something stays: {status}");
    // The saved bytes lead to calltap's code, which is still there.
    resident.tell();
    resident.wait_for("changed");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(resident.runs(), "{}", build.name);
    check_run(build, &["detach", "-p", &resident.pid.to_string()]);
    check_end(build, resident);
}

#[test]
fn calltaps_jump_that_another_tool_has_saved_leads_to_code_that_is_there() {
    [GCC, &BARE[0]].into_iter().for_each(check);
}

/// Attaches to a program in which another tool has hooked a function before, which then is not
/// patched: detaching leaves nothing. Attaches again once the hook is gone.
fn check_hooked_before(build: &Build) {
    let program = compile(build, &["hooked.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    resident.tell();
    resident.wait_for("changed");
    let pid = resident.pid.to_string();
    let attach = || check_run(build, &["attach", "-p", &pid, "--tracer", "function"]);
    let detach = || {
        check_run(build, &["detach", "-p", &pid]);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("calltap-"), "{}: {maps}", build.name);
    };
    attach();
    detach();
    let trace = resident.directory.join("trace").to_string_lossy().into_owned();
    let record = ["record", "-p", &pid, "--duration", "20ms", "-o", &trace, "-F", "target"];
    let run = calltap_run(&record);
    assert!(run.stderr.contains("; 1 cannot be traced\n"), "{}: {}", build.name, run.stderr);
    let report = calltap_run(&["report", &trace]).stdout;
    assert!(report.starts_with("# 1 selected function cannot be traced (target): "), "{report}");
    attach();
    resident.tell();
    resident.wait_for("changed");
    // The next controller finds the file's bytes, and patches them.
    for switch in ["--off", "--on"] {
        check_run(build, &["set", "-p", &pid, switch]);
    }
    detach();
    check_end(build, resident);
}

#[test]
fn a_function_that_another_tool_had_hooked_does_not_keep_calltap_mapped() {
    [GCC, &BARE[0]].into_iter().for_each(check_hooked_before);
}
