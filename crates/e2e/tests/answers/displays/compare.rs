//! The page of `calltap view --base`: the differences between two recordings.

use super::view::{View, browser, drive};
use calltap_e2e::{GCC, Program, Run, calltap_run, compile, one_line, run_timeout};
use serde_json::{Value, json};
use std::time::Duration;

/// Records a version of the program. Returns it with the path of the trace.
fn recorded(flags: &[&str]) -> (Program, String) {
    let program = compile(GCC, &["changed.c"], flags);
    let path = program.directory().join("trace.data").display().to_string();
    let run = calltap_run(&["record", "-q", "-o", &path, "--", &program.path.display().to_string()]);
    assert!(run.status.success(), "{}", run.stderr);
    (program, path)
}

/// Returns the numbers of a function's boxes: calls, and weight, of the base and of the trace.
fn numbers(view: &View, flame: &Value, function: &str) -> ([u64; 2], [u64; 2]) {
    let functions = view.get("api/functions");
    let name = |f: &Value| {
        let row = functions.as_array().into_iter().flatten().find(|row| row[0] == *f);
        row.map_or(Value::Null, |row| row[1].clone())
    };
    let is_it = |one: &&Value| one[9] == function && (one[1].is_null() || name(&one[1]) == function);
    let boxes = flame["boxes"].as_array().expect("boxes");
    boxes.iter().filter(is_it).fold(([0; 2], [0; 2]), |([old, new], [was, is]), one| {
        let number = |value: &Value| value.as_u64().expect("a number");
        ([old + number(&one[8][0]), new + number(&one[5])], [was + number(&one[8][1]), is + number(&one[6])])
    })
}

#[test]
fn a_flame_graph_of_differences_has_the_calls_of_both_traces() {
    let ((_old, base), (new, path)) = (recorded(&[]), recorded(&["-DCHANGED"]));
    let view = View::of_files(&[&path, "--base", &base]);
    assert_eq!(view.get("api/base")["title"], json!(base));
    let of_own = view.get("api/compare?by=wall&base=0&root=0");
    let of_base = view.get("api/compare?by=wall&base=1&root=0");
    for (function, calls, of) in [
        ("parse", [40, 40], &of_own),
        ("parse", [40, 40], &of_base),
        ("serve", [40, 40], &of_own),
        ("new_step", [0, 40], &of_own),
        ("new_step", [0, 0], &of_base),
        ("old_step", [0, 0], &of_own),
        ("old_step", [40, 0], &of_base),
    ] {
        assert_eq!(numbers(&view, of, function).0, calls, "{function}: {of}");
    }
    let (_, [was, is]) = numbers(&view, &of_own, "parse");
    assert!(is > 2 * was && was > 0, "parse took {was} ns, and now {is} ns");
    // The weights of both sides are those of the traces' own flame graphs.
    let own = view.get("api/flame?by=wall&root=0");
    assert_eq!(of_own["boxes"][0][6], own["boxes"][0][6]);
    let alone = &of_own["alone"];
    assert_eq!(
        json!([numbers(&view, &of_base, "old_step").1[0], numbers(&view, &of_own, "new_step").1[1]]),
        *alone
    );
    // Around one function, and above a box.
    let functions = view.get("api/functions");
    let parse =
        functions.as_array().into_iter().flatten().find(|row| row[1] == "parse").expect("parse")[0].clone();
    let around = view.get(&format!("api/compare?by=wall&base=0&f={parse}&callers=0"));
    assert_eq!(numbers(&view, &around, "work").0, [40, 80], "{around}");
    let serve =
        of_own["boxes"].as_array().into_iter().flatten().find(|one| one[9] == "serve").expect("serve")[0]
            .clone();
    let above = view.get(&format!("api/compare?by=wall&base=0&root={serve}"));
    assert_eq!((&above["boxes"][0][9], &above["below"][1][1]), (&json!("serve"), &json!("main")), "{above}");
    assert_eq!(view.ask("GET", "api/compare?by=wall&base=0&f=4000000000").0, 404);
    assert_eq!(view.ask("GET", "api/compare?by=wall&base=0").0, 400);
    let page = new.directory().join("page.html").display().to_string();
    assert!(calltap_run(&["view", &path, "--base", &base, "--save", &page]).status.success());
    if let Some(browser) = browser() {
        for address in [view.address.clone(), format!("file://{page}")] {
            let mut command = drive(&address, browser, "compare");
            command.env("TMPDIR", new.directory());
            let Run { status, stdout, stderr } = run_timeout(command, b"", Duration::from_secs(200));
            assert!(status.success(), "{address}: {stdout}{stderr}");
        }
    }
    assert!(view.end().success());
    one_line(&calltap_run(&["view", &path, "--base", "/nonexistent.data"]), &["/nonexistent.data"]);
    one_line(&calltap_run(&["view", "-p", "1", "--base", &base]), &["--base", "calltap record -p 1"]);
    let without = View::of_file(&path);
    assert_eq!((without.get("api/base"), without.ask("GET", "api/compare?root=0").0), (Value::Null, 404));
    assert!(without.end().success());
}
