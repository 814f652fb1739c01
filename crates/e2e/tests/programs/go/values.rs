//! Arguments and results of Go functions: what is recorded is what the program prints of them.

use calltap_e2e::*;
use serde_json::Value;

/// Returns the objects of a trace's replay.
fn events(trace: &str) -> Vec<Value> {
    let run = calltap_run(&["replay", "--json", "-i", trace]);
    assert!(run.status.success(), "{}", run.stderr);
    let lines = run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    lines.filter(|event: &Value| event["thread"].as_str().is_some()).collect()
}

/// Name of a type that is longer than what is read of it.
const WIDE: &str = "struct { theFirstOfTheNamesInATypeThatIsTooLongToBeKeptByAnyMeansWhatever int; theSecondOfTheNamesInATypeThatIsTooLongToBeKeptByAnyMeansWhatever int }";

/// Returns arguments and results of a function's calls, in order; no results if its returns are not
/// recorded.
fn calls(events: &[Value], function: &str) -> Vec<(Value, Option<Value>)> {
    let of = |kind: &str, key: &str| -> Vec<Value> {
        let is_it = |event: &&Value| event["event"] == kind && event["function"] == function;
        events.iter().filter(is_it).map(|event| event[key].clone()).collect()
    };
    let (entries, exits) = (of("entry", "arguments"), of("exit", "results"));
    let entries = if entries.is_empty() { of("call", "arguments") } else { entries };
    entries.into_iter().enumerate().map(|(n, arguments)| (arguments, exits.get(n).cloned())).collect()
}

/// Checks calls against the lines that the program has printed of them; those whose returns are not
/// recorded, up to the results.
fn check(found: Vec<(String, Option<String>)>, printed: &[&str], name: &str) {
    assert_eq!(found.len(), printed.len(), "{name}: {found:?}");
    for ((arguments, results), line) in found.into_iter().zip(printed) {
        let (expected, result) = line.split_once(" = ").expect("a result");
        assert_eq!(arguments, expected, "{name}");
        assert!(results.as_ref().is_none_or(|found| found == result), "{name}: {results:?}, not {line}");
    }
}

/// Returns a value that is a text in JSON.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

/// Returns a call of `main.kinds` in the program's words, in which names of types are whole.
fn kinds((arguments, results): &(Value, Option<Value>)) -> (String, Option<String>) {
    let [a, s, err] = ["a", "s", "err"].map(|name| text(&arguments[name]));
    let a = if a.starts_with("struct { theFirst") && a.len() > 120 { WIDE } else { a };
    let results = results.as_ref();
    let results = results.map(|results| ["retval", "retval2"].map(|name| text(&results[name])).join(" "));
    (format!("kinds({a}, {s}, {err})"), results)
}

/// Returns a call of `main.handle` in the program's words.
fn handled((arguments, results): &(Value, Option<Value>)) -> (String, Option<String>) {
    let of = |name: &str| arguments[name].to_string();
    let [name, n, small, big, ok, data] = ["name", "n", "small", "big", "ok", "data"].map(of);
    let arguments = format!("handle(name={name}, n={n}, small={small}, big={big}, ok={ok}, data={data})");
    let results =
        results.as_ref().map(|results| format!("{} {}", results["retval"], text(&results["retval2"])));
    (arguments, results)
}

