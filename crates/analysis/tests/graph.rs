//! Tests of `graph`.

use crate::common::{output, recording, same};
use calltap_analysis::graph::{Options, write};
use calltap_analysis::{MemorySource, Word};

const PROGRAM: &str = "
    main: E main @0; E read @100; E copy @150; X copy @250; X read @300; E write @400; E copy @450; X copy @650; X write @700; X main @1000
    worker: E loop @0; E copy @10; X copy @210; E flush @300; X flush @301; X loop @1000";

fn graph(source: &MemorySource, options: &Options) -> String {
    output(|out| write(source, options, out, None))
}

#[test]
fn whole_program() {
    same(
        &graph(&recording(PROGRAM), &Options::default()),
        "
        # 16 events, 2 threads
              TOTAL        SELF       %       CALLS  FUNCTION
           1.000 us      500 ns   50.00           1  main
             300 ns      100 ns   15.00           1    write
             200 ns      200 ns   10.00           1      copy
             200 ns      100 ns   10.00           1    read
             100 ns      100 ns    5.00           1      copy
           1.000 us      799 ns   50.00           1  loop
             200 ns      200 ns   10.00           1    copy
               1 ns        1 ns    0.05           1    flush
    ",
    );
}

#[test]
fn by_thread() {
    same(
        &graph(&recording(PROGRAM), &Options { by_thread: true, ..Options::default() }),
        "
        # 16 events, 2 threads
              TOTAL        SELF       %       CALLS  FUNCTION
           1.000 us        0 ns   50.00           0  main-100
           1.000 us      500 ns   50.00           1    main
             300 ns      100 ns   15.00           1      write
             200 ns      200 ns   10.00           1        copy
             200 ns      100 ns   10.00           1      read
             100 ns      100 ns    5.00           1        copy
           1.000 us        0 ns   50.00           0  worker-101
           1.000 us      799 ns   50.00           1    loop
             200 ns      200 ns   10.00           1      copy
               1 ns        1 ns    0.05           1      flush
    ",
    );
}

#[test]
fn limits() {
    let options = Options { depth: 2, min_percent: 1.0, ..Options::default() };
    same(
        &graph(&recording(PROGRAM), &options),
        "
        # 16 events, 2 threads
              TOTAL        SELF       %       CALLS  FUNCTION
           1.000 us      500 ns   50.00           1  main
             300 ns      100 ns   15.00           1    write
             200 ns      100 ns   10.00           1    read
           1.000 us      799 ns   50.00           1  loop
             200 ns      200 ns   10.00           1    copy
        # 3 paths not shown (below the depth or percentage asked for)
    ",
    );
    let options = Options { max_paths: 4, ..Options::default() };
    same(
        &graph(&recording(PROGRAM), &options),
        "
        # 16 events, 2 threads
        # more than 4 paths: 4 calls shown as part of their callers
              TOTAL        SELF       %       CALLS  FUNCTION
           1.000 us      500 ns   50.00           1  main
             300 ns      300 ns   15.00           1    write
             200 ns      100 ns   10.00           1    read
             100 ns      100 ns    5.00           1      copy
    ",
    );
}

#[test]
fn the_limit_of_paths_that_was_met_is_named() {
    let calls = |depth: usize| -> MemorySource {
        let entries = (0..depth).map(|n| format!("E f @{n}; "));
        let returns = (0..depth).map(|n| format!("X f @{}; ", depth + n));
        recording(&format!("main: {}", entries.chain(returns).collect::<String>().trim_end_matches("; ")))
    };
    let note = |depth, max_paths| {
        let text = graph(&calls(depth), &Options { max_paths, ..Options::default() });
        text.lines().find(|line| line.contains("shown as part")).map(str::to_owned)
    };
    assert_eq!(note(2000, 0), None);
    let deep = "# paths deeper than 2,048 calls: 2 calls shown as part of their callers";
    assert_eq!(note(2050, 0).as_deref(), Some(deep));
    let many = "# more than 10 paths: 10 calls shown as part of their callers";
    assert_eq!(note(20, 10).as_deref(), Some(many));
}

