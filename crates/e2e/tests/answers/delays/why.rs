//! `calltap why`: the waits of slow calls, the wakers, and their actions meanwhile, compared with
//! those that the program knows.

use calltap_e2e::{
    BARE, Build, GCC, Program, Resident, Run, calltap_run, compile, have_switches, have_tracepoints, kill,
    skipped, wait_until,
};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const MS: u64 = 1_000_000;

fn ask(arguments: &[&str]) -> (Run, Value) {
    let run = calltap_run(arguments);
    assert!(run.status.success(), "{}", run.stderr);
    (run, Value::Null)
}

/// Returns the answer of a command, which writes it to a file beside the program.
fn answer(program: &Program, arguments: &[&str], behind: &[&str]) -> (String, Value) {
    let file = program.directory().join("answer.json");
    let path = file.display().to_string();
    let all = [arguments, &["--json", "-o", &path], behind].concat();
    let (run, _) = ask(&all);
    let text = std::fs::read(&file).expect("the answer");
    (run.stdout, serde_json::from_slice(&text).expect("an object"))
}

fn call<'a>(answer: &'a Value, function: &str) -> &'a Value {
    let calls = answer["calls"].as_array().expect("calls");
    let found = calls.iter().find(|call| call["function"] == function);
    &found.unwrap_or_else(|| panic!("no {function} in {answer:#}"))["did"]
}

/// Returns the longest wait, which took most of the 80 ms.
fn wait(did: &Value) -> &Value {
    let wait = &did["blocked"][0];
    assert!(wait["ns"].as_u64().is_some_and(|ns| ns >= 40 * MS), "{did:#}");
    wait
}

fn tid(said: &str, name: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no {name} in {said}"))
}

fn is_thread(wait: &Value, said: &str, name: &str, path: &[&str]) {
    let waker = &wait["woken_by"];
    assert_eq!((&waker["kind"], &waker["thread"]), (&"thread".into(), &name.into()), "{wait:#}");
    assert_eq!(waker["tid"], tid(said, name), "{wait:#}");
    let frames = waker["path"].as_array().expect("a path");
    let shown: Vec<&str> = frames.iter().filter_map(Value::as_str).collect();
    assert!(shown.starts_with(path), "{wait:#}");
}

fn is_in(wait: &Value, within: &str, path: &[&str]) {
    assert!(wait["in"].as_str().is_some_and(|told| told.starts_with(within)), "{within}: {wait:#}");
    let frames = wait["path"].as_array().expect("a path");
    assert!(frames.iter().map(|frame| frame.as_str().unwrap()).eq(path.iter().copied()), "{wait:#}");
}

/// Checks that the timer's interrupt has woken a sleeping thread.
fn is_interrupt(nap: &Value) {
    assert_eq!(nap["woken_by"]["kind"], "interrupt", "{nap:#}");
}

/// Compares each sentence of the answer with the program's actions.
fn is_as_the_program_knows(said: &str, answer: &Value) {
    assert_eq!(answer["unknown"], Value::Array(Vec::new()), "{answer:#}");
    let lock = wait(call(answer, "handle_lock"));
    is_in(lock, "futex(cache.lock, FUTEX_WAIT", &["want_lock"]);
    is_thread(lock, said, "holder", &["hold_lock"]);
    let read = wait(&lock["meanwhile"]);
    is_in(read, "read(", &["wait_pipe", "hold_lock", "holder"]);
    is_thread(read, said, "filler", &["fill_pipe"]);
    let nap = wait(&read["meanwhile"]);
    is_in(nap, "clock_nanosleep(", &["fill_pipe", "filler"]);
    is_interrupt(nap);
    let condition = wait(call(answer, "handle_condition"));
    is_in(condition, "futex(ready_cond", &[]);
    is_thread(condition, said, "signaler", &["give_signal"]);
    let nap = wait(call(answer, "handle_nap"));
    is_in(nap, "clock_nanosleep(", &[]);
    is_interrupt(nap);
    let child = wait(call(answer, "handle_child"));
    is_in(child, "read(", &[]);
    let waker = &child["woken_by"];
    assert_eq!((&waker["kind"], &waker["comm"]), (&"process".into(), &"sh".into()), "{child:#}");
}

/// Number of recordings until the kernel has reported all wakings. Where the kernel allows no
/// instance of tracefs, perf events report them, which omit some by timers without counting them as
/// lost; so does `perf record -e sched:sched_waking`.
const TRIES: usize = 10;

/// Returns the first complete answer, or the last one after all tries.
fn complete_answer(mut ask: impl FnMut() -> (String, Value)) -> (String, Value) {
    let is_complete = |told: &Value| {
        !told["unknown"].to_string().contains("the kernel lost") && !has_unknown_waker(&told["calls"])
    };
    (1..TRIES).map(|_| ask()).find(|(_, told)| is_complete(told)).unwrap_or_else(&mut ask)
}

