//! Calls that are left without returning: later calls must have the right caller, depth and time.

mod threads;

use calltap_e2e::{
    BARE, BARE_PLACED, BUILDS, Build, Expect, Flags, GCC, PLACED, Program, Recording, Resident, await_that,
    calltap_run, changed_text, check, compile, compile_rust, compile_rust_as_it_is, have, installed,
    interrupt, jumps, matrix,
};
use std::collections::BTreeMap;

/// Maximum difference between the program's clock and the recording's, in nanoseconds: the
/// recording's may tick once in a millisecond.
const CLOCKS: u64 = 2_000_000;

/// Returns columns of a recording's calls, from the csv export.
fn columns<const N: usize>(recording: &Recording, names: [&str; N]) -> Vec<[String; N]> {
    columns_of(&recording.trace.to_string_lossy(), names)
}

/// Returns columns of a trace's calls, from the csv export.
fn columns_of<const N: usize>(trace: &str, names: [&str; N]) -> Vec<[String; N]> {
    let csv = format!("{trace}.csv");
    let run = calltap_run(&["export", "--to", "csv", "-i", trace, "-o", &csv]);
    assert!(run.status.success(), "{trace}: {}", run.stderr);
    let csv = std::fs::read_to_string(csv).expect("just written");
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let places = names.map(|name| header.iter().position(|column| *column == name).expect("the column"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        places.map(|place| cells[place].to_owned())
    };
    lines.map(row).collect()
}

/// Compares the numbers of calls by function, depth and caller with those that the program has
/// counted. Calls of `untraced` are not recorded: they are outermost calls, as calls that were open
/// before a recorder attached are.
fn check_callers(program: &Program, arguments: &[&str], untraced: &[&'static str]) -> Recording {
    let flags: Vec<Flags> = vec![untraced.iter().flat_map(|name| ["--notrace", *name]).collect()];
    let recording = check(program, &flags, &Expect { arguments, uncounted: true, ..Expect::default() });
    let mut noted: BTreeMap<String, u64> = BTreeMap::new();
    for (call, count) in
        recording.run.stdout.lines().filter_map(|line| line.strip_prefix("call ")?.rsplit_once(' '))
    {
        let (function, rest) = call.split_once(',').expect("a function");
        let (depth, caller) = rest.split_once(',').expect("a depth");
        let depth: usize = depth.parse().expect("a number");
        if !untraced.contains(&function) {
            // Two untraced calls enclose all others.
            let depth = if untraced.is_empty() { depth } else { depth - 2 };
            let caller = if untraced.contains(&caller) { "" } else { caller };
            *noted.entry(format!("{function},{depth},{caller}")).or_default() +=
                count.parse::<u64>().expect("a number");
        }
    }
    assert!(noted.len() > 5, "{}: {noted:?}", recording.what);
    let longest: BTreeMap<&str, u64> = recording
        .run
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("about longest ")?.split_once(' '))
        .map(|(name, ns)| (name, ns.parse().expect("a number")))
        .collect();
    let functions: Vec<&str> = noted.keys().filter_map(|call| call.split(',').next()).collect();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for [function, depth, caller, duration] in
        columns(&recording, ["function", "depth", "caller", "total_ns"])
    {
        // The program prints callers only among its own functions.
        let caller = Some(&*caller).filter(|caller| functions.contains(caller)).unwrap_or("");
        if functions.contains(&&*function) {
            *seen.entry(format!("{function},{depth},{caller}")).or_default() += 1;
        }
        // The outermost functions last as long as the program; their callees last no longer than
        // the program has waited for them.
        let called = [("handle", "handle"), ("fail", "handle"), ("step", "step"), ("jump", "step")];
        let outermost = called.iter().find(|(name, _)| *name == function).map(|(_, outer)| longest[outer]);
        if let Some(most) = outermost.filter(|_| !duration.is_empty()) {
            let ns: u64 = duration.parse().expect("a duration");
            assert!(ns <= most + CLOCKS, "{}: {function} {ns}: at most {most} ns", recording.what);
        }
    }
    assert_eq!(seen, noted, "{}", recording.what);
    recording
}

#[test]
fn every_call_has_its_caller_and_depth_after_others_were_left() {
    for (_, build) in matrix() {
        check_callers(&compile(build, &["left.cpp"], &["-pthread"]), &[], &[]);
    }
}

#[test]
fn exception_ends_calls_below_untraced_catcher() {
    let outermost = ["main", "serve", "loop"];
    for build in [GCC, &BARE[0]] {
        check_callers(&compile(build, &["left.cpp"], &["-pthread"]), &[], &outermost);
    }
}

#[test]
fn in_programs_of_every_kind_that_were_not_built_for_tracing() {
    for build in installed(BARE).filter(|build| !build.flags.contains(&"-s")) {
        check_callers(&compile(build, &["left.cpp"], &["-pthread"]), &[], &[]);
    }
}

/// Compares the depths of the calls of `work` and `leaf`, which alone are recorded, with those that
/// the program has counted.
fn check_depths(what: &str, printed: &str, trace: &str) {
    let mut noted = BTreeMap::<String, u64>::new();
    let lines = printed.lines().filter_map(|line| line.strip_prefix("call ")?.rsplit_once(' '));
    lines.for_each(|(call, count)| {
        *noted.entry(call.to_owned()).or_default() += count.parse::<u64>().expect("a number");
    });
    assert!(noted.len() > 8, "{what}: {printed}");
    let mut seen = BTreeMap::<String, u64>::new();
    for [function, depth] in columns_of(trace, ["function", "depth"]) {
        *seen.entry(format!("{function},{depth}")).or_default() += 1;
    }
    assert_eq!(seen, noted, "{what}");
}

/// Builds whose C libraries and unwinders are found in different ways.
const BY_LIBRARY: [&Build; 4] = [GCC, &PLACED[0], &BARE[2], &BARE_PLACED[0]];

#[test]
fn longjmp_ends_recorded_call_between_untraced_functions() {
    for build in BY_LIBRARY.into_iter().filter(|build| have(build.compilers[0])) {
        let program = compile(build, &["deeper.cpp"], &["-pthread"]);
        let flags: Vec<Flags> = vec![vec!["-F", "work", "-F", "leaf"]];
        let expect = Expect { stdin: b"\n\n", uncounted: true, ..Expect::default() };
        let recording = check(&program, &flags, &expect);
        check_depths(&recording.what, &recording.run.stdout, &recording.trace.to_string_lossy());
    }
}

#[test]
fn panic_ends_recorded_calls_between_untraced_functions() {
    for program in [compile_rust("deeper.rs", &["-O"]), compile_rust_as_it_is("deeper.rs", &["-O"])] {
        let flags: Vec<Flags> = vec![vec!["-F", "work", "-F", "leaf"]];
        let recording = check(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
        check_depths(&recording.what, &recording.run.stdout, &recording.trace.to_string_lossy());
    }
}

#[test]
fn a_recorded_call_is_left_at_once_in_a_program_that_is_attached_to() {
    let with_room = [&BUILDS[2], &BUILDS[3], &BUILDS[6], &PLACED[0]];
    let all = [&BARE[0], &BARE[3], &BARE_PLACED[0]].into_iter().chain(with_room);
    for build in all.filter(|build| have(build.compilers[0])) {
        let program = compile(build, &["deeper.cpp"], &["-pthread"]);
        let mut resident = Resident::start(&program, &[]);
        let recorder = resident.attach_beside(&["-F", "work", "-F", "leaf"]);
        resident.await_recorder();
        resident.tell();
        resident.wait_for("ended");
        assert!(interrupt(recorder).success(), "{}", build.name);
        assert_eq!(changed_text(resident.pid), Vec::<String>::new(), "{}", build.name);
        check_depths(build.name, &resident.output, &resident.trace().to_string_lossy());
        assert!(resident.end().0.success());
    }
}

/// Switches a function off while a call of it is open. `end`: how that call ends in the recording.
fn check_switched_off(build: &Build, end: &str) {
    let program = compile(build, &["switched_off.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let pid = resident.pid;
    let recorder = resident.attach_beside(&[]);
    resident.await_recorder();
    resident.tell();
    resident.wait_for("inside");
    let set = calltap_run(&["set", "-p", &pid.to_string(), "--notrace", "outer"]);
    assert!(set.status.success(), "{}: {}", build.name, set.stderr);
    resident.tell();
    resident.wait_for("left");
    assert!(interrupt(recorder).success(), "{}", build.name);
    let trace = resident.trace().to_string_lossy().into_owned();
    let replay = calltap_run(&["replay", "--no-sched", "-i", &trace]).stdout;
    let calls: Vec<&str> = replay
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once("|  ")?.1.trim_end()))
        .collect();
    let ending = if end == "returned" { "}".to_owned() } else { format!("}} /* {end} */") };
    // If its return is not recorded, it is unknown whether the call or its caller makes the later
    // calls.
    let expected = match end {
        "returned" => ["outer() {", "  inner();", "  inner();", &ending, "after();"],
        _ => ["outer() {", "  inner();", &ending, "inner();", "after();"],
    };
    assert_eq!(calls, expected, "{}", build.name);
    let rows = resident.view("report");
    let outer = rows.as_array().and_then(|rows| rows.iter().find(|row| row["function"] == "outer"));
    let outer = outer.unwrap_or_else(|| panic!("{}: {rows}", build.name));
    assert_eq!(outer["calls"], 1, "{}: {outer}", build.name);
    assert_eq!(outer["total_ns"].is_null(), end != "returned", "{}: {outer}", build.name);
}

#[test]
fn a_call_of_a_function_that_is_switched_off_has_no_end_unless_its_return_is_seen() {
    // The return address leads to the stub; rewritten exits are written back.
    check_switched_off(GCC, "returned");
    check_switched_off(&BARE[0], "switched_off");
}

#[test]
fn a_function_that_was_called_too_often_for_a_while_is_recorded_again() {
    let program = compile(GCC, &["burst.c"], &[]);
    let mut resident = Resident::start(&program, &[]);
    let recorder = resident.attach_beside_within("5%", &[]);
    resident.await_recorder();
    let all = jumps(resident.pid);
    resident.tell();
    await_that("it is switched off", || jumps(resident.pid) < all);
    resident.wait_for("over");
    await_that("it is switched on again", || jumps(resident.pid) == all);
    resident.tell();
    resident.wait_for("left");
    assert!(interrupt(recorder).success());
    let trace = resident.trace().to_string_lossy().into_owned();
    let replay = calltap_run(&["replay", "--no-sched", "-i", &trace]).stdout;
    assert_eq!(replay.matches("|    hot();").count(), 100, "{replay}");
    let report = calltap_run(&["report", "-i", &trace]);
    assert!(report.stdout.starts_with("# 1 of "), "{}", report.stdout);
    assert!(resident.end().0.success());
}

/// Numbers of calls by function and caller, from the csv export.
type Callers = BTreeMap<(String, String), u64>;

fn check_own_stacks(build: &Build, arguments: &[&'static str]) {
    let program = compile(build, &["own_stacks.c"], &[]);
    let flags: Vec<Flags> = vec![vec![]];
    let recording = check(&program, &flags, &Expect { arguments, ..Expect::default() });
    let (mut callers, mut timed) = (Callers::new(), BTreeMap::<String, u64>::new());
    for [function, caller, duration] in columns(&recording, ["function", "caller", "total_ns"]) {
        *timed.entry(function.clone()).or_default() += u64::from(!duration.is_empty());
        *callers.entry((function, caller)).or_default() += 1;
    }
    let of = |function: &str, caller: &str| {
        callers.get(&(function.to_owned(), caller.to_owned())).copied().unwrap_or_default()
    };
    // The counts follow from the program's source.
    let (bodies, works, yields) = (6, 6 * 60, 6 * 20);
    let what = format!("{} {arguments:?}: {callers:?}", recording.what);
    assert_eq!(of("work", "body"), works, "{what}");
    assert_eq!(of("inner", "work"), 2 * works, "{what}");
    assert_eq!((of("yields", "body"), of("yields", "work")), (works, yields), "{what}");
    assert_eq!(callers.iter().filter(|((name, _), _)| name == "body").map(|(_, n)| n).sum::<u64>(), bodies);
    // Calls without an interruption have a duration.
    assert_eq!(timed["inner"], 2 * works, "{what}");
    // A call that was interrupted and resumed is one call, without a duration in the part that was
    // left.
    let replay = calltap_run(&["replay", "--no-sched", "-i", &recording.trace.to_string_lossy()]).stdout;
    assert!(replay.contains("body() { /* resumed */"), "{what}");
}

#[test]
fn coroutines_that_yield_within_calls_have_their_own_callers() {
    for build in [GCC, &BARE[0]] {
        for arguments in [["near"].as_slice(), &["far"], &["near", "tick"], &["far", "tick"]] {
            check_own_stacks(build, arguments);
        }
    }
}

/// Checks that children which return through calls that were open at the fork have these as
/// callers, and that no view reports them as unknown.
fn check_forked(build: &Build, arguments: &[&str]) {
    let program = compile(build, &["forked.c"], &["-pthread"]);
    let recording = check_callers(&program, arguments, &[]);
    let trace = recording.trace.to_string_lossy().into_owned();
    for view in ["report", "graph", "replay"] {
        let text = calltap_run(&[view, "-i", &trace]).stdout;
        assert!(!text.contains("callers from before the fork"), "{}: {text}", recording.what);
    }
    // The rest of a call that continues in a child is no other call, and has no duration.
    let replay = calltap_run(&["replay", "--no-sched", "-i", &trace]).stdout;
    assert!(replay.contains("forks() { /* resumed */"), "{}: {replay}", recording.what);
}

#[test]
fn a_forked_child_goes_on_in_the_calls_of_its_parent() {
    for build in [GCC, &BARE[0]] {
        check_forked(build, &[]);
        check_forked(build, &["threads"]);
    }
}

fn check_moving(build: &Build, flags: &[&str]) {
    let program = compile(build, &["moving.c"], &[&["-pthread"], flags].concat());
    let flags: Vec<Flags> = vec![vec![]];
    let recording = check(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
    let noted = noted(&recording);
    let mut seen = BTreeMap::<String, u64>::new();
    for [function, caller] in columns(&recording, ["function", "caller"]) {
        *seen.entry(format!("{function},{caller}")).or_default() += 1;
    }
    // The first call on a stack has the call that switched to it as its caller; the program prints
    // no caller of it, and none of its helpers' calls.
    seen.retain(|call, _| {
        noted.contains_key(call)
            || ["work,", "deep,", "yields,", "leaf,"].iter().any(|name| call.starts_with(name))
    });
    assert_eq!(seen, noted, "{}", recording.what);
}

#[test]
fn coroutines_that_go_on_in_other_threads_keep_their_callers() {
    check_moving(GCC, &["-DROOM=1048576"]);
    check_moving(&BARE[0], &["-DROOM=1048576"]);
    check_moving(GCC, &["-DROOM=65536"]);
}

#[test]
fn coroutines_keep_callers_when_last_thread_ends() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["moving.c"], &["-pthread", "-DRUNS=20"]);
        let flags: Vec<Flags> = vec![vec![]];
        let recording = check(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
        let (mut noted, mut seen) = (noted(&recording), BTreeMap::<String, u64>::new());
        for [function, caller] in columns(&recording, ["function", "caller"]) {
            *seen.entry(format!("{function},{caller}")).or_default() += 1;
        }
        // Before its first return in another thread, a coroutine appears beneath the call that
        // resumes it.
        let first = noted["leaf,yields"].saturating_sub(seen.get("leaf,yields").copied().unwrap_or(0));
        for (call, change) in [("leaf,yields", first.wrapping_neg()), ("leaf,run", first)] {
            let count = noted.get_mut(call).expect("a call of the program");
            *count = count.wrapping_add(change);
        }
        noted.retain(|_, count| *count > 0);
        seen.retain(|call, _| noted.contains_key(call));
        assert_eq!(seen, noted, "{}", recording.what);
    }
}

/// Checks the callers in a trace of `eventloop.c`. Those that are not recorded are empty.
fn check_event_loop(trace: &str, what: &str) {
    let (is_attached, mut first) = (what.starts_with("attached"), 0);
    let callers = BTreeMap::from([
        ("poll_events", "loop"),
        ("accept_one", "loop"),
        ("request", "loop"),
        ("touch", "loop"),
        ("handler", "touch"),
        // The first call on a stack has the call that switched to it as its caller.
        ("connection", "loop"),
        ("parse", "connection"),
        ("wait_io", "connection"),
    ]);
    let mut counts = BTreeMap::<String, u64>::new();
    for [function, caller] in columns_of(trace, ["function", "caller"]) {
        // Attached to, coroutines that wait are known once the loop has made a call. The handler
        // may come before that, on its own stack, if calltap attached within `touch`.
        let early = ["connection", "parse", "wait_io", "handler"];
        let is_first = is_attached && caller == "wait_io" && early.contains(&&*function);
        first += u64::from(is_first);
        let is_right = is_first || caller.is_empty() || callers.get(&*function) == Some(&&*caller);
        assert!(is_right || !callers.contains_key(&*function), "{what}: {caller} calls {function}");
        *counts.entry(function).or_default() += 1;
    }
    assert!(counts.get("connection").is_some_and(|count| *count > 5), "{what}: {counts:?}");
    assert!(first <= 64, "{what}: {first} beneath waiting coroutines");
}

#[test]
fn calls_of_an_event_loop_are_not_beneath_its_coroutines() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["eventloop.c"], &["-pthread"]);
        let path = program.path.display().to_string();
        let trace = program.directory().join("short.data").display().to_string();
        for functions in ["*", "connection,wait_io,accept_one,request", "handler,request"] {
            let run = calltap_run(&["record", "-q", "-o", &trace, "-F", functions, "--", &path, "short"]);
            assert!(run.status.success(), "{}", run.stderr);
            if functions.contains("connection") || functions == "*" {
                check_event_loop(&trace, functions);
            }
            let mut rows = columns_of(&trace, ["function", "caller"]).into_iter();
            assert!(!rows.any(|row| row == ["request", "handler"]), "{}: {functions}", build.name);
        }
        for thread in ["first", "other"] {
            let resident = Resident::start(&program, &[thread]);
            resident.attach_while_it_works(&[
                "-F",
                "connection,parse,wait_io,poll_events,accept_one,request,touch,handler",
            ]);
            check_event_loop(&resident.trace().display().to_string(), &format!("attached, {thread} thread"));
            let (status, ..) = resident.end();
            assert!(status.success());
        }
    }
}

