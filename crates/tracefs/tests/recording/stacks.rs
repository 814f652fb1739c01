//! Stacks at a call, and the deepest stack.

use super::check;
use super::pages::events;
use super::world::{BASE, World};
use rustix::fs::OFlags;

#[test]
fn stacks_are_the_open_calls_around_a_call() {
    // The caller of main is not known. The caller of parse is not traced.
    check(
        "function > current_tracer
         lex > set_ftrace_filter
         1 > options/func_stack_trace
         0: +main +parse<emit +lex<parse - - +lex<main",
        "
            |              cc-100     [000] .....     5.000003: lex <-parse
            |              cc-100     [000] .....     5.000003: <stack trace>
            | => lex
            | => parse
            | => emit
            | => main
            |              cc-100     [000] .....     5.000006: lex <-main
            |              cc-100     [000] .....     5.000006: <stack trace>
            | => lex
            | => main",
    );
    // A function that has jumped to another is no longer on the stack.
    check(
        "lex:stacktrace > set_ftrace_filter
         1 > options/sym-offset
         0: +main +emit<main ~lex<main",
        "
            |              cc-100     [000] .....     5.000003: <stack trace>
            | => lex+0x0/0x80
            | => main+0x10/0x80",
    );
}

#[test]
fn stacks_need_all_calls_and_the_filter_does_not_show_that() {
    let mut world = World::after(
        "function > current_tracer
         lex > set_ftrace_filter
         emit > set_ftrace_notrace
         1 > options/func_stack_trace",
    );
    let stacks = |world: &World| -> Vec<(String, Vec<String>)> {
        let tracers = world.tracefs.words().tracers.into_iter();
        let own = tracers.filter(|tracer| tracer.name.starts_with("stacks/") && tracer.filter.is_empty());
        own.map(|tracer| (tracer.name, tracer.notrace)).collect()
    };
    let notrace = vec![String::from("=emit")];
    let expected = ["stacks/calls", "stacks/callers"].map(|name| (name.to_owned(), notrace.clone()));
    assert_eq!(stacks(&world), expected);
    assert_eq!(world.cat("enabled_functions"), "lex (1)\n");
    world.echo("0", "options/func_stack_trace");
    assert_eq!(stacks(&world), []);
}

/// Runs a script, and compares `stack_trace` below its header.
fn check_stack(script: &str, expected: &[&str]) -> World {
    let mut world = World::after(script);
    let text = world.cat("stack_trace");
    let header = format!("        Depth    Size   Location    ({} entries)", expected.len());
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[..2], [header.as_str(), "        -----    ----   --------"], "{script}");
    assert_eq!(lines[2..], *expected, "{script}");
    world
}

#[test]
fn deepest_stack_is_kept_with_size_of_each_frame() {
    let on = "1 > stack_tracer_enabled";
    let all = [
        "  0)      308       8   lex+0x0/0x80",
        "  1)      300     100   parse+0x10/0x80",
        "  2)      200     200   main+0x10/0x80",
    ];
    // The caller of main is not known, and the other thread's stack is not deeper.
    let calls = "0: +main@100 +parse<main@200 +lex<parse@300 - - +emit<main@250 -\n1: +lex<main@48";
    let mut world = check_stack(&format!("{on}\n{calls}"), &all);
    assert_eq!(world.cat("stack_max_size"), "308\n");
    assert_eq!(world.cat("enabled_functions").lines().next(), Some("main (1)"));
    assert_eq!(world.tracefs.words().arguments, ["*@$stack"]);
    // The stack is kept after the tracer is off, and while no stack is deeper than the value
    // written.
    for (text, path) in [("0", "stack_tracer_enabled"), ("0", "stack_max_size")] {
        world.echo(text, path);
        assert!(world.cat("stack_trace").ends_with(&(all.join("\n") + "\n")));
    }
    assert!(world.cat("stack_trace").contains("\n#  Stack tracer disabled\n"));
    assert!(world.tracefs.words().arguments.is_empty());
    check_stack(&format!("{on}\n308 > stack_max_size\n{calls}"), &[]);
    check_stack(calls, &[]);
}

#[test]
fn the_stack_tracer_looks_at_filtered_functions_on_their_own_stack() {
    let parse = ["  0)      208       8   parse+0x0/0x80", "  1)      200     200   main+0x10/0x80"];
    let on = "1 > stack_tracer_enabled";
    let filter = "pars* > stack_trace_filter";
    let calls = "0: +main@100 +parse<main@200 +lex<parse@300";
    let mut world = check_stack(&format!("{on}\n{filter}\n{calls}"), &parse);
    assert_eq!(world.cat("stack_trace_filter"), "parse\n");
    assert_eq!(world.cat("enabled_functions"), "parse (1)\n");
    // A signal handler's stack lies above or below the thread's.
    check_stack(&format!("{on}\n0: +parse<main@200 +lex<parse@70000 - -\n0: +emit<main@0"), &parse);
    // A function that jumped is no longer on the stack. The frames of an untraced function and its
    // traced caller are not told apart.
    check_stack(
        &format!("{on}\n0: +main@100 +emit<main@200 ~parse<main@200 +lex<parse@300"),
        &[
            "  0)      308       8   lex+0x0/0x80",
            "  1)      300     100   parse+0x10/0x80",
            "  2)      200     200   main+0x10/0x80",
        ],
    );
    check_stack(
        &format!("{on}\n0: +main<emit@96 +parse<lex@500"),
        &[
            "  0)      508       8   parse+0x0/0x80",
            "  1)      500     404   lex+0x10/0x80",
            "  2)       96       0   main+0x0/0x80",
            "  3)       96      96   emit+0x10/0x80",
        ],
    );
    // Triggers are not for the stack tracer.
    let handle = world.open("stack_trace_filter", OFlags::WRONLY);
    let written = world.tracefs.write(handle, b"parse:traceoff\n", 100, "cc", 0);
    assert_eq!(written, Err(rustix::io::Errno::NODEV));
}

#[test]
fn a_page_has_the_whole_stack() {
    let mut world = World::after(
        "function > current_tracer
         lex > set_ftrace_filter
         1 > options/func_stack_trace
         0: +main +parse<main +lex<parse",
    );
    let raw = world.open("per_cpu/cpu0/trace_pipe_raw", OFlags::RDONLY);
    let (events, _) = events(&world.take(raw, 4096));
    let number = |at: usize| u64::from_le_bytes(events[1].1[at..at + 8].try_into().expect("8 bytes"));
    // Behind the header: a count, then addresses, the function's own and those of the calls.
    assert_eq!((events[1].1[0], events[1].1[8]), (4, 3));
    assert_eq!([16, 24, 32].map(number), [BASE + 0x1200, BASE + 0x1110, BASE + 0x1010]);
}
