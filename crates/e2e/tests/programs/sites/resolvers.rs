//! Functions that the dynamic linker selects at run time (IFUNC): the selected implementation is
//! recorded like any other function.

use calltap_e2e::*;

/// Compiles a program and its library with a flag of the linker.
fn program(flag: &str) -> Program {
    let program = compile(GCC, &["resolvers.c"], &["-DALONE"]);
    let library =
        program.add(GCC, &["resolvers.c"], "libchosen.so", &["-DLIBRARY", "-shared", "-fPIC", flag]);
    let rpath = format!("-Wl,-rpath,{}", program.directory().display());
    program.add(GCC, &["resolvers.c"], "resolvers", &[&library.to_string_lossy(), &rpath, flag]);
    program
}

/// Returns the calls of the library's resolvers, by name.
fn resolved(recording: &Recording) -> Vec<(String, i64)> {
    let rows = recording.rows();
    let named =
        |row: &serde_json::Value| Some((row["function"].as_str()?.to_owned(), row["calls"].as_i64()?));
    let mut calls: Vec<_> = rows.iter().filter_map(named).collect();
    calls.retain(|(name, _)| name.contains("pick"));
    calls.sort();
    calls
}

#[test]
fn lazily_resolved_functions_and_resolvers_are_recorded() {
    let program = program("-Wl,-z,lazy");
    let recording = check(&program, &diagonal(0), &Expect::default());
    // Each resolver runs for the program's calls and for the library's own.
    let twice = |name: &str| (name.to_owned(), 2);
    assert_eq!(resolved(&recording), [twice("library_pick_fast"), twice("library_pick_slow")]);
}

/// Implementations are selected before any initialiser runs, the agent's included.
#[test]
fn eagerly_resolved_functions_are_recorded() {
    let program = program("-Wl,-z,now");
    let recording = check(&program, &diagonal(1), &Expect::default());
    assert_eq!(resolved(&recording), []);
}

#[test]
fn static_programs_choose_too() {
    // musl has no such functions.
    for build in PLACED.iter().filter(|build| build.compilers == GCC.compilers) {
        check(&compile(build, &["resolvers.c"], &["-DALONE"]), &diagonal(0), &Expect::default());
    }
}

// The symbol's name means the selected function, not the resolver.
#[test]
fn ifunc_symbol_selects_resolved_function() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["resolvers.c"], &["-DALONE"]);
        let recording = record(&program, &["-F", "own_first"], &Expect::default());
        assert!(recording.run.status.success(), "{}", recording.run.stderr);
        let rows = recording.rows();
        assert!(rows.len() == 1 && rows[0]["function"] == "own_fast" && rows[0]["calls"] == 2000, "{rows:?}");
    }
}

// The program's own calls of the function go through the C library's selection.
#[test]
fn the_c_library_s_choices_are_reached_by_their_common_name() {
    let run = calltap_run(&["sites", "/lib/x86_64-linux-gnu/libc.so.6", "--format", "json"]);
    assert!(run.status.success(), "{}", run.stderr);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).expect("rows");
    let named = |row: &&serde_json::Value| {
        row["aliases"].as_array().is_some_and(|names| names.iter().any(|name| name == "strlen"))
    };
    let (reached, resolvers): (Vec<_>, Vec<_>) = (
        rows.iter().filter(named).collect(),
        rows.iter().filter(|row| row["function"] == "strlen.resolver").collect(),
    );
    assert!(reached.len() > 1 && reached.iter().any(|row| row["traceable"] == true), "{reached:?}");
    let [resolver] = resolvers[..] else { panic!("{resolvers:?}") };
    assert_eq!(resolver["choices"].as_array().map(Vec::len), Some(reached.len()));
}

// The implementations have no room for a jump at their beginning, as other functions jump to their
// second instruction.
#[test]
fn memcpy_is_traced() {
    let program = Program::existing("copies");
    let file = |name: &str| program.directory().join(name).display().to_string();
    let source = "#include <stdio.h>\n#include <string.h>\nstatic char from[4096], to[4096];\n\
                  int main(int count, char **words) {\n\
                      void *(*volatile copy)(void *, const void *, size_t) = memcpy;\n\
                      unsigned sum = 0;\n\
                      for (int i = 0; i < 4096; i++) from[i] = i * 7;\n\
                      for (int i = 0; i < 4000; i++) { copy(to + i % 64, from + i % 96, i); sum = sum * 31 + to[i / 2]; }\n\
                      printf(\"%u\\n\", sum); return count - 1;\n}\n";
    std::fs::write(file("copies.c"), source).expect("written");
    let status =
        std::process::Command::new("gcc").args(["-O1", "-o", &file("copies"), &file("copies.c")]).status();
    assert!(status.expect("gcc").success());
    let copies = Program::existing(&file("copies"));
    let alone = run(std::process::Command::new(&copies.path), b"");
    let recording = record(&copies, &["-F", "memcpy", "--tracer", "function_graph"], &Expect::default());
    assert_eq!((&recording.run.stdout, recording.run.status), (&alone.stdout, alone.status));
    // The dynamic linker has a memcpy of its own.
    let rows = recording.rows();
    let calls: i64 =
        rows.iter().filter(|row| row["module"] == "libc.so.6").filter_map(|row| row["calls"].as_i64()).sum();
    if calls == 0 {
        return skipped("this processor's memcpy has no padding in front");
    }
    assert!(calls >= 4000, "{rows:?}");
}
