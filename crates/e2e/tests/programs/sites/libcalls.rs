//! Calls into libraries, by the linker's stubs and without: as many as the program makes, within
//! the functions that make them.

use calltap_e2e::{
    BARE, BUILDS, Build, CLANG, Expect, GCC, Resident, attach_and_look, calltap_run, changed_text, check,
    compile, have, installed, one_line, record, rows_of,
};

/// Flags that keep calls of the library from being inlined, and link its mathematical functions.
const FLAGS: &[&str] = &["-fno-builtin", "-lm", "-lpthread"];
const WORDS: Expect<'_> =
    Expect { arguments: &["a", "few words"], stdin: b"", may_lose: false, uncounted: false, unnamed: false };

#[test]
fn calls_into_libraries_are_those_that_the_program_makes() {
    for build in installed(BUILDS).chain(installed(BARE)) {
        let unnamed = build.flags.contains(&"-s");
        // The names of the program's own functions are stripped, and with them the names of its
        // counts.
        let program = compile(build, &["libcalls.c"], FLAGS);
        check(&program, &[vec!["--libcalls"]], &Expect { unnamed, ..WORDS });
    }
}

#[test]
fn stubs_of_every_kind_are_found() {
    let linkers: [(&str, &Build, &[&str]); 6] = [
        ("ld", GCC, &["-Wl,-z,lazy"]),
        ("ld", GCC, &["-Wl,-z,now"]),
        ("ld", GCC, &["-Wl,-z,ibtplt", "-fcf-protection"]),
        ("ld.lld-16", CLANG, &["-fuse-ld=lld"]),
        ("mold", GCC, &["-fuse-ld=mold"]),
        ("ld", GCC, &["-no-pie", "-fno-pie", "-Wl,-z,lazy"]),
    ];
    for (linker, build, flags) in linkers.into_iter().filter(|(linker, ..)| have(linker)) {
        let program = compile(build, &["libcalls.c"], &[FLAGS, flags].concat());
        let recording = check(&program, &[vec!["--libcalls"]], &WORDS);
        assert!(!recording.run.stderr.contains("panicked"), "{linker} {flags:?}");
    }
}

#[test]
fn library_calls_are_nested_in_callers() {
    let program = compile(GCC, &["libcalls.c"], FLAGS);
    let run = record(&program, &["--libcalls", "-N", "free,malloc"], &WORDS);
    let trace = run.trace.to_string_lossy().into_owned();
    let show = |words: &[&str]| calltap_run(&[words, &[&trace]].concat()).stdout;
    // A tail call of a stub ends with its function.
    let tree = show(&["replay", "--graph", "upper", "--no-sched", "-n", "8"]);
    assert!(tree.contains("upper() {") && tree.contains("  toupper();"), "{tree}");
    let tree = show(&["graph", "-F", "qsort", "--json"]);
    assert!(tree.contains("\"sorted\"") && tree.contains("\"compare\""), "{tree}");
    let report = show(&["report", "--json"]);
    assert!(
        report.contains("\"function\": \"strlen\"") || report.contains("\"function\":\"strlen\""),
        "{report}"
    );
    assert!(!report.contains("\"malloc\"") && !report.contains("\"free\""), "{report}");
    assert!(show(&["report", "--linker-names"]).contains("strlen@plt"));
    // Values are read at these calls as at those of other functions.
    let run = record(&program, &["--libcalls", "-A", "toupper@arg1/d32", "-R", "toupper"], &WORDS);
    let trace = run.trace.to_string_lossy().into_owned();
    let tree = calltap_run(&["replay", "--graph", "toupper", "--no-sched", "-n", "6", &trace]).stdout;
    assert!(tree.contains("toupper(97)") || tree.contains("toupper(arg1=97)"), "{tree}");
}

#[test]
fn a_program_without_library_calls_is_refused_in_a_line() {
    let program = compile(GCC, &["paced.c"], &["-static"]);
    let path = program.path.to_string_lossy().into_owned();
    let run = calltap_run(&["record", "--libcalls", "-o", "/dev/null", "--", &path]);
    one_line(&run, &["--libcalls", "calls no functions of libraries", "linked statically"]);
}

/// Returns how often the functions that a word names were called.
fn calls_of(word: &str, trace: &str) -> u64 {
    let report = calltap_run(&["report", "--json", "-F", word, trace]).stdout;
    rows_of(&report).iter().filter_map(|row| row["calls"].as_u64()).sum()
}

