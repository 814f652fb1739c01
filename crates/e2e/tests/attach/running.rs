//! Attaching to running programs: they must run on as before, and be unchanged after detaching.

use calltap_e2e::*;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const THREADS_COME_AND_GO: Tolerate<'_> = Tolerate { changes: &["Threads"], refusals: false };

fn resident(how: &str, times: usize, tolerate: Tolerate<'_>) {
    goes_on(&compile(GCC, &["resident.c"], &[]), &[how], times, tolerate);
}

#[test]
fn every_way_to_pass_and_return_values_goes_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "abi.c", &[]), &[]);
    }
}

#[test]
fn callers_that_keep_values_in_scratch_registers_go_on_as_untraced() {
    let builds = [&["-O2"][..], &["-O3", "-march=native"]];
    for flags in builds {
        transparent(&again(GCC, "ipa_ra.c", flags), &[]);
    }
}

// A thread that runs one function all the time is nearly always stopped between two of its NOPs.
#[test]
fn functions_that_threads_run_all_the_time_are_traced() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    for round in 0..20 {
        resident.attach_while_it_works(&[]);
        let rows = resident.view("report");
        let found = rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "work"));
        assert!(found, "round {round}: {rows}");
    }
    assert!(resident.end().0.success());
}

#[test]
fn longjmp_and_deep_recursion_go_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "jumps.c", &[]), &[]);
    }
}

#[test]
fn tail_calls_go_on_as_untraced() {
    for (_, build) in matrix() {
        transparent(&again(build, "tail.c", &[]), &[]);
    }
}

#[test]
fn exceptions_go_on_as_untraced() {
    for (_, build) in matrix().filter(|(n, _)| n % 2 == 0) {
        transparent(&again(build, "throws.cpp", &[]), &[]);
    }
}

#[test]
fn coroutines_that_move_between_threads_go_on_as_untraced() {
    for (_, build) in matrix().filter(|(n, _)| n % 2 == 0) {
        transparent(&again(build, "coroutines.c", &[]), &[]);
    }
}

#[test]
#[ignore = "long: under stress"]
fn threads_that_end_in_every_way_go_on_as_untraced() {
    let program = again(GCC, "threads.c", &[]);
    for how in ["cancel", "exit", "keys", "short", "detached", "busy"] {
        transparent(&program, &[how]);
    }
}

#[test]
fn rust_panics_go_on_as_untraced() {
    let program = compile_rust("panics.rs", &["-Copt-level=2"]);
    let alone = run(Command::new(&program.path), b"");
    for _ in 0..3 {
        let resident = Resident::spawn(Command::new(&program.path), program.directory().to_owned());
        resident.attach(SHORT);
        let (status, output, errors) = resident.end();
        assert_eq!((status, output, errors), (alone.status, alone.stdout.clone(), alone.stderr.clone()));
    }
}

#[test]
fn after_twenty_times_nothing_has_piled_up() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[2]] {
        let program = compile(build, &["resident.c"], &[]);
        let mut resident = Resident::start(&program, &["counted"]);
        attach_and_look(&mut resident, 3, Tolerate::default());
        // The code that loaded the agent was written to a single page.
        assert!(private_text(resident.pid) <= 4, "{} KiB of text", private_text(resident.pid));
        let before = memory(resident.pid);
        attach_and_look(&mut resident, 17, Tolerate::default());
        no_larger(&resident, before, build.name);
        assert!(resident.end().0.success());
    }
}

/// Checks that the mappings and the memory of a process have not grown.
fn no_larger(resident: &Resident, before: (usize, u64), what: &str) {
    let after = memory(resident.pid);
    assert!(after.0 <= before.0 + 1 && after.1 <= before.1 + 2048, "{what}: {before:?} -> {after:?}");
}

#[test]
#[ignore = "long: ten thousand times"]
fn after_ten_thousand_times_nothing_has_piled_up() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["counted"]);
    let pid = resident.pid.to_string();
    attach_and_look(&mut resident, 4, Tolerate::default());
    let before = memory(resident.pid);
    for hundred in 0..100 {
        for n in 0..100 {
            for command in ["attach", "detach"] {
                let run = calltap_run(&[command, "-p", &pid]);
                assert!(run.status.success(), "{hundred}{n:02}: {command}: {}", run.stderr);
            }
        }
        assert_eq!(changed_text(resident.pid), [""; 0], "{hundred}00");
        no_larger(&resident, before, &format!("{hundred}00"));
    }
    attach_and_look(&mut resident, 4, Tolerate::default());
    assert!(resident.end().0.success());
}

