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

/// Returns arguments and results of a function's calls, in order.
fn calls(events: &[Value], function: &str) -> Vec<(Value, Value)> {
    let of = |kind: &str, key: &str| -> Vec<Value> {
        let is_it = |event: &&Value| event["event"] == kind && event["function"] == function;
        events.iter().filter(is_it).map(|event| event[key].clone()).collect()
    };
    of("entry", "arguments").into_iter().zip(of("exit", "results")).collect()
}

/// Returns a call of `main.handle` in the program's words.
fn handled((arguments, results): &(Value, Value)) -> String {
    let failed = if results["retval2"] == "0x0" { "0x0" } else { "*" };
    let of = |name: &str| arguments[name].to_string();
    format!(
        "handle(name={}, n={}, small={}, big={}, ok={}, data={}) = {} {failed}",
        of("name"),
        of("n"),
        of("small"),
        of("big"),
        of("ok"),
        of("data"),
        results["retval"],
    )
}

#[test]
fn values_of_go_functions_are_those_that_the_program_prints() {
    for go in Go::all() {
        for flags in [&[][..], &["-buildmode=pie"]] {
            let program = go.compile("values.go", flags);
            let all = ["main.handle", "main.float", "main.many@c,f,i", "main.deep"];
            let mut words: Vec<&str> = all.iter().flat_map(|rule| ["-A", rule]).collect();
            words.extend(["-R", "main.handle", "-R", "main.float", "-R", "main.many", "-R", "main.deep"]);
            let recording = record(&program, &[&words[..], &["-F", "main.*"]].concat(), &Expect::default());
            let name = &program.name;
            assert!(recording.run.status.success(), "{name}: {}", recording.run.stderr);
            let events = events(&recording.trace.to_string_lossy());
            let printed: Vec<&str> = recording.run.stdout.lines().collect();
            let of = |start: &str| -> Vec<&str> {
                printed.iter().copied().filter(|line| line.starts_with(start)).collect()
            };
            let found: Vec<String> = calls(&events, "main.handle").iter().map(handled).collect();
            assert_eq!(found, of("handle"), "{name}");
            let float = |(arguments, results): &(Value, Value)| {
                let of = |value: &Value| value.as_f64().expect("a number");
                let [f, g] = ["f", "g"].map(|name| of(&arguments[name]));
                format!("float({f}, {g}, {}) = {}", arguments["n"], of(&results["retval"]))
            };
            let found: Vec<String> = calls(&events, "main.float").iter().map(float).collect();
            assert_eq!(found, of("float"), "{name}");
            let many = |(arguments, results): &(Value, Value)| {
                assert_eq!((&arguments["c"], &arguments["i"]), (&3.into(), &(-9).into()), "{name}");
                format!("many({}) = {} {}", arguments["f"], results["retval"], results["retval2"])
            };
            let found: Vec<String> = calls(&events, "main.many").iter().map(many).collect();
            assert_eq!(found, of("many"), "{name}");
            check_deep(&events, name);
        }
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
