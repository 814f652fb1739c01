//! Go programs as the toolchain builds them: stacks are small and move, goroutines are preempted
//! anywhere and continue in other threads, and there may be no C library.

mod family;
mod leaves;
mod older;
mod shared;
mod states;
mod values;
mod waits;

use calltap_e2e::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Builds: static, stripped, position independent, and both.
const BUILDS: [&[&str]; 4] =
    [&[], &["-ldflags=-s -w"], &["-buildmode=pie"], &["-buildmode=pie", "-ldflags=-s -w"]];
/// Builds with C: a dynamic linker loads the agent, or the program is static, or a static-pie.
const WITH_C: [&[&str]; 3] = [
    &[],
    &["-buildmode=pie", "-ldflags=-linkmode external -extldflags -static-pie"],
    &["-ldflags=-linkmode external -extldflags -static"],
];

/// Returns all builds by the installed toolchain, and the first and last by newer ones, in which
/// functions have other exits.
fn builds(all: &'static [&'static [&'static str]]) -> Vec<(Go, &'static [&'static str])> {
    let by = |go: Go, all: &[&'static [&'static str]]| {
        all.iter().map(|flags| (go.clone(), *flags)).collect::<Vec<_>>()
    };
    let ends = [all[0], all[all.len() - 1]];
    let newer = Go::newer().into_iter().flat_map(|go| by(go, &ends));
    Go::installed().into_iter().flat_map(|go| by(go, all)).chain(newer).collect()
}

/// Returns flags: entries with every clock, and requests for more than entries.
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
    for (turn, (go, flags)) in builds(&BUILDS).into_iter().enumerate() {
        check(&go.compile("goroutines.go", flags), &asked(turn), &Expect::default());
    }
}

#[test]
fn go_calls_c_calls_go() {
    for (turn, (go, flags)) in builds(&WITH_C).into_iter().enumerate() {
        let program = go.compile("cgo.go", flags);
        check(&program, &asked(turn), &Expect::default());
        let flags = ["-F", "main.*", "-F", "_cgo_*_Cfunc_*"];
        let recording = record(&program, &flags, &Expect::default());
        recording.counts_agree(&Expect::default());
        let rows = recording.rows();
        let of_c =
            rows.iter().find(|row| row["function"].as_str().is_some_and(|name| name.ends_with("ccall")));
        // Functions of C run on the stacks of threads, and their returns are recorded.
        assert!(of_c.is_some_and(|row| row["total_ns"].as_u64() > Some(0)), "{rows:?}");
    }
}

// The runtime lends such a thread a goroutine for each call.
#[test]
fn threads_of_c_that_call_go_run_as_untraced() {
    for (go, flags) in builds(&WITH_C) {
        let program = go.compile("c_threads.go", flags);
        let expect = Expect { uncounted: true, ..Expect::default() };
        // Some versions of the runtime have a `dropm` that cannot be traced.
        for filter in [&[][..], &["-F", "runtime.dropm,main.*", "--later"]] {
            let recording = record(&program, filter, &expect);
            let run = &recording.run;
            assert!(run.status.success(), "{}: {} {}", recording.what, run.status, run.stderr);
            assert_eq!(run.stdout, "callbacks 3000\n", "{}", recording.what);
        }
    }
}