#[test]
fn calls_made_while_attached_are_counted_exactly() {
    for (_, build) in matrix() {
        counts_exactly(build);
    }
}

#[test]
#[ignore = "long: under stress"]
fn threads_that_come_and_go_by_thousands() {
    resident("churn", 12, THREADS_COME_AND_GO);
}

#[test]
fn code_can_be_changed_with_all_threads_stopped() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["busy"]);
    for _ in 0..4 {
        resident.attach_while_it_works(&["--patch-mode", "stop_machine"]);
        assert!(resident.runs());
        assert!(resident.sound().0 > 0);
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
}

#[test]
fn every_code_change_follows_the_protocol() {
    for build in installed(BUILDS).chain(installed(PLACED)) {
        let program = compile(build, &["resident.c"], &[]);
        let log = program.directory().join("changes").display().to_string();
        let audit = || calltap_run(&["audit", &log]);
        let resident = Resident::start(&program, &["busy"]);
        for mode in ["live", "jmp3f", "breakpoint", "stop_machine"] {
            let run = resident.attach(&["--duration", "20ms", "--patch-log", &log, "--patch-mode", mode]);
            // The profiler that -pg links handles SIGPROF with all other signals blocked.
            if mode == "breakpoint" && build.flags.contains(&"-pg") {
                one_line(&run, &["SIGTRAP blocked"]);
                continue;
            }
            assert!(run.status.success(), "{}", run.stderr);
            let audit = audit();
            assert!(audit.status.success(), "{} {mode}: {}{}", build.name, audit.stdout, audit.stderr);
            assert!(!audit.stdout.contains("changes  0"), "{}", audit.stdout);
        }
        // A single bit of a write is flipped.
        let text = std::fs::read_to_string(&log).expect("a log");
        let at =
            text.rfind("\nwrite ").and_then(|at| Some(at + text[at + 7..].find(' ')? + 8)).expect("a write");
        let mut bytes = text.into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        std::fs::write(&log, bytes).expect("a log");
        let broken = audit();
        assert!(
            !broken.status.success() && broken.stdout.contains("line "),
            "{}{}",
            broken.stdout,
            broken.stderr
        );
    }
}

#[test]
fn program_with_replaced_file_is_traced_by_its_mapped_file() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let other = program.add(GCC, &["tail.c"], "other", &[]);
    std::fs::rename(other, &program.path).expect("a newer version");
    let run = resident.attach(&["--duration", "30ms"]);
    if run.stderr.contains("not permitted") {
        return skipped("opening what is mapped needs CAP_SYS_ADMIN");
    }
    assert!(run.status.success(), "{}", run.stderr);
    resident.attach_while_it_works(&[]);
    assert!(resident.sound().0 > 0);
    let rows = resident.view("report");
    let has = |name: &str| rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == name));
    assert!(has("work"), "{rows}");
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
}

#[test]
fn more_busy_threads_than_processors() {
    resident("busy", 12, Tolerate::default());
}

#[test]
fn forked_children_compute_right_results() {
    resident("forks", 8, Tolerate { changes: &["Threads", "SigBlk"], refusals: true });
}

#[test]
fn signal_handlers_at_1_khz() {
    resident("signals", 15, Tolerate { changes: &["SigBlk"], refusals: true });
}

#[test]
fn locked_memory() {
    resident("locked", 8, Tolerate { changes: &[], refusals: true });
}

#[test]
fn main_has_ended_and_its_threads_have_not() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["main"]);
    attach_and_look(&mut resident, 4, Tolerate::default());
    let (status, _, errors) = resident.end();
    assert_eq!((status.code(), errors.as_str()), (Some(7), ""));
}

