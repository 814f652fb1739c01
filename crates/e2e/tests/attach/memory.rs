//! Memory that calltap cannot read like other memory, that a tool inside the program watches, or
//! that the program locks.

use calltap_e2e::*;
use std::fs;

#[test]
fn pages_that_a_stopped_thread_supplies_are_not_waited_for() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["supplied.c"], &["-lpthread"]);
        goes_on(&program, &[], 8, Tolerate::default());
    }
}

/// A stack that cannot be read may hold addresses of calltap's code, so that has to stay.
#[test]
fn nothing_is_unmapped_that_an_unreadable_stack_may_lead_to() {
    let program = compile(GCC, &["hidden.c"], &["-lpthread"]);
    for _ in 0..3 {
        let resident = Resident::start(&program, &[]);
        let run = resident.attach(&["--duration", "100ms"]);
        assert!(run.stderr.contains("memfd_secret"), "{}", run.stderr);
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
    }
}

/// The unwinder's memory for calltap's frames is no leak of the program.
#[test]
fn leak_sanitizer_finds_no_leak_of_calltaps() {
    let mut sanitized: Vec<(&Build, &str)> = vec![(GCC, "-fsanitize=address"), (GCC, "-fsanitize=leak")];
    sanitized.extend(
        installed(BARE)
            .filter(|build| build.name.contains("clang"))
            .map(|build| (build, "-fsanitize=address"))
            .take(1),
    );
    for (build, flag) in sanitized {
        let program = compile(build, &["caught.cpp"], &[flag]);
        let mut resident = Resident::start(&program, &[]);
        for _ in 0..2 {
            let run = resident.attach(&["--duration", "50ms"]);
            assert!(run.status.success(), "{} {flag}: {}", build.name, run.stderr);
            resident.tell();
        }
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{} {flag}: {status} {output}{errors}", build.name);
    }
}

/// The address space that the agent keeps is not locked with the program's memory.
#[test]
fn address_space_that_stays_is_not_locked() {
    let program = compile(&BARE[0], &["resident.c"], &[]);
    let resident = Resident::start(&program, &["locked"]);
    let pid = resident.pid.to_string();
    let locked = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("locked memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    let before = locked();
    assert!(before > 0, "mlockall failed");
    for word in ["attach", "detach"] {
        let run = calltap_run(&[word, "-p", &pid]);
        assert!(run.status.success(), "{}", run.stderr);
    }
    let after = locked();
    assert!(after < before + 2048, "{before} kB before, {after} kB after");
    assert!(resident.end().0.success());
}