#[test]
fn callers_and_callees() {
    let functions = vec![Word::new("copy")];
    same(
        &graph(&recording(PROGRAM), &Options { functions, ..Options::default() }),
        "
        # 16 events, 2 threads
        # copy: 3 calls

        callers of copy, innermost first:
              TOTAL       %       CALLS  FUNCTION
             200 ns   40.00           1  write
             200 ns   40.00           1    main
             200 ns   40.00           1  loop
             100 ns   20.00           1  read
             100 ns   20.00           1    main

        copy and what it calls:
              TOTAL        SELF       %       CALLS  FUNCTION
             500 ns      500 ns  100.00           3  copy
    ",
    );
    let functions = vec![Word::new("re*")];
    same(
        &graph(&recording(PROGRAM), &Options { functions, ..Options::default() }),
        "
        # 16 events, 2 threads
        # re*: 1 call

        callers of re*, innermost first:
              TOTAL       %       CALLS  FUNCTION
             200 ns  100.00           1  main

        re* and what it calls:
              TOTAL        SELF       %       CALLS  FUNCTION
             200 ns      100 ns  100.00           1  read
             100 ns      100 ns   50.00           1    copy
    ",
    );
}

#[test]
fn recursion() {
    let source =
        recording("main: E main @0; E f @10; E f @20; E g @30; X g @40; X f @50; X f @60; X main @100");
    let functions = vec![Word::new("f")];
    same(
        &graph(&source, &Options { functions, ..Options::default() }),
        "
        # 8 events, 1 thread
        # f: 2 calls

        callers of f, innermost first:
              TOTAL       %       CALLS  FUNCTION
              50 ns  100.00           1  main
               0 ns    0.00           1  f
               0 ns    0.00           1    main

        f and what it calls:
              TOTAL        SELF       %       CALLS  FUNCTION
              50 ns       20 ns  100.00           1  f
              30 ns       20 ns   60.00           1    f
              10 ns       10 ns   20.00           1      g
    ",
    );
}

#[test]
fn without_time() {
    let mut source = recording("main: E main @0; E f @1; X f @2; E f @3; X f @4; X main @5");
    source.ns_per_tick = 0;
    same(
        &graph(&source, &Options::default()),
        "
        # 6 events, 1 thread
              CALLS  FUNCTION
                  1  main
                  2    f
    ",
    );
}

#[test]
fn callers_and_callees_of_several_functions() {
    let functions = ["read", "write"].map(Word::new).to_vec();
    same(
        &graph(&recording(PROGRAM), &Options { functions, ..Options::default() }),
        "
        # 16 events, 2 threads
        # read, write: 2 calls

        callers of read, write, innermost first:
              TOTAL       %       CALLS  FUNCTION
             500 ns  100.00           2  main

        read, write and what they call:
              TOTAL        SELF       %       CALLS  FUNCTION
             300 ns      100 ns   60.00           1  write
             200 ns      200 ns   40.00           1    copy
             200 ns      100 ns   40.00           1  read
             100 ns      100 ns   20.00           1    copy
    ",
    );
}

#[test]
fn a_function_that_was_not_recorded() {
    let options = Options { functions: vec![Word::new("cpy")], ..Options::default() };
    let error = write(&recording(PROGRAM), &options, &mut Vec::new(), None).unwrap_err();
    assert_eq!(error.to_string(), "no recorded function matches 'cpy'; similar: copy");
}

#[test]
fn paths_count_unfinished_and_lost_calls() {
    let source = recording(
        "
        main: E main @0; E read @100; E copy @150; L 2/3 @180; X main @300
        main: E main @400; E read @500; off read @550; X main @600; E main @700; E read @800",
    );
    same(
        &graph(&source, &Options::default()),
        "
        # 9 events and 2 marks, 1 thread; LOST 2 calls (22.2 % of entries) and 3 returns
        # 2 calls unfinished, 3 calls cut by lost events or by switching functions off
        # calls without a known end count until they were last known to run
              TOTAL        SELF       %       CALLS  FUNCTION
             600 ns      520 ns  100.00           3  main  [1 cut]
              80 ns       50 ns   13.33           3    read  [3 cut]
              30 ns       30 ns    5.00           1      copy  [1 cut]  [LOST 5 EVENTS]
    ",
    );
    let functions = vec![Word::new("read")];
    same(
        &graph(&source, &Options { functions, ..Options::default() }),
        "
        # 9 events and 2 marks, 1 thread; LOST 2 calls (22.2 % of entries) and 3 returns
        # 2 calls unfinished, 3 calls cut by lost events or by switching functions off
        # calls without a known end count until they were last known to run
        # read: 3 calls

        callers of read, innermost first:
              TOTAL       %       CALLS  FUNCTION
              80 ns  100.00           3  main

        read and what it calls:
              TOTAL        SELF       %       CALLS  FUNCTION
              80 ns       50 ns  100.00           3  read  [3 cut]
              30 ns       30 ns   37.50           1    copy  [1 cut]  [LOST 5 EVENTS]
    ",
    );
}
