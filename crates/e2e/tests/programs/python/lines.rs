//! Files and lines of Python functions, in tables and replays.

use super::{Interpreter, interpreters, script};
use calltap_e2e::*;

/// Functions of the script, and the definitions that the script has of them.
const DEFINED: [(&str, &str); 3] = [
    ("__main__.fib", "def fib("),
    ("__main__.Base.__lt__", "def __lt__("),
    ("__main__.gathers.<locals>.<genexpr>", " for "),
];

#[test]
fn python_functions_have_their_files_and_lines() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let script = script("calls.py");
    let source = std::fs::read_to_string(&script).expect("the script");
    for Interpreter { minor, path } in interpreters {
        let command = [
            "--python",
            "__main__.*",
            "-F",
            "PyObject_Repr",
            "--",
            path.to_str().expect("a path"),
            &script,
            "run",
        ];
        let run = calltap_run(&[&["record", "-q", "-o", &trace], &command[..]].concat());
        assert!(run.status.success(), "3.{minor}: {}", run.stderr);
        let shown = |what: &[&str]| {
            let run = calltap_run(&[what, &["--lines", "-i", &trace]].concat());
            assert!(run.status.success(), "3.{minor}: {}", run.stderr);
            run.stdout
        };
        let rows = rows_of(&shown(&["report", "--format", "json"]));
        let (replay, csv) = (shown(&["replay"]), shown(&["report", "--format", "csv"]));
        for (name, definition) in DEFINED {
            let row =
                rows.iter().find(|row| row["function"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
            let place = row["source"].as_str().expect("a place");
            let (file, line) = place.rsplit_once(':').expect("file and line");
            assert!(script.ends_with(file), "3.{minor} {name}: {place}");
            let line: usize = line.parse().expect("a line");
            let text = source.lines().nth(line - 1).expect("it is in the file");
            assert!(text.contains(definition), "3.{minor} {name}: {line}: {text}");
            assert!(replay.contains(&format!("/* {place} */")), "3.{minor} {name}");
            let row = csv.lines().find(|row| row.starts_with(&format!("{name},"))).expect(name);
            assert_eq!(row.split(',').nth(2), Some(place), "3.{minor}");
        }
        assert!(shown(&["report"]).contains("  SOURCE "), "3.{minor}");
        let without = calltap_run(&["report", "--format", "json", "-i", &trace]).stdout;
        assert!(!without.contains("\"source\""), "3.{minor}: {without}");
    }
}
