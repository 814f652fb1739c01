//! C and C++ programs that trace themselves, with `calltap.h` and the static library.

use calltap_e2e::{BUILDS, Build, Expect, GCC, Program, compile, installed, record, run};
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of the static library that was built with this test.
fn library() -> String {
    // This use makes the test depend on the crate, so that cargo builds the library.
    let _ = calltap_c::calltap_recursions as *const ();
    let own = std::env::current_exe().expect("the path of this test");
    let directory = own.parent().expect("its directory");
    let in_directory = |directory: &std::path::Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).expect("readable");
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_library = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libcalltap_c") && name.ends_with(".a")
        };
        paths.filter(is_library).collect()
    };
    let newest = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    let path =
        in_directory(directory).into_iter().max_by_key(newest).expect("libcalltap_c.a, built with this test");
    path.display().to_string()
}

fn compile_with_library(build: &'static Build, source: &str) -> Program {
    let include = format!("-I{}/../calltap-c/include", env!("CARGO_MANIFEST_DIR"));
    let library = library();
    compile(build, &[source], &[&include, &library, "-rdynamic"])
}

fn check_program(program: &Program, arguments: &[&str], expected: &str) {
    let mut command = Command::new(&program.path);
    command.args(arguments);
    let run = run(command, b"");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (expected, ""), "{}", program.name);
    assert!(run.status.success(), "{}: {}", program.name, run.status);
}

#[test]
fn a_c_program_traces_itself() {
    for build in installed(BUILDS) {
        let program = compile_with_library(build, "self_traced.c");
        let shared = program.add(build, &["self_traced_library.c"], "later.so", &["-shared", "-fPIC"]);
        check_program(&program, &[&shared.display().to_string()], "0 faults\n");
    }
}

#[test]
fn returns_are_seen_and_results_left_alone() {
    for build in installed(BUILDS) {
        check_program(&compile_with_library(build, "self_returns.cpp"), &[], "0 faults\n");
    }
}

/// Builds an example of the documents as they say, and runs it.
fn check_example(name: &str, expected: &str) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let place = tempfile::tempdir().expect("a directory");
    let program = place.path().join("example");
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    let mut build = Command::new(compiler);
    build.current_dir(directory).args(["-O2", "-fpatchable-function-entry=5", "-Icrates/calltap-c/include"]);
    build.arg(format!("examples/library/{name}")).arg(library());
    let built = run(
        {
            build.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
            build
        },
        b"",
    );
    assert!(built.status.success(), "{name}: {}", built.stderr);
    let ran = run(Command::new(&program), b"");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (expected, ""), "{name}");
}

#[test]
fn examples_in_c_and_cpp_measure_their_functions() {
    let parse = "parse: 2 calls, last result 1, longest less than 10 ms\n";
    check_example("durations.c", &format!("handle: 2 calls, last result 2, longest at least 10 ms\n{parse}"));
    let before =
        "4 entries, 4 returns, last Store::put_all(std::vector<int, std::allocator<int> > const&) = 3\n";
    check_example("durations.cpp", &format!("{before}negative: 7 entries, 5 returns\n"));
}

#[test]
fn a_cpp_program_traces_itself() {
    for build in installed(BUILDS) {
        let program = compile_with_library(build, "self_traced.cpp");
        let area = "shapes::Shape::area(int) const\n";
        let biggest = "int shapes::biggest<int>(std::vector<int, std::allocator<int> > const&)\n";
        let biggest = biggest.trim_start_matches("int ");
        check_program(&program, &[], &format!("{area}{biggest}{area}24\n"));
    }
}

#[test]
fn recording_a_self_tracing_program_is_refused() {
    let program = compile_with_library(GCC, "self_traced.c");
    let expect = Expect { uncounted: true, ..Expect::default() };
    let recording = record(&program, &[], &expect);
    assert_eq!(recording.run.status.code(), Some(7), "{}\n{}", recording.run.stdout, recording.run.stderr);
    assert!(recording.run.stdout.contains("refused: sum: expected"), "{}", recording.run.stdout);
    let rows = recording.rows();
    assert!(rows.iter().any(|row| row["function"] == "twice" && row["calls"] == 1), "{rows:?}");
}

#[test]
fn callbacks_go_on_in_a_thread_that_has_left_one_by_siglongjmp() {
    let program = compile_with_library(GCC, "left_callback.c");
    let expected = "registered 0, of the last 1000 calls 1000, taken off 0\nbehind that 0\n";
    for arguments in [&[][..], &["own stack"]] {
        check_program(&program, arguments, expected);
    }
}
