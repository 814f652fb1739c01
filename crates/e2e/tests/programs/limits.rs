//! Full tables and full buffers: calls are lost and counted, and the program runs on.

use calltap_e2e::{Expect, GCC, Program, Resident, calltap, calltap_run, check, compile, run};
use std::process::Command;

fn program() -> Program {
    compile(GCC, &["limits.c"], &[])
}

fn expect(arguments: &'static [&'static str]) -> Expect<'static> {
    Expect { arguments, may_lose: true, uncounted: true, ..Expect::default() }
}

#[test]
fn more_children_than_a_recording_has_room_for() {
    for clock in ["tsc", "sparse", "counter"] {
        check(&program(), &[vec!["--clock", clock]], &expect(&["forks"]));
    }
}

#[test]
fn handlers_in_threads_that_found_no_room_for_their_first_call() {
    for tracer in ["function", "function_graph"] {
        check(&program(), &[vec!["--tracer", tracer, "--buffer-size", "256K"]], &expect(&["threads"]));
    }
}

#[test]
fn a_small_shared_memory_file_system_means_a_smaller_buffer() {
    let program = compile(GCC, &["threads.c"], &[]);
    let calltap = calltap();
    let script = format!(
        "mount -t tmpfs -o size=48m tmpfs /dev/shm && exec {} record -q -o {}/trace -- {} busy",
        calltap.display(),
        program.directory().display(),
        program.path.display()
    );
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", &script]);
    let mut alone = Command::new(&program.path);
    alone.arg("busy");
    let (recorded, alone) = (run(inside, b""), run(alone, b""));
    if recorded.stderr.contains("unshare") || recorded.stderr.contains("mount:") {
        return calltap_e2e::skipped("no private mounts here");
    }
    assert_eq!((recorded.stdout, recorded.status), (alone.stdout, alone.status), "{}", recorded.stderr);
}

#[test]
fn a_small_address_space_means_a_smaller_buffer() {
    let program = compile(GCC, &["many_threads.c"], &["-pthread"]);
    let trace = program.directory().join("trace");
    for bytes in ["1200000000", "600000000", "320000000"] {
        let mut record = Command::new(calltap());
        record.args(["record", "-q", "--fail-on-loss", "--follow", "-F", "leaf", "-o"]).arg(&trace);
        record.args(["--", "prlimit", &format!("--as={bytes}")]).arg(&program.path).args(["8", "100"]);
        let recorded = run(record, b"");
        assert!(recorded.status.success() && recorded.stderr.is_empty(), "{bytes}: {}", recorded.stderr);
        let info = calltap_run(&["info", "--format", "json", "-i", &trace.to_string_lossy()]).stdout;
        let info: serde_json::Value = serde_json::from_str(&info).expect("json");
        assert_eq!(info["calls"]["recorded"].as_u64(), Some(8 * 200), "{bytes}: {}", info["calls"]);
    }
}

/// Message about a process without room for the agent.
const NO_ROOM: &str = "limit of address space (RLIMIT_AS, ulimit -v)";

#[test]
fn program_with_small_address_space_runs_untraced_with_message() {
    let program = compile(GCC, &["many_threads.c"], &["-pthread"]);
    let trace = program.directory().join("trace");
    let mut record = Command::new(calltap());
    record.args(["record", "--follow", "-F", "leaf", "-o"]).arg(&trace);
    record.args(["--", "prlimit", "--as=200000000"]).arg(&program.path).args(["8", "100"]);
    let recorded = run(record, b"");
    assert!(recorded.status.success(), "{}", recorded.stderr);
    let lines = recorded.stderr.lines().filter(|line| line.contains(NO_ROOM)).count();
    assert_eq!(lines, 1, "{}", recorded.stderr);
}

/// Message about a process without room for the agent's own memory.
const NO_DATA: &str = "limit of data (RLIMIT_DATA, ulimit -d)";

#[test]
fn a_process_with_too_small_an_address_space_is_refused_in_a_line() {
    let program = compile(GCC, &["resident.c"], &[]);
    // The limits leave no room at all, or room for the agent but not for its memory.
    let limits = ["20000000", "60000000", "100000000", "150000000", "200000000", "250000000"];
    let limits = limits.map(|bytes| format!("--as={bytes}:"));
    check_refused(&program, &limits, NO_ROOM);
}

#[test]
fn a_process_with_too_small_a_limit_of_data_is_refused_in_a_line() {
    for flags in [&[][..], &["-static"]] {
        let program = compile(GCC, &["resident.c"], flags);
        check_refused(&program, &["8000000", "30000000"].map(|bytes| format!("--data={bytes}:")), NO_DATA);
    }
}

/// Checks that a process with each of these limits is refused, and keeps nothing mapped.
fn check_refused(program: &Program, limits: &[String], why: &str) {
    let mut resident = Resident::start(program, &["ignored"]);
    let pid = resident.pid.to_string();
    let size = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        status.lines().find(|line| line.starts_with("VmSize")).map(str::to_owned)
    };
    let before = size(resident.pid);
    for limit in limits {
        let set = Command::new("prlimit").args(["--pid", &pid, limit]).status();
        assert!(set.expect("prlimit").success());
        let run = calltap_run(&["record", "-p", &pid, "--duration", "20ms", "-o", "/dev/null"]);
        assert!(!run.status.success() && run.stderr.contains(why), "{limit}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{limit}: {}", run.stderr);
        assert!(resident.runs());
        assert_eq!(size(resident.pid), before, "{limit}: nothing stays mapped");
    }
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
}
