//! The ways to change running code (`--patch-mode`): programs run on with each, also if calltap is
//! killed meanwhile; where breakpoints cannot be used, that is reported.

use calltap_e2e::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// The modes for running programs, except the default.
const MODES: [&str; 2] = ["jmp3f", "breakpoint"];

fn check(mode: &str) {
    for source in ["abi.c", "throws.cpp"] {
        transparent_while_switched_by(&again(GCC, source, &[]), &[], mode);
    }
    transparent_while_switched_by(&again(&PLACED[0], "tail.c", &[]), &[], mode);
}

#[test]
fn programs_go_on_as_untraced_while_switched_through_jmp_3f() {
    check("jmp3f");
}

#[test]
fn programs_go_on_as_untraced_while_switched_through_breakpoints() {
    check("breakpoint");
}

/// Attaches with a patch mode.
fn attach(resident: &Resident, mode: &str) -> String {
    let pid = resident.pid.to_string();
    let run = calltap_run(&["attach", "-p", &pid, "--patch-mode", mode]);
    assert!(run.status.success(), "{mode}: {}", run.stderr);
    pid
}

fn handles_traps(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a process");
    u64::from_str_radix(line.trim(), 16).expect("a set of signals") & 1 << 4 != 0
}

fn detach(resident: &Resident, what: &str) {
    let left = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
    assert!(left.status.success(), "{what}: {}", left.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0], "{what}");
    assert!(!handles_traps(resident.pid), "{what}: SIGTRAP is as it was");
}

#[test]
fn threads_that_come_and_go_children_and_signal_handlers_meet_breakpoints() {
    let program = compile(GCC, &["resident.c"], &[]);
    for how in ["busy", "churn", "forks", "signals"] {
        let mut resident = Resident::start(&program, &[how]);
        let pid = attach(&resident, "breakpoint");
        let mut through = 0;
        for _ in 0..5 {
            for turn in ["--off", "--on"] {
                let set = calltap_run(&["set", "-p", &pid, turn]);
                assert!(set.status.success() && resident.runs(), "{how}: {}", set.stderr);
                through += usize::from(!set.stderr.contains("as by default"));
            }
        }
        // Where threads are created all the time, and block all signals meanwhile, a loaded machine
        // may always fall back to the default mode.
        assert!(through > 0 || ["churn", "forks"].contains(&how), "{how}: never through breakpoints");
        detach(&resident, how);
        resident.ends_well(how);
    }
}

/// Runs calltap, and kills it at the n-th time that it begins a system call.
fn kill_at(call: &str, when: usize, arguments: &[&str]) {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=SIGKILL:when={when}")]).arg(calltap()).args(arguments);
    let _ = run(strace, b"");
}

