//! Events of a simulated process, and the contents of `trace`, `trace_pipe` and similar files.

mod pages;
mod stacks;
mod world;

use calltap_tracefs::Read;
use rustix::fs::OFlags;
use world::World;

/// Runs a script ([`World::after`]), and compares the contents of `trace`.
fn check(script: &str, expected: &str) {
    let expected: String = expected
        .lines()
        .skip(1)
        .map(|line| line.trim_start_matches("            |").to_owned() + "\n")
        .collect();
    assert_eq!(World::after(script).trace("trace"), expected, "{script}");
}

#[test]
fn function_tracer_prints_caller_callee_thread_and_time() {
    check(
        "function > current_tracer
         0: parse<main lex<parse
         1: emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000002: lex <-parse
            |a-long-worker-name-101     [000] .....     5.000003: emit <-main",
    );
}

#[test]
fn filters_and_threads_select_recorded_calls() {
    check(
        "function > current_tracer
         parse > set_ftrace_filter
         0: parse<main lex<parse
         *e* > set_ftrace_filter
         emit > set_ftrace_notrace
         0: emit<main lex<parse
         101 > set_ftrace_pid
         0: lex<parse
         1: lex<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000004: lex <-parse
            |a-long-worker-name-101     [000] .....     5.000006: lex <-main",
    );
}

#[test]
fn options_change_how_lines_look() {
    check(
        "function > current_tracer
         1 > options/sym-offset
         0 > options/irq-info
         1 > options/record-tgid
         0: parse<main",
        "
            |              cc-100     (    100) [000]      5.000001: parse+0x0/0x80 <-main+0x10/0x80",
    );
    check(
        "function > current_tracer
         0 > options/context-info
         0 > options/print-parent
         0: parse<main",
        "
            |parse",
    );
    check(
        "function > current_tracer
         1 > options/func-no-repeats
         0: parse<main lex<parse lex<parse lex<parse emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000002: lex <-parse
            |              cc-100     [000] .....     5.000003: lex <-parse (repeats: 2, last_ts:     5.000004)
            |              cc-100     [000] .....     5.000005: emit <-main",
    );
}

#[test]
fn pausing_reader_pauses_recording_until_closed() {
    let mut world = World::after("function > current_tracer");
    let before = world.open("trace", OFlags::RDONLY);
    world.does("1 > options/pause-on-trace");
    let pausing = world.open("trace", OFlags::RDONLY);
    world.tracefs.release(before);
    world.does("0: parse<main");
    world.settle();
    world.tracefs.release(pausing);
    world.does("0: emit<main");
    world.does("0 > options/pause-on-trace");
    let trace = world.cat("trace");
    assert!(trace.contains("emit <-main") && !trace.contains("parse"), "{trace}");
}

#[test]
fn function_graph_indents_calls_and_adds_up_their_time() {
    check(
        "function_graph > current_tracer
         0: +main +parse +lex - - +emit -
         1: +lex -
         0: -",
        "
            | 0)               |  main() {
            | 0)               |    parse() {
            | 0)   1.000 us    |      lex();
            | 0)   3.000 us    |    }
            | 0)   1.000 us    |    emit();
            | ------------------------------------------
            | 0)     cc-100     =>  a-long--101  
            | ------------------------------------------
            |
            | 0)   1.000 us    |  lex();
            | ------------------------------------------
            | 0)  a-long--101   =>     cc-100    
            | ------------------------------------------
            |
            | 0)   9.000 us    |  }",
    );
}

#[test]
fn call_entered_before_recording_is_named_at_its_return() {
    check(
        "function_graph > current_tracer
         0: +main +parse
         1 > tracing_on
         x > trace
         0: - +emit - -",
        "
            | 0)   1.000 us    |    } /* parse */
            | 0)   1.000 us    |    emit();
            | 0)   5.000 us    |  } /* main */",
    );
}

