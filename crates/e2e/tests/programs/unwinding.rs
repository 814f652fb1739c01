//! Exceptions, panics, longjmp, deep recursion and tail calls have the same targets as untraced.

use calltap_e2e::{
    BUILDS, Expect, GCC, calltap_run, check, clocks, compile, compile_rust, diagonal, found_or_skipped, full,
    matrix, output_of, plain, record,
};

#[test]
fn exceptions_pass_through_traced_frames() {
    for (turn, build) in matrix() {
        let program = compile(build, &["throws.cpp"], &[]);
        check(&program, &diagonal(turn), &Expect::default());
    }
}

#[test]
fn exceptions_pass_with_a_static_unwinder() {
    for build in [&BUILDS[0], &BUILDS[1], &BUILDS[4]] {
        let program = compile(build, &["throws.cpp"], &["-static-libgcc", "-static-libstdc++"]);
        check(&program, &clocks(), &Expect::default());
    }
}

#[test]
fn an_exception_in_noexcept_terminates_the_program() {
    for (_, build) in matrix() {
        let program = compile(build, &["throws.cpp"], &[]);
        let expect = Expect { arguments: &["noexcept"], uncounted: true, ..Expect::default() };
        check(&program, &plain(), &expect);
    }
}

#[test]
fn rust_panics_are_caught_and_backtraces_complete() {
    for optimise in
        [&["-Copt-level=2"][..], &["-Copt-level=0"], &["-Copt-level=3", "-Cforce-frame-pointers=yes"]]
    {
        check(&compile_rust("panics.rs", optimise), &full(), &Expect::default());
    }
}

#[test]
fn traced_frames_keep_their_canonical_addresses() {
    for (turn, build) in matrix() {
        let program = compile(build, &["positions.c"], &[]);
        let expect = Expect { uncounted: true, ..Expect::default() };
        let recording = check(&program, &diagonal(turn), &expect);
        assert_eq!(recording.run.stdout, "frames, 0 odd\n", "{}", recording.what);
    }
}

/// Whether libunwind is installed, for programs that link it.
fn has_libunwind() -> bool {
    let found = output_of("gcc", &["-print-file-name=libunwind.so"]).is_some_and(|path| path.contains('/'));
    found_or_skipped(found, "no libunwind: the tests of programs that walk their stacks or throw by it")
}

#[test]
fn libunwind_walks_through_traced_frames() {
    if !has_libunwind() {
        return;
    }
    for (turn, build) in matrix() {
        let program = compile(build, &["walks.c"], &["-lunwind"]);
        for flags in diagonal(turn) {
            let recording = record(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
            let names = recording.run.stdout.lines().filter_map(|line| line.strip_prefix("frame: "));
            let own = names.filter(|name| name.starts_with("walk_") || *name == "main");
            assert!(own.eq(["walk_c", "walk_b", "walk_a", "main"]), "{}", recording.run.stdout);
        }
    }
}

#[test]
fn exceptions_of_libunwind_pass_through_traced_frames() {
    if !has_libunwind() {
        return;
    }
    for build in [&BUILDS[0], &BUILDS[1], GCC] {
        let program = compile(build, &["throws.cpp"], &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
        // Without returns, calls that exceptions leave look like callers.
        let run = record(&program, &[], &Expect::default());
        let alone = calltap_e2e::run(std::process::Command::new(&program.path), b"");
        assert_eq!((run.run.status, &run.run.stdout), (alone.status, &alone.stdout), "{}", run.run.stderr);
    }
}

#[test]
fn longjmp_and_deep_recursion() {
    for (turn, build) in matrix() {
        let program = compile(build, &["jumps.c"], &[]);
        check(&program, &if turn == 0 { full() } else { diagonal(turn) }, &Expect::default());
    }
}

#[test]
fn tail_calls_of_every_kind() {
    for (turn, build) in matrix() {
        check(&compile(build, &["tail.c"], &[]), &diagonal(turn), &Expect::default());
    }
    check(&compile(GCC, &["tail.c"], &[]), &full(), &Expect::default());
}

// A handler may interrupt a hook between reserving a slot and writing it: that event is lost, and
// counted.
#[test]
fn siglongjmp_out_of_a_handler_at_20_khz() {
    for (turn, build) in matrix() {
        let program = compile(build, &["jumps.c"], &[]);
        let expect = Expect { arguments: &["signals"], may_lose: true, ..Expect::default() };
        check(&program, &diagonal(turn), &expect);
    }
}

#[test]
fn replay_of_a_long_chain_of_tail_calls_stays_small() {
    let program = compile(GCC, &["tail.c"], &[]);
    let recording = check(&program, &plain(), &Expect::default());
    let trace = recording.trace.to_string_lossy().into_owned();
    let text = program.directory().join("replay").to_string_lossy().into_owned();
    assert!(calltap_run(&["replay", "-i", &trace, "-o", &text]).status.success());
    let size = std::fs::metadata(&text).expect("the text").len();
    assert!(size < 400_000_000, "{size} bytes for a million calls");
}
