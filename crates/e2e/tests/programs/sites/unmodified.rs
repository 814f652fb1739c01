//! Programs that were not built for tracing, recorded and attached to.

use calltap_e2e::*;
use std::process::Command;

/// Checks every build of a program, with flags and ways to run it in turn.
fn every(source: &str, ways: &[&[&str]], expect: Expect<'_>) {
    for (turn, build) in installed(BARE).chain(installed(BARE_PLACED)).enumerate() {
        if source.ends_with(".cpp") && build.compilers[1] == "musl-gcc" {
            continue;
        }
        let program = compile(build, &[source], &[]);
        // In a static program the C library is traced as well, and has functions of the same names.
        let unnamed =
            build.flags.contains(&"-s") || build.flags.contains(&"-static") && source == "threads.c";
        let arguments = ways[turn % ways.len()];
        check(&program, &diagonal(turn), &Expect { arguments, unnamed, ..expect });
    }
}

#[test]
fn values_of_every_class_are_passed_and_returned() {
    every("abi.c", &[&[]], Expect::default());
    every("ipa_ra.c", &[&[]], Expect::default());
}

#[test]
fn longjmp_and_tail_calls_go_on_as_untraced() {
    every("jumps.c", &[&[]], Expect::default());
    every("tail.c", &[&[]], Expect::default());
}

#[test]
fn threads_end_in_every_way() {
    every("threads.c", &[&["short"], &["exit"], &["cancel"], &["keys"]], Expect::default());
}

// musl clears a thread's id before the thread's last functions have run.
#[test]
fn calls_are_summed_up_until_a_thread_has_ended() {
    for build in installed(BARE_PLACED) {
        let program = compile(build, &["threads.c"], &[]);
        for arguments in [&["exit"][..], &["short"]] {
            let expect = Expect { arguments, ..Expect::default() };
            let recording = record(&program, &["--tracer", "profile"], &expect);
            assert!(recording.run.status.success(), "{}: {}", program.name, recording.run.stderr);
        }
    }
}

#[test]
fn signals_are_handled_as_untraced() {
    every("signals.c", &[&["plain"], &["nested"]], Expect { may_lose: true, ..Expect::default() });
}

#[test]
fn children_are_traced_as_their_own_processes() {
    every("processes.c", &[&["fork"], &["exec"], &["vfork"]], Expect::default());
}

#[test]
fn exceptions_and_panics_find_their_way() {
    every("throws.cpp", &[&[]], Expect::default());
    for optimise in [&["-Copt-level=0"][..], &["-Copt-level=3"]] {
        check(&compile_rust_as_it_is("panics.rs", optimise), &diagonal(1), &Expect::default());
    }
}

#[test]
fn coroutines_move_between_threads() {
    let expect = Expect { may_lose: true, uncounted: true, ..Expect::default() };
    check(&compile(&BARE[0], &["coroutines.c"], &[]), &plain(), &expect);
}

#[test]
fn attaching_again_and_again_changes_nothing() {
    for build in installed(BARE).step_by(2).chain(installed(BARE_PLACED).step_by(3)) {
        transparent(&again(build, "jumps.c", &[]), &[]);
    }
    for source in ["abi.c", "tail.c", "throws.cpp"] {
        transparent(&again(&BARE[0], source, &[]), &[]);
    }
}

#[test]
fn switching_again_and_again_changes_nothing() {
    for source in ["abi.c", "ipa_ra.c", "tail.c"] {
        transparent_while_switched(&again(&BARE[0], source, &[]), &[]);
    }
}

#[test]
fn functions_that_threads_run_all_the_time_are_traced() {
    let program = compile(&BARE[0], &["resident.c"], &[]);
    let resident = Resident::start(&program, &["busy"]);
    for round in 0..20 {
        let has_work = |resident: &Resident| {
            let rows = resident.view("report");
            rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["function"] == "work"))
        };
        let run = resident.attach_until(&[], has_work);
        assert!(run.status.success(), "round {round}: {}", run.stderr);
    }
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

#[test]
fn threads_that_come_and_go_meet_nothing_strange() {
    for how in ["churn", "busy"] {
        let tolerate = Tolerate { changes: &["Threads"], ..Tolerate::default() };
        goes_on(&compile(&BARE[0], &["resident.c"], &[]), &[how], 6, tolerate);
    }
}

#[test]
fn calls_made_while_attached_are_counted_exactly() {
    [&BARE[0], &BARE[3]].into_iter().for_each(counts_exactly);
}

// Functions of libraries are traced if a filter names them; others stay as they are.
#[test]
fn library_functions_are_traced_if_named_by_a_filter() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["tail.c"], &[]);
        let recording = record(&program, &["-F", "__libc_start_main"], &Expect::default());
        assert!(recording.run.status.success(), "{}", recording.run.stderr);
        let rows = recording.rows();
        let is_it = |row: &serde_json::Value| {
            row["module"] == "libc.so.6" && row["calls"] == 1 && row["function"] == "__libc_start_main"
        };
        assert!(rows.len() == 1 && is_it(&rows[0]), "{}: {rows:?}", program.name);
    }
}

