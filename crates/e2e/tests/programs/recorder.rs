//! A recorder that is stopped, killed, or out of disk space does not disturb the program.

use calltap_e2e::{Expect, GCC, Program, calltap, calltap_run, check, compile, have, kill, run};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn start(program: &Program, flags: &[&str], rounds: &str) -> (Child, BufReader<impl Read>) {
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o"]).arg(program.directory().join("trace")).args(flags).arg("--");
    command.arg(&program.path).arg(rounds).stdout(Stdio::piped());
    let mut child = command.spawn().expect("calltap starts");
    let output = child.stdout.take().expect("piped");
    (child, BufReader::new(output))
}

fn signal(child: &Child, signal: i32) {
    assert!(kill(child.id(), signal));
}

fn alone(program: &Program, rounds: &str) -> String {
    let mut command = Command::new(&program.path);
    command.arg(rounds);
    run(command, b"").stdout
}

fn report(program: &Program) -> String {
    let trace = program.directory().join("trace");
    let report = calltap_run(&["report", "-i", &trace.to_string_lossy()]);
    assert!(report.status.success(), "{}", report.stderr);
    report.stdout
}

#[test]
fn a_stopped_recorder_does_not_stop_the_program() {
    let program = compile(GCC, &["slow.c"], &[]);
    for flags in [&["--buffer-size", "2M"][..], &["--clock", "sparse", "--buffer-size", "1M"], &[]] {
        // The limit is far longer than the rounds take on any machine: the wait ends because the
        // recorder's heartbeat stops.
        let flags = [&["--max-wait", "60s"], flags].concat();
        let (mut child, mut output) = start(&program, &flags, "30");
        let mut text = String::new();
        for _ in 0..3 {
            output.read_line(&mut text).expect("a line");
        }
        signal(&child, libc::SIGSTOP);
        let stopped = Instant::now();
        for _ in 0..15 {
            output.read_line(&mut text).expect("a line");
        }
        let while_stopped = stopped.elapsed();
        sleep(Duration::from_secs(2).saturating_sub(while_stopped));
        signal(&child, libc::SIGCONT);
        output.read_to_string(&mut text).expect("output");
        assert_eq!(child.wait().expect("its end").code(), Some(21), "{flags:?}");
        assert_eq!(text, alone(&program, "30"), "{flags:?}");
        assert!(while_stopped < Duration::from_secs(50), "{flags:?}: 15 rounds took {while_stopped:?}");
        assert!(report(&program).contains("work"));
        let trace = program.directory().join("trace");
        let info = calltap_run(&["info", "--format", "json", "-i", &trace.to_string_lossy()]).stdout;
        let info: serde_json::Value = serde_json::from_str(&info).expect("json");
        let entered = info["calls"]["entered"].as_u64();
        assert_eq!(
            entered,
            Some(30 * 300_000 + 1),
            "{flags:?}: every call is recorded or lost: {}",
            info["calls"]
        );
    }
}

#[test]
fn a_killed_recorder_leaves_a_readable_trace_and_a_running_program() {
    let program = compile(GCC, &["slow.c"], &[]);
    for flags in [&[][..], &["--buffer-size", "1M"], &["--clock", "sparse"]] {
        let (mut child, mut output) = start(&program, flags, "60");
        let mut text = String::new();
        while text.lines().count() < 45 {
            output.read_line(&mut text).expect("a line");
        }
        signal(&child, libc::SIGKILL);
        child.wait().expect("its end");
        output.read_to_string(&mut text).expect("output");
        assert_eq!(text, alone(&program, "60"), "{flags:?}");
        assert!(report(&program).contains("work"), "{flags:?}");
    }
}

#[test]
fn handlers_do_not_nest_while_a_thread_waits() {
    let program = compile(GCC, &["nested_handlers.c"], &[]);
    let expect = Expect { may_lose: true, uncounted: true, ..Expect::default() };
    let recording = check(&program, &[vec!["--buffer-size", "256K"]], &expect);
    assert!(recording.run.stderr.contains("LOST"), "the buffer was never full: {}", recording.run.stderr);
}

#[test]
fn flight_recorder_counts_dropped_events() {
    let program = compile(GCC, &["threads.c"], &[]);
    for clock in ["tsc", "sparse"] {
        let flags = vec!["--overwrite", "--buffer-size", "1M", "--clock", clock];
        let expect = Expect { arguments: &["busy"], may_lose: true, ..Expect::default() };
        check(&program, &[flags], &expect);
    }
}

// Delays the planner while the rest of the recorder runs, as with a large library on a loaded
// machine.
#[test]
fn a_program_waits_as_long_as_its_recorder_works() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the test's own mappings");
    let libc = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with("/libc.so.6"));
    let (true, Some(libc)) = (have("strace"), libc) else { return };
    let program = compile(GCC, &["slow.c"], &[]);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-P", libc, "-e", "trace=statx"]);
    strace.args(["-e", "inject=statx:delay_enter=4000000:when=1"]).arg(calltap());
    strace
        .args(["record", "-q", "--max-wait", "2s", "-o"])
        .arg(program.directory().join("trace"))
        .arg("--")
        .arg(&program.path)
        .arg("2");
    let start = Instant::now();
    let run = run(strace, b"");
    assert!(start.elapsed() > Duration::from_secs(4), "it was not delayed");
    assert_eq!(run.status.code(), Some(21), "{}", run.stderr);
    assert_eq!(run.stdout, alone(&program, "2"));
    assert!(report(&program).contains("work"), "{}", run.stderr);
}