/// Returns how often each function was called by which other, as the program has noted it.
fn noted(recording: &Recording) -> BTreeMap<String, u64> {
    let lines = recording.run.stdout.lines().filter_map(|line| line.strip_prefix("call ")?.rsplit_once(' '));
    lines.map(|(call, count)| (call.to_owned(), count.parse().expect("a number"))).collect()
}

#[test]
fn coroutines_that_leave_calls_by_longjmp_keep_their_callers() {
    for (build, room) in [(GCC, "-DROOM=1048576"), (&BARE[0], "-DROOM=65536"), (GCC, "-DROOM=65536")] {
        let program = compile(build, &["wandering.c"], &[room]);
        let flags: Vec<Flags> = vec![vec!["-F", "one,two,three,leaf,body,resume,main"]];
        let recording = check(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
        let mut seen = BTreeMap::<String, u64>::new();
        for [function, caller] in columns(&recording, ["function", "caller"]) {
            *seen.entry(format!("{function},{caller}")).or_default() += 1;
        }
        // The first call on a stack has the call that switched to it as its caller.
        seen.retain(|call, _| !call.starts_with("body,") && !call.starts_with("main,"));
        assert_eq!(seen, noted(&recording), "{}", build.name);
    }
}

#[test]
fn threads_on_neighbouring_stacks_keep_their_own_calls() {
    for build in [GCC, &BARE[0]] {
        let program = compile(build, &["neighbours.c"], &["-pthread"]);
        let flags: Vec<Flags> = vec![vec![]];
        let recording = check(&program, &flags, &Expect { uncounted: true, ..Expect::default() });
        let mut seen = BTreeMap::<String, u64>::new();
        for [function, caller] in columns(&recording, ["function", "caller"]) {
            // Only an unmodified build has the thread's function as well.
            let caller = if caller == "thread" { "" } else { &caller };
            *seen.entry(format!("{function},{caller}")).or_default() += 1;
        }
        seen.retain(|call, _| {
            ["root,", "step,", "leaf,", "handled,"].iter().any(|name| call.starts_with(name))
        });
        let expected = [("handled,", 10000), ("leaf,handled", 10000), ("leaf,step", 320_000)];
        let expected = expected.into_iter().chain([("root,", 80000), ("step,root", 160_000)]);
        assert_eq!(seen, expected.map(|(call, count)| (call.to_owned(), count)).collect());
    }
}

/// Checks that each return in a thread is paired with its entry in another one.
fn check_swapped(build: &Build) {
    let program = compile(build, &["swapped.c"], &["-pthread"]);
    let trace = program.directory().join("swapped.data").display().to_string();
    let path = program.path.display().to_string();
    let run = calltap_run(&["record", "-q", "-F", "co_*", "-o", &trace, "--", &path]);
    assert!(run.status.success(), "{}: {}", build.name, run.stderr);
    let report = calltap_run(&["report", "-i", &trace]);
    let all = report.stdout + &report.stderr;
    assert!(all.contains("2 calls left without returning"), "{}: {all}", build.name);
    assert!(!all.contains("without an entry"), "{}: {all}", build.name);
}

#[test]
fn coroutines_swapped_between_threads_return_from_their_own_calls() {
    for build in [GCC, &BARE[0]] {
        check_swapped(build);
    }
}
