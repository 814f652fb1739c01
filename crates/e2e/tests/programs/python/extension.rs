//! Extension modules: Python functions and the module's own functions are in one tree.

use super::{Interpreter, calls, interpreters, script};
use calltap_e2e::*;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Returns the directory of an interpreter's headers, if they are installed.
pub(super) fn headers(python: &Path) -> Option<String> {
    let text = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let headers = output_of(&python.to_string_lossy(), &["-c", text]).expect("a path");
    if !Path::new(headers.trim()).join("Python.h").exists() {
        skipped(&format!("{}: no headers", python.display()));
        return None;
    }
    Some(headers.trim().to_owned())
}

/// Builds the module for an interpreter. False if its headers are not installed.
fn build(python: &Path, into: &Path) -> bool {
    let Some(headers) = headers(python) else { return false };
    let mut command = Command::new("gcc");
    command.args(["-O2", "-g", "-shared", "-fPIC", "-I", &headers, "-o"]);
    command.arg(into.join("extends.so")).arg(script("extends.c"));
    let run = run(command, b"");
    assert!(run.status.success(), "{}", run.stderr);
    true
}

/// Returns the function and the number of calls of each path of the call graph, by their depths.
fn paths(trace: &str) -> Vec<(u64, String, u64)> {
    let run = calltap_run(&["graph", "--format", "json", "-i", trace]);
    let nodes = rows_of(&run.stdout);
    let node = |node: &Value| {
        let function = node["function"].as_str().unwrap_or_default().to_owned();
        (node["depth"].as_u64().unwrap_or_default(), function, node["calls"].as_u64().unwrap_or_default())
    };
    nodes.iter().map(node).collect()
}

#[test]
fn an_extension_module_is_seen_on_both_sides() {
    let Some((interpreters, directory)) = interpreters() else { return };
    let trace = directory.path().join("t.calltap").display().to_string();
    let place = directory.path().display().to_string();
    for Interpreter { minor, path } in interpreters {
        if !build(&path, directory.path()) {
            continue;
        }
        let python = path.display().to_string();
        let command = [&python, &script("extended.py"), &place];
        let mut alone = Command::new(&python);
        alone.args(&command[1..]);
        let alone = run(alone, b"");
        let flags =
            ["record", "-q", "-o", &trace, "--python", "__main__.*", "-F", "extends_*", "--later", "--"];
        let traced = calltap_run(&[&flags[..], &command.map(String::as_str)].concat());
        assert!(alone.status.success(), "3.{minor}: {}", alone.stderr);
        assert_eq!((traced.status, &traced.stdout), (alone.status, &alone.stdout), "{}", traced.stderr);
        let calls = calls(&trace);
        let expected = [
            ("extends_add", 110),
            ("extends_inner", 110),
            ("extends_each", 2),
            ("__main__.square", 10),
            ("__main__.fails", 6),
        ];
        for (function, count) in expected {
            assert_eq!(calls.get(function), Some(&count), "3.{minor} {function}: {calls:?}");
        }
        let paths = paths(&trace);
        let below = |outer: &str, inner: &str| {
            paths.windows(2).any(|pair| {
                let (one, two) = (&pair[0], &pair[1]);
                one.1 == outer && two.1 == inner && two.0 == one.0 + 1
            })
        };
        for (outer, inner) in [("__main__.square", "extends_add"), ("extends_add", "extends_inner")] {
            assert!(below(outer, inner), "3.{minor} {outer} {inner}: {paths:?}");
        }
        assert!(
            below("extends_each", "__main__.square") || below("extends_each", "__main__.fails"),
            "3.{minor}: {paths:?}"
        );
    }
}
