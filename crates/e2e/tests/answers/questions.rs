//! Questions about some functions: the answers agree with the program's own counts, live and from a
//! file.

use calltap_e2e::{GCC, Program, Resident, Run, calltap_run, changed_text, compile, one_line};
use serde_json::Value;
use std::collections::HashMap;
use std::time::SystemTime;

fn program() -> Program {
    compile(GCC, &["requests.c"], &[])
}

/// Runs `calltap WORDS --json -- program`. Returns the last object printed, and the program's
/// counts.
fn ask(program: &Program, words: &str) -> (Value, HashMap<String, u64>) {
    let answer = program.directory().join("answer");
    let (answer, path) = (answer.to_string_lossy().into_owned(), program.path.to_string_lossy().into_owned());
    let words: Vec<&str> = words.split(' ').collect();
    let run = calltap_run(&[&words[..], &["--json", "-o", &answer, "--", &path]].concat());
    assert!(run.status.success(), "{words:?}: {}", run.stderr);
    let own = run.stdout.lines().filter_map(|line| line.strip_prefix("calls ")?.split_once(' '));
    let own = own.map(|(name, calls)| (name.to_owned(), calls.parse().expect("a number"))).collect();
    (last(&std::fs::read_to_string(&answer).expect("an answer")), own)
}

/// Returns the last of one or several objects.
fn last(text: &str) -> Value {
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let last = objects.by_ref().last().unwrap_or_else(|| panic!("nothing in {text:?}"));
    last.unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rows<'a>(answer: &'a Value, name: &str) -> Vec<&'a Value> {
    let rows = answer["functions"].as_array().unwrap_or_else(|| panic!("{answer}"));
    rows.iter().filter(|row| row["function"] == name).collect()
}

fn sum(rows: &[&Value], member: &str) -> u64 {
    rows.iter().map(|row| row[member].as_u64().unwrap_or_else(|| panic!("{member} of {row}"))).sum()
}

#[test]
fn counts_are_the_programs_own() {
    let (answer, own) = ask(&program(), "count leaf handle f* work");
    for name in ["leaf", "handle", "front"] {
        assert_eq!(sum(&rows(&answer, name), "calls"), own[name], "{name}: {answer}");
    }
    assert_eq!(rows(&answer, "back").len(), 0, "{answer}");
    assert_eq!((&answer["calltap_count"], &answer["lost"]), (&1.into(), &0.into()));
}

#[test]
fn histograms_hold_every_call_and_tell_callers_apart_that_are_not_traced() {
    let program = program();
    let (answer, own) = ask(&program, "latency handle --by caller");
    let handle = rows(&answer, "handle");
    let callers: Vec<&str> = handle.iter().filter_map(|row| row["caller"].as_str()).collect();
    assert!(callers.len() == 2 && callers.contains(&"front") && callers.contains(&"back"), "{answer}");
    for row in &handle {
        assert_eq!(sum(&[row], "calls"), own["front"], "{answer}");
        let buckets: Vec<&Value> = row["buckets"].as_array().expect("buckets").iter().collect();
        assert_eq!(sum(&buckets, "calls"), own["front"], "{answer}");
        // Every tenth call waits for 20 ms.
        let waited: Vec<&Value> =
            buckets.iter().filter(|b| b["from_ns"].as_u64() >= Some(16_777_216)).copied().collect();
        assert!(sum(&waited, "calls") >= own["front"] / 10, "{answer}");
    }
    let (answer, own) = ask(&program, "latency handle --by thread --linear 10ms");
    assert_eq!(rows(&answer, "handle").len(), 2, "{answer}");
    assert_eq!(sum(&rows(&answer, "handle"), "calls"), own["handle"], "{answer}");
    for bucket in rows(&answer, "handle")[0]["buckets"].as_array().expect("buckets") {
        let bound = |name: &str| bucket[name].as_u64().expect("a bound");
        assert_eq!(bound("to_ns") - bound("from_ns"), 10_000_000);
    }
}

