//! Functions without room for a jump, traced by permanent breakpoints (`--allow-int3`).

use calltap_e2e::*;
use std::thread;
use std::time::{Duration, Instant};

const ALLOWED: &[&str] = &["--allow-int3"];
/// The functions of `tiny.cpp` without room for a jump.
const TINY: [&str; 7] =
    ["tiny_nothing", "tiny_same", "tiny_tail", "tiny_sum", "tiny_calls", "tiny_far", "tiny_last"];
/// Returns the builds of the program: musl has no C++.
fn builds() -> impl Iterator<Item = &'static Build> {
    [&BARE[0], &BARE[3], &BARE[4], &BARE_PLACED[0], &BARE_PLACED[1]].into_iter()
}

fn tiny() -> Program {
    compile(&BARE[0], &["tiny.cpp"], &[])
}

fn handles_traps(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a process");
    u64::from_str_radix(line.trim(), 16).expect("a set of signals") & 1 << 4 != 0
}

/// Whether the function that is far from all others has a breakpoint.
fn traps(pid: u32) -> bool {
    changed_text(pid).iter().any(|text| text.contains("ffd: [cc] instead of [8b]"))
}

fn is_clean(resident: &Resident, what: &str) {
    assert_eq!(changed_text(resident.pid), [""; 0], "{what}");
    assert!(!handles_traps(resident.pid), "{what}: SIGTRAP is as it was");
}

fn does_its_work(resident: &mut Resident) {
    resident.tell();
    resident.wait_for("done");
}

fn detach(resident: &Resident, what: &str) {
    let left = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
    assert!(left.status.success(), "{what}: {}", left.stderr);
    is_clean(resident, what);
}

// Threads, signal handlers, exceptions and tail calls at the same time.
#[test]
fn calls_of_functions_without_room_are_counted_exactly() {
    for build in builds() {
        let program = compile(build, &["tiny.cpp"], &[]);
        let with = |more: &[&'static str]| [ALLOWED, more].concat();
        let both = ["--tracer", "function", "--tracer", "function_graph"];
        let flags = [with(&[]), with(&both), with(&["--tracer", "profile"])];
        let flags = if build.name == BARE[0].name { &flags[..] } else { &flags[..1] };
        check(&program, flags, &Expect::default());
    }
}

#[test]
fn children_have_the_breakpoints_and_their_handler() {
    check(
        &tiny(),
        &[ALLOWED.to_vec()],
        &Expect { arguments: &["forks"], uncounted: true, ..Expect::default() },
    );
}

#[test]
fn int3_functions_are_untraced_by_default_and_sites_names_the_option() {
    let program = tiny();
    let file = program.path.to_string_lossy();
    let line = |text: &str, name: &str| {
        let is_its = |line: &&str| line.split_whitespace().nth(4) == Some(name);
        text.lines().find(is_its).map(str::to_owned).unwrap_or_default()
    };
    let (plain, allowed) = (calltap_run(&["sites", &file]), calltap_run(&["sites", "--allow-int3", &file]));
    for name in TINY {
        assert!(line(&plain.stdout, name).ends_with("; --allow-int3 would trace it"), "{}", plain.stdout);
        assert!(line(&allowed.stdout, name).contains("(by a breakpoint)"), "{}", allowed.stdout);
    }
    let is_other = |name: &str| !line(&allowed.stdout, name).contains("breakpoint");
    assert!(is_other("tiny_first") && is_other("main"), "{}", allowed.stdout);
    let recording = record(&program, &[], &Expect::default());
    let rows = recording.rows();
    let is_there = |name: &str| rows.iter().any(|row| row["function"] == name);
    assert!(is_there("tiny_first") && !TINY.iter().any(|name| is_there(name)), "{rows:?}");
    let refused = record(&program, &["-F", "tiny_same"], &Expect::default());
    one_line(&refused.run, &["tiny_same cannot be traced", "--allow-int3 would trace it"]);
    let follow = record(&program, &["--allow-int3", "--follow"], &Expect::default());
    one_line(&follow.run, &["--allow-int3", "--follow", "exclude each other"]);
}

#[test]
fn int3_sites_are_restored_at_detach() {
    let program = tiny();
    let mut resident = Resident::start(&program, &["busy"]);
    let before = State::at_rest(resident.pid, &["State"]);
    for (round, attach) in ATTACHES.iter().enumerate() {
        // All functions are called in turn, by threads that may not be scheduled for long.
        let has_all = |resident: &Resident| {
            let rows = resident.view(if round == 3 { "stat" } else { "report" });
            let rows = rows.as_array().cloned().unwrap_or_default();
            TINY.iter().all(|name| rows.iter().any(|row| row["function"] == *name))
        };
        let run = resident.attach_until(&[ALLOWED, &attach[2..]].concat(), has_all);
        assert!(run.status.success() && resident.runs(), "{round}: {}", run.stderr);
        is_clean(&resident, "left");
        assert_eq!(State::at_rest(resident.pid, &["State"]), before, "{round}");
        resident.sound();
    }
    does_its_work(&mut resident);
    resident.ends_well("came and went");
}

#[test]
fn repeatedly_switched_program_works() {
    let program = tiny();
    let mut resident = Resident::start(&program, &["busy"]);
    let pid = resident.pid.to_string();
    // The session begins without breakpoints: they can be allowed later.
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    assert!(!traps(resident.pid));
    for round in 0..2 {
        let ways: [(&[&str], bool); 5] = [
            (&["--allow-int3"], true),
            (&["--tracer", "function"], true),
            (&["--off"], false),
            (&["--on"], true),
            (&["-N", "tiny_*", "--tracer", "function_graph"], false),
        ];
        for (way, on) in ways {
            let set = calltap_run(&[&["set", "-p", &pid], way].concat());
            assert!(set.status.success() && resident.runs(), "{way:?}: {}", set.stderr);
            assert_eq!(traps(resident.pid), on, "{round}: {way:?}: {}", set.stderr);
            does_its_work(&mut resident);
        }
        assert!(calltap_run(&["set", "-p", &pid, "-N", ""]).status.success());
    }
    detach(&resident, "switched");
    does_its_work(&mut resident);
    resident.ends_well("switched");
}

// A breakpoint leads to different stubs in different processes.
#[test]
fn children_live_on_while_their_parent_is_traced_by_other_stubs() {
    let program = tiny();
    let mut resident = Resident::start(&program, &["children"]);
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid, "--allow-int3", "-F", "tiny_*"]).status.success());
    for tracer in ["function", "profile"] {
        does_its_work(&mut resident);
        let set = calltap_run(&["set", "-p", &pid, "--tracer", tracer]);
        assert!(set.status.success(), "{}", set.stderr);
        does_its_work(&mut resident);
    }
    does_its_work(&mut resident);
    detach(&resident, "children");
    resident.ends_well("children");
}

