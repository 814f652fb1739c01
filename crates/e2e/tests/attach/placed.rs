//! Attaching to programs without a dynamic linker that could load the agent: static ones, and those
//! linked with musl.

use calltap_e2e::*;
use std::process::Command;

fn every(source: &str) {
    for build in installed(PLACED) {
        transparent(&again(build, source, &[]), &[]);
    }
}

#[test]
fn values_and_registers_are_passed_as_untraced() {
    every("abi.c");
    every("ipa_ra.c");
}

#[test]
fn longjmp_and_tail_calls_go_on_as_untraced() {
    every("jumps.c");
    every("tail.c");
}

#[test]
fn calls_are_counted_exactly() {
    installed(PLACED).for_each(counts_exactly);
}

#[test]
fn threads_that_come_and_go_find_states_of_their_own() {
    for build in installed(PLACED) {
        let tolerate = Tolerate { changes: &["Threads"], ..Tolerate::default() };
        goes_on(&compile(build, &["resident.c"], &[]), &["churn"], 4, tolerate);
    }
}

#[test]
fn threads_on_stacks_that_others_have_left_find_nothing_of_an_earlier_session() {
    for build in installed(PLACED).chain([GCC]) {
        let program = compile(build, &["recycled.c"], &[]);
        let mut resident = Resident::start(&program, &[]);
        for n in 0..12 {
            let run =
                resident.attach(&["--duration", "20ms", "--buffer-size", &format!("{}M", 8 << (n % 5))]);
            assert!(run.status.success() && resident.runs(), "{} {n}: {}", build.name, run.stderr);
            resident.sound();
            resident.tell();
            resident.wait_for("mapped");
        }
        let (status, output, errors) = resident.end();
        assert!(status.success(), "{}: {status} {output}{errors}", build.name);
    }
}

#[test]
fn busy_threads_signals_and_forks_go_on() {
    for build in installed(PLACED) {
        let program = compile(build, &["resident.c"], &[]);
        goes_on(&program, &["busy"], 4, Tolerate::default());
        goes_on(&program, &["signals"], 4, Tolerate { changes: &["SigBlk"], refusals: true });
        goes_on(&program, &["forks"], 4, Tolerate { changes: &["Threads", "SigBlk"], refusals: true });
    }
}

#[test]
fn exceptions_unwind_through_placed_agent() {
    for build in &PLACED[..2] {
        transparent(&again(build, "throws.cpp", &[]), &[]);
    }
}

#[test]
fn rust_panics_unwind_through_placed_agent() {
    let program = compile_rust("panics.rs", &["-Copt-level=2", "-Ctarget-feature=+crt-static"]);
    let alone = run(Command::new(&program.path), b"");
    for _ in 0..3 {
        let resident = Resident::spawn(Command::new(&program.path), program.directory().to_owned());
        resident.attach(SHORT);
        let (status, output, errors) = resident.end();
        assert_eq!((status, output, errors), (alone.status, alone.stdout.clone(), alone.stderr.clone()));
    }
}

/// The loader of a static-pie program is its own code. The function that the loader calls at every
/// change leads to the agent, and is not traced.
#[test]
fn text_that_the_agent_watches_is_restored_after_other_tracers_were_set() {
    let build =
        Build { name: "bare static-pie", compilers: PLACED[1].compilers, flags: &["-O2", "-static-pie"] };
    let mut resident = Resident::start(&compile(&build, &["resident.c"], &[]), &[]);
    let pid = resident.pid.to_string();
    let both: &[&str] = &["set", "--tracer", "function", "--tracer", "function_graph"];
    for command in [&["attach"], both, &["set", "--off"], &["set", "--on"], &["detach"]] {
        let run = calltap_run(&[command, &["-p", &pid]].concat());
        assert!(run.status.success(), "{command:?}: {}", run.stderr);
        assert!(!run.stderr.contains("0x"), "{command:?} found code changed: {}", run.stderr);
    }
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.runs());
}

#[test]
fn attach_refuses_unwinder_without_frame_registration() {
    let program = compile(&PLACED[0], &["throws.cpp", "again.c"], &["-Dmain=once", "-x", "c++", "-s"]);
    let mut command = Command::new(&program.path);
    command.env("AGAIN", "1000");
    let mut resident = Resident::spawn(command, program.directory().to_owned());
    let run = resident.attach(SHORT);
    one_line(&run, &["its unwinder is linked in"]);
    assert!(resident.runs());
}
