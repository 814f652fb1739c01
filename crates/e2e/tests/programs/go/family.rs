//! Starters of goroutines and the functions that they were started with, compared with
//! the runtime's own backtraces.

use calltap_e2e::*;
use serde_json::Value;
use std::collections::BTreeMap;

/// A starter and a first function, as the program's backtraces have them.
type Start = (u64, String);

/// Parses what the goroutines have written.
fn noted(output: &str) -> BTreeMap<u64, Start> {
    let about = |line: &str| -> (u64, Start) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        (number(0), (number(1), words[2].to_owned()))
    };
    output.lines().filter_map(|line| line.strip_prefix("about ")).map(about).collect()
}

/// Returns the goroutines of a trace with the functions that its filter names.
fn goroutines(trace: &str, more: &[&str]) -> Vec<Value> {
    let run =
        calltap_run(&[&["report", "--by", "goroutine", "--format", "json", "-i", trace], more].concat());
    assert!(run.status.success(), "{}", run.stderr);
    rows_of(&run.stdout)
}

fn starts(rows: &[Value]) -> BTreeMap<u64, Start> {
    let start = |row: &Value| {
        let starter = row["started_by"].as_u64()?;
        Some((row["goroutine"].as_u64()?, (starter, row["function"].as_str()?.to_owned())))
    };
    rows.iter().filter_map(start).collect()
}

/// Whether the runtime of this version notes starters.
fn is_known(go: &Go) -> bool {
    let version = go.version();
    let minor = version.strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    minor.expect(&version) >= 21
}

/// Flags of a recording, and those of the program's build.
const TURNS: [(&[&str], &[&str]); 3] = [
    (&["-F", "main.family*"], &[]),
    // The first functions are not traced: their names are those of the file.
    (&["-F", "main.familyNote", "-F", "runtime.gopark"], &["-buildmode=pie", "-ldflags=-s -w"]),
    (&["--tracer", "function", "-F", "main.familyNote"], &[]),
];

#[test]
fn each_goroutine_has_its_starter_and_first_function() {
    for go in Go::all() {
        for (flags, build) in TURNS {
            let program = go.compile("family.go", build);
            let expect = Expect { uncounted: true, ..Expect::default() };
            let recording = record(&program, flags, &expect);
            let expected = noted(&recording.run.stdout);
            let rows = goroutines(&recording.trace.display().to_string(), &[]);
            if !is_known(&go) {
                assert!(!rows.is_empty(), "{}", recording.what);
                assert!(rows.iter().all(|row| row["started_by"].is_null() && row["function"].is_null()));
                continue;
            }
            let mut got = starts(&rows);
            got.retain(|number, _| expected.contains_key(number));
            let named = (1, (0, "runtime.main".to_owned()));
            let expected: BTreeMap<u64, Start> =
                expected.into_iter().filter(|(number, _)| *number != 1).chain([named]).collect();
            assert_eq!(expected.len(), 1 + 8 * 7, "{}", recording.what);
            assert_eq!(got, expected, "{}", recording.what);
            let waits = rows.iter().any(|row| row["waited_ns"].as_u64() > Some(0));
            assert_eq!(waits, flags.contains(&"runtime.gopark"), "{}: {rows:?}", recording.what);
        }
    }
}

#[test]
fn the_text_is_a_tree() {
    for go in Go::newer() {
        let program = go.compile("family.go", &[]);
        let recording = record(&program, &["-F", "main.*"], &Expect { uncounted: true, ..Expect::default() });
        let trace = recording.trace.display().to_string();
        let run = calltap_run(&["report", "--by", "goroutine", "-i", &trace]);
        let depth = |line: &str, name: &str| Some(line.find(name)? - line.find("  ").unwrap_or(0));
        let at = |name: &str| run.stdout.lines().find_map(|line| depth(line, name)).expect(name);
        let (main, child, leaf) = (at("runtime.main"), at("main.familyChild"), at("main.familyLeaf"));
        assert!(main < child && child < leaf, "{}", run.stdout);
        let run = calltap_run(&["report", "--by", "goroutine", "-F", "main.*", "-i", &trace]);
        one_line(&run, &["report --by goroutine: --function is about functions"]);
        let rows = goroutines(&trace, &["--limit", "3"]);
        assert_eq!(rows.len(), 3);
        let by = |word: &str| calltap_run(&["count", "main.family*", "--by", word, "-i", &trace]).stdout;
        assert_eq!(by("goroutine"), by("thread"));
    }
}

// The runtime has noted the start of goroutines that ran before calltap attached.
#[test]
fn starters_of_goroutines_of_a_running_program_are_known() {
    for go in Go::newer() {
        let program = go.compile("family.go", &[]);
        let mut resident = Resident::start(&program, &["stay"]);
        let calltap = resident.attach_beside(&["-F", "main.family*"]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("done");
        assert!(interrupt(calltap).success());
        let rows = goroutines(&resident.trace().display().to_string(), &[]);
        let (status, output, _) = resident.end();
        assert!(status.success());
        let expected = noted(&output);
        let got = starts(&rows);
        let agree = got.iter().filter(|(number, start)| expected.get(number) == Some(start)).count();
        // Goroutine 1 was started by the runtime, which its backtrace does not say.
        assert_eq!((agree, got.len()), (8 * 7, 1 + 8 * 7), "{}: {got:?}", program.name);
    }
}
