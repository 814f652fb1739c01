//! How long it takes to switch functions of a running program, and what its threads notice: a Markdown table.

#[path = "../tests/programs/mod.rs"]
mod programs;

use calltap_patch::State;
use programs::{Program, Seen};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

/// Threads that call the functions meanwhile.
const MUTATORS: usize = 1;
/// Rounds of each size.
const ROUNDS: usize = 50;
/// For how long threads are watched.
const WATCH: Duration = Duration::from_secs(3);

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Lets this thread, and what it starts, run on one processor only. On a machine of few, the scheduler may put both sides on the same.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}

/// The program on one processor, we on another.
fn start(sites: usize) -> Program {
    pin(1);
    let program = Program::start(sites, MUTATORS);
    pin(0);
    std::thread::sleep(Duration::from_millis(50));
    program
}

/// The first switch of so many sites, which makes their pages private; and the median of the later ones.
fn switches(count: usize) -> (f64, f64) {
    let mut program = start(count.max(64));
    let on = State::On(program.target);
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        for (from, to) in [(State::Original, on), (on, State::Original)] {
            let start = Instant::now();
            program.switch(false, count, from, to);
            times.push(microseconds(start.elapsed()));
        }
    }
    assert_eq!(program.end().errors, 0);
    let first = times[0];
    times.sort_by(f64::total_cmp);
    (first, times[times.len() / 2])
}

/// What a thread sees while its functions are switched a hundred times a second, or are not.
fn watch(switching: bool) -> (Seen, usize) {
    let mut program = start(1000);
    program.reset();
    let on = State::On(program.target);
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
    println!("| functions switched at once | first time, us | later, us |\n|--:|--:|--:|");
    for count in [1, 1_000, 20_000, 100_000] {
        let (first, later) = switches(count);
        println!("| {count} | {first:.0} | {later:.0} |");
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