fn open_frames(how: &str, build: &Build) {
    let program = compile(build, &["open_frames.cpp"], &["-rdynamic"]);
    for depth in ["3", "100", "20000"] {
        if depth == "20000" && how == "backtrace" {
            continue;
        }
        let go = |attach: bool| {
            let mut resident = Resident::start(&program, &[how, depth]);
            for turn in 0..3 {
                let mut calltap = attach.then(|| resident.attach_beside(ATTACHES[turn]));
                if attach {
                    // Some frames are open when calltap attaches, others are opened afterwards.
                    thread::sleep(Duration::from_millis([5, 30, 60][turn]));
                }
                resident.tell();
                let inside = how != "coroutine";
                if inside {
                    resident.wait_for("down");
                }
                if let Some(calltap) = &mut calltap {
                    succeeds(calltap);
                    assert_eq!(changed_text(resident.pid), [""; 0]);
                }
                if !inside {
                    resident.wait_for("down");
                }
                resident.tell();
                thread::sleep(Duration::from_millis(20));
            }
            resident.end()
        };
        assert_eq!(go(true), go(false), "{how} {depth} ({})", build.name);
    }
}

#[test]
fn frames_open_at_detaching_return() {
    for (_, build) in matrix() {
        open_frames("return", build);
    }
    open_frames("mixed", GCC);
}

#[test]
fn exceptions_pass_frames_open_at_detaching() {
    for (_, build) in matrix() {
        open_frames("throw", build);
    }
}

#[test]
fn longjmp_passes_frames_open_at_detaching() {
    open_frames("longjmp", GCC);
    open_frames("longjmp", &BUILDS[1]);
}

#[test]
fn backtraces_after_detaching_show_the_programs_functions_only() {
    for (_, build) in matrix() {
        open_frames("backtrace", build);
    }
}

#[test]
fn threads_end_through_frames_open_at_detaching() {
    open_frames("exit", GCC);
}

#[test]
fn a_coroutine_that_rests_at_detaching_goes_on() {
    open_frames("coroutine", GCC);
}

#[test]
fn other_commands_control_running_recorder() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["counted"]);
    let pid = resident.pid.to_string();
    let calltap = |words: &[&str]| calltap_run(&[words, &["-p", &pid]].concat());
    let mut recorder = resident.attach_beside(&["-F", "outer"]);
    await_that("one function is on", || calltap(&["status"]).stdout.contains("functions  1 enabled"));
    let mut counts = Vec::new();
    for words in [&[][..], &["-F", "work"], &["--off"], &["--on"], &["-F", ""]] {
        if !words.is_empty() {
            let run = calltap(&[&["set"], words].concat());
            assert!(run.status.success(), "{words:?}: {}", run.stderr);
        }
        let status = calltap(&["status"]).stdout;
        assert!(status.contains("being recorded"), "{status}");
        counts.push(status.lines().nth(1).unwrap_or_default().split_whitespace().nth(1).map(str::to_owned));
        resident.tell();
        resident.wait_for("done");
    }
    let all = counts.pop().flatten();
    assert_eq!(counts, ["1", "1", "0", "1"].map(|count| Some(count.to_owned())));
    assert!(all.is_some_and(|all| all.parse::<u32>().is_ok_and(|all| all > 2)));
    for (words, says) in [
        (&["-F", "outr"][..], "nearest: outer"),
        (&["--tracer", "function"], "tracers stay"),
        (&["--on", "--off"], "exclude"),
    ] {
        let run = calltap(&[&["set"], words].concat());
        one_line(&run, &[says]);
    }
    assert!(calltap(&["detach"]).status.success());
    succeeds(&mut recorder);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let rows = resident.view("report");
    let calls = |name: &str| {
        let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == name));
        row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
    };
    assert_eq!((calls("outer"), calls("work")), (2 * 12_345, 3 * 123_450));
    assert!(resident.end().0.success());
}

#[test]
fn forked_children_are_set_as_their_parent_is() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["workers"]);
    let pid = resident.pid.to_string();
    let calltap = |words: &[&str]| {
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        assert!(run.status.success(), "{words:?}: {}", run.stderr);
    };
    calltap(&["attach", "-F", "outer"]);
    resident.tell();
    let children: Vec<u32> =
        (0..3).map(|_| resident.wait_for("child").parse().expect("a process id")).collect();
    // The child that has made a call is known.
    let caller = children[1];
    await_that("it is known", || calltap_run(&["status", "-p", &pid]).stdout.contains("2 processes"));
    for words in [&["set", "-F", "work"][..], &["set", "-F", "*"], &["set", "--off"], &["set", "--on"]] {
        calltap(words);
        assert_eq!(changed_text(caller), changed_text(resident.pid), "{words:?}");
    }
    calltap(&["detach"]);
    let changed: Vec<_> = children.iter().map(|child| changed_text(*child)).collect();
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    assert!(changed.iter().all(Vec::is_empty), "{changed:?}");
}

