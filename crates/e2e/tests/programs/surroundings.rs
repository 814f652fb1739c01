//! The program sees the same environment as alone, and its end is reported as if it had run alone.

use calltap_e2e::{
    BARE, Build, CLANG, Expect, GCC, Program, again, calltap, calltap_run, check, compile, have, kill,
    kill_group, plain, run, transparent,
};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

const NO_PIE: &Build = &calltap_e2e::BUILDS[4];

fn program() -> Program {
    compile(GCC, &["surroundings.c"], &[])
}

#[test]
fn environment_arguments_files_signals_and_limits() {
    for build in [GCC, NO_PIE] {
        let program = compile(build, &["surroundings.c"], &[]);
        let expect = Expect { arguments: &["", "two words", "--", "-q", "", "*"], ..Expect::default() };
        check(&program, &plain(), &expect);
    }
}

/// Runs a command with an unusual environment, directory, file and signal disposition, alone or
/// recorded.
fn unusual(program: &Program, recorded: bool, preload: Option<&str>) -> String {
    let mut command = Command::new("env");
    command.args(["-i", "Z=1", "M=", "A=2"]).args(preload.map(|value| format!("LD_PRELOAD={value}")));
    command.args(["LD_LIBRARY_PATH=/nowhere", "B=3"]).current_dir("/");
    if recorded {
        command
            .arg(calltap())
            .args(["record", "-q", "-o"])
            .arg(program.directory().join("unusual.calltap"))
            .arg("--");
    }
    command.arg(&program.path);
    // SAFETY: only system calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::dup2(1, 77);
            libc::close(0);
            libc::umask(0o027);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let limit = libc::rlimit { rlim_cur: 123, rlim_max: 456 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        });
    }
    let result = run(command, b"");
    assert!(result.status.success(), "{}", result.stderr);
    result.stdout
}

#[test]
fn unusual_surroundings_pass_through() {
    let program = program();
    for preload in [None, Some("libm.so.6"), Some("libm.so.6:libdl.so.2")] {
        assert_eq!(
            unusual(&program, true, preload),
            unusual(&program, false, preload),
            "LD_PRELOAD {preload:?}"
        );
    }
}

#[test]
fn standard_input_passes_through() {
    let text = "a line of text\n".repeat(20_000);
    check(
        &program(),
        &plain(),
        &Expect { arguments: &["stdin"], stdin: text.as_bytes(), ..Expect::default() },
    );
}

#[test]
fn every_exit_code() {
    let program = program();
    for code in (0..256).step_by(17).chain([1, 2, 3, 126, 127, 128, 137, 254, 255]) {
        check(&program, &plain(), &Expect { arguments: &["exit", &code.to_string()], ..Expect::default() });
    }
}

#[test]
fn death_by_signal() {
    let program = program();
    for signal in [
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGKILL,
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGPIPE,
        libc::SIGUSR1,
    ] {
        check(&program, &plain(), &Expect { arguments: &["die", &signal.to_string()], ..Expect::default() });
    }
    check(&program, &plain(), &Expect { arguments: &["crash"], ..Expect::default() });
}

/// Starts the recorder on the waiting program, in a session of its own, and returns when the
/// program is ready.
fn waiting(program: &Program, arguments: &[&str]) -> (Child, BufReader<impl Read>) {
    let mut command = Command::new(calltap());
    command
        .args(["record", "-q", "-o"])
        .arg(program.directory().join("wait.calltap"))
        .arg("--")
        .arg(&program.path);
    command.args(arguments).stdout(Stdio::piped());
    // SAFETY: a system call that is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| if libc::setsid() < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) })
    };
    let mut child = command.spawn().expect("calltap starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready=\n");
    (child, output)
}

fn signal(target: i32, signal: i32) {
    let id = target.unsigned_abs();
    assert!(if target < 0 { kill_group(id, signal) } else { kill(id, signal) });
}

fn readable(program: &Program) {
    let trace = program.directory().join("wait.calltap");
    let report = calltap_e2e::calltap_run(&["report", "-i", &trace.to_string_lossy()]);
    assert!(report.status.success() && report.stdout.contains("show"), "{}{}", report.stdout, report.stderr);
}

#[test]
fn interrupt_from_the_terminal_reaches_the_program_once() {
    let program = program();
    let (mut child, mut output) = waiting(&program, &["wait"]);
    signal(-(child.id() as i32), libc::SIGINT);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("output");
    assert!(rest.starts_with("got 2\n"), "{rest}");
    assert_eq!(child.wait().expect("its end").code(), Some(42));
    readable(&program);
}

#[test]
fn interrupt_ends_program_without_handler() {
    let program = program();
    let (mut child, _output) = waiting(&program, &["wait", "default"]);
    signal(-(child.id() as i32), libc::SIGINT);
    assert_eq!(child.wait().expect("its end").signal(), Some(libc::SIGINT));
    readable(&program);
}