#[test]
fn program_survives_killed_recorder_and_next_recorder_repairs() {
    for round in 0..2 {
        let program = tiny();
        let mut resident = Resident::start(&program, &["busy"]);
        let mut recorder = resident.attach_beside(ALLOWED);
        let start = Instant::now();
        while !traps(resident.pid) {
            assert!(start.elapsed() < HANGS, "never traced");
            thread::sleep(Duration::from_millis(2));
        }
        recorder.kill().expect("the test's own child");
        recorder.wait().expect("the test's own child");
        for _ in 0..3 {
            does_its_work(&mut resident);
        }
        assert!(traps(resident.pid) && handles_traps(resident.pid));
        match round {
            0 => detach(&resident, "killed"),
            _ => {
                let next = resident.attach(&[ALLOWED, SHORT].concat());
                assert!(next.status.success(), "{}", next.stderr);
                is_clean(&resident, "killed");
            }
        }
        does_its_work(&mut resident);
        resident.ends_well("killed");
    }
}

#[test]
fn unsafe_breakpoints_are_reported_and_other_sites_traced() {
    for (how, says) in [
        ("handled", "handles or ignores SIGTRAP"),
        ("ignored", "ignores SIGTRAP"),
        ("blocked", "blocks SIGTRAP"),
        ("masked", "handler of signal 10 runs with SIGTRAP blocked"),
    ] {
        let program = tiny();
        let mut resident = Resident::start(&program, &[how]);
        let before = State::at_rest(resident.pid, &["State"]);
        let mut recorder = resident.attach_beside(ALLOWED);
        resident.await_recorder();
        assert!(!traps(resident.pid), "{how}");
        does_its_work(&mut resident);
        assert!(calltap_run(&["detach", "-p", &resident.pid.to_string()]).status.success());
        succeeds(&mut recorder);
        assert_eq!(State::at_rest(resident.pid, &["State"]), before, "{how}");
        let rows = resident.view("report").to_string();
        assert!(rows.contains("tiny_first") && !rows.contains("tiny_same"), "{how}: {rows}");
        let run = resident.attach(&[ALLOWED, SHORT].concat());
        let told = ["7 functions", "they need breakpoints", says];
        assert!(told.iter().all(|part| run.stderr.contains(part)), "{how}: {}", run.stderr);
        resident.ends_well(how);
    }
}

// CPython's own functions, some of which have only a few bytes.
#[test]
fn a_program_of_the_system_s_gives_the_same_output_with_all_that_can_be_traced() {
    let Some(python) =
        ["/usr/bin/python3.11", "/usr/bin/python3"].into_iter().find(|path| std::fs::metadata(path).is_ok())
    else {
        return skipped("no python3 here");
    };
    let script = "import json, re; print(json.dumps({str(n): n ** 3 for n in range(50)})); \
                  print(re.sub('[aeiou]', '-', 'functions of a few bytes')); print(sorted({3, 1, 2}), 7 // 2, 1.5 * 4)";
    let expect = Expect { arguments: &["-c", script], uncounted: true, ..Expect::default() };
    let program = Program::existing(python);
    let rows = |flags: &[&'static str]| check(&program, &[flags.to_vec()], &expect).rows().len();
    let (plain, allowed) = (rows(&[]), rows(ALLOWED));
    assert!(allowed > plain, "{allowed} functions were called, {plain} of them without a breakpoint");
}
