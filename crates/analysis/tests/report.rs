//! Tests of `report`.

use crate::common::{output, recording, rows, same};
use calltap_analysis::report::{Column, Format, Options, write};
use calltap_analysis::{MemorySource, Word};
use calltap_trace::{Loss, ThreadId};

fn report(source: &MemorySource, options: &Options, format: Format) -> String {
    output(|out| write(source, options, format, out, None))
}

#[track_caller]
fn check(events: &str, expected: &str) {
    same(&report(&recording(events), &Options::default(), Format::Text), expected);
}

const TWO_THREADS: &str = "
    main: E main @0; E f @10; X f @30
    worker: E work @15; E f @20; X f @70; X work @90
    main: E g @40; X g @45; X main @100";

/// `std::swap<int>(int&, int&)`, `operator"" _km(char)`.
const CPP: &str =
    "main: E _ZSt4swapIiEvRT_S1_ @0; E _Zli3_kmc @10; X _Zli3_kmc @20; X _ZSt4swapIiEvRT_S1_ @50";

#[test]
fn total_self_and_spread() {
    check(
        "main: E main @0; E f @10; X f @30; E f @40; X f @80; X main @100",
        "
        # 6 events, 1 thread
         TOTAL   SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  40 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
         60 ns  60 ns      2   30 ns   20 ns   40 ns  14 ns  app     f
    ",
    );
}

#[test]
fn tail_calls_end_with_the_shared_frame() {
    check(
        "main: E main @0; E f @10; T g @20; E leaf @30; X leaf @40; X f/2 @50; X main @60",
        "
        # 7 events, 1 thread
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        60 ns  20 ns      1  60 ns  60 ns  60 ns   0 ns  app     main
        40 ns  10 ns      1  40 ns  40 ns  40 ns   0 ns  app     f
        30 ns  20 ns      1  30 ns  30 ns  30 ns   0 ns  app     g
        10 ns  10 ns      1  10 ns  10 ns  10 ns   0 ns  app     leaf
    ",
    );
}

#[test]
fn longjmp_cuts_unwound_calls() {
    check(
        "main: E main @0; E parse @10; E expr @20; E fail @30; X main/4 @90",
        "
        # 5 events, 1 thread
        # 3 calls left without returning
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        90 ns  70 ns      1  90 ns  90 ns  90 ns   0 ns  app     main
            -      -      1      -      -      -      -  app     expr
            -      -      1      -      -      -      -  app     fail
            -      -      1      -      -      -      -  app     parse
    ",
    );
}

#[test]
fn a_return_that_does_not_fit_closes_the_newest_frame_of_its_function() {
    check(
        "main: E main @0; E f @10; E g @20; X f @50; X main @60",
        "
        # 5 events, 1 thread
        # 1 call left without returning
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        60 ns  20 ns      1  60 ns  60 ns  60 ns   0 ns  app     main
        40 ns  40 ns      1  40 ns  40 ns  40 ns   0 ns  app     f
            -      -      1      -      -      -      -  app     g
    ",
    );
}

#[test]
fn returns_without_entry_are_orphans() {
    check(
        "main: X early/0 @5; E f @10; X other @20; X f @30",
        "
        # 4 events, 1 thread
        # 2 returns without an entry
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        20 ns  20 ns      1  20 ns  20 ns  20 ns   0 ns  app     f
    ",
    );
}

#[test]
fn calls_that_were_cut_are_counted_and_have_no_duration() {
    check(
        "main: E main @0; E wait @10; E f @20; X f @50",
        "
        # 4 events, 1 thread
        # 2 calls unfinished
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        30 ns  30 ns      1  30 ns  30 ns  30 ns   0 ns  app     f
            -      -      1      -      -      -      -  app     main
            -      -      1      -      -      -      -  app     wait
    ",
    );
    check(
        "main: E main @0; E f @10; E g @20; < main/2 @900; E f @900; X f @930; X main @1000",
        "
        # 6 events and 1 mark, 1 thread
        # 2 calls left without returning
           TOTAL    SELF  CALLS       AVG       MIN       MAX  STDEV  MODULE  FUNCTION
        1.000 us  960 ns      1  1.000 us  1.000 us  1.000 us   0 ns  app     main
           30 ns   30 ns      2     30 ns     30 ns     30 ns   0 ns  app     f
               -       -      1         -         -         -      -  app     g
    ",
    );
    check(
        "main: E main @0; E f @10; off f @15; E g @20; X g @25; X main/2 @100",
        "
        # 5 events and 1 mark, 1 thread
        # 1 call cut by lost events or by switching functions off
         TOTAL   SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  85 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
          5 ns   5 ns      1    5 ns    5 ns    5 ns   0 ns  app     g
             -      -      1       -       -       -      -  app     f
    ",
    );
}

