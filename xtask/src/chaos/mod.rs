//! `cargo xtask chaos`: attaches to programs that check their own work, switches functions, and
//! detaches, in random order. calltap is killed meanwhile, at random times and at random system
//! calls, or stopped for as long as it may wait for a processor.
//!
//! All choices are drawn from the seed and the number of the round, so that `--round` repeats a
//! failed round. The moment of a kill depends on the machine as well.

mod step;
mod target;

use crate::shell;
use anyhow::{Result, bail};
use fastrand::Rng;
use std::time::{Duration, Instant};
use step::{Done, Step};
use target::{Running, Target};

/// Options of the command.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Duration in seconds.
    pub seconds: u64,
    /// Seed of all choices.
    pub seed: u64,
    /// The only round to run.
    pub round: Option<u64>,
}

/// Counts over all rounds.
#[derive(Default)]
struct Figures {
    rounds: u64,
    attaches: u64,
    refused: u64,
    kills: u64,
    signals: u64,
    failures: u64,
}

/// Number of steps of a round.
const STEPS: std::ops::RangeInclusive<usize> = 2..=6;

/// Runs rounds until the time has passed. An error if a target was harmed.
pub fn run(options: Options) -> Result<()> {
    let tools = step::Tools::new(shell::build_calltap()?)?;
    let place = target::ChaosDirectory::new()?;
    let (start, mut figures) = (Instant::now(), Figures::default());
    let mut number = options.round.unwrap_or(0);
    while options.round.is_some() && figures.rounds == 0
        || options.round.is_none() && start.elapsed() < Duration::from_secs(options.seconds)
    {
        round(options.seed, number, &tools, &place, &mut figures)?;
        number += 1;
    }
    let Figures { rounds, attaches, refused, kills, signals, failures } = figures;
    println!(
        "chaos: seed {}: {rounds} rounds, {attaches} attaches, {refused} refused, {kills} kills, {signals} signals checked, {failures} failures",
        options.seed
    );
    if failures > 0 {
        bail!("{failures} of {rounds} rounds failed");
    }
    Ok(())
}

fn round(
    seed: u64,
    number: u64,
    tools: &step::Tools,
    place: &target::ChaosDirectory,
    figures: &mut Figures,
) -> Result<()> {
    let mut random = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let target = Target::draw(&mut random);
    let count = random.usize(STEPS);
    let steps: Vec<Step> = (0..count).map(|n| Step::draw(&mut random, n == 0, tools)).collect();
    let mut done = Vec::new();
    let mut running = Running::start(&target, place)?;
    let ready = if target.starts { Ok(()) } else { running.await_ready() };
    let take = |step: &Step| {
        done.push(step.to_string());
        let result = step.take(running.pid, place, tools);
        figures.attaches += u64::from(step.attaches() && result == Ok(Done::Fully));
        figures.refused += u64::from(matches!(result, Ok(Done::Refused)));
        figures.kills += u64::from(matches!(result, Ok(Done::Killed)));
        result?;
        running.goes_on()
    };
    let outcome = ready
        .and_then(|()| steps.iter().try_for_each(take))
        .and_then(|()| step::leave(running.pid, place, tools))
        .and_then(|()| running.goes_on())
        .and_then(|()| running.is_as_it_was());
    // The target's verdict is printed in any case, as it may explain the failure.
    let verdict = running.end();
    figures.rounds += 1;
    figures.signals += verdict.signals;
    let all = [outcome.err(), verdict.complaint].into_iter().flatten().collect::<Vec<_>>().join("; ");
    if !all.is_empty() {
        figures.failures += 1;
        println!(
            "FAILED (cargo xtask chaos --seed {seed} --round {number}): {target}: {}: {}",
            done.join(", "),
            all.replace('\n', " | ")
        );
    }
    Ok(())
}