#[test]
fn values_of_go_functions_are_those_that_the_program_prints() {
    for go in Go::all() {
        for flags in [&[][..], &["-buildmode=pie"]] {
            let program = go.compile("values.go", flags);
            let all = ["main.handle", "main.kinds", "main.float", "main.many@c,f,i", "main.deep"];
            let mut words: Vec<&str> = all.iter().flat_map(|rule| ["-A", rule]).collect();
            words.extend([
                "-R",
                "main.handle",
                "-R",
                "main.kinds",
                "-R",
                "main.float",
                "-R",
                "main.many",
                "-R",
                "main.deep",
            ]);
            let recording = record(&program, &[&words[..], &["-F", "main.*"]].concat(), &Expect::default());
            let name = &program.name;
            assert!(recording.run.status.success(), "{name}: {}", recording.run.stderr);
            let events = events(&recording.trace.to_string_lossy());
            let printed: Vec<&str> = recording.run.stdout.lines().collect();
            let of = |start: &str| -> Vec<&str> {
                printed.iter().copied().filter(|line| line.starts_with(start)).collect()
            };
            let found: Vec<_> = calls(&events, "main.handle").iter().map(handled).collect();
            assert!(found.iter().all(|(_, results)| results.is_some()), "{name}: {found:?}");
            check(found, &of("handle"), name);
            check(calls(&events, "main.kinds").iter().map(kinds).collect(), &of("kinds"), name);
            let number = |value: &Value| value.as_f64().expect("a number");
            let float = |(arguments, results): &(Value, Option<Value>)| {
                let [f, g] = ["f", "g"].map(|name| number(&arguments[name]));
                let results = results.as_ref().map(|results| number(&results["retval"]).to_string());
                (format!("float({f}, {g}, {})", arguments["n"]), results)
            };
            check(calls(&events, "main.float").iter().map(float).collect(), &of("float"), name);
            let many = |(arguments, results): &(Value, Option<Value>)| {
                assert_eq!((&arguments["c"], &arguments["i"]), (&3.into(), &(-9).into()), "{name}");
                let results = results.as_ref();
                let results = results.map(|results| format!("{} {}", results["retval"], results["retval2"]));
                (format!("many({})", arguments["f"]), results)
            };
            check(calls(&events, "main.many").iter().map(many).collect(), &of("many"), name);
            check_deep(&events, name);
        }
    }
}

#[test]
fn a_parameter_without_a_name_is_not_mistaken_for_another() {
    for go in Go::all() {
        let program = go.compile("values.go", &[]);
        let (path, trace) = (program.path.display().to_string(), program.directory().join("blank"));
        let trace = trace.display().to_string();
        let run = calltap_run(&["record", "-q", "-A", "main.blank@number", "-o", &trace, "--", &path]);
        let name = &program.name;
        if !run.status.success() {
            one_line(&run, &["main.blank", "'number' is not passed as the calling convention"]);
            continue;
        }
        let found = calls(&events(&trace), "main.blank");
        let found = found.iter().map(|(arguments, _)| (format!("blank({})", arguments["number"]), None));
        let printed: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("blank")).collect();
        check(found.collect(), &printed, name);
    }
}

/// Checks the calls of a recursive function in goroutines whose stacks grow meanwhile.
fn check_deep(events: &[Value], name: &str) {
    let mut open: std::collections::HashMap<&str, Vec<i64>> = std::collections::HashMap::new();
    let mut count = 0;
    for event in events.iter().filter(|event| event["function"] == "main.deep") {
        let lane = open.entry(event["thread"].as_str().expect("a name")).or_default();
        if event["event"] == "entry" {
            lane.push(event["arguments"]["n"].as_i64().unwrap_or_else(|| panic!("{name}: {event}")));
            continue;
        }
        let entered = lane.pop().expect("an entry");
        assert_eq!(event["results"]["retval"], entered, "{name}: {event}");
        count += 1;
    }
    let expected: i64 = (0..50).map(|n| 20 * n + 1).sum();
    assert_eq!(count, expected, "{name}");
}

#[test]
fn values_of_go_functions_that_cannot_be_read_are_refused() {
    let Some(go) = Go::newer().pop() else { return };
    let program = go.compile("values.go", &[]);
    let path = program.path.display().to_string();
    for (words, why) in [
        (&["-A", "main.many@j"][..], "'j' is passed on the stack"),
        (&["-A", "main.structs@p"], "'p' is passed in several registers"),
        (&["-A", "main.handle@nothing"], "no parameter is called 'nothing'"),
        (&["--if", "main.handle@n>1"], "it is a Go function"),
    ] {
        let run = calltap_run(&[&["record", "-q"], words, &["--", &path]].concat());
        assert!(!run.status.success(), "{words:?}");
        assert!(run.stderr.contains(why), "{words:?}: {}", run.stderr);
    }
    let stripped = go.compile("values.go", &["-ldflags=-s -w"]);
    let path = stripped.path.display().to_string();
    let run = calltap_run(&["record", "-q", "-A", "main.handle@n", "--", &path]);
    assert!(!run.status.success() && run.stderr.contains("debugging information"), "{}", run.stderr);
}