#[test]
fn graph_functions_depth_and_threshold_choose_calls() {
    let calls = "0: +main +parse +lex - - +emit - -";
    check(
        &format!("function_graph > current_tracer\nparse > set_graph_function\n{calls}"),
        "
            | 0)               |  parse() {
            | 0)   1.000 us    |    lex();
            | 0)   3.000 us    |  }",
    );
    check(
        &format!("function_graph > current_tracer\nparse > set_graph_notrace\n{calls}"),
        "
            | 0)               |  main() {
            | 0)   1.000 us    |    emit();
            | 0)   7.000 us    |  }",
    );
    check(
        &format!("function_graph > current_tracer\n1 > max_graph_depth\n{calls}"),
        "
            | 0)   7.000 us    |  main();",
    );
    check(
        &format!("function_graph > current_tracer\n2 > tracing_thresh\n{calls}"),
        "
            | 0)   3.000 us    |    } /* parse */
            | 0)   7.000 us    |  } /* main */",
    );
}

#[test]
fn frames_that_are_left_have_no_end() {
    check(
        "function_graph > current_tracer
         0: +main +parse +lex --- +emit -",
        "
            | 0)               |  main() {
            | 0)               |    parse() {
            | 0)               |      lex() {
            | 0)   3.000 us    |  }
            | 0)   1.000 us    |  emit();",
    );
}

#[test]
fn triggers_act_at_their_call() {
    check(
        "function > current_tracer
         lex:traceoff > set_ftrace_filter
         0: parse<main lex<parse emit<main",
        "
            |              cc-100     [000] .....     5.000001: parse <-main",
    );
    check(
        "function > current_tracer
         0 > tracing_on
         lex:traceon:1 > set_ftrace_filter
         0: parse<main lex<parse emit<main
         0 > tracing_on
         0: lex<parse",
        "
            |              cc-100     [000] .....     5.000002: lex <-parse
            |              cc-100     [000] .....     5.000003: emit <-main",
    );
    check(
        "lex:stacktrace > set_ftrace_filter
         0: parse<main lex<parse",
        "
            |              cc-100     [000] .....     5.000002: <stack trace>
            | => lex
            | => parse",
    );
}

#[test]
fn marks_stand_among_the_calls_in_the_order_of_time() {
    check(
        "function > current_tracer
         0: parse<main
         here > trace_marker
         0: lex<parse",
        "
            |              cc-100     [000] .....     5.000001: parse <-main
            |              cc-100     [000] .....     5.000001: tracing_mark_write: here
            |              cc-100     [000] .....     5.000002: lex <-parse",
    );
}

#[test]
fn instances_trace_by_themselves() {
    let mut world = World::after(
        "mkdir mine
         function > current_tracer
         parse > set_ftrace_filter
         function_graph > instances/mine/current_tracer
         lex > instances/mine/set_ftrace_filter
         0: +parse<main +lex<parse - -",
    );
    let instances = world.find("instances");
    assert_eq!(world.trace("trace"), "              cc-100     [000] .....     5.000001: parse <-main\n");
    assert_eq!(world.trace("instances/mine/trace"), " 0)   1.000 us    |  lex();\n");
    assert_eq!(world.cat("enabled_functions"), "parse (1)\nlex (1)\n");
    world.echo("lex", "set_ftrace_filter");
    assert_eq!(world.cat("enabled_functions"), "lex (2)\n");
    let names: Vec<String> = world.tracefs.words().tracers.into_iter().map(|tracer| tracer.name).collect();
    assert_eq!(names, ["trace", "mine/trace"]);
    let open = world.open("instances/mine/trace", OFlags::RDONLY);
    assert_eq!(world.tracefs.remove_directory(instances, "mine"), Err(rustix::io::Errno::BUSY));
    world.tracefs.release(open);
    world.tracefs.remove_directory(instances, "mine").expect("rmdir");
    assert_eq!(world.cat("enabled_functions"), "lex (1)\n");
    world.run(0, "lex<main");
    assert!(world.trace("trace").ends_with("lex <-main\n"));
}

#[test]
fn removed_instance_keeps_open_calls_of_others() {
    let mut world = World::after(
        "mkdir a
         mkdir b
         function_graph > instances/a/current_tracer
         function_graph > instances/b/current_tracer
         0: +main +parse",
    );
    let instances = world.find("instances");
    world.tracefs.remove_directory(instances, "a").expect("rmdir");
    world.tracefs.take_effects();
    world.run(0, "- -");
    assert_eq!(
        world.trace("instances/b/trace"),
        " 0)               |  main() {\n 0)   1.000 us    |    parse();\n 0)   3.000 us    |  }\n"
    );
}