#[test]
fn slow_calls_are_shown_and_counted() {
    let (answer, own) = ask(&program(), "slower 15ms handle leaf");
    let handle = rows(&answer, "handle");
    assert!(sum(&handle, "slower") >= own["disk"] && sum(&handle, "max_ns") > 15_000_000, "{answer}");
    assert_eq!((sum(&handle, "calls"), sum(&rows(&answer, "leaf"), "calls")), (own["handle"], own["leaf"]));
    assert_eq!(rows(&answer, "disk").len(), 0);
}

#[test]
fn paths_lead_from_where_the_thread_began_to_the_function() {
    let (answer, own) = ask(&program(), "stacks leaf");
    let paths = answer["paths"].as_array().expect("paths");
    // `handle` ends with a tail call, after which its frame is gone.
    let names = |path: &Value| -> Vec<String> {
        let names = path["path"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| *name != "handle").map(str::to_owned).collect()
    };
    for way in [&["main", "work", "back", "leaf"][..], &["work", "front", "leaf"]] {
        let way: Vec<String> = way.iter().map(|name| (*name).to_owned()).collect();
        let found: Vec<&Value> = paths.iter().filter(|path| names(path).ends_with(&way)).collect();
        assert_eq!(sum(&found, "calls"), own["leaf"] / 2, "{way:?}: {answer}");
        assert!(found.iter().all(|path| path["path"][0] != "[unknown]"), "{answer}");
        assert!(
            found.iter().any(|path| path["path"].to_string().contains("\"handle\",\"leaf\"]")),
            "{answer}"
        );
    }
    assert_eq!(answer["unwound_calls"], own["leaf"], "{answer}");
    assert!(paths.iter().any(|path| path["path"][0] == "_start"), "{answer}");
}

#[test]
fn a_file_answers_as_the_program_did() {
    let program = program();
    let run = calltap_e2e::record(&program, &[], &calltap_e2e::Expect::default());
    let trace = run.trace.to_string_lossy();
    let of = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let answer = calltap_run(&[&words[..], &["--json", "-i", &trace]].concat());
        assert!(answer.status.success(), "{}", answer.stderr);
        // A trace may also be the last word.
        let same = calltap_run(&[&words[..], &[&trace, "--json"]].concat());
        assert_eq!(same.stdout, answer.stdout, "{words:?}: {}", same.stderr);
        last(&answer.stdout)
    };
    let own = |name: &str| -> u64 {
        let line = run.run.stdout.lines().find_map(|line| line.strip_prefix("calls ")?.strip_prefix(name));
        line.and_then(|calls| calls.trim().parse().ok()).unwrap_or_else(|| panic!("{}", run.run.stdout))
    };
    for (words, name) in [
        ("count *", "leaf"),
        ("latency disk", "disk"),
        ("latency handle --by thread", "handle"),
        ("slower 15ms", "back"),
    ] {
        assert_eq!(sum(&rows(&of(words), name), "calls"), own(name), "{words}");
    }
    let callers = of("latency handle --by caller");
    assert_eq!(sum(&rows(&callers, "handle"), "calls"), own("handle"), "{callers}");
    assert_eq!(of("stacks leaf")["paths"].as_array().map(Vec::len), Some(2));
    let watched = calltap_run(&["watch", "disk", "-n", "3", &trace]);
    assert_eq!(watched.stdout.lines().filter(|line| is_disk(line)).count(), 3);
    one_line(
        &calltap_run(&["latency", "hendle", "-i", &trace]),
        &["no function of the trace", "nearest: handle"],
    );
    let function = calltap_e2e::record(&program, &["--tracer", "function"], &calltap_e2e::Expect::default());
    let trace = function.trace.to_string_lossy();
    one_line(&calltap_run(&["slower", "1ms", "-i", &trace]), &["without the function_graph tracer"]);
    assert!(calltap_run(&["count", "leaf", "-i", &trace]).stdout.contains("720"));
}