#[test]
fn idle_forked_children_are_restored() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["workers"]);
    let mut calltap = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.tell();
    let children: Vec<u32> =
        (0..3).map(|_| resident.wait_for("child").parse().expect("a process id")).collect();
    kill(calltap.id(), libc::SIGINT);
    succeeds(&mut calltap);
    let changed: Vec<_> = children.iter().map(|child| changed_text(*child)).collect();
    let parent = changed_text(resident.pid);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    assert_eq!(parent, [""; 0]);
    assert!(changed.iter().all(Vec::is_empty), "{changed:?}");
}

#[test]
fn libraries_opened_and_closed_while_attached() {
    for build in [&BUILDS[0], &BUILDS[1]] {
        let (program, library) = with_libraries(build);
        let command = || {
            let mut command = Command::new(&program.path);
            command.arg(&library).current_dir(program.directory());
            command
        };
        let alone = run(command(), b"");
        for _ in 0..8 {
            let mut resident = Resident::spawn(command(), program.directory().to_owned());
            let mut attached = 0;
            while resident.runs() {
                attached += usize::from(resident.attach(&["--duration", "2ms"]).status.success());
            }
            let (status, output, errors) = resident.end();
            assert_eq!(
                (status, &output, &errors),
                (alone.status, &alone.stdout, &alone.stderr),
                "{attached}"
            );
        }
    }
}

#[test]
fn the_processor_time_in_the_trace_is_that_of_the_process_meanwhile() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let work = Duration::from_millis(300);
    let before = used(resident.pid);
    let mut beside = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.await_work(work);
    kill(beside.id(), libc::SIGINT);
    succeeds(&mut beside);
    let all = used(resident.pid) - before;
    let told = Duration::from_nanos(resident.view("info")["end"]["cpu_ns"].as_u64().unwrap_or_default());
    // The kernel reports it to the test in ticks of 10 ms.
    let ticks = Duration::from_millis(20);
    assert!(told > work - ticks && told < all + ticks, "{told:?} of {all:?}");
    // A process that ends during the recording.
    let beside = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.await_work(work);
    let trace = resident.trace();
    let (status, _, errors) = resident.end();
    assert!(status.success(), "{errors}");
    assert!(beside.wait_with_output().is_ok_and(|output| output.status.success()));
    let run = calltap_run(&["info", "-i", &trace.to_string_lossy(), "--format", "json"]);
    let info: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(info["end"]["status"], "ended");
    assert!(info["end"]["cpu_ns"].as_u64().is_some_and(|ns| ns > 10_000_000), "{}", info["end"]);
}

// A thread that has opened a library requests that its functions be traced, and waits; a calltap
// that is about to detach does not answer. Libraries are also mapped where others were, or where
// they themselves were except for some pages.
#[test]
fn a_program_that_opens_libraries_all_the_time_is_left_at_once() {
    let globs =
        ["--duration", "100ms", "--later", "-F", "work", "-F", "c*", "-F", "s*", "-F", "res_*", "-F", "ns_*"];
    for (build, flags) in [(GCC, &globs[..2]), (GCC, &globs), (&BARE[0], &globs)] {
        let program = compile(build, &["opens.c"], &["-Wl,--as-needed"]);
        let resident = Resident::start(&program, &[]);
        let mut fastest = Duration::MAX;
        for round in 0..6 {
            let start = Instant::now();
            let run = resident.attach(flags);
            fastest = fastest.min(start.elapsed());
            assert!(run.status.success(), "{}", run.stderr);
            let notes = ["did not answer", "still in calltap's code", "another tool", "cleaned up"];
            let told = notes.iter().find(|note| run.stderr.contains(**note));
            assert_eq!(told, None, "{}, round {round}: {}", program.name, run.stderr);
        }
        // A loaded machine may take longer for some of the rounds.
        assert!(fastest < Duration::from_secs(3), "{}: {fastest:?}", program.name);
        assert_eq!(changed_text(resident.pid), [""; 0]);
        let (status, output, errors) = resident.end();
        assert!(status.success() && output.contains("wrong 0"), "{output} {errors}");
    }
}