#[test]
fn trace_pipe_consumes_and_has_one_reader() {
    let mut world = World::after("function > current_tracer");
    let pipe = world.open("trace_pipe", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(pipe, 0, 4096, true), Ok(Read::Wait));
    assert!(!world.tracefs.is_readable(pipe));
    world.run(0, "parse<main lex<parse");
    world.settle();
    assert!(world.tracefs.is_readable(pipe));
    assert_eq!(String::from_utf8_lossy(&world.take(pipe, 4096)).lines().count(), 2);
    assert_eq!(world.trace("trace"), "");
    let again = world.find("trace_pipe");
    assert_eq!(world.tracefs.open(again, OFlags::RDONLY), Err(rustix::io::Errno::BUSY));
    let busy = world.open("current_tracer", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(busy, b"nop\n", 1, "sh", 0), Err(rustix::io::Errno::BUSY));
    // With tracing off, a reader that has read something is at the end of the file.
    world.echo("0", "tracing_on");
    assert_eq!(world.tracefs.read(pipe, 0, 4096, true), Ok(Read::Data(Vec::new())));
    world.tracefs.release(pipe);
    let fresh = world.open("trace_pipe", OFlags::RDONLY);
    assert_eq!(world.tracefs.read(fresh, 0, 4096, true), Ok(Read::Wait));
    world.tracefs.end();
    assert_eq!(world.tracefs.read(fresh, 0, 4096, true), Ok(Read::Data(Vec::new())));
}

fn thousand_calls_in_a_small_buffer() -> String {
    "function > current_tracer\n4 > buffer_size_kb\n0:".to_owned() + &" parse<main".repeat(1000)
}

#[test]
fn a_full_buffer_tells_the_pipe_how_many_were_lost() {
    let mut world = World::after(&thousand_calls_in_a_small_buffer());
    let pipe = world.open("trace_pipe", OFlags::RDONLY);
    let data = world.take(pipe, 200);
    // Two processors, two sub-buffers of 4080 bytes each, 28 bytes a record.
    assert!(data.starts_with(format!("CPU:0 [LOST {} EVENTS]\n", 1000 - 4 * 4080 / 28).as_bytes()));
}

#[test]
fn snapshot_keeps_the_buffer() {
    let mut world = World::after("function > current_tracer\n0: parse<main\n1 > snapshot");
    assert_eq!(world.trace("trace"), "");
    assert!(world.trace("snapshot").ends_with("parse <-main\n"));
    world.echo("2", "snapshot");
    assert!(world.cat("snapshot").contains("# * Snapshot is allocated *\n"));
    world.echo("0", "snapshot");
    assert!(world.cat("snapshot").contains("# * Snapshot is freed *\n"));
}

#[test]
fn a_session_of_the_first_proposal_reads_literally() {
    let mut world = World::after("function > current_tracer");
    assert_eq!(world.cat("function_tracers"), "*trace\n");
    world.echo("1", "function_profile_enabled");
    assert_eq!(world.cat("function_tracers"), "trace\n*trace_profile\n");
    world.echo("lex", "set_ftrace_filter");
    let expected = "[ trace] #### all functions enabled ####\n[ trace_profile] lex\n";
    assert_eq!(world.cat("set_ftrace_filter"), expected);
}

#[test]
fn client_of_one_tracer_sees_one_filter() {
    let mut world = World::after(
        "function > current_tracer
         1 > function_profile_enabled
         lex > set_ftrace_filter",
    );
    assert_eq!(world.cat("set_ftrace_filter"), "lex\n");
    let words = world.tracefs.words();
    assert!(words.tracers.iter().all(|tracer| tracer.filter == ["=lex"]), "{words:?}");
}

#[test]
fn reading_in_any_pieces_gives_the_same_bytes() {
    let calls = "0: +main +parse +lex - - +emit - -\n1: +lex -\n".repeat(200);
    let mut world = World::after(&("function_graph > current_tracer\n".to_owned() + &calls));
    let whole = world.cat("trace");
    let handle = world.open("trace", OFlags::RDONLY);
    for size in [1, 3, 4096, 1 << 20] {
        let (mut text, mut offset) = (Vec::new(), 0);
        while let Ok(Read::Data(data)) = world.tracefs.read(handle, offset, size, true)
            && !data.is_empty()
        {
            offset += data.len() as u64;
            text.extend(data);
        }
        assert!(text == whole.as_bytes(), "in pieces of {size}");
    }
}