/// Whether a line is about a call of `disk`, whose wait may be printed between its name and its
/// caller.
fn is_disk(line: &str) -> bool {
    line.contains("  disk  ") && line.ends_with("  <- handle")
}

#[test]
fn query_detaches_from_process() {
    let program = program();
    let mut resident = Resident::start(&program, &["forever"]);
    let pid = resident.pid.to_string();
    let on = |words: &str| -> Run {
        let words: Vec<&str> = words.split(' ').collect();
        let run = calltap_run(&[&words[..], &["--max-overhead", "none", "-p", &pid]].concat());
        assert_eq!(changed_text(resident.pid), [""; 0], "after {words:?}");
        run
    };
    let watched = on("watch disk -n 5");
    assert!(watched.status.success(), "{}", watched.stderr);
    assert_eq!(watched.stdout.lines().filter(|line| is_disk(line)).count(), 5, "{}", watched.stdout);
    let slower = on("slower 15ms handle -n 2");
    assert!(slower.stdout.contains(" ms  handle") && slower.stdout.contains("SLOWER"), "{}", slower.stdout);
    // On a busy machine the program may not run for a second.
    let until = |ask: &dyn Fn() -> Run, shows: &dyn Fn(&Value) -> bool| {
        let mut answers = (0..20).map(|_| ask());
        let is_last = |run: &Run| !run.status.success() || shows(&last(&run.stdout));
        let run = answers.find(is_last).expect("the functions are called");
        assert!(run.status.success(), "{}", run.stderr);
    };
    let has_calls = |answer: &Value| sum(&rows(answer, "handle"), "calls") > 0;
    until(&|| on("latency handle --json --duration 1s"), &has_calls);
    until(&|| on("stacks disk --json --duration 1s"), &|stacks| {
        let first = &stacks["paths"][0]["path"];
        assert!(first.is_null() || first.as_array().is_some_and(|path| path.len() > 2), "{stacks}");
        !first.is_null()
    });
    let count = ["count", "leaf", "handle", "-p", &pid, "--duration", "1s", "--json"];
    until(&|| calltap_run(&count), &has_calls);
    // A function that was asked about is named if it was switched off, however many others were.
    // The governor judges no interval with less than 1 ms of the program's processor time, and the
    // program may use only 0.5 ms per second.
    let little = ["latency", "leaf", "--max-overhead", "0.01%", "--duration", "5s", "--json", "-p", &pid];
    let is_told = |run: &Run| run.stderr.contains("disabled by --max-overhead (leaf: ");
    let little = (0..20).map(|_| calltap_run(&little)).find(is_told).expect("it costs more than nothing");
    assert_eq!(last(&little.stdout)["disabled_by_limit"][0], "leaf", "{}", little.stdout);
    one_line(&calltap_run(&["count", "hendle", "-p", &pid]), &["hendle", "nearest: handle"]);
    one_line(&calltap_run(&["watch", "handle", "-N", "h*", "-p", &pid]), &["handle", "takes it away"]);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.runs());
    assert!(resident.end().0.success());
}

#[test]
fn first_line_of_answers_names_functions_disabled_by_limit() {
    let program = program();
    let resident = Resident::start(&program, &["forever"]);
    let pid = resident.pid.to_string();
    let trace = program.directory().join("disabled.calltap").display().to_string();
    let record =
        ["record", "-F", "leaf", "--max-overhead", "0.01%", "--duration", "5s", "-o", &trace, "-p", &pid];
    // The governor judges no interval with less than 1 ms of the program's processor time, and the
    // program may use only 0.5 ms per second.
    let is_limited = |run: &Run| run.stderr.contains("(leaf: ");
    (0..20).map(|_| calltap_run(&record)).find(is_limited).expect("it costs more than nothing");
    for words in [&["report"][..], &["replay"], &["graph"], &["latency", "leaf"], &["stacks", "leaf"]] {
        let run = calltap_run(&[words, &["-i", &trace]].concat());
        let first = run.stdout.lines().next().unwrap_or_default();
        assert!(first.contains(" disabled by --max-overhead (leaf): "), "{words:?}: {first}\n{}", run.stderr);
    }
    let live = ["latency", "leaf", "--max-overhead", "0.01%", "--duration", "5s", "-p", &pid];
    let is_first = |run: &Run| run.stdout.starts_with("# 1 of ");
    let live = (0..20).map(|_| calltap_run(&live)).find(is_first).expect("it costs more than nothing");
    assert!(live.stdout.contains(" disabled by --max-overhead (leaf): "), "{}", live.stdout);
    assert!(resident.end().0.success());
}

