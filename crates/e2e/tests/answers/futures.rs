//! Futures of Rust programs: the results are those that the program has counted, for each build.

use calltap_e2e::{
    Expect, GCC, HANGS, Program, Terminal, calltap_run, compile, compile_cargo, one_line, record, succeeds,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Returns the builds of the program: a release build without debugging information, and an
/// unoptimised one with it and with v0 names.
fn programs() -> impl Iterator<Item = Program> {
    let builds: [(&[&str], &str); 2] = [(&["--release"], ""), (&[], "-Csymbol-mangling-version=v0")];
    builds.into_iter().filter_map(|(flags, rustflags)| compile_cargo("futures", flags, rustflags))
}

/// Parses the program's output: for each type futures, polls, ready, panicked; and minimum waits.
fn said(stdout: &str) -> (BTreeMap<String, Vec<u64>>, BTreeMap<String, u64>) {
    let numbers = |words: &[&str]| words.iter().map(|word| word.parse().expect("a number")).collect();
    let (mut futures, mut least) = (BTreeMap::new(), BTreeMap::new());
    for line in stdout.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["future", name, ref rest @ ..] => drop(futures.insert(name.to_owned(), numbers(rest))),
            ["least", name, time] => drop(least.insert(name.to_owned(), time.parse().expect("a number"))),
            _ => {}
        }
    }
    assert!(futures.len() > 5, "{stdout}");
    (futures, least)
}

/// Whether a future is of the program's own type of a name: an async function, or a structure.
fn is_of(future: &str, name: &str) -> bool {
    let plain = future.replace("{closure#0}", "{{closure}}");
    plain == format!("futures::{name}::{{{{closure}}}}") || plain == format!("futures::{name}")
}

