//! Processes that cannot be attached to: the refusal is one line, and the process is not changed.

use calltap_e2e::*;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

#[test]
fn attach_refuses_process_that_may_open_no_files() {
    let program = compile(GCC, &["resident.c"], &[]);
    refused(&program, &["few files"], &["it may open no more files"]);
}

#[test]
fn attach_refuses_process_without_free_memory() {
    let program = compile(GCC, &["resident.c"], &[]);
    refused(&program, &["little memory"], &[]);
}

// The other process runs the same code, and is not stopped while the code is changed.
#[test]
fn process_sharing_its_memory_is_refused() {
    for build in [GCC, &BARE[0]] {
        refused(&compile(build, &["shares.c"], &[]), &["early"], &["shares its memory (CLONE_VM)"]);
    }
}

#[test]
fn nothing_is_unmapped_while_another_process_shares_the_memory() {
    let program = compile(GCC, &["shares.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let attached = calltap_run(&["attach", "-p", &pid]);
    assert!(attached.status.success(), "{}", attached.stderr);
    resident.tell();
    resident.wait_for("started");
    let refused = calltap_run(&["detach", "-p", &pid]);
    assert!(
        !refused.status.success() && refused.stderr.contains("shares its memory (CLONE_VM)"),
        "{}",
        refused.stderr
    );
    resident.tell();
    resident.wait_for("ended");
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{status} {output}{errors}");
}

fn attach(pid: u32, more: &[&str]) -> Run {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let (pid, output) = (pid.to_string(), directory.path().join("t").display().to_string());
    let mut all = vec!["record", "-p", &pid, "-o", &output, "--duration", "10ms"];
    all.extend(more);
    let run = calltap_run(&all);
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("just made").flatten().collect();
    assert!(run.status.success() || left.is_empty(), "a refused attach leaves {left:?}");
    run
}

#[test]
fn attach_refuses_unsupported_processes() {
    one_line(&attach(4_194_303, &[]), &["no such process"]);
    one_line(&attach(0, &[]), &[]);
    one_line(&calltap_run(&["record", "-p", "-5"]), &[]);
    one_line(&calltap_run(&["record", "-p", "x"]), &["x"]);
    let kernel = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if kernel {
        one_line(&attach(2, &[]), &["kernel thread"]);
    } else {
        skipped("no kernel threads are seen here");
    }
    // The process id is that of the shell that exec replaces.
    let mut own = Command::new("sh");
    own.args(["-c", "exec \"$0\" record -p $$ -o /tmp/never.calltap"]).arg(calltap_e2e::calltap());
    one_line(&run(own, b""), &["calltap itself"]);
}

#[test]
fn a_zombie_is_refused() {
    let mut child = Command::new("true").spawn().expect("true");
    await_that("it is a zombie", || state(child.id()) == Some('Z'));
    one_line(&attach(child.id(), &[]), &["zombie"]);
    succeeds(&mut child);
}

#[test]
fn a_stopped_process_is_refused_and_stays_stopped() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let is_stopped = || state(resident.pid) == Some('T');
    kill(resident.pid, libc::SIGSTOP);
    await_that("it is stopped", is_stopped);
    one_line(&resident.attach(SHORT), &["stopped"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", resident.pid)).unwrap_or_default();
    assert!(status.contains("T (stopped)"), "{status}");
    kill(resident.pid, libc::SIGCONT);
    await_that("it goes on", || !is_stopped());
    assert!(resident.attach(SHORT).status.success());
    assert!(resident.end().0.success());
}

/// Starts strace on a running program.
fn strace(resident: &Resident) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-p", &resident.pid.to_string()]);
    let strace = strace.stderr(std::process::Stdio::null()).spawn().expect("strace");
    let status = format!("/proc/{}/status", resident.pid);
    let tracer = format!("TracerPid:\t{}\n", strace.id());
    await_that("strace traces it", || {
        std::fs::read_to_string(&status).is_ok_and(|status| status.contains(&tracer))
    });
    strace
}

#[test]
fn a_process_that_gets_another_tracer_is_detached_from_later() {
    if !have("strace") {
        return;
    }
    let program = compile(&BARE[0], &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    let pid = resident.pid.to_string();
    assert!(calltap_run(&["attach", "-p", &pid]).status.success());
    let mut strace = strace(&resident);
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(!left.status.success() && left.stderr.contains("traced by strace"), "{}", left.stderr);
    kill(strace.id(), libc::SIGINT);
    let _ = strace.wait();
    let left = calltap_run(&["detach", "-p", &pid]);
    assert!(left.status.success(), "{}", left.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
}

#[test]
fn a_process_under_another_tracer_is_refused() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    if have("strace") {
        let mut strace = strace(&resident);
        one_line(&resident.attach(SHORT), &["traced by strace"]);
        kill(strace.id(), libc::SIGINT);
        let _ = strace.wait();
    }
    assert!(resident.attach(SHORT).status.success());
    assert!(resident.end().0.success());
}

#[test]
fn strict_seccomp_is_refused() {
    refused(&compile(GCC, &["resident.c"], &[]), &["seccomp"], &["seccomp"]);
}

#[test]
fn an_unknown_glob_names_the_nearest() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let run = resident.attach(&["--duration", "10ms", "-F", "outr"]);
    assert!(!run.status.success());
    assert!(run.stderr.contains("outer"), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.attach(&["--duration", "10ms", "-F", "outer"]).status.success());
    assert!(resident.end().0.success());
}

#[test]
fn nonsense_is_refused_before_the_process_is_touched() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    for nonsense in [
        &["--duration", "x"][..],
        &["--duration", "-1s"],
        &["--duration", ""],
        &["--duration", "99999999999999999999s"],
        &["--duration", "1e9"],
        &["--", "true"],
    ] {
        let run = resident.attach(nonsense);
        assert!(!run.status.success() && run.status.code().is_some(), "{nonsense:?}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{nonsense:?}: {}", run.stderr);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", resident.pid)).unwrap_or_default();
        assert!(!maps.contains("calltap-"), "{nonsense:?}");
    }
    assert!(!calltap_run(&["record", "--duration", "1s", "true"]).status.success(), "a duration without -p");
    assert!(resident.end().0.success());
}

#[test]
fn another_users_process_is_refused() {
    if !is_root() || !have("setpriv") {
        return skipped("not root, or no setpriv");
    }
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    // A copy that the other user can run.
    let copy = tempfile::TempDir::new_in("/tmp").expect("a temporary directory");
    let binary = copy.path().join("calltap");
    copy_program(&calltap_e2e::calltap(), &binary);
    Command::new("chmod").args(["-R", "a+rx"]).arg(copy.path()).status().expect("chmod");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    other
        .args(["record", "-p", &resident.pid.to_string(), "--duration", "10ms", "-o", "/dev/null"])
        .current_dir("/");
    one_line(&run(other, b""), &["permission denied"]);
    assert!(resident.end().0.success());
}

#[test]
fn attaching_to_recorded_process_leaves_recording_intact() {
    let program = compile(GCC, &["resident.c"], &[]);
    let trace = program.directory().join("whole.calltap");
    let mut command = Command::new(calltap_e2e::calltap());
    command
        .args(["record", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program.path)
        .arg("counted")
        .process_group(0);
    let mut recorder = Resident::spawn(command, program.directory().to_owned());
    recorder.wait_for("ready");
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", recorder.pid)).unwrap_or_default();
    let Some(pid) = children.split_whitespace().next().and_then(|word| word.parse().ok()) else { return };
    let run = attach(pid, &[]);
    recorder.tell();
    recorder.wait_for("done");
    let (status, output, errors) = recorder.end();
    assert!(status.success(), "{status} {output}{errors}");
    assert!(!run.status.success(), "attached to what is recorded: {}", run.stderr);
    let info = calltap_run(&["info", "-i", &trace.to_string_lossy(), "--format", "json"]);
    assert!(
        info.stdout.contains("\"complaints\":[]") || info.stdout.contains("\"complaints\": []"),
        "{}",
        info.stdout
    );
}

#[test]
fn second_recorder_names_first() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let mut first = resident.attach_beside(&[]);
    resident.await_recorder();
    one_line(&attach(resident.pid, &[]), &[&format!("PID {} (calltap) traces it", first.id())]);
    kill(first.id(), libc::SIGINT);
    succeeds(&mut first);
    assert!(resident.end().0.success());
}

#[test]
fn one_of_concurrent_attaches_succeeds() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    for round in 0..15 {
        let attaches = || calltap_run(&["record", "-q", "-p", &pid, "-o", "/dev/null", "--duration", "1ms"]);
        let runs: Vec<Run> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 + round % 2).map(|_| scope.spawn(attaches)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a run")).collect()
        });
        let errors: Vec<&str> = runs.iter().map(|run| &*run.stderr).collect();
        assert!(runs.iter().any(|run| run.status.success()), "{errors:?}");
    }
    assert!(resident.runs());
    assert!(resident.end().0.success());
}