#[test]
fn the_next_calltap_cleans_up_after_a_recorder_that_was_killed() {
    if !have("strace") {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    for (mode, call, when) in MODES.into_iter().flat_map(|mode| {
        [("membarrier", 1), ("membarrier", 3), ("pwrite64", 13)].map(|(call, when)| (mode, call, when))
    }) {
        let what = format!("{mode}, killed at {call} {when}");
        let mut resident = Resident::start(&program, &["counted"]);
        let (pid, trace) = (resident.pid.to_string(), resident.trace().display().to_string());
        kill_at(
            call,
            when,
            &["record", "-q", "-p", &pid, "--duration", "5ms", "--patch-mode", mode, "-o", &trace],
        );
        resident.tell();
        resident.wait_for("done");
        let run = resident.attach(SHORT);
        assert!(run.status.success(), "{what}: {}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{what}");
        assert!(!handles_traps(resident.pid), "{what}");
        resident.ends_well(&what);
    }
}

#[test]
fn a_calltap_killed_in_the_middle_leaves_a_program_that_runs_on_and_the_next_one_goes_on() {
    if !have("strace") {
        return;
    }
    let program = compile(GCC, &["resident.c"], &[]);
    let calls: [(&str, &[usize]); 3] =
        [("membarrier", &[1, 2, 3, 5]), ("pwrite64", &[3, 4, 6]), ("ptrace", &[6])];
    for mode in MODES {
        let meanwhile = if mode == "jmp3f" { "[eb, 03" } else { "[cc" };
        let mut left = 0;
        for (n, (call, when)) in
            calls.iter().flat_map(|(call, when)| when.iter().map(move |when| (call, when))).enumerate()
        {
            let what = format!("{mode}, killed at {call} {when}");
            let mut resident = Resident::start(&program, &["counted"]);
            let pid = attach(&resident, mode);
            kill_at(call, *when, &["set", "-p", &pid, "--off"]);
            left += usize::from(changed_text(resident.pid).iter().any(|text| text.contains(meanwhile)));
            resident.tell();
            resident.wait_for("done");
            // In half of the runs, the next command detaches at once.
            if n % 2 == 0 {
                let on = calltap_run(&["set", "-p", &pid, "--on"]);
                assert!(on.status.success(), "{what}: {}", on.stderr);
                resident.tell();
                resident.wait_for("done");
            }
            detach(&resident, &what);
            resident.ends_well(&what);
        }
        assert!(left > 0, "{mode}: never killed in the middle");
    }
}

#[test]
fn breakpoint_mode_refuses_unsafe_processes() {
    let program = compile(GCC, &["traps.c"], &[]);
    let flags = ["--duration", "10ms", "--patch-mode", "breakpoint"];
    for (how, says) in [
        ("handled", "handles SIGTRAP"),
        ("ignored", "ignores SIGTRAP"),
        ("blocked", "blocks SIGTRAP"),
        ("masked", "handler of signal 10 runs with SIGTRAP blocked"),
    ] {
        refused_by(&program, &[how], &flags, &["breakpoints would kill it", says]);
    }
}

#[test]
fn breakpoint_mode_falls_back_with_a_message_if_sigtrap_is_taken_later() {
    let program = compile(GCC, &["traps.c"], &[]);
    for how in ["blocked", "handled"] {
        let mut resident = Resident::start(&program, &[&format!("{how} later")]);
        let pid = attach(&resident, "breakpoint");
        resident.tell();
        resident.wait_for(how);
        for turn in ["--off", "--on"] {
            let set = calltap_run(&["set", "-p", &pid, turn]);
            assert!(set.status.success() && set.stderr.contains("as by default"), "{how}: {}", set.stderr);
        }
        let left = calltap_run(&["detach", "-p", &pid]);
        assert!(left.status.success() && changed_text(resident.pid).is_empty(), "{how}: {}", left.stderr);
        assert_eq!(handles_traps(resident.pid), how == "handled", "{how}: the program's own is left alone");
        resident.ends_well(how);
    }
}

#[test]
fn foreign_sigtrap_kills_program() {
    let program = compile(GCC, &["traps.c"], &[]);
    for how in ["int3", "raise"] {
        let mut resident = Resident::start(&program, &[how]);
        let pid = attach(&resident, "breakpoint");
        assert!(calltap_run(&["set", "-p", &pid, "--off"]).status.success());
        assert!(handles_traps(resident.pid));
        resident.tell();
        let (status, output, errors) = resident.end();
        assert_eq!(status.signal(), Some(libc::SIGTRAP), "{how}: {status} {output}{errors}");
    }
}

#[test]
fn patch_mode_is_reported_and_before_start_needs_program() {
    let program = compile(GCC, &["traps.c"], &[]);
    let resident = Resident::start(&program, &[]);
    let refused = resident.attach(&["--patch-mode", "before-start"]);
    one_line(&refused, &["before-start", "record -- PROGRAM"]);
    for mode in MODES {
        let pid = attach(&resident, mode);
        let status = calltap_run(&["status", "-p", &pid]);
        assert!(status.stdout.contains(&format!("patch mode {mode}\n")), "{}", status.stdout);
        detach(&resident, mode);
    }
    resident.ends_well("told");
    let program = compile(GCC, &["tail.c"], &[]);
    for mode in ["before-start", "jmp3f", "breakpoint", "stop_machine"] {
        let recording = record(&program, &["--patch-mode", mode], &Expect::default());
        assert!(recording.run.status.success(), "{mode}: {}", recording.run.stderr);
        recording.counts_agree(&Expect::default());
    }
}
