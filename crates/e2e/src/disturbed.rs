//! Programs that are attached to while they run: afterwards they must run on as before.

use crate::attached::{Resident, State, changed_text, succeeds};
use crate::compile::{Build, Program};
use crate::run::{HANGS, Run, calltap_run, run_timeout};
use crate::wait::kill;
use crate::{compile, run};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Flags of attaching with each tracer.
pub const ATTACHES: [&[&str]; 4] = [
    &["--duration", "10ms"],
    &["--duration", "10ms", "--tracer", "function"],
    &["--duration", "10ms", "--tracer", "function", "--tracer", "function_graph"],
    &["--duration", "10ms", "--tracer", "profile"],
];

/// Flags of a short attach session with the default tracer.
pub const SHORT: &[&str] = ATTACHES[0];

/// Time for which a program runs alone, long enough to be attached to several times.
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// Time for which a program may have a file of its own open.
const OWN_FILES: Duration = Duration::from_secs(5);

/// The changes of a program that are tolerated while it is attached to.
#[derive(Default, Clone, Copy)]
pub struct Tolerate<'a> {
    /// Whether attaching may be refused with a message.
    pub refusals: bool,
    /// The entries of [`State`] that the program itself changes.
    pub changes: &'a [&'a str],
}

/// Attaches several times, with all tracers in turn. After each, the program's text must be as in
/// its files, and its signals, threads and files as before.
pub fn attach_and_look(resident: &mut Resident, times: usize, tolerate: Tolerate<'_>) {
    let before = State::at_rest(resident.pid, tolerate.changes);
    for n in 0..times {
        let run = resident.attach(ATTACHES[n % ATTACHES.len()]);
        assert!(run.status.success() || tolerate.refusals, "{n}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        assert!(resident.runs(), "{n}: it has ended: {}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{n}: text after {}", run.stderr);
        let mut after = State::of(resident.pid, tolerate.changes);
        // The program itself may just have a file open, such as a library that it loads.
        let start = Instant::now();
        while after.files != before.files && start.elapsed() < OWN_FILES {
            thread::sleep(Duration::from_millis(1));
            after = State::of(resident.pid, tolerate.changes);
        }
        assert_eq!(after.files, before.files, "{n}: open files");
        assert_eq!(after.threads, before.threads, "{n}: threads");
        for (key, value) in &before.status {
            // Running or sleeping is the thread's own choice.
            let own =
                key.ends_with("State") && after.status.get(key).is_some_and(|now| "RSD".contains(&now[..1]));
            assert!(
                own || after.status.get(key) == Some(value),
                "{n}: {key}: {value} -> {:?}",
                after.status.get(key)
            );
        }
        assert_eq!(after.others, before.others, "{n}");
        if run.status.success() {
            resident.sound();
        }
    }
}

/// Attaches repeatedly to a program that checks itself, which must succeed.
pub fn goes_on(program: &Program, arguments: &[&str], times: usize, tolerate: Tolerate<'_>) {
    let resident = Resident::start(program, arguments);
    resident_goes_on(resident, &format!("{} {arguments:?}", program.name), times, tolerate);
}

/// As [`goes_on`], with a program that runs already. `what` describes it.
pub fn resident_goes_on(mut resident: Resident, what: &str, times: usize, tolerate: Tolerate<'_>) {
    attach_and_look(&mut resident, times, tolerate);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{what}: {status}\n{output}{errors}");
    assert_eq!(errors, "", "{what}");
}

/// Compiles a program whose `main` is run repeatedly.
pub fn again(build: &Build, source: &str, flags: &[&str]) -> Program {
    // The wrapper is compiled as C++ if the program is: then main has the same name in both.
    let mut all = vec!["-Dmain=once"];
    if source.ends_with(".cpp") {
        all.extend(["-x", "c++"]);
    }
    all.extend(flags);
    compile(build, &[source, "again.c"], &all)
}

/// Runs a program alone, and while calltap attaches and detaches all the time: output, errors and
/// status must be the same.
pub fn transparent(program: &Program, arguments: &[&str]) {
    compare_disturbed(program, arguments, &attach_repeatedly);
}

/// Runs a program alone, and while calltap is attached and switches its functions all the time:
/// output, errors and status must be the same.
pub fn transparent_while_switched(program: &Program, arguments: &[&str]) {
    transparent_while_switched_by(program, arguments, "live");
}

/// Compares as [`transparent_while_switched`] does, with a patch mode.
pub fn transparent_while_switched_by(program: &Program, arguments: &[&str], mode: &str) {
    compare_disturbed(program, arguments, &|resident| switch(resident, mode));
}

/// A disturbance of a program until its end. Returns how often it succeeded, and the message of a
/// refusal.
type Disturb<'a> = &'a dyn Fn(&mut Resident) -> (usize, String);

fn attach_repeatedly(resident: &mut Resident) -> (usize, String) {
    let (mut attached, mut refused) = (0, String::new());
    while resident.runs() && attached < 24 {
        let run = resident.attach(ATTACHES[attached % ATTACHES.len()]);
        if run.status.success() {
            attached += 1;
            resident.sound();
        } else {
            refused += &run.stderr;
        }
    }
    (attached, refused)
}

fn switch(resident: &mut Resident, mode: &str) -> (usize, String) {
    let (mut switched, mut refused) = (0, String::new());
    let ways: [&[&str]; 7] = [
        &["set", "--off"],
        &["set", "--on"],
        &["set", "-N", "[a-m]*"],
        &["set", "-N", "", "--tracer", "function"],
        &["set", "--tracer", "function", "--tracer", "function_graph"],
        &["set", "--tracer", "profile", "--tracer", "function_graph"],
        &["set", "--tracer", "function_graph"],
    ];
    let pid = resident.pid.to_string();
    let mut attached = false;
    while resident.runs() && switched < 56 {
        let words = if attached { ways[switched % ways.len()] } else { &["attach", "--patch-mode", mode] };
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        switched += usize::from(attached && run.status.success());
        attached |= run.status.success();
        if !run.status.success() {
            refused += &run.stderr;
        }
    }
    // The program may have ended.
    calltap_run(&["detach", "-p", &pid]);
    (switched, refused)
}

fn compare_disturbed(program: &Program, arguments: &[&str], disturb: Disturb<'_>) {
    let command = |rounds: u32| {
        let mut command = Command::new(&program.path);
        command.args(arguments).env("AGAIN", rounds.to_string()).current_dir(program.directory());
        command
    };
    let start = Instant::now();
    run(command(2), b"");
    let rounds = (LONG_ENOUGH.as_secs_f64() / start.elapsed().as_secs_f64() * 2.0) as u32 + 2;
    // On a busy machine two rounds take long, as the start of a program does, and many more may
    // pass before calltap has attached.
    let mut refused = Some(String::new());
    for times in [1, 10, 100, 1_000, 10_000] {
        refused = compare_disturbed_for(program, &command, rounds.saturating_mul(times), disturb);
        if refused.is_none() {
            break;
        }
    }
    assert_eq!(refused, None, "attached too seldom: {} {arguments:?}", program.name);
}

/// Runs a program alone and disturbed for a number of rounds, and compares both. Returns the
/// refusals if it was never disturbed.
fn compare_disturbed_for(
    program: &Program,
    command: &dyn Fn(u32) -> Command,
    rounds: u32,
    disturb: Disturb<'_>,
) -> Option<String> {
    let compared = |text: &str| {
        let same = |line: &&str| !line.starts_with("about ");
        text.lines().filter(same).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    // The rounds may take long if the machine was idle when two were timed, and is busy now.
    let alone = run_timeout(command(rounds), b"", 5 * HANGS);
    let mut resident = Resident::spawn(command(rounds), program.directory().to_owned());
    let (times, refused) = disturb(&mut resident);
    let (status, output, errors) = resident.end();
    let what = format!("{} after {times} times\n{refused}", program.name);
    assert_eq!(status, alone.status, "{what}: how it ended\n{errors}");
    assert_eq!(compared(&output), compared(&alone.stdout), "{what}: its output");
    assert_eq!(errors, alone.stderr, "{what}: its errors");
    (times == 0).then_some(refused)
}

/// Checks that attaching is refused with one line, and that the program is not changed.
pub fn refused(program: &Program, arguments: &[&str], says: &[&str]) {
    refused_by(program, arguments, SHORT, says);
}

/// Checks that attaching with these flags is refused with one line, and that the program is not
/// changed.
pub fn refused_by(program: &Program, arguments: &[&str], flags: &[&str], says: &[&str]) {
    let mut resident = Resident::start(program, arguments);
    let before = State::at_rest(resident.pid, &["State"]);
    let run = resident.attach(flags);
    one_line(&run, says);
    assert_eq!(State::of(resident.pid, &["State"]), before);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.runs());
    let (status, output, errors) = resident.end();
    assert!(status.success() && errors.is_empty(), "{status} {output}{errors}");
}

/// Checks that a refusal is one line with these words.
pub fn one_line(run: &Run, says: &[&str]) {
    assert!(!run.status.success() && run.status.code().is_some(), "{}: {}", run.status, run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for say in says {
        assert!(run.stderr.contains(say), "{say:?}: {}", run.stderr);
    }
}

/// Checks that every tracer counts exactly the calls made between attaching and detaching.
pub fn counts_exactly(build: &Build) {
    let program = compile(build, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["counted"]);
    for (tracer, view) in [("function", "report"), ("function_graph", "report"), ("profile", "stat")] {
        let mut calltap = resident.attach_beside(&["--tracer", tracer]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("done");
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        let rows = resident.view(view);
        let of = |name: &str| {
            let row = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == name));
            row.map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
        };
        let counts = (of("outer"), of("work"));
        resident.sound();
        assert_eq!(counts, (12_345, 123_450), "{} {tracer}", build.name);
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    assert!(resident.end().0.success());
}
