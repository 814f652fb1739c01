//! Calls into libraries, by the linker's stubs: as many as the program makes, within the functions
//! that make them.

use calltap_e2e::{
    BARE, BUILDS, Build, CLANG, Expect, GCC, Resident, attach_and_look, calltap_run, changed_text, check,
    compile, have, installed, one_line, record,
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
fn a_program_without_stubs_is_refused_in_a_line() {
    for flags in [&["-fno-plt", "-Wl,-z,now"][..], &["-static"]] {
        let program = compile(GCC, &["paced.c"], flags);
        let path = program.path.to_string_lossy().into_owned();
        let run = calltap_run(&["record", "--libcalls", "-o", "/dev/null", "--", &path]);
        one_line(&run, &["--libcalls", "-fno-plt", "LIBRARY:GLOB"]);
    }
}

#[test]
fn library_calls_without_plt_are_reported_as_unrecorded() {
    let program = compile(GCC, &["noplt.c"], &["-fno-builtin"]);
    let path = program.path.to_string_lossy().into_owned();
    let trace = program.directory().join("x.data").to_string_lossy().into_owned();
    let run = calltap_run(&["record", "--libcalls", "-o", &trace, "--", &path]);
    let said = "--libcalls: calls of labs, strlen through pointers";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    assert!(calltap_run(&["info", &trace]).stdout.contains(said));
    let report = calltap_run(&["report", "--json", &trace]).stdout;
    assert!(report.contains("\"puts\"") && !report.contains("\"labs\""), "{report}");
}

#[test]
fn library_calls_of_running_program_are_restored() {
    let program = compile(GCC, &["paced.c"], &[]);
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