fn has_unknown_waker(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(has_unknown_waker),
        Value::Object(fields) => {
            fields.get("woken_by").is_some_and(Value::is_null) || fields.values().any(has_unknown_waker)
        }
        _ => false,
    }
}

fn check(build: &Build) {
    let program = compile(build, &["kept_waiting.c"], &["-pthread"]);
    let path = program.path.display().to_string();
    let why = || answer(&program, &["why", "handle_*>60ms"], &["--", &path]);
    let (said, told) = complete_answer(why);
    is_as_the_program_knows(&said, &told);
}

#[test]
fn a_slow_call_is_explained_across_threads() {
    if have_switches() && have_tracepoints() {
        check(GCC);
        check(&BARE[0]);
    }
}

/// Flags that record wakeups and system calls.
const EVENTS: [&str; 2] = ["--events", "sched,syscalls"];

/// Returns the path of the trace that [`record`] writes.
fn trace_of(program: &Program) -> String {
    program.directory().join("why.data").display().to_string()
}

/// Records a program from its start to its end.
fn record(program: &Program, flags: &[&str]) -> Run {
    let (path, trace) = (program.path.display().to_string(), trace_of(program));
    ask(&[&["record", "-q", "-o", &trace], flags, &["--", &path]].concat()).0
}

#[test]
fn a_recording_explains_the_same_as_text_summary_and_locks() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["kept_waiting.c"], &["-pthread"]);
    let trace = trace_of(&program);
    let (said, told) = complete_answer(|| {
        let run = record(&program, &EVENTS);
        (run.stdout, answer(&program, &["why", "handle_*>60ms"], &["-i", &trace]).1)
    });
    is_as_the_program_knows(&said, &told);
    let text = ask(&["why", "handle_lock>60ms", "-i", &trace]).0.stdout;
    let expected = ["blocked in futex(cache.lock, FUTEX_WAIT", "woken by holder-", " in hold_lock <- holder"];
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    let (_, summed) = answer(&program, &["why", "handle_*>60ms", "--summary"], &["-i", &trace]);
    let causes = summed["causes"].as_array().expect("causes");
    let all: u64 = causes.iter().filter_map(|cause| cause["ns"].as_u64()).sum();
    assert!(
        all.abs_diff(summed["total_ns"].as_u64().unwrap()) < MS,
        "all of the time has a cause: {summed:#}"
    );
    let (_, locks) = answer(&program, &["locks"], &["-i", &trace]);
    let rows = locks["locks"].as_array().expect("locks");
    let lock = rows.iter().find(|lock| lock["symbol"] == "cache.lock").expect("the lock");
    assert_eq!(
        (&lock["waits_in"][0]["function"], &lock["woken_in"][0]["function"]),
        (&"want_lock".into(), &"hold_lock".into()),
        "{lock:#}"
    );
    assert!(lock["total_ns"].as_u64().is_some_and(|ns| ns >= 40 * MS), "{lock:#}");
    // A thread waits at a word of a condition variable, which has its name as a whole.
    assert!(rows.iter().any(|lock| lock["symbol"] == "ready_cond"), "{locks:#}");
}

#[test]
fn a_wait_for_the_end_of_a_thread_is_described() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["joined.c"], &["-pthread"]);
    record(&program, &EVENTS);
    let (_, locks) = answer(&program, &["locks"], &["-i", &trace_of(&program)]);
    let rows = locks["locks"].as_array().expect("locks");
    let is_join =
        |lock: &&Value| lock["lock"].as_str().is_some_and(|lock| lock.ends_with("block (pthread_join)"));
    let join = rows.iter().find(is_join).unwrap_or_else(|| panic!("{locks:#}"));
    assert_eq!(join["waits_in"][0]["function"], "join", "{join:#}");
}

#[test]
fn waits_before_execve_belong_to_former_program() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let [first, second] = ["first_lock", "second_lock"]
        .map(|lock| compile(GCC, &["relay.c"], &["-pthread", "-no-pie", &format!("-DLOCK={lock}")]));
    let paths = [&first, &second].map(|program| program.path.display().to_string());
    let trace = first.directory().join("relay.data").display().to_string();
    let flags = ["record", "-q", "--follow", "--events", "sched,syscalls", "-o", &trace, "--"];
    ask(&[&flags[..], &[&paths[0], &paths[1]]].concat());
    let (_, locks) = answer(&first, &["locks"], &["-i", &trace]);
    let rows = locks["locks"].as_array().expect("locks");
    let waits = |lock: &str| rows.iter().find(|row| row["symbol"] == lock).map(|row| row["waits"].as_u64());
    assert_eq!(waits("second_lock"), Some(Some(5)), "{locks:#}");
    // The last waits of a program that is gone may have no name.
    assert!(waits("first_lock").flatten().is_some_and(|waits| (3..=5).contains(&waits)), "{locks:#}");
}