#[test]
fn loss_is_in_the_head_line() {
    check(
        "main: E main @0; L 3/2 @50; X main @100",
        "
        # 2 events and 1 mark, 1 thread; LOST 3 calls (75.0 % of entries) and 2 returns
         TOTAL    SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  100 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
    ",
    );
}

#[test]
fn loss_that_only_the_totals_know_is_in_the_head_line() {
    let mut source = recording("main: E main @0; X main @100");
    let thread = ThreadId(0);
    source.meta.loss.push(Loss {
        thread,
        entries: 1,
        exits: 1,
        lost_entries: 99,
        lost_exits: 99,
        ..Loss::default()
    });
    same(
        &report(&source, &Options::default(), Format::Text),
        "
        # 2 events, 1 thread; LOST 99 calls (99.0 % of entries) and 99 returns
         TOTAL    SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  100 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
    ",
    );
}

#[test]
fn long_calls() {
    check(
        "main: E main @0; E nap @1us; X nap @10s; X main @10s",
        "
        # 4 events, 1 thread
           TOTAL      SELF  CALLS       AVG       MIN       MAX  STDEV  MODULE  FUNCTION
        10.000 s  1.000 us      1  10.000 s  10.000 s  10.000 s   0 ns  app     main
         9.999 s   9.999 s      1   9.999 s   9.999 s   9.999 s   0 ns  app     nap
    ",
    );
}

#[test]
fn time_that_goes_back_is_clamped() {
    check(
        "main: E main @0; E f @50; X f @40; E g @45; X g @60; X main @100",
        "
        # 6 events, 1 thread
         TOTAL   SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  90 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
         10 ns  10 ns      1   10 ns   10 ns   10 ns   0 ns  app     g
          0 ns   0 ns      1    0 ns    0 ns    0 ns   0 ns  app     f
    ",
    );
}

#[test]
fn threads_are_summed() {
    check(
        TWO_THREADS,
        "
        # 10 events, 2 threads
         TOTAL   SELF  CALLS     AVG     MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  75 ns      1  100 ns  100 ns  100 ns   0 ns  app     main
         75 ns  25 ns      1   75 ns   75 ns   75 ns   0 ns  app     work
         70 ns  70 ns      2   35 ns   20 ns   50 ns  21 ns  app     f
          5 ns   5 ns      1    5 ns    5 ns    5 ns   0 ns  app     g
    ",
    );
}

#[test]
fn by_thread() {
    let options = Options { by_thread: true, ..Options::default() };
    same(
        &report(&recording(TWO_THREADS), &options, Format::Text),
        "
        # 10 events, 2 threads
         TOTAL   SELF  CALLS     AVG     MIN     MAX  STDEV  THREAD      MODULE  FUNCTION
        100 ns  75 ns      1  100 ns  100 ns  100 ns   0 ns  main-100    app     main
         20 ns  20 ns      1   20 ns   20 ns   20 ns   0 ns  main-100    app     f
          5 ns   5 ns      1    5 ns    5 ns    5 ns   0 ns  main-100    app     g
         75 ns  25 ns      1   75 ns   75 ns   75 ns   0 ns  worker-101  app     work
         50 ns  50 ns      1   50 ns   50 ns   50 ns   0 ns  worker-101  app     f
    ",
    );
    same(
        &report(&recording(TWO_THREADS), &options, Format::Csv),
        "
        thread,tid,function,module,calls,total_ns,self_ns,avg_ns,min_ns,max_ns,stdev_ns
        main,100,main,app,1,100,75,100,100,100,0
        main,100,f,app,1,20,20,20,20,20,0
        main,100,g,app,1,5,5,5,5,5,0
        worker,101,work,app,1,75,25,75,75,75,0
        worker,101,f,app,1,50,50,50,50,50,0
    ",
    );
    same(
        &rows(&report(&recording(TWO_THREADS), &options, Format::Json)),
        r#"
        [
        {"function":"main","module":"app","thread":"main","tid":100,"calls":1,"total_ns":100,"self_ns":75,"avg_ns":100,"min_ns":100,"max_ns":100,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"f","module":"app","thread":"main","tid":100,"calls":1,"total_ns":20,"self_ns":20,"avg_ns":20,"min_ns":20,"max_ns":20,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"g","module":"app","thread":"main","tid":100,"calls":1,"total_ns":5,"self_ns":5,"avg_ns":5,"min_ns":5,"max_ns":5,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"work","module":"app","thread":"worker","tid":101,"calls":1,"total_ns":75,"self_ns":25,"avg_ns":75,"min_ns":75,"max_ns":75,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"f","module":"app","thread":"worker","tid":101,"calls":1,"total_ns":50,"self_ns":50,"avg_ns":50,"min_ns":50,"max_ns":50,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null}
        ]
    "#,
    );
}