#[test]
fn functions_that_were_built_for_tracing_are_all_that_is_traced_by_default() {
    let program = compile(GCC, &["tail.c"], &[]);
    let recording = check(&program, &plain(), &Expect::default());
    assert!(recording.rows().iter().all(|row| row["module"] == "tail"), "{:?}", recording.rows());
}

#[test]
fn a_program_of_the_system_s_gives_the_same_output_with_everything_traced() {
    let script = "for i in 1 2 3; do echo $((i * 7)); done; f() { local a=$1; echo \"<$a>\"; }; f x; \
                  [[ abc =~ b ]] && echo y; (exit 3); echo $?; trap 'echo bye' EXIT";
    let cases: [(&str, &[&str]); 3] = [
        ("/bin/bash", &["--norc", "-c", script]),
        ("/usr/bin/sed", &["-n", "s/a/b/p", "/etc/passwd"]),
        ("/usr/bin/sort", &["/etc/services"]),
    ];
    for (path, arguments) in cases {
        let expect = Expect { arguments, uncounted: true, ..Expect::default() };
        let program = Program::existing(path);
        let recording = check(&program, &plain(), &expect);
        assert!(recording.rows().len() > 10, "{path}: {:?}", recording.rows());
    }
}

#[test]
fn untraceable_functions_are_listed_with_reasons() {
    let run = calltap_run(&["sites", "/bin/bash"]);
    assert!(run.status.success(), "{}", run.stderr);
    let is_explained =
        |line: &&str| line.starts_with('#') || line.contains(" prologue ") || line.contains("  # ");
    let bad: Vec<&str> = run.stdout.lines().filter(|line| !is_explained(line)).collect();
    assert_eq!(bad, [""; 0]);
    // A program's first instruction has no caller to return to.
    assert!(run.stdout.contains("the program's entry point: not called"), "{}", run.stdout);
    // Cold parts are counted apart: else many functions would seem untraceable.
    let (lines, is_part) = (run.stdout.lines().filter(|line| !line.starts_with('#')), |line: &&str| {
        line.contains("cold part of")
    });
    let (parts, functions): (Vec<&str>, Vec<&str>) = lines.partition(is_part);
    let head = run.stdout.lines().next().unwrap_or_default();
    assert!(head.contains(&format!(": {} functions, ", functions.len())), "{head}");
    assert!(
        parts.is_empty() || head.ends_with(&format!("; and {} cold parts of functions", parts.len())),
        "{head}"
    );
}

#[test]
fn a_controller_that_is_killed_in_the_middle_leaves_a_program_that_runs() {
    if !have("strace") {
        return;
    }
    let program = compile(&BARE[0], &["resident.c"], &[]);
    let mut resident = Resident::start(&program, &["busy"]);
    for (call, last) in [("pwrite64", 40), ("ptrace", 60)] {
        for when in (1..last).step_by(6) {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
            strace.arg(format!("inject={call}:signal=SIGKILL:when={when}")).arg(calltap());
            strace.args(["record", "-q", "--duration", "50ms", "-o", "killed.calltap", "-p"]);
            strace.arg(resident.pid.to_string()).current_dir(program.directory());
            let killed = run(strace, b"");
            assert!(resident.runs(), "{call} {when}");
            if killed.status.success() {
                // The command makes fewer such calls.
                break;
            }
        }
    }
    // The next calltap removes the remains, and restores the program.
    let run = resident.attach(SHORT);
    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(changed_text(resident.pid), [""; 0]);
    assert!(resident.end().0.success());
}

// Stripped names are restored from the debugging file, and from the symbol table that some
// distributions leave in the file.
#[test]
fn stripped_functions_have_the_names_of_their_debugging_file() {
    if !have("objcopy") || !have("xz") {
        return;
    }
    let program = compile(&BARE[0], &["tail.c"], &["-Wl,--build-id"]);
    let of = |name: &str| program.directory().join(name).display().to_string();
    let tool = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        let status = command.args(&words[1..]).current_dir(program.directory()).status().expect("just found");
        assert!(status.success(), "{words:?}");
    };
    let is_named = |path: &str| {
        let run = calltap_run(&["sites", path]);
        assert!(run.status.success(), "{}", run.stderr);
        run.stdout.lines().any(|line| line.contains("  dispatch"))
    };
    tool(&["strip", "-o", "bare", "tail"]);
    assert!(!is_named(&of("bare")), "it still has its names");
    tool(&["objcopy", "--only-keep-debug", "tail", "tail.debug"]);
    tool(&["objcopy", "--add-gnu-debuglink=tail.debug", "bare", "linked"]);
    assert!(is_named(&of("linked")));
    // A function without a name is named after the file that a process maps, the target of a
    // symbolic link.
    std::os::unix::fs::symlink("bare", of("link")).expect("room for a link");
    let listed = calltap_run(&["sites", &of("link")]).stdout;
    assert!(listed.contains("  bare+0x") && !listed.contains("  link+0x"), "{listed}");
    let linked = Program::existing(&of("linked"));
    let recording = record(&linked, &["-F", "dispatch"], &Expect::default());
    assert!(recording.rows().iter().any(|row| row["function"] == "dispatch"), "{}", recording.run.stderr);
    tool(&["xz", "-k", "tail.debug"]);
    tool(&["objcopy", "--add-section", ".gnu_debugdata=tail.debug.xz", "bare", "packed"]);
    assert!(is_named(&of("packed")));
    // Names of another build are not used.
    tool(&["gcc", "-O1", "-Wl,--build-id", "-DOTHER", "-xc", "/dev/null", "-shared", "-o", "tail.debug"]);
    assert!(!is_named(&of("linked")));
}

