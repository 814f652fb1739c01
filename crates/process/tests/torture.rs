//! Switches functions on real processors while four threads call them and check every result.
//!
//! Takes seconds; `CALLTAP_TORTURE=3600` makes it an hour, and `CALLTAP_SWITCHES=1000000000`
//! switches that many hot sites. The model in `crates/patch` shows that wrong protocols are caught:
//! a real processor forgives them for millions of switches.

use crate::programs::Program;
use calltap_patch::State;
use std::time::{Duration, Instant};

fn time() -> Duration {
    let seconds = std::env::var("CALLTAP_TORTURE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Returns the number of switches of hot sites in batches.
fn switches() -> u64 {
    std::env::var("CALLTAP_SWITCHES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

fn check(program: Program) {
    let seen = program.end();
    assert_eq!(seen.errors, 0, "{seen:?}");
    assert!(seen.calls > 1000, "{seen:?}");
}

#[test]
fn single_hot_functions_across_words_lines_and_pages() {
    let mut program = Program::start(64, 4);
    let on = State::Enabled(program.target);
    let (start, mut switches) = (Instant::now(), 0);
    while start.elapsed() < time() {
        for n in 0..program.odd.len() {
            program.switch_one(n, State::Original, on);
            program.switch_one(n, on, State::Original);
            switches += 2;
        }
    }
    assert!(switches > 100, "{switches} switches");
    check(program);
}

#[test]
fn batches_of_twenty_thousand() {
    let mut program = Program::start(20_000, 4);
    let on = State::Enabled(program.target);
    let start = Instant::now();
    while start.elapsed() < time() {
        program.switch(false, 20_000, State::Original, on);
        program.switch(true, 72, State::Original, on);
        program.switch(false, 20_000, on, State::Original);
        program.switch(true, 72, on, State::Original);
    }
    check(program);
}

/// Every site of the batch is executed all the time, so that other processors meet each first byte
/// before they have been serialized.
#[test]
fn hot_sites_in_batches() {
    let mut program = Program::start(64, 4);
    let on = State::Enabled(program.target);
    let (start, mut switched) = (Instant::now(), 0);
    while switched < switches() {
        switched += program.switch_all(State::Original, on);
        switched += program.switch_all(on, State::Original);
    }
    println!("{switched} switches of hot sites in {:.1} s", start.elapsed().as_secs_f64());
    check(program);
}