#[test]
fn children_of_listed_tasks_are_listed_if_that_is_wanted() {
    let script = "100 > set_ftrace_pid
         101 > set_ftrace_notrace_pid
         function > current_tracer
         begin 7 107
         1 > options/function-fork
         begin 8 108
         fork 200 9 200
         9: lex<main
         end 9";
    let mut world = World::after(script);
    // Which thread of a process made a new one is not known: both lists grow, and notrace wins.
    assert_eq!(world.cat("set_ftrace_pid"), "100\n108\n");
    assert_eq!(world.cat("set_ftrace_notrace_pid"), "101\n108\n");
    let mut world = World::after(&script.replace("101 >", "55 >"));
    assert_eq!(world.cat("set_ftrace_pid"), "100\n108\n");
    assert!(world.trace("trace").ends_with("new-200     [000] .....     5.000001: lex <-main\n"));
}

#[test]
fn error_log_has_message_and_position() {
    let mut world = World::after("function > current_tracer");
    let refused = |world: &mut World, text: &str, path: &str| {
        let handle = world.open(path, OFlags::WRONLY | OFlags::APPEND);
        let written = world.tracefs.write(handle, format!("{text}\n").as_bytes(), 100, "cc", 7_000_001_000);
        world.tracefs.release(handle);
        assert!(written.is_err(), "{text} > {path}");
    };
    assert_eq!(world.cat("error_log"), "");
    refused(&mut world, "no_such", "set_ftrace_filter");
    refused(&mut world, "lex:traceof", "set_ftrace_filter");
    refused(&mut world, "!lex:traceoff:3", "set_ftrace_filter");
    refused(&mut world, "lex:traceoff:x", "set_ftrace_filter");
    refused(&mut world, "12 x", "set_ftrace_pid");
    refused(&mut world, "functoin", "current_tracer");
    let expected = [
        "[    7.000001] set_ftrace_filter: error: no function matches 'no_such'",
        "  Command: no_such",
        "           ^",
        "[    7.000001] set_ftrace_filter: error: no command 'traceof'",
        "  Command: lex:traceof",
        "               ^",
        "[    7.000001] set_ftrace_filter: error: no function has this trigger",
        "  Command: !lex:traceoff:3",
        "                ^",
        "[    7.000001] set_ftrace_filter: error: 'x' is no count",
        "  Command: lex:traceoff:x",
        "                        ^",
        "[    7.000001] set_ftrace_pid: error: 'x' is no thread id",
        "  Command: 12 x",
        "           ^",
        "[    7.000001] current_tracer: error: no tracer named 'functoin' (see available_tracers)",
        "  Command: functoin",
        "           ^",
    ];
    assert_eq!(world.cat("error_log").lines().collect::<Vec<_>>(), expected);
    // Eight errors are kept for each instance.
    (0..10).for_each(|n| refused(&mut world, &format!("none{n}"), "set_ftrace_notrace"));
    let log = world.cat("error_log");
    assert_eq!((log.lines().count(), log.contains("none1"), log.contains("none2")), (24, false, true));
    world.does("mkdir mine");
    refused(&mut world, "no_such", "instances/mine/trace_clock");
    assert_eq!(world.cat("instances/mine/error_log").lines().count(), 3);
    world.echo("", "error_log");
    assert_eq!(world.cat("error_log"), "");
    // A word that is complete only when the file is closed can be reported only in the log.
    let handle = world.open("set_ftrace_filter", OFlags::WRONLY | OFlags::TRUNC);
    assert_eq!(world.tracefs.write(handle, b"bad", 100, "cc", 0), Ok(3));
    world.tracefs.release(handle);
    assert!(world.cat("error_log").contains("no function matches 'bad'"));
}

#[test]
fn a_filter_that_only_waits_names_nothing() {
    let world = World::after("function > current_tracer\n*:mod:later > set_ftrace_filter");
    assert!(world.tracefs.awaits_library());
    assert_eq!(world.tracefs.words().tracers[0].filter, ["!*"]);
}