/// A calltap that attaches while another detaches succeeds, or is refused with a message about the
/// other.
#[test]
fn concurrent_attaches_name_each_other() {
    let program = compile(GCC, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let attaches = || {
        let trace = tempfile::NamedTempFile::new().expect("a file");
        let trace = trace.path().to_string_lossy().into_owned();
        let record = || calltap_run(&["record", "-q", "-p", &pid, "-o", &trace, "--duration", "1ms"]);
        for _ in 0..30 {
            let run = record();
            let is_told = run.stderr.lines().count() == 1
                && ["is attaching to it", "traces it"].iter().any(|told| run.stderr.contains(told));
            assert!(run.status.success() || is_told, "{}", run.stderr);
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(attaches))));
    assert!(resident.runs());
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn the_proc_of_another_pid_namespace_is_refused() {
    if !is_root() || !have("unshare") {
        return skipped("not root, or no unshare");
    }
    let program = compile(GCC, &["resident.c"], &[]);
    for arguments in [
        &["record", "-o", "/dev/null", "--", "true"][..],
        &["record", "-p", "1", "-o", "/dev/null"],
        &["status", "-p", "1"],
    ] {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork"])
            .arg(calltap_e2e::calltap())
            .args(arguments)
            .current_dir(program.directory());
        one_line(&run(command, b""), &["another PID namespace", "mount"]);
    }
}

#[test]
fn file_size_limit_is_reported() {
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\""])
            .arg(calltap_e2e::calltap())
            .args(arguments);
        command.current_dir(program.directory());
        run(command, b"")
    };
    one_line(&limited(&["record", "--", "true"]), &["RLIMIT_FSIZE", "ulimit"]);
    one_line(&limited(&["record", "-p", &resident.pid.to_string()]), &["RLIMIT_FSIZE", "ulimit"]);
    assert!(resident.attach(SHORT).status.success());
    assert!(resident.end().0.success());
}