#[test]
fn the_exit_status_is_the_programs() {
    let program = program();
    let path = program.path.to_string_lossy().into_owned();
    let run = calltap_run(&["count", "leaf", "--", &path, "10", "15"]);
    assert!(run.status.code().is_none(), "it ended by SIGTERM: {}", run.status);
    assert!(run.stdout.contains("leaf"), "{}", run.stdout);
    let missing = calltap_run(&["count", "leaf", "--", "./no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    one_line(&missing, &["no such file"]);
    one_line(&calltap_run(&["count", "leaf"]), &["no subject"]);
    one_line(&calltap_run(&["count", "leaf", "-p", "1", "--", "true"]), &["one of"]);
    let trace = program.directory().join("one.data").to_string_lossy().into_owned();
    calltap_run(&["record", "-o", &trace, "--", &path, "10", "15"]);
    assert!(calltap_run(&["count", "leaf", &trace]).status.success());
    one_line(&calltap_run(&["count", "leaf", &trace, &trace]), &[&trace, "one of"]);
    one_line(&calltap_run(&["count", "leaf", &trace, "--", "true"]), &[&trace, "one of"]);
    one_line(&calltap_run(&["slower", "soon", "--", &path]), &["not a time"]);
    one_line(&calltap_run(&["latency", "leaf", "--linear", "0ms", "--", &path]), &["is not a width"]);
}

/// With `--time wall`, lines begin with the time of day, and JSON has it in any case.
#[test]
fn times_of_day_are_those_of_the_machine() {
    let program = compile(GCC, &["spans.c"], &[]);
    let (path, trace) = (program.path.to_string_lossy(), program.directory().join("trace"));
    let trace = trace.to_string_lossy().into_owned();
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let before = now();
    let values = ["-A", "begin@arg1", "-A", "finish@arg1"];
    let run = calltap_run(&[&["record", "-q", "-o", &trace], &values[..], &["--", &path]].concat());
    assert!(run.status.success(), "{}", run.stderr);
    let after = now();
    let commands = [
        &["watch", "begin"][..],
        &["slower", "1ns", "begin"],
        &["span", "begin@arg1 .. finish@arg1", "-n", "3"],
    ];
    for words in commands {
        let text = calltap_run(&[words, &["--time", "wall", &trace]].concat()).stdout;
        let is_of_day = |line: &&str| {
            let time = line.split_whitespace().next().unwrap_or_default();
            time.len() == 15
                && time.bytes().enumerate().all(|(at, byte)| match at {
                    2 | 5 => byte == b':',
                    8 => byte == b'.',
                    _ => byte.is_ascii_digit(),
                })
        };
        assert!(text.lines().filter(is_of_day).count() >= 3, "{words:?}: {text}");
        let json = calltap_run(&[words, &["--json", &trace]].concat()).stdout;
        let key = "\"start_epoch_ns\":";
        let starts = json.match_indices(key).map(|(at, _)| json[at + key.len()..].trim_start());
        let number = |text: &str| text[..text.find([',', '}', '\n']).unwrap_or(0)].parse::<u64>();
        let starts: Vec<u64> = starts.map(|text| number(text).expect("nanoseconds")).collect();
        assert!(starts.len() >= 3, "{words:?}: {json}");
        assert!(starts.iter().all(|start| (before..=after).contains(start)), "{words:?}: {starts:?}");
    }
}
