//! Tests of the sums of recursive functions in `report`.

use crate::common::{output, recording, same};
use calltap_analysis::report::{Format, Options, write};

#[track_caller]
fn check(events: &str, expected: &str) {
    let source = recording(events);
    same(&output(|out| write(&source, &Options::default(), Format::Text, out, None)), expected);
}

#[test]
fn recursion_counts_its_time_once() {
    check(
        "main: E fact @0; E fact @10; E fact @20; X fact @30; X fact @60; X fact @100",
        "
        # 6 events, 1 thread
         TOTAL    SELF  CALLS    AVG    MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  100 ns      3  53 ns  10 ns  100 ns  45 ns  app     fact
    ",
    );
}

#[test]
fn recursion_without_a_known_end_counts_the_calls_within() {
    // The outermost call is open at the end; of those within, the inner ones are part of the outer
    // ones.
    check(
        "main: E f @0; E f @10; E f @20; X f @30; X f @50; E f @60; X f @70; E g @80; X g @90",
        "
        # 9 events, 1 thread
        # 1 call unfinished
        TOTAL   SELF  CALLS    AVG    MIN    MAX  STDEV  MODULE  FUNCTION
        50 ns  50 ns      4  20 ns  10 ns  40 ns  17 ns  app     f
        10 ns  10 ns      1  10 ns  10 ns  10 ns   0 ns  app     g
    ",
    );
}

#[test]
fn recursion_through_another_function() {
    check(
        "main: E even @0; E odd @10; E even @20; X even @40; X odd @70; X even @100",
        "
        # 6 events, 1 thread
         TOTAL   SELF  CALLS    AVG    MIN     MAX  STDEV  MODULE  FUNCTION
        100 ns  60 ns      2  60 ns  20 ns  100 ns  57 ns  app     even
         60 ns  40 ns      1  60 ns  60 ns   60 ns   0 ns  app     odd
    ",
    );
}