#[test]
fn ending_process_is_reported_as_ending() {
    let program = compile(GCC, &["ending.c"], &[]);
    let (mut seen, start) = (false, Instant::now());
    while !seen && start.elapsed() < Duration::from_secs(120) {
        let mut resident = Resident::start(&program, &[]);
        resident.kill();
        for _ in 0..10 {
            let run = attach(resident.pid, &[]);
            one_line(&run, &[]);
            let true_reasons = ["it is ending", "it has ended", "no such process"];
            assert!(true_reasons.iter().any(|reason| run.stderr.contains(reason)), "{}", run.stderr);
            seen |= run.stderr.contains("it is ending");
        }
    }
    assert!(seen, "no attach came while it was ending");
}

#[test]
fn exhausted_limit_of_process_is_named() {
    for build in [GCC, &PLACED[0]] {
        let program = compile(build, &["used_up.c"], &[]);
        for (what, said) in [
            ("mappings", "memory mappings, and may have too few more for calltap"),
            ("locked memory", "may lock no more"),
        ] {
            let mut resident = Resident::start(&program, &[what]);
            let run = resident.attach(&["--duration", "20ms"]);
            assert!(
                !run.status.success() && run.stderr.contains(said),
                "{} {what}: {}",
                build.name,
                run.stderr
            );
            assert!(resident.runs(), "{} {what}", build.name);
            let (status, _, errors) = resident.end();
            assert!(status.success(), "{} {what}: {status} {errors}", build.name);
        }
    }
}

#[test]
fn a_process_of_a_list_that_has_ended_does_not_fail_the_others() {
    let program = compile(GCC, &["child_ended.c"], &["-pthread"]);
    let resident = Resident::start(&program, &[]);
    let (pid, trace) = (resident.pid.to_string(), resident.trace().to_string_lossy().into_owned());
    let recorded = calltap_run(&["record", "-p", &pid, "--children", "--duration", "0.5", "-o", &trace]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    assert!(recorded.stderr.contains("it has ended (a zombie); skipped"), "{}", recorded.stderr);
    let counted = calltap_run(&["count", "step", &format!("{trace}.{pid}")]);
    assert!(
        counted.status.success() && counted.stdout.contains("step"),
        "{}{}",
        counted.stdout,
        counted.stderr
    );
    for command in ["attach", "detach"] {
        let done = calltap_run(&[command, "-p", &pid, "--children"]);
        assert!(done.status.success() && done.stderr.contains("; skipped"), "{}", done.stderr);
    }
    let none = calltap_run(&["record", "-p", &format!("{pid},4194305"), "--duration", "0.1", "-o", &trace]);
    assert_eq!(none.status.code(), Some(1), "a process that never was: {}", none.stderr);
    assert!(resident.end().0.success());
}