#[test]
fn signals_to_the_recorder_reach_the_program() {
    for number in [libc::SIGTERM, libc::SIGHUP] {
        let program = program();
        let (mut child, mut output) = waiting(&program, &["wait"]);
        signal(child.id() as i32, number);
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("output");
        assert!(rest.starts_with(&format!("got {number}\n")), "{rest}");
        assert_eq!(child.wait().expect("its end").code(), Some(40 + number));
        readable(&program);
    }
}

#[test]
fn an_ignored_sigpipe_stays_ignored() {
    let program = compile(GCC, &["surroundings.c"], &[]);
    let output = |mut command: Command| {
        // SAFETY: a system call that is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                Ok(())
            })
        };
        run(command, b"").stdout
    };
    let mut recorded = Command::new(calltap());
    recorded.args(["record", "-q", "-o", "/dev/null", "--"]).arg(&program.path);
    assert_eq!(output(recorded), output(Command::new(&program.path)));
}

#[test]
fn an_interrupt_ends_a_background_job_of_a_script() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("job.data").to_string_lossy().into_owned();
    // A shell without job control lets it ignore SIGINT.
    let script = r#""$0" record -o "$1" -- sleep 60 2> "$1.log" &
        until grep -q ' on, in ' "$1.log"; do sleep 0.01; done
        kill -INT $!; wait $!; echo $?"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(calltap()).arg(&trace);
    assert_eq!(run(command, b"").stdout, format!("{}\n", 128 + libc::SIGTERM));
    let info = calltap_run(&["info", &trace]);
    assert!(info.status.success(), "{}", info.stderr);
}

#[test]
fn an_interrupt_that_the_program_ignores_by_itself_is_without_effect() {
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", "/dev/null", "--", "sh", "-c"]);
    command.arg("trap '' INT; echo ready; exec sleep 60").stdout(Stdio::piped());
    let mut recorder = command.spawn().expect("calltap");
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().expect("piped")).read_line(&mut line).expect("output");
    for _ in 0..3 {
        kill(recorder.id(), libc::SIGINT);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(recorder.try_wait().is_ok_and(|status| status.is_none()), "{line}");
    kill(recorder.id(), libc::SIGTERM);
    assert_eq!(recorder.wait().expect("a child").signal(), Some(libc::SIGTERM));
}

#[test]
fn an_empty_preload_list_stays_in_the_environment() {
    let program = compile(GCC, &["surroundings.c"], &[]);
    let output = |recorder: &[&str]| {
        let mut command = Command::new("env");
        command.args(["LD_PRELOAD="]).args(recorder).arg(&program.path);
        run(command, b"").stdout
    };
    let calltap = calltap();
    let recorded = output(&[&calltap.to_string_lossy(), "record", "-q", "-o", "/dev/null", "--"]);
    assert_eq!(recorded, output(&[]));
}

// The sanitizer's runtime aborts a program in which it is not the first library.
#[test]
fn programs_under_address_sanitizer_start_and_are_watched_over() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["poisoned.c"], &["-fsanitize=address"]);
        check(&program, &plain(), &Expect { uncounted: true, ..Expect::default() });
        let trace = program.directory().join("poisoned.ct").display().to_string();
        // A followed process is traced, so the leak checker cannot trace it at its end.
        let recorded = |argument: &str| {
            let mut command = Command::new(calltap());
            command.env("ASAN_OPTIONS", "detect_leaks=0").args(["record", "--follow", "-F", "sum", "-o"]);
            command.arg(&trace).arg("--").arg(&program.path).arg(argument);
            run(command, b"")
        };
        let found = recorded("beyond");
        assert!(!found.status.success() && found.stderr.contains("heap-buffer-overflow"), "{}", found.stderr);
        let again = recorded("again");
        assert!(again.status.success(), "{}", again.stderr);
        assert_eq!(again.stdout, "532000 nothing\n".repeat(2));
        let report = calltap_run(&["report", "-i", &trace, "--format", "csv"]).stdout;
        assert!(report.lines().any(|line| line.contains("2000") && line.contains("sum")), "{report}");
    }
}

// Return addresses are kept in memory that these sanitizers use themselves.
#[test]
fn entries_are_counted_where_a_sanitizer_fills_the_address_space() {
    let bare_clang = &BARE[2];
    let sanitized = [
        (GCC, "-fsanitize=thread"),
        (&BARE[0], "-fsanitize=thread"),
        (CLANG, "-fsanitize=memory"),
        (bare_clang, "-fsanitize=memory"),
        (bare_clang, "-fsanitize=thread"),
        (bare_clang, "-fsanitize=dataflow"),
    ];
    for (build, flag) in sanitized.into_iter().filter(|(build, _)| have(build.compilers[0])) {
        let program = compile(build, &["threads.c"], &[flag]);
        let recording = check(&program, &plain(), &Expect::default());
        let notes = calltap_run(&["info", "-i", &recording.trace.to_string_lossy()]).stdout;
        assert!(
            notes.contains("sanitizer") && notes.contains("only entries are recorded"),
            "{flag}: {notes}"
        );
        transparent(&again(build, "threads.c", &[flag]), &["busy"]);
    }
}
