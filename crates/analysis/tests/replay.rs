//! Tests of `replay`.

use crate::common::{output, recording, same};
use calltap_analysis::MemorySource;
use calltap_analysis::replay::{Layout, Options, write};
use calltap_trace::{Meta, SiteId, SlowRule, ThreadId};

fn replay(source: &MemorySource, options: &Options) -> String {
    output(|out| write(source, options, out, None).map(drop))
}

/// Checks the lines of calls, without header.
#[track_caller]
fn check(events: &str, expected: &str) {
    let options = Options { no_header: true, ..Options::default() };
    same(&replay(&recording(events), &options), expected);
}

#[test]
fn header_leaves_and_braces() {
    let source = recording(
        "main: E main @0; E f @10us; X f @14060; E g @20us; E f @21us; X f @22us; X g @1ms; X main @2s",
    );
    same(
        &replay(&source, &Options::default()),
        "
        # tracer: function_graph
        #
        #  TASK/PID         DURATION                  FUNCTION CALLS
        #   |    |           |   |                     |   |   |   |
           main-100    |               |  main() {
           main-100    |   4.060 us    |    f();
           main-100    |               |    g() {
           main-100    |   1.000 us    |      f();
           main-100    | ! 980.000 us  |    }
           main-100    | $ 2000000 us  |  }
    ",
    );
    let options = Options { tail: true, time: Some(calltap_analysis::Stamp::Since(0)), ..Options::default() };
    same(
        &replay(&source, &options),
        "
        # tracer: function_graph
        #
        #     TIME         TASK/PID         DURATION                  FUNCTION CALLS
        #      |            |    |           |   |                     |   |   |   |
            0.000000 |     main-100    |               |  main() {
            0.000010 |     main-100    |   4.060 us    |    f();
            0.000020 |     main-100    |               |    g() {
            0.000021 |     main-100    |   1.000 us    |      f();
            0.001000 |     main-100    | ! 980.000 us  |    } /* g */
            2.000000 |     main-100    | $ 2000000 us  |  } /* main */
    ",
    );
}

#[test]
fn tail_calls() {
    check(
        "main: E main @0; E f @10; T g @20; X f/2 @50; E f @55; T g @56; E h @57; X h @58; X f/2 @59; X main @60",
        "
           main-100    |               |  main() {
           main-100    |               |    f() {
           main-100    |   0.030 us    |      g();
           main-100    |   0.040 us    |    }
           main-100    |               |    f() {
           main-100    |               |      g() {
           main-100    |   0.001 us    |        h();
           main-100    |   0.003 us    |      }
           main-100    |   0.004 us    |    }
           main-100    |   0.060 us    |  }
    ",
    );
}

#[test]
fn longjmp() {
    check(
        "main: E main @0; E parse @10; E expr @20; E fail @30; X main/4 @90; E after @95; X after @96",
        "
           main-100    |               |  main() {
           main-100    |               |    parse() {
           main-100    |               |      expr() {
           main-100    |               |        fail() {
           main-100    |   ~           |        } /* left */
           main-100    |   ~           |      } /* left */
           main-100    |   ~           |    } /* left */
           main-100    |   0.090 us    |  }
           main-100    |   0.001 us    |  after();
    ",
    );
}

#[test]
fn returns_without_entry_in_buffer() {
    check(
        "main: X read/0 @5us; E f @10us; X other @20us; X f @30us",
        "
           main-100    |               |  } /* read */
           main-100    |               |  f() {
           main-100    |               |    } /* other */
           main-100    | + 20.000 us   |  }
    ",
    );
}

