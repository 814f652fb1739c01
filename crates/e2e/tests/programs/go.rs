//! Go programs as the toolchain builds them: their stacks are small, and move; goroutines are preempted
//! anywhere; there may be no C library.

use calltap_e2e::*;
use std::process::Command;

/// Static, stripped, position independent, and both.
const BUILDS: [&[&str]; 4] =
    [&[], &["-ldflags=-s -w"], &["-buildmode=pie"], &["-buildmode=pie", "-ldflags=-s -w"]];
/// With C: a dynamic linker loads the agent, or nothing can.
const WITH_C: [&[&str]; 2] = [&[], &["-ldflags=-linkmode external -extldflags -static"]];

/// What is asked for: entries with every clock, and more than can be had.
fn asked(turn: usize) -> Vec<Flags> {
    let clock = ["tsc", "sparse", "coarse", "counter"][turn % 4];
    vec![
        vec!["--tracer", "function", "--clock", clock],
        vec!["--tracer", "function", "-F", "main.*"],
        vec!["-F", "main.*", "--clock", clock],
        vec!["--tracer", "function", "--tracer", "function_graph", "-F", "main.*"],
        vec!["--tracer", "profile", "-F", "main.*"],
        vec!["--tracer", "profile", "--tracer", "function", "--clock", clock],
    ]
}

#[test]
fn calls_are_counted_exactly_while_stacks_grow_and_move() {
    for (turn, flags) in BUILDS.into_iter().enumerate() {
        let Some(program) = compile_go("goroutines.go", flags) else { return };
        check(&program, &asked(turn), &Expect::default());
    }
}

#[test]
fn go_calls_c_calls_go() {
    for (turn, flags) in WITH_C.into_iter().enumerate() {
        let Some(program) = compile_go("cgo.go", flags) else { return };
        check(&program, &asked(turn), &Expect::default());
        let flags = ["-F", "main.*", "-F", "_cgo_*_Cfunc_*"];
        let recording = record(&program, &flags, &Expect::default());
        recording.counts_agree(&Expect::default());
        let rows = recording.rows();
        let of_c =
            rows.iter().find(|row| row["function"].as_str().is_some_and(|name| name.ends_with("ccall")));
        // Of functions on the stacks of threads, returns are recorded as ever.
        assert!(of_c.is_some_and(|row| row["total_ns"].as_u64() > Some(0)), "{rows:?}");
    }
}

#[test]
fn a_program_that_runs_goes_on_and_is_what_it_was() {
    let every = BUILDS.into_iter().map(|flags| ("resident.go", flags));
    for (source, flags) in every.chain(WITH_C.into_iter().map(|flags| ("cgo.go", flags))) {
        let Some(program) = compile_go(source, flags) else { return };
        let mut resident = Resident::start(&program, &["stay"]);
        for n in 0..4 {
            let filter: &[&str] = if n % 2 == 0 { &["-F", "main.*"] } else { &[] };
            let has_some = |resident: &Resident| resident.sound().0 > 0;
            let run = resident.attach_until(&[&ATTACHES[n % 2][2..], filter].concat(), has_some);
            assert!(run.status.success() && resident.runs(), "{} {n}: {}", program.name, run.stderr);
            assert_eq!(changed_text(resident.pid), [""; 0], "{} {n}", program.name);
        }
        let (status, output, errors) = resident.end();
        assert!(status.success() && errors.is_empty(), "{}: {status} {output}{errors}", program.name);
    }
}

#[test]
fn calls_made_while_we_are_there_are_counted_exactly() {
    let Some(program) = compile_go("resident.go", &[]) else { return };
    let mut resident = Resident::start(&program, &[]);
    for tracer in ["function", "function_graph"] {
        let mut calltap = resident.attach_beside(&["--tracer", tracer, "-F", "main.counted"]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("done");
        // SAFETY: a signal to a child of this process.
        unsafe { libc::kill(calltap.id() as i32, libc::SIGINT) };
        succeeds(&mut calltap);
        let rows = resident.view("report");
        assert_eq!(rows[0]["function"], "main.counted");
        assert_eq!(rows[0]["calls"], 12_345, "{tracer}");
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    assert!(resident.end().0.success());
}

#[test]
fn what_cannot_be_had_is_told_in_one_line() {
    let Some(program) = compile_go("goroutines.go", &[]) else { return };
    let path = program.path.display().to_string();
    let told = |flags: &[&str]| {
        let run = calltap_run(&[&["record", "-o", "/dev/null"], flags, &["--", &path]].concat());
        run.stderr.lines().filter(|line| line.contains("Go function")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(&["--tracer", "function", "-F", "main.leaf"]), [""; 0]);
    let cut = told(&["-F", "main.*"]);
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert!(cut[0].contains("only entries are recorded"), "{cut:?}");
    let run = calltap_run(&["record", "-o", "/dev/null", "-F", "main.leaf", "-A", "main.leaf", "--", &path]);
    one_line(&run, &["main.leaf: it is a Go function, of which only the entry is traced"]);
}

// Go's own compiler, of which all is traced that can be.
#[test]
fn a_compiler_makes_the_same_of_the_same() {
    let tool = output_of("go", &["tool", "-n", "compile"]).unwrap_or_default().trim().to_owned();
    if tool.is_empty() {
        return skipped("no go here");
    }
    let compiler = Program::existing(&tool);
    let function = |n: usize| {
        format!(
            "func f{n}(a []int, n int) int {{\n\tif n > len(a) {{\n\t\treturn f{}(a, n-{n})\n\t}}\n\treturn a[n]\n}}\n",
            n + 1
        )
    };
    let functions: String = (0..400).map(function).collect();
    let source = format!("package p\n{functions}func f400(a []int, n int) int {{ return n }}\n");
    std::fs::write(compiler.directory().join("p.go"), source).expect("written");
    let compiled = |tracing: &[&str]| {
        let words = [tracing, &[&tool, "-p", "p", "-o", "p.a", "p.go"]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(compiler.directory());
        let run = run(command, b"");
        let made = std::fs::read(compiler.directory().join("p.a")).unwrap_or_default();
        std::fs::remove_file(compiler.directory().join("p.a")).expect("something was compiled");
        (run.status, run.stdout, run.stderr, made)
    };
    let alone = compiled(&[]);
    let calltap = calltap().display().to_string();
    for more in [&[][..], &["--tracer", "function", "--clock", "counter"]] {
        let tracing = [&[&calltap, "record", "-q", "-o", "/dev/null"], more, &["--"]].concat();
        assert_eq!(compiled(&tracing), alone);
    }
}
