//! Programs that are attached to while they run: they go on as if nothing had been.

use crate::attached::{Resident, State, changed_text, succeeds};
use crate::compile::{Build, Program};
use crate::run::{HANGS, Run, calltap_run, run_timeout};
use crate::{compile, run};
use std::process::Command;
use std::time::{Duration, Instant};

/// Tracers to attach with, in turn.
pub const ATTACHES: [&[&str]; 4] = [
    &["--duration", "10ms"],
    &["--duration", "10ms", "--tracer", "function"],
    &["--duration", "10ms", "--tracer", "function", "--tracer", "function_graph"],
    &["--duration", "10ms", "--tracer", "profile"],
];

/// For a moment, with the usual tracer.
pub const SHORT: &[&str] = ATTACHES[0];

/// A program runs so long alone, to be attached to some times meanwhile.
const LONG_ENOUGH: Duration = Duration::from_millis(400);

/// What is tolerated of a program while it is attached to.
#[derive(Default, Clone, Copy)]
pub struct Tolerate<'a> {
    /// Attaching may be refused (but not without a word).
    pub refusals: bool,
    /// What the program changes itself, of [`State`].
    pub changes: &'a [&'a str],
}

/// Attaches so often, with all tracers in turn. Between attaches its text is as in its files, and its signals, threads and files are what they were.
pub fn attach_and_look(resident: &mut Resident, times: usize, tolerate: Tolerate<'_>) {
    let before = State::at_rest(resident.pid, tolerate.changes);
    for n in 0..times {
        let run = resident.attach(ATTACHES[n % ATTACHES.len()]);
        assert!(run.status.success() || tolerate.refusals, "{n}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        assert!(resident.runs(), "{n}: it has ended: {}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{n}: text after {}", run.stderr);
        let after = State::of(resident.pid, tolerate.changes);
        assert_eq!(after.files, before.files, "{n}: open files");
        assert_eq!(after.threads, before.threads, "{n}: threads");
        for (key, value) in &before.status {
            // What it is doing at the moment is its own business.
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

/// A program that checks itself, attached to in a loop.
pub fn goes_on(program: &Program, arguments: &[&str], times: usize, tolerate: Tolerate<'_>) {
    let mut resident = Resident::start(program, arguments);
    attach_and_look(&mut resident, times, tolerate);
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{} {arguments:?}: {status}\n{output}{errors}", program.name);
    assert_eq!(errors, "", "{} {arguments:?}", program.name);
}

/// A program whose `main` is run again and again.
pub fn again(build: &Build, source: &str, flags: &[&str]) -> Program {
    // C++ where the program is C++: main has the same name in both.
    let mut all = vec!["-Dmain=once"];
    if source.ends_with(".cpp") {
        all.extend(["-x", "c++"]);
    }
    all.extend(flags);
    compile(build, &[source, "again.c"], &all)
}

/// A program alone, and while calltap attaches and detaches all the time: output, errors and end.
pub fn transparent(program: &Program, arguments: &[&str]) {
    undisturbed(program, arguments, &come_and_go);
}

/// The same while calltap is attached and switches its functions all the time.
pub fn transparent_while_switched(program: &Program, arguments: &[&str]) {
    transparent_while_switched_by(program, arguments, "live");
}

/// The same by this patch mode.
pub fn transparent_while_switched_by(program: &Program, arguments: &[&str], mode: &str) {
    undisturbed(program, arguments, &|resident| switch(resident, mode));
}

/// What is done to a program until it ends. How often, and what was said when it was not done.
type Disturb<'a> = &'a dyn Fn(&mut Resident) -> (usize, String);

fn come_and_go(resident: &mut Resident) -> (usize, String) {
    let (mut attached, mut refused) = (0, String::new());
    while resident.runs() && attached < 40 {
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
    while resident.runs() && switched < 100 {
        let words = if attached { ways[switched % ways.len()] } else { &["attach", "--patch-mode", mode] };
        let run = calltap_run(&[words, &["-p", &pid]].concat());
        switched += usize::from(attached && run.status.success());
        attached |= run.status.success();
        if !run.status.success() {
            refused += &run.stderr;
        }
    }
    // It may have ended.
    calltap_run(&["detach", "-p", &pid]);
    (switched, refused)
}

fn undisturbed(program: &Program, arguments: &[&str], disturb: Disturb<'_>) {
    let command = |rounds: u32| {
        let mut command = Command::new(&program.path);
        command.args(arguments).env("AGAIN", rounds.to_string()).current_dir(program.directory());
        command
    };
    let start = Instant::now();
    run(command(2), b"");
    let rounds = (LONG_ENOUGH.as_secs_f64() / start.elapsed().as_secs_f64() * 2.0) as u32 + 2;
    // On a busy machine two rounds take long, and many more may be over before calltap is there.
    let enough =
        [1, 10, 100].into_iter().any(|more| undisturbed_for(program, &command, rounds * more, disturb));
    assert!(enough, "attached too seldom: {} {arguments:?}", program.name);
}

/// The same for so many rounds. True if something was done meanwhile.
fn undisturbed_for(
    program: &Program,
    command: &dyn Fn(u32) -> Command,
    rounds: u32,
    disturb: Disturb<'_>,
) -> bool {
    let compared = |text: &str| {
        let same = |line: &&str| !line.starts_with("about ");
        text.lines().filter(same).map(|line| line.to_owned() + "\n").collect::<String>()
    };
    // So many rounds take long where the machine was idle when one was timed, and is busy now.
    let alone = run_timeout(command(rounds), b"", 5 * HANGS);
    let mut resident = Resident::spawn(command(rounds), program.directory().to_owned());
    let (times, refused) = disturb(&mut resident);
    let (status, output, errors) = resident.end();
    let what = format!("{} after {times} times\n{refused}", program.name);
    assert_eq!(status, alone.status, "{what}: how it ended\n{errors}");
    assert_eq!(compared(&output), compared(&alone.stdout), "{what}: its output");
    assert_eq!(errors, alone.stderr, "{what}: its errors");
    times >= 1
}

/// Attaching is refused with one clear line; the program goes on untouched.
pub fn refused(program: &Program, arguments: &[&str], says: &[&str]) {
    refused_by(program, arguments, SHORT, says);
}

/// The same with these flags.
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

/// A refusal is one line that says these words.
pub fn one_line(run: &Run, says: &[&str]) {
    assert!(!run.status.success() && run.status.code().is_some(), "{}: {}", run.status, run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for say in says {
        assert!(run.stderr.contains(say), "{say:?}: {}", run.stderr);
    }
}

/// Calls made between attaching and detaching are counted exactly, by every tracer.
pub fn counts_exactly(build: &Build) {
    let program = compile(build, &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["counted"]);
    for (tracer, view) in [("function", "report"), ("function_graph", "report"), ("profile", "stat")] {
        let mut calltap = resident.attach_beside(&["--tracer", tracer]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("done");
        // SAFETY: a signal to a child of this process.
        unsafe { libc::kill(calltap.id() as i32, libc::SIGINT) };
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