#[test]
fn library_calls_without_plt_are_those_that_the_program_makes() {
    let builds: [(&Build, &[&str]); 4] = [
        (GCC, &["-fno-plt"]),
        (GCC, &["-fno-plt", "-O3", "-no-pie"]),
        (GCC, &["-fno-plt", "-fpatchable-function-entry=5"]),
        (CLANG, &["-fno-plt", "-Os"]),
    ];
    for (build, flags) in builds.into_iter().filter(|(build, _)| have(build.compilers[0])) {
        let program = compile(build, &["libcalls.c"], &[FLAGS, flags].concat());
        // The library's own calls of strlen and malloc, as of printf, are not the program's.
        let run = record(&program, &["--libcalls"], &Expect { uncounted: true, ..WORDS });
        let trace = run.trace.to_string_lossy().into_owned();
        let counts = run.run.stdout.lines().filter_map(|line| line.strip_prefix("calls ")?.split_once(' '));
        let counts: Vec<(&str, u64)> =
            counts.map(|(name, calls)| (name, calls.parse().expect("a number"))).collect();
        assert!(counts.len() > 8, "{}", run.run.stdout);
        for (name, calls) in counts {
            assert_eq!(calls_of(name, &trace), calls, "{name}, {flags:?}");
        }
    }
}

#[test]
fn library_calls_of_executed_program_are_traced() {
    let program = compile(GCC, &["libcalls.c"], &[FLAGS, &["-fno-plt"]].concat());
    let run = record(&program, &["--libcalls", "--follow", "--", "sh", "-c", "exec \"$1\" word"], &WORDS);
    let trace = run.trace.to_string_lossy().into_owned();
    assert!(run.run.stdout.contains("calls toupper 2000\n"), "{}", run.run.stdout);
    assert_eq!(calls_of("toupper", &trace), 2000, "{}", run.run.stderr);
}

#[test]
fn library_call_that_ends_a_callback_belongs_to_the_program() {
    let program = compile(GCC, &["ends_by_call.c"], &["-fno-plt", "-fno-builtin"]);
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("x.data").to_string_lossy().into_owned();
    let record = |words: &[&str]| {
        calltap_run(&[&["record", "--libcalls", "-o", &trace], words, &["--", &path]].concat())
    };
    let run = record(&[]);
    let said = run.stdout.trim().strip_prefix("strcmp ").and_then(|calls| calls.parse().ok());
    assert_eq!(Some(calls_of("strcmp", &trace)), said, "{}", run.stderr);
    assert!(!run.stderr.contains("qsort"), "{}", run.stderr);
    // Without returns, these calls look like the library's own.
    let run = record(&["--tracer", "function"]);
    assert!(run.stderr.contains("are not recorded: --tracer function_graph"), "{}", run.stderr);
    assert_eq!(calls_of("strcmp", &trace), 0);
}

#[test]
fn library_calls_with_and_without_plt_are_counted_together() {
    let program = compile(GCC, &["noplt.c"], &["-fno-builtin"]);
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("x.data").to_string_lossy().into_owned();
    let run = calltap_run(&["record", "--libcalls", "-o", &trace, "--", &path]);
    assert!(run.status.code() == Some(0) && !run.stderr.contains("not recorded"), "{}", run.stderr);
    for (name, calls) in [("puts", 1), ("labs", 1), ("strlen", 1)] {
        assert_eq!(calls_of(name, &trace), calls, "{name}");
    }
}

#[test]
fn library_calls_of_running_program_are_restored() {
    for flags in [&[][..], &["-fno-plt"]] {
        check_restored(flags);
    }
}

/// Attaches to a program's calls into libraries, and checks that its text is as before.
fn check_restored(flags: &[&str]) {
    let program = compile(GCC, &["paced.c"], flags);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid.to_string();
    let trace = program.directory().join("x.data").to_string_lossy().into_owned();
    for _ in 0..5 {
        let words = ["record", "--libcalls", "-p", &pid, "--duration", "0.3", "-o", &trace];
        let run = calltap_run(&words);
        assert!(run.status.success(), "{}", run.stderr);
        assert_eq!(changed_text(resident.pid), [""; 0], "{}", run.stderr);
        let report = calltap_run(&["report", &trace, "--json"]).stdout;
        assert!(report.contains("\"nanosleep\"") && report.contains("\"poll\""), "{report}");
    }
    attach_and_look(&mut resident, 2, Default::default());
    assert!(resident.end().0.success());
}