#[test]
fn a_counter_clock_shows_no_times() {
    let mut source = recording("main: E main @0; E f @1; X f @2; X main @3");
    source.ns_per_tick = 0;
    same(
        &report(&source, &Options::default(), Format::Text),
        "
        # 4 events, 1 thread
        CALLS  MODULE  FUNCTION
            1  app     f
            1  app     main
    ",
    );
    same(
        &report(&source, &Options::default(), Format::Csv),
        "
        function,module,calls,total_ns,self_ns,avg_ns,min_ns,max_ns,stdev_ns
        f,app,1,,,,,,
        main,app,1,,,,,,
    ",
    );
    same(
        &rows(&report(&source, &Options::default(), Format::Json)),
        r#"
        [
        {"function":"f","module":"app","calls":1,"total_ns":null,"self_ns":null,"avg_ns":null,"min_ns":null,"max_ns":null,"stdev_ns":null,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"main","module":"app","calls":1,"total_ns":null,"self_ns":null,"avg_ns":null,"min_ns":null,"max_ns":null,"stdev_ns":null,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null}
        ]
    "#,
    );
}

#[test]
fn function_tracer_calls_have_no_time() {
    check(
        "main: C f <-0x401010 @0; C f @5; E main @10; X main @20",
        "
        # 4 events, 1 thread
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        10 ns  10 ns      1  10 ns  10 ns  10 ns   0 ns  app     main
            -      -      2      -      -      -      -  app     f
    ",
    );
}

#[test]
fn sorted_filtered_limited() {
    let events =
        "main: E main @0; E a_one @10; X a_one @20; E a_two @20; X a_two @90; E b @91; X b @92; X main @99";
    let options = Options {
        sort: Column::Function,
        filter: vec![Word::new("a_*"), Word::new("b")],
        limit: Some(2),
        ..Options::default()
    };
    same(
        &report(&recording(events), &options, Format::Text),
        "
        # 8 events, 1 thread
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        10 ns  10 ns      1  10 ns  10 ns  10 ns   0 ns  app     a_one
        70 ns  70 ns      1  70 ns  70 ns  70 ns   0 ns  app     a_two
        # 1 function not shown
    ",
    );
    let reversed = Options { reverse: true, limit: None, sort: Column::Min, ..options };
    same(
        &report(&recording(events), &reversed, Format::Text),
        "
        # 8 events, 1 thread
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
         1 ns   1 ns      1   1 ns   1 ns   1 ns   0 ns  app     b
        10 ns  10 ns      1  10 ns  10 ns  10 ns   0 ns  app     a_one
        70 ns  70 ns      1  70 ns  70 ns  70 ns   0 ns  app     a_two
    ",
    );
}

#[test]
fn filter_matches_both_names() {
    for glob in ["_ZSt4swap*", "std::swap<int>*"] {
        let options = Options { filter: vec![Word::new(glob)], ..Options::default() };
        let text = report(&recording(CPP), &options, Format::Csv);
        assert_eq!(text.lines().count(), 2, "{glob}: {text}");
    }
}

