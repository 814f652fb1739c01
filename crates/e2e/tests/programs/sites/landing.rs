//! Programs whose indirect jumps and outlined parts look like exits and functions: with all
//! functions traced, their results are the same.

use calltap_e2e::*;
use std::fs;
use std::process::Command;

const CLANG: [&str; 2] = ["clang-16", "clang++-16"];
const GNU: [&str; 2] = ["gcc", "g++"];

const MORE: &[Build] = &[
    Build { name: "bare -O1", compilers: GNU, flags: &["-O1"] },
    Build { name: "bare clang -O1", compilers: CLANG, flags: &["-O1"] },
    Build { name: "bare clang -Os", compilers: CLANG, flags: &["-Os"] },
    Build { name: "bare clang -O2, no-pie", compilers: CLANG, flags: &["-O2", "-fno-pie", "-no-pie"] },
    Build {
        name: "bare clang, a section for each block",
        compilers: CLANG,
        flags: &["-O2", "-fbasic-block-sections=all", "-DSECTIONS"],
    },
    Build { name: "bare -O3, stripped", compilers: GNU, flags: &["-O3", "-s"] },
];

/// Checks every build, recorded from its start and attached to.
fn every(source: &str, arguments: &[&str]) {
    for build in installed(BARE).chain(installed(MORE)).chain(installed(BARE_PLACED).take(1)) {
        let program = compile(build, &[source], &["-Wno-pedantic"]);
        let unnamed = build.flags.contains(&"-s");
        check(&program, &diagonal(0), &Expect { arguments, unnamed, ..Expect::default() });
        check(&program, &diagonal(1), &Expect { arguments, unnamed, ..Expect::default() });
    }
}

#[test]
fn leaves_that_jump_by_computed_addresses_compute_the_same() {
    every("dispatch.c", &[]);
}

#[test]
fn leaves_with_cold_parts_compute_the_same() {
    every("outlined.c", &["1", "2", "3", "4"]);
}

// With a profile of the taken paths, a compiler moves the other paths away; where symbols are
// stripped, these parts have no names.
#[test]
fn a_program_laid_out_by_its_profile_computes_the_same() {
    const TRAINED: &Build = &Build {
        name: "trained",
        compilers: GNU,
        flags: &["-O2", "-fprofile-generate", "-fprofile-update=single"],
    };
    const USED: &Build = &Build {
        name: "bare, by its profile, stripped",
        compilers: GNU,
        flags: &["-O2", "-Wno-missing-profile", "-s"],
    };
    let trained = compile(TRAINED, &["outlined.c"], &[]);
    let mut training = Command::new(&trained.path);
    training
        .args(["1", "2", "4", "5"])
        .env("GCOV_PREFIX", trained.directory())
        .env("GCOV_PREFIX_STRIP", "99");
    assert!(run(training, b"").status.success());
    let profile = fs::read_dir(trained.directory()).expect("a directory").flatten();
    let profile =
        profile.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "gcda"));
    let flag = format!("-fprofile-use={}", profile.expect("a profile").display());
    let program = compile(USED, &["outlined.c"], &[&flag]);
    let expect = Expect { arguments: &["1", "2", "3"], unnamed: true, ..Expect::default() };
    check(&program, &plain(), &expect);
    // Cold parts do not count as functions, of which there would seem to be more than in the
    // program.
    let sites = calltap_run(&["sites", &program.path.to_string_lossy()]);
    assert!(sites.stdout.lines().next().is_some_and(|head| head.contains("cold part")), "{}", sites.stdout);
}
