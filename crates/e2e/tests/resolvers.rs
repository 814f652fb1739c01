//! Functions that are chosen when the program is linked at run time (IFUNC): what is chosen is recorded like any other.

use calltap_e2e::*;

/// A program and its library, both linked so.
fn program(flag: &str) -> Program {
    let program = compile(GCC, &["resolvers.c"], &["-DALONE"]);
    let library =
        program.add(GCC, &["resolvers.c"], "libchosen.so", &["-DLIBRARY", "-shared", "-fPIC", flag]);
    let rpath = format!("-Wl,-rpath,{}", program.directory().display());
    program.add(GCC, &["resolvers.c"], "resolvers", &[&library.to_string_lossy(), &rpath, flag]);
    program
}

/// Calls of the library's resolvers, by name.
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
fn what_is_chosen_at_the_first_call_is_recorded_and_so_is_the_choice() {
    let program = program("-Wl,-z,lazy");
    let recording = check(&program, &diagonal(0), &Expect::default());
    // For the program's calls, and for the library's own.
    let twice = |name: &str| (name.to_owned(), 2);
    assert_eq!(resolved(&recording), [twice("library_pick_fast"), twice("library_pick_slow")]);
}

/// The choice is made before anybody's initialiser runs, the agent's included.
#[test]
fn what_is_chosen_at_the_start_is_recorded() {
    let program = program("-Wl,-z,now");
    let recording = check(&program, &diagonal(1), &Expect::default());
    assert_eq!(resolved(&recording), []);
}

#[test]
fn static_programs_choose_too() {
    // (musl has no such functions.)
    for build in PLACED.iter().filter(|build| build.compilers == GCC.compilers) {
        check(&compile(build, &["resolvers.c"], &["-DALONE"]), &diagonal(0), &Expect::default());
    }
}
