//! Runs every fuzz target on mutated seeds, with a stable compiler: `cargo xtask fuzz --seconds N
//! --seed S`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use calltap_fuzz::mutate::Random;
use calltap_fuzz::{Body, TARGETS, seeds};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs, panic, thread};

/// Time limit of an input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let (seconds, seed, place) = match &words[..] {
        [seconds, seed, place] => (seconds.parse()?, seed.parse()?, PathBuf::from(place)),
        _ => bail!("usage: calltap-fuzz SECONDS SEED DIRECTORY"),
    };
    fs::create_dir_all(&place)?;
    let (targets, failures) = (Mutex::new(TARGETS.iter()), Mutex::new(Vec::new()));
    let next = || targets.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                while let Some((name, body)) = next() {
                    match run(name, *body, Duration::from_secs(seconds), seed, &place) {
                        Ok(inputs) => println!("{name}: {inputs} inputs"),
                        Err(error) => {
                            failures.lock().into_iter().for_each(|mut all| all.push(format!("{error:#}")))
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

/// Runs one target for a time, and returns the number of inputs. An error names the file with the
/// input that failed.
fn run(name: &str, body: Body, time: Duration, seed: u64, place: &Path) -> Result<u64> {
    let scratch = place.join(name);
    fs::create_dir_all(&scratch)?;
    let seeds = seeds::of(name, &scratch).with_context(|| format!("{name}: making its seeds"))?;
    let (mut random, mut inputs, start) = (Random::new(seed), 0, Instant::now());
    // The input is written before it is used, so that it remains if it ends this process.
    let current = scratch.join("input");
    while start.elapsed() < time {
        let input = random.change(&seeds);
        fs::write(&current, &input)?;
        let began = Instant::now();
        let done = panic::catch_unwind(|| body(&input));
        inputs += 1;
        if done.is_err() {
            bail!("{name}: input {inputs} of seed {seed} panicked: {}", current.display());
        }
        if began.elapsed() > INPUT_TIMEOUT {
            bail!("{name}: input {inputs} of seed {seed} took {:?}: {}", began.elapsed(), current.display());
        }
    }
    Ok(inputs)
}
