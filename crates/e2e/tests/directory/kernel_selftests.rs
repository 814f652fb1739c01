//! The kernel's own tests of ftrace, unmodified, on a process.

use calltap_e2e::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Tests of the kernel that need features which a process does not have: events of the kernel.
const NOT_HERE: [&str; 4] =
    ["Basic event tracing check", "function event triggers", "traceon/off triggers", "tracing error log"];
/// Tests that trace the shell which runs them, by its id or as it forks; the first two also in an
/// instance.
const OF_THE_SHELL: [&str; 3] = ["func-filter-pid.tc", "func-filter-notrace-pid.tc", "func_stack_tracer.tc"];

/// Returns the directory of the tests.
fn tests() -> Option<PathBuf> {
    let tests = std::env::var_os("CALLTAP_FTRACETEST").map(PathBuf::from);
    if tests.is_none() {
        skipped("CALLTAP_FTRACETEST does not name tools/testing/selftests/ftrace of a kernel's source");
    }
    tests.filter(|_| have_fuse())
}

/// Returns the result lines of the tests.
fn results(run: &Run) -> Vec<&str> {
    run.stdout.lines().filter(|line| line.starts_with('[') && line.ends_with(']')).collect()
}

#[test]
fn the_kernels_own_tests_pass_on_a_process() {
    let Some(tests) = tests() else { return };
    let program = compile(GCC, &["kernel_names.c"], &[]);
    let module = program.add(GCC, &["trace_printk.c"], "trace_printk.so", &["-shared", "-fPIC"]);
    let all = fs::read_dir(tests.join("test.d/ftrace")).expect("tests").flatten();
    let mut others: Vec<String> = all
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !OF_THE_SHELL.contains(&name.as_str()))
        .map(|name| format!("test.d/ftrace/{name}"))
        .collect();
    others.sort_unstable();
    let halves = [["test.d/00basic", "test.d/instances"].map(String::from).to_vec(), others];
    // The tests sleep most of the time, so both halves run at the same time, each on a process of
    // its own.
    let passed: usize = thread::scope(|scope| {
        let runs =
            halves.each_ref().map(|half| scope.spawn(|| kernels_own_tests(&tests, half, &program, &module)));
        runs.into_iter().map(|run| run.join().expect("their tests")).sum()
    });
    assert_eq!(passed, 23);
}

/// Runs tests of the kernel, and returns the number of those that pass; all must pass that are
/// applicable.
fn kernels_own_tests(tests: &Path, some: &[String], program: &Program, module: &Path) -> usize {
    let mut resident = Resident::start(program, &[&module.to_string_lossy()]);
    let place = tempfile::tempdir().expect("a directory");
    // A process's modules are shared objects, which the program opens and closes on request.
    for (name, signal, there) in [("modprobe", "USR1", ""), ("rmmod", "USR2", "!")] {
        let path = place.path().join(name);
        let pid = resident.pid;
        // A mapped library may not be open yet.
        let wait = format!("n=0; until [ {there} -e {}.open ]", module.display());
        let limit = "do n=$((n + 1)); [ $n -lt 2400 ] || exit 1; sleep 0.05; done";
        let script = format!("#!/bin/sh\nkill -{signal} {pid}\n{wait}; {limit}\n");
        write_program(&path, script.as_bytes(), 0o755);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(calltap());
    command.args(["exec", "-p", &resident.pid.to_string(), "--", "./ftracetest", "--logdir"]);
    command.arg(place.path().join("logs")).args(some).current_dir(tests);
    command.env("PATH", format!("{}:{path}", place.path().display()));
    let run = run_timeout(command, b"", 3 * HANGS);
    let results = results(&run);
    let passed = results.iter().filter(|line| line.ends_with("[PASS]")).count();
    let failed: Vec<&&str> = results
        .iter()
        .filter(|line| !line.ends_with("[PASS]") && !NOT_HERE.iter().any(|not| line.contains(not)))
        .collect();
    assert!(failed.is_empty(), "{passed} passed\n{failed:#?}\n{}{}", run.stdout, run.stderr);
    assert!(resident.runs());
    assert!(resident.end().0.success());
    passed
}

#[test]
fn kernel_selftests_pass_on_their_own_shell() {
    check_on_its_shell(&OF_THE_SHELL[..2], 4);
}

#[test]
fn kernel_stack_tracer_test_passes_on_its_own_shell() {
    check_on_its_shell(&OF_THE_SHELL[2..], 1);
}

/// Runs tests of the kernel on the shell that runs them; `count` tests must pass.
fn check_on_its_shell(chosen: &[&str], count: usize) {
    let Some(tests) = tests() else { return };
    let names = compile(GCC, &["shell_names.c"], &["-shared", "-fPIC"]);
    let place = tempfile::tempdir().expect("a directory");
    // In a mount namespace of its own, the shell has its own directory in place of the kernel's.
    // The tests search lines for the digits of the shell's id. It has five, and is not among the
    // last digits of the seconds.
    let script = r#"
        seconds=$(($(cut -d. -f1 /proc/uptime) % 100000)) last=30000
        [ $seconds -lt 28000 ] || [ $seconds -gt 33000 ] || last=20000
        echo $last >/proc/sys/kernel/ns_last_pid
        mount --make-rprivate / || exit 125
        # The tests look for it where the first of this type is mounted.
        umount -l -a -t tracefs && mount -t tracefs nodev /sys/kernel/tracing || exit 125
        # The stack tracer's switch is the directory's. (A link to it, as a mount of it would keep the directory mounted; and not every kernel has one.)
        mkdir -p "$2/sysctls" "$2/links" && mount --rbind /proc/sys/kernel "$2/sysctls" &&
            ln -s "$2"/sysctls/* "$2/links" &&
            ln -sf /sys/kernel/tracing/stack_tracer_enabled "$2/links" &&
            mount --bind "$2/links" /proc/sys/kernel || exit 125
        export LD_PRELOAD="$0"
        exec "$1" run --mount /sys/kernel/tracing -- sh -c '
            until [ -e /sys/kernel/tracing/kallsyms ]; do sleep 0.05; done
            . ./ftracetest' ./ftracetest --logdir "$2" $3 $4
    "#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&names.path).arg(calltap()).arg(place.path().join("logs"));
    let of_kernel = chosen.iter().map(|name| format!("test.d/ftrace/{name}"));
    command.args(of_kernel).current_dir(tests);
    let run = run_timeout(command, b"", 3 * HANGS);
    let results = results(&run);
    assert_eq!(results.len(), count, "{}{}", run.stdout, run.stderr);
    assert!(results.iter().all(|line| line.ends_with("[PASS]")), "{}{}", run.stdout, run.stderr);
}