#[test]
fn running_go_program_continues_and_is_restored() {
    let every = builds(&BUILDS).into_iter().map(|build| ("resident.go", build));
    for (source, (go, flags)) in every.chain(builds(&WITH_C).into_iter().map(|build| ("cgo.go", build))) {
        let program = go.compile(source, flags);
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
fn calls_between_attach_and_detach_are_counted_exactly() {
    for go in Go::all() {
        counts_while_attached(&go.compile("resident.go", &[]), &[]);
    }
}

fn counts_while_attached(program: &Program, arguments: &[&str]) {
    let is_taken = !arguments.is_empty();
    let mut resident = Resident::start(program, arguments);
    for tracer in ["function", "function_graph"] {
        let mut calltap = resident.attach_beside(&["--tracer", tracer, "-F", "main.counted"]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("done");
        kill(calltap.id(), libc::SIGINT);
        succeeds(&mut calltap);
        let rows = resident.view("report");
        assert_eq!(rows[0]["function"], "main.counted");
        assert_eq!(rows[0]["calls"], 12_345, "{tracer}");
        let (has_returns, wants) = (!rows[0]["total_ns"].is_null(), tracer == "function_graph");
        assert_eq!(has_returns, wants && !is_taken, "{tracer}");
        assert_eq!(changed_text(resident.pid), [""; 0]);
    }
    assert!(resident.end().0.success());
}

// Where no memory is free for the copies that exits would lead to, entries are recorded.
#[test]
fn entries_are_recorded_where_memory_is_in_the_way_of_exits() {
    for go in Go::newer() {
        counts_while_attached(&go.compile("resident.go", &[]), &["taken"]);
    }
}

#[test]
fn unsupported_go_requests_are_refused_in_one_line() {
    let Some(go) = Go::installed() else { return };
    let program = go.compile("goroutines.go", &[]);
    let path = program.path.display().to_string();
    let told = |flags: &[&str]| {
        let run = calltap_run(&[&["record", "-o", "/dev/null"], flags, &["--", &path]].concat());
        run.stderr.lines().filter(|line| line.contains("Go function")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told(&["--tracer", "function", "-F", "main.leaf"]), [""; 0]);
    assert_eq!(told(&["-F", "main.*"]), [""; 0]);
    let cut = told(&["-F", "main.*", "--clock", "coarse"]);
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert!(cut[0].contains("returns need --clock tsc or counter"), "{cut:?}");
    let condition = ["-F", "main.leaf", "--if", "main.leaf@arg1>1"];
    let run = calltap_run(&[&["record", "-o", "/dev/null"], &condition[..], &["--", &path]].concat());
    one_line(&run, &["main.leaf: it is a Go function"]);
}

/// Parses the program's own record of each goroutine: number of calls, and a sum over their names
/// and depths in order.
fn noted(output: &str) -> BTreeMap<u64, (usize, u64)> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("about "));
    let numbers =
        |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>();
    lines.map(numbers).map(|line| (line[0], (line[1] as usize, line[2]))).collect()
}

/// Returns the number of calls and the sum over names and depths of each goroutine, from the
/// exported table of a trace.
fn traced(table: &Path) -> BTreeMap<u64, (usize, u64)> {
    let text = std::fs::read_to_string(table).expect("a table");
    let mut calls = BTreeMap::<u64, Vec<(u64, usize, String)>>::new();
    for row in text.lines().skip(1) {
        let words: Vec<&str> = row.split(',').collect();
        let ["goroutine", goroutine, function, _, depth, start, ..] = words[..] else { panic!("{row}") };
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let name = function.strip_prefix("main.").expect("a function of the program").to_owned();
        let call = (number(start), number(depth) as usize, name);
        calls.entry(number(goroutine)).or_default().push(call);
    }
    let sum = |mut calls: Vec<(u64, usize, String)>| {
        calls.sort();
        let texts = calls.iter().map(|(_, depth, name)| format!("{name}:{depth};"));
        let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        (calls.len(), texts.flat_map(String::into_bytes).fold(14_695_981_039_346_656_037, add))
    };
    calls.into_iter().map(|(goroutine, calls)| (goroutine, sum(calls))).collect()
}

// Nesting and goroutine of every call must be right, while stacks are copied all the time, through
// panics and Goexit.
#[test]
fn calls_nest_as_each_goroutine_noted() {
    for go in Go::all() {
        let program = go.compile("noted.go", &[]);
        for arguments in [["1", "200"], ["4", "200"], ["4", "10000"]] {
            check_notes(&program, &arguments);
        }
        // The race detector's code runs on the threads' own stacks.
        for flags in
            [&["-race"][..], &["-buildmode=pie", "-ldflags=-linkmode external -extldflags -static-pie"]]
        {
            check_notes(&go.compile("noted.go", flags), &["4", "200"]);
        }
    }
}

fn check_notes(program: &Program, arguments: &[&str]) {
    let expect = Expect { arguments, uncounted: true, ..Expect::default() };
    let recording = record(program, &["-F", "main.noted*"], &expect);
    assert!(recording.run.status.success(), "{}: {}", recording.what, recording.run.stderr);
    let expected = noted(&recording.run.stdout);
    assert_eq!(expected.len(), arguments[1].parse::<usize>().expect("a number"), "{}", recording.what);
    let got = traced(&recording.export("csv"));
    let wrong = expected.iter().find(|(goroutine, calls)| got.get(goroutine) != Some(calls));
    assert_eq!(wrong, None, "{}: of {} goroutines", recording.what, got.len());
    assert_eq!(got.len(), expected.len(), "{}", recording.what);
    let ended = recording.rows().into_iter().find(|row| row["function"] == "main.notedWorker");
    assert!(ended.is_some_and(|row| row["total_ns"].as_u64() > Some(0)), "{}", recording.what);
}

// Returns are seen of nearly all functions that check their stack.
#[test]
fn most_functions_have_returns() {
    for go in Go::all() {
        let program = go.compile("noted.go", &[]);
        let run = calltap_run(&["sites", "--json", &program.path.display().to_string()]);
        let functions: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).expect("a list");
        let traced: Vec<_> = functions.iter().filter(|function| function["traceable"] == true).collect();
        let returns = traced.iter().filter(|function| !function["exits"].is_null()).count();
        assert!(traced.len() > 500 && returns * 100 > traced.len() * 90, "{}: {returns}", program.name);
    }
}

// Tests of Go's standard library pass while all its functions are traced, those of the runtime
// included.
#[test]
fn traced_standard_library_tests_pass() {
    let all = Go::all().into_iter().flat_map(|go| ["sort", "sync"].map(|package| (go.clone(), package)));
    for (go, package) in all {
        let program = go.compile_test(package);
        // Examples would read their own source, which is not there.
        let arguments = &["-test.short", "-test.run=^Test"];
        let expect = Expect { arguments, uncounted: true, ..Expect::default() };
        let recording = record(&program, &[], &expect);
        let run = &recording.run;
        assert!(
            run.status.success() && run.stdout.ends_with("PASS\n"),
            "{package}: {} {}",
            run.stdout,
            run.stderr
        );
        let info = recording.info();
        assert_eq!(info["calls"]["lost"], 0, "{package}");
        assert!(info["calls"]["recorded"].as_u64() > Some(10_000), "{package}: {}", info["calls"]);
    }
}

// Go's own compiler, with all functions traced that can be.
#[test]
fn traced_go_compiler_gives_identical_output() {
    for go in Go::all() {
        compiles_the_same(&go.tool("compile").display().to_string());
    }
}

fn compiles_the_same(tool: &str) {
    let compiler = Program::existing(tool);
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
        let words = [tracing, &[tool, "-p", "p", "-o", "p.a", "p.go"]].concat();
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
