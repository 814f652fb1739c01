//! `cargo xtask fuzz`: runs every fuzz target on mutated seeds, for some time each.

use crate::shell;
use anyhow::{Context, Result, bail};

/// Runs the targets with `--seconds N` and `--seed S`.
pub fn run(words: &[&str]) -> Result<()> {
    let (mut seconds, mut seed) = (30, 1);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let place: &mut u64 = match *word {
            "--seconds" => &mut seconds,
            "--seed" => &mut seed,
            other => bail!("unknown argument '{other}': cargo xtask fuzz [--seconds N] [--seed S]"),
        };
        let number = rest.next().with_context(|| format!("{word} needs a number"))?;
        *place = number.parse().with_context(|| format!("{word} {number}"))?;
    }
    let mut command = shell::cargo();
    command.args(["run", "--quiet", "--release", "--bin", "calltap-fuzz", "--"]);
    command.args([seconds.to_string(), seed.to_string()]).arg(shell::target().join("fuzz"));
    shell::status(&mut command)
}