#[test]
fn unrecorded_events_are_reported_as_unknown() {
    let program = compile(GCC, &["kept_waiting.c"], &["-pthread"]);
    let trace = trace_of(&program);
    record(&program, &[]);
    let (_, told) = answer(&program, &["why", "handle_lock>60ms"], &["-i", &trace]);
    assert!(!told["unknown"].as_array().expect("a list").is_empty(), "{told:#}");
    if have_switches() {
        let wait = wait(call(&told, "handle_lock"));
        assert!(
            wait["in"].is_null() && wait["woken_by"].is_null() && wait["meanwhile"].is_null(),
            "{wait:#}"
        );
    }
    let run = calltap_run(&["why", "handle_lock", "-i", &trace]);
    assert!(!run.status.success() && run.stderr.contains("is not a function and a time"), "{}", run.stderr);
}

/// Returns the directory of tracefs instances that this test may read and make; `None` where it may
/// not.
fn instances() -> Option<PathBuf> {
    let directory = PathBuf::from("/sys/kernel/tracing/instances");
    let own = directory.join(format!("calltap-e2e-why-{}", std::process::id()));
    let made = fs::create_dir(&own).and_then(|()| fs::remove_dir(&own));
    if let Err(error) = &made {
        skipped(&format!("no instance of tracefs can be made here: {error}"));
    }
    made.is_ok().then_some(directory)
}

#[test]
fn tracefs_instances_of_killed_recorder_are_removed() {
    let Some(instances) = instances() else { return };
    let program = compile(GCC, &["resident.c"], &[]);
    let resident = Resident::start(&program, &["counted"]);
    for is_killed in [true, false] {
        let mut recorder = resident.attach_beside(&["--events", "sched"]);
        let prefix = format!("calltap-{}-", recorder.id());
        let own = || {
            let entries = fs::read_dir(&instances).expect("instances").flatten();
            entries
                .map(|entry| entry.path())
                .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        };
        let enabled =
            |instance: PathBuf| fs::read_to_string(instance.join("events/sched/sched_waking/enable"));
        wait_until("the event is on", || {
            own().is_some_and(|own| enabled(own).is_ok_and(|on| on.trim() == "1"))
        });
        if is_killed {
            recorder.kill().expect("a recorder that runs");
        } else {
            kill(recorder.id(), 2);
        }
        recorder.wait().expect("its end");
        if is_killed {
            wait_until("the instance is removed", || own().is_none());
        }
        assert_eq!(own(), None);
        let _ = calltap_run(&["detach", "-p", &resident.pid.to_string()]);
    }
}

#[test]
fn why_blames_the_caller_of_calls_that_longjmp_left() {
    if !have_switches() {
        return;
    }
    let program = compile(GCC, &["left_waits.c"], &[]);
    let trace = trace_of(&program);
    record(&program, &[]);
    let (_, told) = answer(&program, &["why", "*_again>40ms"], &["-i", &trace]);
    let waits = wait(call(&told, "waits_again"));
    assert_eq!(waits["path"], Value::Array(Vec::new()), "{waits:#}");
    let computes = call(&told, "computes_again");
    let first = &computes["ran"][0];
    assert_eq!(first["function"], "computes_again", "{computes:#}");
    // The line about a wait is at the level of the function that waits.
    let replay = ask(&["replay", "-i", &trace]).0.stdout;
    let (_, replay) = replay.split_once("waits_again").expect("its call");
    let column = |text: &str| {
        let line =
            replay.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {replay}"));
        line.find(text)
    };
    assert_eq!(column("/* blocked "), column("deeper() {"), "{replay}");
}

#[test]
fn why_distinguishes_locks_of_the_same_name() {
    if !have_switches() || !have_tracepoints() {
        return;
    }
    let program = compile(GCC, &["same_locks.c", "same_locks_other.c"], &["-pthread"]);
    let trace = trace_of(&program);
    let (_, told) = complete_answer(|| {
        record(&program, &EVENTS);
        (String::new(), answer(&program, &["why", "want_*>40ms", "--summary"], &["-i", &trace]).1)
    });
    let causes = told["causes"].as_array().expect("causes");
    let locks = causes.iter().filter(|cause| {
        cause["cause"].as_str().is_some_and(|text| text.starts_with("blocked in futex(lock at 0x"))
    });
    assert_eq!(locks.count(), 2, "{told:#}");
    let (_, locks) = answer(&program, &["locks"], &["-i", &trace]);
    let rows = locks["locks"].as_array().expect("locks");
    let named =
        rows.iter().filter(|lock| lock["symbol"].as_str().is_some_and(|name| name.starts_with("lock at ")));
    assert_eq!(named.count(), 2, "{locks:#}");
}
