//! Coroutines of asyncio as futures: what is shown is what the program knows of its own.

use super::{Interpreter, interpreters, script};
use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Numbers that the program prints of each function, by the keys of the answer.
const KEYS: [&str; 6] = ["futures", "tasks", "polls", "ready", "raised", "waiting"];

/// Returns what the program printed: the numbers by function, and the address of a coroutine.
fn printed(stdout: &str) -> (BTreeMap<String, Vec<u64>>, String) {
    let (mut known, mut address) = (BTreeMap::new(), String::new());
    for line in stdout.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["at", at] => at.clone_into(&mut address),
            [name, ref numbers @ ..] if numbers.len() == KEYS.len() => {
                let numbers = numbers.iter().map(|number| number.parse().expect("a number"));
                known.insert(format!("__main__.{name}"), numbers.collect());
            }
            _ => {}
        }
    }
    assert!(known.len() > 8 && !address.is_empty(), "{stdout}");
    (known, address)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks the sums by function.
fn check(answer: &Value, known: &BTreeMap<String, Vec<u64>>, what: &str) {
    let rows = answer["futures"].as_array().expect("rows");
    let found: BTreeMap<String, Vec<u64>> = rows
        .iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().expect(key);
            (row["future"].as_str().expect("a name").to_owned(), KEYS.map(number).to_vec())
        })
        .filter(|(name, _)| known.contains_key(name))
        .collect();
    assert_eq!(&found, known, "{what}: {KEYS:?}");
    for row in rows {
        assert_eq!((&row["dropped"], &row["panicked"]), (&0.into(), &0.into()), "{what}: {row}");
    }
}

#[test]
fn coroutines_are_those_that_the_program_knows() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let script = script("tasks.py");
    for Interpreter { minor, path } in interpreters {
        let what = format!("3.{minor}");
        let path = path.to_str().expect("a path");
        let run = calltap_run(&["record", "-q", "--async", "-o", &trace, "--", path, &script]);
        assert!(run.status.success(), "{what}: {}", run.stderr);
        let (known, address) = printed(&run.stdout);
        check(&json(&calltap_run(&["futures", "--json", "-i", &trace]).stdout), &known, &what);

        // Only coroutines are traced, unless --python names more.
        let rows = calltap_run(&["report", "-i", &trace, "--format", "json"]).stdout;
        assert!(!rows.contains("__main__.made") && rows.contains("__main__.main"), "{what}: {rows}");

        let lines = calltap_run(&["futures", "--each", "--json", "-i", &trace]).stdout;
        let spans: Vec<Value> = lines.lines().map(json).filter(|span| span["calltap_future"] == 1).collect();
        let info = json(&calltap_run(&["info", "--json", &trace]).stdout);
        assert_eq!(spans[0]["pid"], info["processes"][0]["pid"], "{what}: {lines}");
        let waiting = |span: &&Value| span["end"] == "waiting" && span["address"] == *address;
        let kept = spans.iter().find(waiting).unwrap_or_else(|| panic!("{what}: {address}: {lines}"));
        assert_eq!((&kept["future"], &kept["polls"]), (&"__main__.endless".into(), &2.into()), "{what}");
        let of = |name: &str| spans.iter().find(|span| span["future"] == name).expect("a span");
        let [start, end, idle] = ["start_ns", "end_ns", "max_idle_ns"]
            .map(|key| of("__main__.sleeper")[key].as_u64().expect("a time"));
        // The event loop rounds its timers down by the resolution of its clock.
        assert!(end - start > 49_900_000 && idle > 0, "{what}: it slept for 50 ms: {lines}");
        let main = &of("__main__.main")["id"];
        let parents: Vec<&Value> = spans
            .iter()
            .filter(|span| span["future"] == "__main__.endless")
            .map(|span| &span["parent"])
            .collect();
        assert_eq!(parents, [main, main], "{what}: {lines}");
        let tids = |name: &str| of(name)["threads"].as_array().map(Vec::len);
        assert_eq!(tids("__main__.parent"), Some(1), "{what}");

        let text = calltap_run(&["futures", &trace]).stdout;
        assert!(text.contains("  Raised  Future\n"), "{what}: {text}");
    }
}

#[test]
fn coroutines_of_a_running_program_are_shown_with_their_tasks() {
    let Some((interpreters, directory)) = interpreters() else { return };
    for Interpreter { minor, path } in interpreters {
        let mut command = Command::new(path);
        command.arg(script("turning.py"));
        let mut resident = Resident::spawn(command, directory.path().to_owned());
        resident.wait_for("ready");
        let pid = resident.pid.to_string();
        let run = calltap_run(&["futures", "--json", "--duration", "3", "-p", &pid]);
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        let answer = json(&run.stdout);
        let rows = answer["futures"].as_array().expect("rows");
        let row = |name: &str| {
            let row = rows.iter().find(|row| row["future"] == format!("__main__.{name}"));
            row.unwrap_or_else(|| panic!("3.{minor}: no {name}: {answer}"))
        };
        let number = |name: &str, key: &str| row(name)[key].as_u64().expect(key);
        // Both began earlier, and wait between their runs.
        assert_eq!((number("worker", "futures"), number("worker", "tasks")), (2, 2), "3.{minor}");
        assert!(number("worker", "polls") > 4 && number("worker", "idle_ns") > 100_000_000, "3.{minor}");
        // The workers await `once`, once for each turn.
        assert_eq!(number("once", "tasks"), 0, "3.{minor}");
        assert!(number("once", "ready") > 2, "3.{minor}: {answer}");
        let (status, output, errors) = resident.end();
        assert!(status.success(), "3.{minor} {status} {output}{errors}");
        assert_eq!(output, "turned\n", "3.{minor}");
    }
}