#[test]
fn names_with_commas_and_quotes() {
    same(
        &report(&recording(CPP), &Options::default(), Format::Csv),
        r#"
        function,module,calls,total_ns,self_ns,avg_ns,min_ns,max_ns,stdev_ns
        "std::swap<int>(int&, int&)",app,1,50,40,50,50,50,0
        "operator_km::operator """"(char)",app,1,10,10,10,10,10,0
    "#,
    );
    same(
        &rows(&report(&recording(CPP), &Options::default(), Format::Json)),
        r#"
        [
        {"function":"std::swap<int>(int&, int&)","module":"app","calls":1,"total_ns":50,"self_ns":40,"avg_ns":50,"min_ns":50,"max_ns":50,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null},
        {"function":"operator_km::operator \"\"(char)","module":"app","calls":1,"total_ns":10,"self_ns":10,"avg_ns":10,"min_ns":10,"max_ns":10,"stdev_ns":0,"cpu_ns":null,"runnable_ns":null,"blocked_ns":null,"tracing_ns":null,"self_cpu_ns":null,"self_runnable_ns":null,"self_blocked_ns":null,"self_tracing_ns":null}
        ]
    "#,
    );
    let linker = Options { linker_names: true, ..Options::default() };
    same(
        &report(&recording(CPP), &linker, Format::Csv),
        "
        function,module,calls,total_ns,self_ns,avg_ns,min_ns,max_ns,stdev_ns
        _ZSt4swapIiEvRT_S1_,app,1,50,40,50,50,50,0
        _Zli3_kmc,app,1,10,10,10,10,10,0
    ",
    );
}

#[test]
fn the_same_function_in_two_processes_is_one_row() {
    let mut source = recording("main: E f @0; X f @10\nchild: E f2 @5; X f2 @25");
    let mut module = source.meta.modules[0].clone();
    (module.id, module.process) = (1, 1);
    source.meta.modules.push(module);
    let first = source.meta.sites[0].clone();
    let second = &mut source.meta.sites[1];
    (second.name, second.address, second.module) = (first.name, first.address, 1);
    same(
        &report(&source, &Options::default(), Format::Text),
        "
        # 4 events, 2 threads
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        30 ns  30 ns      2  15 ns  10 ns  20 ns   7 ns  app     f
    ",
    );
}

#[test]
fn nothing_recorded() {
    check(
        "",
        "
        # 0 events, 0 threads
        TOTAL  SELF  CALLS  AVG  MIN  MAX  STDEV  MODULE  FUNCTION
    ",
    );
    same(&rows(&report(&recording(""), &Options::default(), Format::Json)), "[]");
}

/// Makes a hundred calls of 1, 2, ... 100 us, and one of a second.
fn spread() -> MemorySource {
    let calls: Vec<String> = (1..=100).map(|at| format!("E f @{at}ms; X f @{}us", at * 1000 + at)).collect();
    recording(&format!("main: {}; E f @1s; X f @2s; E g @3s; X g @4s", calls.join("; ")))
}

#[test]
fn percentiles_are_columns_one_can_ask_for_and_sort_by() {
    let columns = vec![Column::P50, Column::P90, Column::Calls, Column::P999, Column::Max];
    let options = Options { columns, sort: Column::P99, ..Options::default() };
    // Percentiles are off by at most 1/128.
    same(
        &report(&spread(), &options, Format::Text),
        "
        # 204 events, 1 thread
              P50        P90  CALLS    P99.9      MAX        P99  MODULE  FUNCTION
          1.000 s    1.000 s      1  1.000 s  1.000 s    1.000 s  app     g
        50.943 us  90.623 us    101  1.000 s  1.000 s  99.839 us  app     f
    ",
    );
    same(
        &report(&spread(), &options, Format::Csv),
        "
        function,module,p50_ns,p90_ns,calls,p99_9_ns,max_ns,p99_ns
        g,app,1000000000,1000000000,1,1000000000,1000000000,1000000000
        f,app,50943,90623,101,1000000000,1000000000,99839
    ",
    );
    let sorted = Options { sort: Column::P50, limit: Some(1), ..Options::default() };
    let json: serde_json::Value =
        serde_json::from_str(&rows(&report(&spread(), &sorted, Format::Json))).expect("JSON");
    assert_eq!(
        (&json[0]["function"], &json[0]["p50_ns"], &json[0]["calls"]),
        (&"g".into(), &1_000_000_000.into(), &1.into())
    );
}

#[test]
fn percentiles_of_threads_are_their_own() {
    let options =
        Options { columns: vec![Column::P50], by_thread: true, sort: Column::P50, ..Options::default() };
    same(
        &report(
            &recording("a: E f @0; X f @10; E f @20; X f @40\nb: E f @0; X f @99"),
            &options,
            Format::Text,
        ),
        "
        # 6 events, 2 threads
          P50  THREAD  MODULE  FUNCTION
        10 ns  a-100   app     f
        99 ns  b-101   app     f
    ",
    );
}

#[test]
fn without_times_there_are_no_percentiles() {
    let mut source = recording("main: E f @0; X f @10");
    source.ns_per_tick = 0;
    let options = Options { columns: vec![Column::P50, Column::P99], ..Options::default() };
    same(
        &report(&source, &options, Format::Text),
        "
        # 2 events, 1 thread
        CALLS  MODULE  FUNCTION
            1  app     f
    ",
    );
}

#[test]
fn the_page_about_columns_has_all_in_their_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/report.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), Column::NAMES);
}