fn check(answer: &Value, stdout: &str, what: &str) {
    let (futures, least) = said(stdout);
    let rows = answer["futures"].as_array().expect("rows");
    for (name, expected) in &futures {
        let row = rows.iter().find(|row| is_of(row["future"].as_str().unwrap_or_default(), name));
        let row = row.unwrap_or_else(|| panic!("{what}: no row for {name}: {answer}"));
        let number = |key: &str| row[key].as_u64().expect(key);
        let found = ["futures", "polls", "ready", "panicked"].map(number);
        assert_eq!(found, expected[..], "{what}: {name}: {row}");
        let [all, _, ready, panicked] = found;
        assert_eq!(number("dropped"), all - ready - panicked, "{what}: {name}: {row}");
        let waited = least.get(name).copied().unwrap_or(0);
        // A wait begins within a poll, whose thread may be preempted.
        let since_poll = number("idle_ns") + number("busy_ns");
        assert!(since_poll >= waited, "{what}: {name} waited for {waited} ns at least: {row}");
        assert!(number("max_idle_ns") <= number("max_life_ns"), "{what}: {row}");
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn futures_equal_program_counts() {
    for program in programs() {
        let recording = record(&program, &["--async"], &Expect::default());
        assert!(recording.run.status.success(), "{}", recording.run.stderr);
        let trace = recording.trace.to_string_lossy().into_owned();
        let answer = json(&calltap_run(&["futures", "--json", "-i", &trace]).stdout);
        check(&answer, &recording.run.stdout, &program.name);

        let lines = calltap_run(&["futures", "--each", "--json", "-i", &trace]).stdout;
        let spans: Vec<Value> = lines.lines().map(json).filter(|span| span["calltap_future"] == 1).collect();
        check_spans(&spans, &program.name);
        check_chrome(&trace, &spans, &program.name);
        check_narrow(&trace);
    }
}

/// Checks the table on a terminal that has no room for all its columns.
fn check_narrow(trace: &str) {
    let terminal = Terminal::start(&["futures", trace]);
    terminal.wait_for("  Future\r\n");
    terminal.wait_for("  futures::yielding");
    terminal.wait_for("# no room for ");
}

/// Checks that every future begins and ends in Chrome's format, as an asynchronous event with its
/// polls in it.
fn check_chrome(trace: &str, spans: &[Value], what: &str) {
    let run = calltap_run(&["export", "--to", "chrome", "-i", trace]);
    let exported = json(&run.stdout);
    let events = exported["traceEvents"].as_array().expect("events");
    let mut open: BTreeMap<&str, Vec<(&Value, f64)>> = BTreeMap::new();
    let (mut futures, mut polls) = (Vec::new(), 0);
    for event in events.iter().filter(|event| event["cat"] == "future") {
        let stack = open.entry(event["id"].as_str().expect("an id")).or_default();
        let time = event["ts"].as_f64().expect("a time");
        if event["ph"] == "b" {
            stack.push((&event["name"], time));
            continue;
        }
        let (name, began) = stack.pop().expect("a beginning");
        assert!(*name == event["name"] && began <= time, "{what}: {event}");
        polls += u64::from(*name == "poll" && stack.len() == 1);
        futures.extend(stack.is_empty().then(|| name.as_str().expect("a name")));
    }
    assert!(open.values().all(Vec::is_empty), "{what}: some do not end");
    let mut expected: Vec<&str> = spans.iter().filter_map(|span| span["future"].as_str()).collect();
    futures.sort_unstable();
    expected.sort_unstable();
    assert_eq!(futures, expected, "{what}");
    assert_eq!(polls, spans.iter().filter_map(|span| span["polls"].as_u64()).sum::<u64>(), "{what}");
}

/// Checks the invariants of each future.
fn check_spans(spans: &[Value], what: &str) {
    let number = |span: &Value, key: &str| span[key].as_u64().unwrap_or_else(|| panic!("{what}: {key}"));
    let name = |span: &Value| span["future"].as_str().expect("a name").to_owned();
    for span in spans {
        // Each time is truncated to nanoseconds.
        let (life, parts) = (
            number(span, "end_ns") - number(span, "start_ns"),
            number(span, "busy_ns") + number(span, "idle_ns"),
        );
        assert!(life.abs_diff(parts) < 10, "{what}: busy and idle are all there is: {span}");
        assert!(span["threads"].as_array().is_some_and(|threads| !threads.is_empty()), "{what}: {span}");
    }
    // Five futures of one type had the same address in turn.
    let dropped: Vec<&Value> = spans.iter().filter(|span| is_of(&name(span), "endless")).collect();
    assert!((5..=7).contains(&dropped.len()), "{what}: {dropped:?}");
    assert!(dropped.iter().all(|span| span["end"] == "dropped"), "{what}: {dropped:?}");
    // A task is named after the spawned future, and futures polled in it refer to it.
    let tasks: Vec<&Value> = spans.iter().filter(|span| !span["task"].is_null()).collect();
    let of = |wanted: &str| tasks.iter().filter(|span| name(span).contains(wanted)).count();
    assert_eq!(of("timed_out"), 1, "{what}: {tasks:?}");
    assert!(of("main::") >= 51, "{what}: {} blocks were spawned", of("main::"));
    let by_id = |id: &Value| spans.iter().find(|span| span["id"] == *id);
    for span in spans.iter().filter(|span| is_of(&name(span), "recursive")) {
        let parent = by_id(&span["parent"]).unwrap_or_else(|| panic!("{what}: who polled it? {span}"));
        assert!(parent["start_ns"].as_u64() <= span["start_ns"].as_u64(), "{what}: {span} in {parent}");
    }
}

#[test]
fn why_explains_slow_future_by_wakers_and_busy_worker() {
    for program in programs() {
        let what = &program.name;
        let trace = program.directory().join("locked.data");
        let (trace, path) =
            (trace.to_string_lossy().into_owned(), program.path.to_string_lossy().into_owned());
        let run = calltap_run(&["record", "-q", "--async", "-o", &trace, "--", &path, "locked"]);
        assert!(run.status.success(), "{what}: {}", run.stderr);
        let why = |question: &str| {
            let run = calltap_run(&["why", "--async", "--json", question, &trace]);
            assert!(run.status.success(), "{what}: {}", run.stderr);
            json(&run.stdout)["futures"][0].clone()
        };
        let name = |future: &Value| future["future"].as_str().unwrap_or_default().to_owned();
        let ms = |future: &Value, key: &str| future[key].as_u64().expect(key) / 1_000_000;

        // The holder of its lock wakes it. It waited for a timer meanwhile, and then was polled.
        let waiter = why("waiter>10ms");
        assert!(is_of(&name(&waiter), "waiter") && waiter["end"] == "ready", "{what}: {waiter}");
        let wait = &waiter["wait_groups"][0];
        assert!(is_of(&name(&wait["woken_by"]), "holder"), "{what}: {waiter}");
        assert!(ms(wait, "waited_ns") >= 45, "{what}: {waiter}");
        let holder = &wait["meanwhile"];
        assert!(ms(holder, "polled_ns") >= 20, "{what}: {waiter}");
        assert!(ms(&holder["wait_groups"][0], "waited_ns") >= 25, "{what}: {waiter}");
        assert!(holder["wait_groups"][0]["woken_by"]["future"].is_null(), "{what}: {waiter}");

        // A thread wakes it while its worker polls the holder.
        let late = why("futures::late>10ms");
        assert!(is_of(&name(&late), "late"), "{what}: {late}");
        assert!(ms(&late, "runnable_ns") >= 20, "{what}: {late}");
        assert!(is_of(&name(&late["workers_polled"][0]), "holder"), "{what}: {late}");
        assert!(ms(&late["workers_polled"][0], "polled_ns") >= 20, "{what}: {late}");

        let text = calltap_run(&["why", "--async", "waiter>10ms", &trace]).stdout;
        let of_holder = text.lines().filter(|line| line.contains("until it was woken by futures::holder"));
        assert_eq!(of_holder.count(), 1, "{what}: {text}");
    }
}

#[test]
fn answers_come_without_a_file_as_well() {
    for program in programs().take(1) {
        let place = program.directory().join("answer");
        let (place, path) =
            (place.to_string_lossy().into_owned(), program.path.to_string_lossy().into_owned());
        let run = calltap_run(&["futures", "--json", "-o", &place, "--", &path]);
        assert!(run.status.success(), "{}", run.stderr);
        let answer = json(&std::fs::read_to_string(&place).expect("an answer"));
        check(&answer, &run.stdout, &program.name);
        let run = calltap_run(&["futures", "futures::large*", "--json", "-o", &place, "--", &path]);
        let answer = json(&std::fs::read_to_string(&place).expect("an answer"));
        assert_eq!(answer["futures"].as_array().map(Vec::len), Some(1), "{answer}: {}", run.stderr);
    }
}

#[test]
fn futures_of_mostly_idle_running_process() {
    for program in programs().take(1) {
        let mut command = Command::new(&program.path);
        let mut child =
            command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "serving\n");
        let (pid, start) = (child.id().to_string(), Instant::now());
        loop {
            let run = calltap_run(&["futures", "-p", &pid, "--duration", "1s", "--json"]);
            assert!(run.status.success(), "{}", run.stderr);
            let answer = json(&run.stdout);
            let rows = answer["futures"].as_array().expect("rows");
            let served = rows.iter().find(|row| is_of(row["future"].as_str().unwrap_or_default(), "serving"));
            if served.is_some_and(|row| row["ready"].as_u64() > Some(0) && row["tasks"] == row["futures"]) {
                break;
            }
            assert!(start.elapsed() < HANGS, "{answer}: {}", run.stderr);
        }
        drop(child.stdin.take());
        line.clear();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "served\n");
        succeeds(&mut child);
    }
}

#[test]
fn program_without_futures_is_reported_in_one_line() {
    let program = compile(GCC, &["chain.c"], &[]);
    let path = program.path.to_string_lossy().into_owned();
    let run = calltap_run(&["futures", "--", &path]);
    one_line(&run, &["no symbol polls a future"]);
    let recording = record(&program, &[], &Expect { uncounted: true, ..Expect::default() });
    let trace = recording.trace.to_string_lossy().into_owned();
    let run = calltap_run(&["futures", "-i", &trace]);
    one_line(&run, &["without --async"]);
    let run = calltap_run(&["record", "--async", "--tracer", "profile", "--", &path]);
    one_line(&run, &["--async and '--tracer profile'"]);
}
