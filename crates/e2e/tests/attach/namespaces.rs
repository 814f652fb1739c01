//! Linker namespaces: dlmopen, and audit libraries.

use calltap_e2e::*;

/// Compiles a program, and the library that it opens in a namespace of its own.
fn program(flags: &[&str]) -> (Program, String) {
    let program = compile(GCC, &["namespaces.c"], flags);
    let library = program.add(GCC, &["namespaces.c"], "libapart.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    (program, library.to_string_lossy().into_owned())
}

#[test]
fn libraries_opened_in_namespaces_of_their_own_are_recorded_constructors_included() {
    let (program, library) = program(&[]);
    check(&program, &diagonal(0), &Expect { arguments: &[&library, "50"], ..Expect::default() });
}

#[test]
fn libraries_of_namespaces_are_attached_and_closed() {
    let (program, library) = program(&[]);
    let mut resident = Resident::start(&program, &[&library, "50", "stay"]);
    let run = resident.attach(&["--duration", "50ms"]);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    // From here on, 49 libraries are opened, called into and closed during the recording.
    let beside = resident.attach_beside(&[]);
    resident.await_recorder();
    assert!(resident.runs());
    let trace = resident.trace();
    let (status, output, errors) = resident.end();
    assert!(status.success(), "{output}{errors}");
    assert!(beside.wait_with_output().is_ok_and(|output| output.status.success()));
    let report = calltap_run(&["report", "-i", &trace.to_string_lossy(), "--format", "json"]);
    let rows = rows_of(&report.stdout);
    let calls = |name: &str| {
        rows.iter().find(|row| row["function"] == name).map_or(0, |row| row["calls"].as_u64().unwrap_or(0))
    };
    assert_eq!(["own", "outer", "inner", "starts"].map(calls), [4900, 4900, 49000, 49], "{output}");
}

#[test]
fn audited_program_runs_and_is_recorded() {
    let audit = compile(GCC, &["audit.c"], &["-shared", "-fPIC"]);
    let flag = format!("-Wl,--audit={}", audit.path.display());
    let (program, library) = program(&[&flag]);
    check(&program, &diagonal(1), &Expect { arguments: &[&library, "10"], ..Expect::default() });
}
