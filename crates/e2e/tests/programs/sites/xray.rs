//! Programs with the sleds of XRay (clang's -fxray-instrument, rustc's -Z instrument-xray): room at
//! entries and at exits.

use calltap_e2e::*;
use std::process::Command;

/// Compiles a program, if the compiler is installed.
fn program(source: &str, flags: &[&str]) -> Option<Program> {
    have(XRAY.compilers[0]).then(|| compile(XRAY, &[source], flags))
}

#[test]
fn returns_are_recorded_by_exit_sleds() {
    let frames = ["-Wl,--export-dynamic", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let Some(program) = program("exits.c", &frames) else { return };
    let listed = calltap_run(&["sites", &program.path.display().to_string()]).stdout;
    for line in listed.lines().filter(|line| line.contains(" xray ")) {
        assert!(line.contains(" exits:"), "{line}");
    }
    assert!(listed.contains(" xray "), "{listed}");
    for turn in 0..4 {
        let recording = check(&program, &diagonal(turn), &Expect::default());
        // No code sees another return address than the program's.
        let seen = recording.run.stdout.lines().next().and_then(|line| line.split(' ').nth(1));
        assert_eq!(seen, Some("12"), "{}", recording.run.stdout);
    }
}

#[test]
fn calls_made_while_attached_are_counted_exactly() {
    if have(XRAY.compilers[0]) {
        counts_exactly(XRAY);
    }
}

#[test]
fn switching_again_and_again_changes_nothing() {
    if !have(XRAY.compilers[0]) {
        return;
    }
    for source in ["abi.c", "ipa_ra.c", "jumps.c", "tail.c", "throws.cpp"] {
        transparent_while_switched(&again(XRAY, source, &[]), &[]);
    }
}

#[test]
fn functions_are_switched_while_all_threads_run() {
    let Some(program) = program("resident.c", &[]) else { return };
    let resident = Resident::start(&program, &["busy"]);
    let pid = resident.pid.to_string();
    let attached = calltap_run(&["attach", "-p", &pid]);
    assert!(attached.status.success(), "{}", attached.stderr);
    for round in 0..50 {
        let run = calltap_run(&["set", "-p", &pid, if round % 2 == 0 { "--off" } else { "--on" }]);
        assert!(run.status.success() && !run.stderr.contains("stopped"), "{}{}", run.stdout, run.stderr);
    }
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn rust_programs_with_panics_and_backtraces() {
    for flags in [&["-Copt-level=0"][..], &["-Copt-level=3"], &["-Copt-level=3", "-Clinker-flavor=gcc"]] {
        let flags = [&["-Zinstrument-xray=always"], flags].concat();
        let program = compile_rust_as_it_is("panics.rs", &flags);
        let listed = calltap_run(&["sites", &program.path.display().to_string()]).stdout;
        assert!(listed.lines().any(|line| line.contains(" xray ") && line.contains(" exits:")), "{listed}");
        for turn in [0, 3] {
            check(&program, &diagonal(turn), &Expect::default());
        }
    }
}

// The jump is not an exit, as its target may not be traced. Some versions of LLVM also put the sled
// in front of a conditional jump, behind which the function goes on.
#[test]
fn functions_with_sleds_in_front_of_tail_calls_have_return_stubs() {
    let Some(program) = program("exits.c", &["-Os"]) else { return };
    let listed = calltap_run(&["sites", &program.path.display().to_string()]).stdout;
    let said = "return stub: it ends with a tail call (behind XRay's sled";
    assert!(listed.lines().any(|line| line.contains(" xray ") && line.contains(said)), "{listed}");
    // Functions on demand have no sled.
    assert!(listed.lines().filter(|line| line.contains("if a filter names it")).count() < 9, "{listed}");
}

// Two tracers cannot use one site: the second one reports that, and leaves the site unchanged.
#[test]
fn sleds_patched_by_xray_runtime_are_unchanged() {
    if !have(XRAY.compilers[0]) {
        return;
    }
    let with_library = Build {
        name: "xray with its library",
        compilers: XRAY.compilers,
        flags: &["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1"],
    };
    let program = compile(&with_library, &["tail.c"], &[]);
    // Disabled by the program's settings, the library does nothing, and calltap traces.
    check(&program, &diagonal(0), &Expect { uncounted: true, ..Expect::default() });
    let mut command = Command::new(calltap());
    command.env("XRAY_OPTIONS", "patch_premain=true xray_mode=xray-basic").current_dir(program.directory());
    let output = command.args(["record", "-o", "own.ct", "--"]).arg(&program.path).output().expect("calltap");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("XRAY_OPTIONS lets the program's own XRay"), "{errors}");
    // The library's changes do not count as remains of calltap.
    let resident = compile(&with_library, &["resident.c"], &[]);
    let mut command = Command::new(&resident.path);
    command.env("XRAY_OPTIONS", "patch_premain=true xray_mode=xray-basic").current_dir(resident.directory());
    let mut resident = Resident::spawn(command, resident.directory().to_owned());
    resident.wait_for("ready");
    let pid = resident.pid.to_string();
    for order in ["attach", "detach", "attach", "detach"] {
        let run = calltap_run(&[order, "-p", &pid]);
        assert!(run.status.success() && !run.stderr.contains("could not remove"), "{order}: {}", run.stderr);
    }
    assert!(resident.end().0.success());
}
