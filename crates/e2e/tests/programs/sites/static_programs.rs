//! Static programs, and those linked with musl, are recorded from their start like every other.

use calltap_e2e::*;
use std::os::unix::process::ExitStatusExt;

/// Checks every build of a source, with flags in turn.
fn every(source: &str, how: &[&str]) {
    for (turn, build) in installed(PLACED).enumerate() {
        let program = compile(build, &[source], &[]);
        check(&program, &diagonal(turn), &Expect { arguments: how, ..Expect::default() });
    }
}

#[test]
fn arguments_and_results_of_every_class_arrive() {
    every("abi.c", &[]);
}

#[test]
fn longjmp_and_tail_calls_go_on_as_untraced() {
    every("jumps.c", &[]);
    every("tail.c", &[]);
}

#[test]
fn threads_end_in_every_way() {
    for how in ["short", "exit", "cancel", "keys"] {
        every("threads.c", &[how]);
    }
}

#[test]
fn signals_are_handled_as_untraced() {
    for build in installed(PLACED) {
        let program = compile(build, &["signals.c"], &[]);
        let expect = Expect { arguments: &["plain"], may_lose: true, ..Expect::default() };
        check(&program, &plain(), &expect);
    }
}

#[test]
fn forked_children_are_traced_as_their_own_processes() {
    for how in ["fork", "exec", "vfork"] {
        every("processes.c", &[how]);
    }
}

#[test]
fn exceptions_and_panics_find_their_way() {
    for build in &PLACED[..2] {
        check(&compile(build, &["throws.cpp"], &[]), &plain(), &Expect::default());
    }
    let program = compile_rust("panics.rs", &["-Copt-level=2", "-Ctarget-feature=+crt-static"]);
    check(&program, &plain(), &Expect::default());
}

#[test]
fn a_recorder_that_is_killed_at_the_start_leaves_a_program_that_runs() {
    if !have("strace") {
        return;
    }
    let program = compile(&PLACED[0], &["tail.c"], &[]);
    let alone = run(std::process::Command::new(&program.path), b"");
    for when in (1..60).step_by(4) {
        let mut strace = std::process::Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", "trace=ptrace", "-e"]);
        strace.arg(format!("inject=ptrace:signal=SIGKILL:when={when}")).arg(calltap());
        strace.args(["record", "-q", "-o", "killed.calltap", "--"]).arg(&program.path);
        strace.current_dir(program.directory());
        let run = run(strace, b"");
        // The program holds the test's output: this run ends when the program does.
        assert!(
            run.stdout == alone.stdout || run.stdout.is_empty() && when < 3,
            "{when}: {}{}",
            run.stdout,
            run.stderr
        );
    }
}

#[test]
fn program_ending_before_tls_setup_ends_as_untraced() {
    let ended = |flags: &[&str]| {
        let program = compile(&PLACED[0], &["dies_early.c"], flags);
        let alone = run(std::process::Command::new(&program.path), b"").status;
        let output = program.directory().join("t").display().to_string();
        let recorded = calltap_run(&["record", "-o", &output, "--", &program.path.display().to_string()]);
        assert_eq!(recorded.status, alone, "{}", recorded.stderr);
        assert!(
            recorded.stderr.contains("ended before it had set up a thread control block"),
            "{}",
            recorded.stderr
        );
        (alone.code(), alone.signal())
    };
    assert_eq!(ended(&[]), (None, Some(libc::SIGSEGV)));
    assert_eq!(ended(&["-DEXITS"]), (Some(7), None));
}

#[test]
fn refused_program_executes_no_instruction() {
    let program = compile(GCC, &["paced.c"], &["-static"]);
    let path = program.path.to_string_lossy().into_owned();
    for _ in 0..20 {
        let run = calltap_run(&["record", "-F", "nosuch", "-o", "/dev/null", "--", &path]);
        one_line(&run, &["no traceable function matches 'nosuch'"]);
    }
}
