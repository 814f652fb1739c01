//! By default no event is lost while memory lasts, with any number of threads and on any loaded
//! machine; losses are reported in every view.

use calltap_e2e::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

fn program() -> Program {
    compile(GCC, &["many_threads.c"], &["-pthread"])
}

/// Numbers of threads, and of calls of each.
const ALIVE: [[&str; 2]; 3] = [["100", "3000"], ["1000", "300"], ["5000", "60"]];

fn nothing_is_lost() {
    let program = program();
    for arguments in ALIVE {
        let mut alone = Command::new(&program.path);
        alone.args(arguments);
        if run(alone, b"").status.code() == Some(77) {
            return skipped(&format!("this system has no room for {} threads", arguments[0]));
        }
        check(&program, &plain(), &Expect { arguments: &arguments, ..Expect::default() });
    }
}

#[test]
fn thousands_of_threads_lose_nothing() {
    nothing_is_lost();
}

#[test]
fn thousands_of_threads_lose_nothing_on_a_busy_machine() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..14 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let result = std::panic::catch_unwind(nothing_is_lost);
        over.store(true, Relaxed);
        if let Err(why) = result {
            std::panic::resume_unwind(why);
        }
    });
}

/// Records with loss: with eight threads, main, and four chunks, five threads lose their first
/// call, whenever the recorder runs.
fn record_with_loss(program: &Program, flags: &[&str]) -> (calltap_e2e::Run, String) {
    let trace = program.directory().join("lossy").to_string_lossy().into_owned();
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", &trace, "--buffer-size", "256K", "--max-wait", "1us"]).args(flags);
    command.arg("--").arg(&program.path).args(["8", "100"]);
    (run(command, b""), trace)
}

#[test]
fn every_view_reports_loss() {
    let program = program();
    let (recorded, trace) = record_with_loss(&program, &[]);
    assert!(recorded.status.success(), "{}", recorded.stderr);
    assert!(recorded.stderr.contains("calltap: LOST "), "--quiet hides it: {}", recorded.stderr);
    let views: [&[&str]; 22] = [
        &["report"],
        &["report", "--format", "json"],
        &["report", "--format", "csv"],
        &["graph"],
        &["replay"],
        &["info"],
        &["info", "--format", "json"],
        &["diff", &trace, &trace],
        &["latency", "leaf"],
        &["count", "leaf"],
        &["slower", "1s", "leaf"],
        &["stacks", "leaf"],
        &["watch", "leaf"],
        &["locks"],
        &["locks", "--json"],
        &["why", "leaf>1s"],
        &["why", "leaf>1s", "--json"],
        &["export", "--to", "perfetto", "-o", "/dev/null"],
        &["export", "--to", "chrome", "-o", "/dev/null"],
        &["export", "--to", "folded", "-o", "/dev/null"],
        &["export", "--to", "csv", "-o", "/dev/null"],
        &["export", "--to", "pprof", "-o", "/dev/null"],
    ];
    for view in views {
        let input: &[&str] = if view[0] == "diff" { &[] } else { &["-i", &trace] };
        let shown = calltap_run(&[view, input].concat());
        assert!(shown.status.success(), "{view:?}: {}", shown.stderr);
        let said = (shown.stdout + &shown.stderr).to_lowercase();
        assert!(said.contains("lost"), "{view:?}:\n{said}");
    }
}

#[test]
fn loss_fails_a_recording_that_must_not_lose() {
    let program = program();
    let (recorded, _) = record_with_loss(&program, &["--fail-on-loss"]);
    assert_eq!(recorded.status.code(), Some(3), "{}", recorded.stderr);
    let trace = program.directory().join("whole").to_string_lossy().into_owned();
    let path = program.path.to_string_lossy().into_owned();
    let whole = calltap_run(&["record", "-q", "--fail-on-loss", "-o", &trace, "--", &path, "8", "100"]);
    assert_eq!((whole.status.code(), whole.stderr.as_str()), (Some(0), ""));
}

#[test]
fn open_calls_end_at_losses() {
    let program = compile(GCC, &["in_turns.c"], &["-pthread"]);
    let mut resident = Resident::start(&program, &[]);
    let flags = ["-F", "turn,tick,tock", "--buffer-size", "1M", "--no-sched"];
    let mut recorder = resident.attach_beside(&flags);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("begun");
    let signal = |signal| kill(recorder.id(), signal);
    for (what, meanwhile) in [(libc::SIGSTOP, 100), (libc::SIGCONT, 1000), (libc::SIGINT, 300)] {
        sleep(Duration::from_millis(meanwhile));
        signal(what);
    }
    recorder.wait().expect("its end");
    resident.tell();
    resident.wait_for("made ");
    let trace = resident.trace().to_string_lossy().into_owned();
    let replay = calltap_run(&["replay", "--no-sched", &trace]).stdout;
    assert!(replay.contains("[LOST ") && replay.contains("/* lost */"), "nothing was lost");
    // A return that is matched with calls of another time would show some of these as left.
    let left: Vec<&str> = replay.lines().filter(|line| line.contains("/* left */")).take(5).collect();
    assert_eq!(left, [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn events_after_a_loss_are_not_nested_in_lost_calls() {
    let program = compile(GCC, &["two_ways.c"], &[]);
    let trace = program.directory().join("two_ways.data").to_string_lossy().into_owned();
    let mut command = Command::new(calltap());
    command.args(["record", "-q", "-o", &trace, "--buffer-size", "256K", "--max-wait", "1us", "--no-sched"]);
    command.arg("--").arg(&program.path).arg("1500");
    let recorded = run(command, b"");
    assert!(recorded.stderr.contains("calltap: LOST "), "nothing was lost: {}", recorded.stderr);
    let paths = calltap_run(&["export", "--to", "folded", "-o", "-", &trace]).stdout;
    assert!(paths.contains("left_way;left_step") && paths.contains("right_way;right_step"), "{paths}");
    let false_paths: Vec<&str> = paths
        .lines()
        .filter(|path| path.contains("left_way;right_step") || path.contains("right_way;left_step"))
        .collect();
    assert_eq!(false_paths, [""; 0], "{paths}");
}