#[test]
fn unfinished() {
    check(
        "main: E main @0; E wait @10; E f @20; X f @50",
        "
           main-100    |               |  main() {
           main-100    |               |    wait() {
           main-100    |   0.030 us    |      f();
        # 2 calls unfinished
    ",
    );
}

#[test]
fn calls_that_were_cut_have_no_duration() {
    check(
        "main: E main @0; E f @10; E g @20; < f/2 @50; E f @50; X f @60; E g @70; off g @75; X main/2 @100",
        "
           main-100    |               |  main() {
           main-100    |               |    f() {
           main-100    |               |      g() {
           main-100    |   ~           |      } /* left */
           main-100    |   ~           |    } /* left */
           main-100    |   0.010 us    |    f();
           main-100    |               |    g() {
           main-100    |   ~           |    } /* switched_off */
           main-100    |   0.100 us    |  }
    ",
    );
}

#[test]
fn losses_are_shown_in_place() {
    check(
        "main: E main @0; E f @10; X f @20; L 3/2 @50; X main @100",
        "
           main-100    |               |  main() {
           main-100    |   0.010 us    |    f();
        TASK:main-100 [LOST 5 EVENTS]
           main-100    |   0.100 us    |  }
    ",
    );
}

#[test]
fn ten_seconds_and_time_that_goes_back() {
    check(
        "main: E main @0; E nap @1us; X nap @10000001us; E f @11s; X f @10999999us; X main @12s",
        "
           main-100    |               |  main() {
           main-100    | $ 10000000 us |    nap();
           main-100    |   0.000 us    |    f();
           main-100    | $ 12000000 us |  }
    ",
    );
}

#[test]
fn two_threads_by_time() {
    check(
        "main: E main @0; E f @10; X f @30
         a-long-name: E work @15; E f @20; X f @70; X work @90
         main: E g @40; X g @45; X main @100",
        "
               main-100    |               |  main() {
               main-100    |   0.020 us    |    f();
             ------------------------------------------
                main-100    =>  a-long--101
             ------------------------------------------

             a-long--101   |               |  work() {
             a-long--101   |   0.050 us    |    f();
             ------------------------------------------
              a-long--101   =>    main-100
             ------------------------------------------

               main-100    |   0.005 us    |    g();
             ------------------------------------------
                main-100    =>  a-long--101
             ------------------------------------------

             a-long--101   |   0.075 us    |  }
             ------------------------------------------
              a-long--101   =>    main-100
             ------------------------------------------

               main-100    |   0.100 us    |  }
        ",
    );
}

#[test]
fn one_thread_of_two() {
    let source = recording("main: E main @0; X main @9\nworker: E work @1; X work @2");
    let options = Options { no_header: true, threads: vec![ThreadId(1)], ..Options::default() };
    same(
        &replay(&source, &options),
        "
          worker-101   |   0.001 us    |  work();
    ",
    );
}

#[test]
fn a_counter_clock_shows_no_durations() {
    let mut source = recording("main: E main @0; E f @1; X f @2; X main @3");
    source.ns_per_tick = 0;
    same(
        &replay(&source, &Options::default()),
        "
        # tracer: function_graph
        #
        #  TASK/PID                      FUNCTION CALLS
        #   |    |                       |   |   |   |
           main-100    | main() {
           main-100    |   f();
           main-100    | }
    ",
    );
}

#[test]
fn lookahead_reaches_into_the_next_batch() {
    check(
        "main: E main @0; E f @10\nmain: X f @20; X main @30",
        "
           main-100    |               |  main() {
           main-100    |   0.010 us    |    f();
           main-100    |   0.030 us    |  }
    ",
    );
}

#[test]
fn function_tracer_lines_name_the_caller() {
    let text = "main: E main @0; X main @1
        main: C f <-0x401010 @1500000us; C f <-0x401050 @1500001us; C f <-0x7fff0000 @1500002us; C f @1500003us";
    let source = recording(text);
    let options = Options { layout: Layout::Function, ..Options::default() };
    same(
        &replay(&source, &options),
        "
        # tracer: function
        #
        # entries-in-buffer/entries-written: 6/6
        #
        #           TASK-PID        TIMESTAMP  FUNCTION
        #              | |              |         |
                    main-100         0.000000: main
                    main-100         1.500000: f <-main
                    main-100         1.500001: f <-app+0x1050
                    main-100         1.500002: f <-0x7fff0000
                    main-100         1.500003: f
    ",
    );
    check(
        "main: E main @0; C f <-0x401010 @1; E g <-0x401020 @2; X g @3; X main @4",
        "
           main-100    |               |  main() {
           main-100    |               |    /* f <-main */
           main-100    |   0.001 us    |    g(); /* <-main */
           main-100    |   0.004 us    |  }
    ",
    );
}

#[test]
fn a_counter_clock_in_function_lines() {
    let mut source = recording("main: C f @7; C g @8");
    source.ns_per_tick = 0;
    let options = Options { layout: Layout::Function, no_header: true, ..Options::default() };
    same(
        &replay(&source, &options),
        "
                    main-100                7: f
                    main-100                8: g
    ",
    );
}

#[test]
fn cpp_and_hostile_names() {
    let mut source =
        recording("main: E _ZSt4swapIiEvRT_S1_ @0; E evil @1; X evil @2; X _ZSt4swapIiEvRT_S1_ @3");
    source.meta.sites[1].name = "a\nb\u{1b}[2J".into();
    source.meta.threads[0].comm = "x\ny".into();
    same(
        &replay(&source, &Options { no_header: true, ..Options::default() }),
        "
           x\\ny-100    |               |  std::swap<int>(int&, int&) {
           x\\ny-100    |   0.001 us    |    a\\nb\\u{1b}[2J();
           x\\ny-100    |   0.003 us    |  }
    ",
    );
}

#[test]
fn where_the_time_of_slow_calls_went() {
    let mut source = recording(
        "main: E main @0; E f @0; E g @1us; X g @2us; E h @10us; E g @11us; X g @61us; X h @70us; E g @70us; X g @99us; X f @100us; X main @101us",
    );
    source.meta.slow.push(SlowRule { function: "f".into(), ns: 50_000 });
    let options = Options { no_header: true, ..Options::default() };
    same(
        &replay(&source, &options),
        "
           main-100    |               |  main() {
           main-100    |               |    f() {
           main-100    |   1.000 us    |      g();
           main-100    |               |      h() {
           main-100    | + 50.000 us   |        g();
           main-100    | + 60.000 us   |      } /* 83.3 % g, 16.7 % itself */
           main-100    | + 29.000 us   |      g();
           main-100    | + 100.000 us  |    } /* 60.0 % h, 30.0 % g (2 calls), 10.0 % itself */
           main-100    | ! 101.000 us  |  }
    ",
    );
}

#[test]
fn source_lines_follow_the_calls() {
    let source =
        recording("main: E main @0; E f @10us; X f @14060; E g @20us; C h @21us; X g @1ms; X main @2s");
    let line = |meta: &Meta, site: SiteId| {
        let name = &meta.sites[site.0 as usize].name;
        (name != "g").then(|| format!("app.c:{}", name.len()))
    };
    let options = Options { no_header: true, source_line: Some(line), ..Options::default() };
    same(
        &replay(&source, &options),
        "
           main-100    |               |  main() { /* app.c:4 */
           main-100    |   4.060 us    |    f(); /* app.c:1 */
           main-100    |               |    g() {
           main-100    |               |      /* h */ /* app.c:1 */
           main-100    | ! 980.000 us  |    }
           main-100    | $ 2000000 us  |  }
    ",
    );
}

#[test]
fn json_has_an_object_for_each_event() {
    let source = recording("main: E main @0; E f @10us; X f @14060; L 2/1 @20us; E g @1ms; X main @2ms");
    let options = Options { layout: Layout::Json, ..Options::default() };
    let lines = replay(&source, &options);
    let objects: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let told = |object: &serde_json::Value| {
        let keys = ["event", "function", "depth", "duration_ns", "self_ns", "end", "entries", "exits"];
        let told = keys.iter().map(|key| &object[key]).filter(|value| !value.is_null());
        told.map(|value| value.to_string().replace('"', "")).collect::<Vec<_>>().join(" ")
    };
    let expected = [
        "begin",
        "entry main 0",
        "entry f 1",
        "exit f 1 4060 4060 returned",
        "lost 2 1",
        "entry g 1",
        "exit g 1 left",
        "exit main 0 2000000 1995940 returned",
        "finish",
    ];
    assert_eq!(objects.iter().map(told).collect::<Vec<_>>(), expected);
    let exit = &objects[3];
    assert_eq!((&exit["tid"], &exit["thread"]), (&100.into(), &"main-100".into()));
    assert_eq!((&exit["at_ns"], &exit["at_epoch_ns"]), (&14_060.into(), &serde_json::Value::Null));
}