// A function is found by each of its names, in recording and in views.
#[test]
fn a_recorded_function_is_found_by_any_of_its_names() {
    let program = compile(&BARE[0], &["tail.c"], &[]);
    let recording = record(&program, &["-F", "printf"], &Expect::default());
    let trace = recording.trace.to_string_lossy();
    for name in ["printf", "_IO_printf"] {
        for command in ["report", "graph"] {
            let run = calltap_run(&[command, "-F", name, "-i", &trace]);
            assert!(run.status.success(), "{command} {name}: {}", run.stderr);
            let has_name = |word: &str| run.stdout.split_whitespace().any(|other| other.starts_with(word));
            // The head of a graph has the user's word.
            let is_named = if command == "report" { has_name("printf") } else { has_name(name) };
            assert!(is_named, "{command} {name}: {}", run.stdout);
        }
    }
}

// If no function is left to be traced, the message has the reason; if names are missing, it says
// where they could be.
#[test]
fn inlined_and_unnamed_functions_are_reported() {
    let program = Program::existing("inlined");
    let file = |name: &str| program.directory().join(name).display().to_string();
    let source = "static inline __attribute__((always_inline)) long folded(long a) { return a * 3; }\n\
                  __attribute__((noinline)) long kept(long a) { return folded(a) + 1; }\n\
                  int main(int count, char **words) { return kept(count) == folded(count); }\n";
    std::fs::write(file("inlined.c"), source).expect("written");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-Wl,--build-id=0x1234567890", "-o", &file("inlined"), &file("inlined.c")]);
    assert!(gcc.status().expect("gcc").success());
    let run = calltap_run(&["sites", "--inlined", &file("inlined")]);
    assert!(run.stdout.lines().any(|line| line.ends_with("2  no          folded")), "{}", run.stdout);
    let run = calltap_run(&["record", "-o", "/dev/null", "-F", "folded", "--", &file("inlined")]);
    one_line(&run, &["folded was inlined wherever it is called, in 2 places"]);
    let mut strip = Command::new("strip");
    assert!(strip.args(["-o", &file("bare"), &file("inlined")]).status().expect("strip").success());
    let run = calltap_run(&["sites", &file("bare")]);
    assert!(
        run.stdout.contains("have no names; they would be in /usr/lib/debug/.build-id/12/34567890.debug"),
        "{}",
        run.stdout
    );
    one_line(&calltap_run(&["sites", "--inlined", &file("bare")]), &["no debugging information"]);
}

// Functions are left by returns, by jumps to others, and by longjmp. Code that looks at return
// addresses sees the program's.
#[test]
fn functions_are_left_through_their_own_exits() {
    // At -Os there is no padding, so some of these functions have return stubs.
    let is_meant = |build: &&Build| build.compilers[0] == "gcc" && !build.flags.contains(&"-Os");
    for (turn, build) in installed(BARE).filter(is_meant).enumerate() {
        let program = compile(build, &["exits.c"], &["-Wl,--export-dynamic"]);
        let unnamed = build.flags.contains(&"-s");
        let recording = check(&program, &diagonal(turn), &Expect { unnamed, ..Expect::default() });
        let seen =
            recording.run.stdout.lines().next().and_then(|line| line.split(' ').nth(1)).map(str::to_owned);
        // Without optimisation as well, the program has six frames.
        assert_eq!(seen.as_deref(), Some("12"), "{}", program.name);
    }
}

// If a call is not recorded, a tail call from it must not disturb the record of the function that
// it jumps to.
#[test]
fn conditions_on_a_function_that_another_jumps_to() {
    let program = compile(&BARE[0], &["exits.c"], &[]);
    let listed = calltap_run(&["sites", &program.path.display().to_string()]).stdout;
    let is = |name: &str, returns: &str| {
        let mut lines = listed.lines().filter(|line| line.contains(&format!("  {name}")));
        assert!(lines.any(|line| line.contains(returns)), "{name} {returns}:\n{listed}");
    };
    is("leaps", " stub ");
    is("landed", " exits:1 ");
    for (condition, calls) in [("arg1 > 1000000", 0), ("arg1 < 100", 100)] {
        let recording =
            record(&program, &["-F", "leaps", "-F", "landed", "--if", condition], &Expect::default());
        assert!(recording.run.status.success(), "{}", recording.run.stderr);
        let rows = recording.rows();
        let landed = rows.iter().find(|row| row["function"] == "landed");
        assert_eq!(landed.map_or(0, |row| row["calls"].as_u64().unwrap()), calls, "{condition}: {rows:?}");
    }
}
