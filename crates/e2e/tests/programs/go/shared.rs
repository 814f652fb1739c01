//! Libraries written in Go (`-buildmode=c-shared`), loaded by a program in C.

use calltap_e2e::*;
use std::process::Command;

/// Calls of the library's function that does the work, for each call of the library.
const WORKS: u64 = 4;
/// Calls of the innermost function, for each call of the library.
const LEAVES: u64 = 4 * 1000;

fn calls(rows: &serde_json::Value, function: &str) -> u64 {
    let mut rows = rows.as_array().expect("rows").iter();
    rows.find(|row| row["function"] == function).map_or(0, |row| row["calls"].as_u64().expect("a number"))
}

#[test]
fn calls_of_a_library_in_go_are_counted_exactly_and_its_host_goes_on() {
    for go in Go::newer() {
        let library = go.compile("crunch.go", &["-buildmode=c-shared"]);
        let host = compile(GCC, &["crunch.c"], &["-ldl"]);
        let (path, so) = (host.path.display().to_string(), library.path.display().to_string());
        let mut command = Command::new(&path);
        command.arg(&so);
        let alone = run(command, b"");
        let trace = host.directory().join("t.data").display().to_string();
        let record = ["record", "-q", "-o", &trace, "-F", "main.crunch*", "--later", "--", &path, &so];
        let traced = calltap_run(&record);
        assert_eq!((traced.status, &traced.stdout), (alone.status, &alone.stdout), "{}", traced.stderr);
        let mut command = Command::new(&path);
        command.arg(&so).arg("stay");
        let mut resident = Resident::spawn(command, host.directory().to_owned());
        resident.wait_for("ready");
        for tracer in ["function", "function_graph"] {
            let calltap = resident.attach_beside(&["--tracer", tracer, "-F", "main.crunch*"]);
            resident.await_recorder();
            resident.tell();
            resident.wait_for("done");
            assert!(interrupt(calltap).success());
            let rows = resident.view("report");
            let counts = ["main.crunchWork", "main.crunchLeaf"].map(|function| calls(&rows, function));
            assert_eq!(counts, [WORKS, LEAVES], "{} {tracer}", library.name);
            assert_eq!(changed_text(resident.pid), [""; 0]);
        }
        let (status, _, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{}: {status} {errors}", library.name);
    }
}
