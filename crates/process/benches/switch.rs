//! Benchmark: how long switching functions of a running program takes, and how it delays the
//! program's threads. Prints Markdown tables.

#[path = "../tests/programs/mod.rs"]
mod programs;

use calltap_patch::State;
use programs::{CallCounts, Program};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

/// Number of threads that call the functions meanwhile.
const MUTATORS: usize = 1;
/// Number of programs started for each count of sites.
const PROGRAMS: usize = 5;
/// Rounds of switching in each program.
const ROUNDS: usize = 20;
/// How long the threads of a program are watched.
const WATCH: Duration = Duration::from_secs(3);

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Restricts this thread, and the programs that it starts, to one processor. On a machine with few
/// processors the scheduler may otherwise put both sides on the same one.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}

/// Starts the program on one processor and moves this process to another.
fn start(sites: usize) -> Program {
    pin(1);
    let program = Program::start(sites, MUTATORS);
    pin(0);
    std::thread::sleep(Duration::from_millis(50));
    program
}

/// Times of all switches of `count` sites of a program, in order, microseconds. The first switch
/// makes the sites' pages private.
fn switches(count: usize) -> Vec<f64> {
    let mut program = start(count.max(64));
    let on = State::Enabled(program.target);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        for (from, to) in [(State::Original, on), (on, State::Original)] {
            let start = Instant::now();
            program.switch(false, count, from, to);
            times.push(microseconds(start.elapsed()));
        }
    }
    assert_eq!(program.end().errors, 0);
    times
}

/// Returns the median and the minimum.
fn summary(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}

/// Measures the gaps that a thread sees between calls while its functions are switched about a
/// hundred times a second, or are not. Returns them with the number of switches.
fn watch(switching: bool) -> (CallCounts, usize) {
    let mut program = start(1000);
    program.reset();
    let on = State::Enabled(program.target);
    let (start, mut switches) = (Instant::now(), 0);
    while start.elapsed() < WATCH {
        if switching {
            program.switch(false, 1000, State::Original, on);
            program.switch(false, 1000, on, State::Original);
            switches += 2;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (program.end(), switches)
}

fn main() {
    println!(
        "| functions switched at once | first time, us: median | fastest | later, us: median | fastest |\n|--:|--:|--:|--:|--:|"
    );
    for count in [1, 1_000, 20_000, 100_000] {
        let programs: Vec<Vec<f64>> = (0..PROGRAMS).map(|_| switches(count)).collect();
        let (first, fastest_first) = summary(programs.iter().map(|times| times[0]).collect());
        let (later, fastest) = summary(programs.iter().flat_map(|times| &times[1..]).copied().collect());
        println!("| {count} | {first:.0} | {fastest_first:.0} | {later:.0} | {fastest:.0} |");
    }
    println!(
        "\n| a thread that calls them, us between two calls | p50 | p99 | p99.9 | p99.999 |\n|---|--:|--:|--:|--:|"
    );
    for switching in [false, true, false, true] {
        let (seen, switches) = watch(switching);
        let [a, b, c, d] = seen.gaps;
        let what = if switching { format!("{switches} switches of 1,000") } else { "no switches".into() };
        println!("| {what} | {a:.1} | {b:.1} | {c:.1} | {d:.1} |");
    }
}
