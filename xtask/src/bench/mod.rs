//! `cargo xtask bench`: calltap beside uftrace and the bare programs, in one interleaved run.
//!
//! Absolute times differ from machine to machine and with the load. Every round therefore runs each
//! subject once, and figures are compared within a round. The tables show medians of the rounds.

mod calls;
mod compare;
mod directory;
mod expect;
mod info;
mod live;
mod measure;
mod off;
mod overhead;
mod patch_modes;
mod python;
mod reading;
mod start;
mod stops;
mod subjects;
mod threads;
mod unmodified;
mod workloads;

pub(crate) use measure::median;

use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// The tools and settings of all benchmarks.
struct Bench {
    calltap: PathBuf,
    place: PathBuf,
    uftrace: bool,
    rounds: usize,
    quick: bool,
}

const BEGIN: &str = "<!-- begin: cargo xtask bench --write -->";
const END: &str = "<!-- end -->";

/// Runs the command with its words: flags, and parts of the names of the tables wanted.
pub fn command(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let compare = words.iter().position(|word| *word == "--compare").map(|at| {
        let other = words.get(at + 1).copied().context("--compare: which calltap?");
        words.drain(at..(at + 2).min(words.len()));
        other
    });
    let other = compare.transpose()?;
    let (flags, only): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.starts_with('-'));
    let known = if other.is_some() { &["--quick"][..] } else { &["--quick", "--write"] };
    if let Some(unknown) = flags.iter().find(|flag| !known.contains(flag)) {
        bail!("bench: {unknown} is not for this");
    }
    let quick = flags.contains(&"--quick");
    match other {
        Some(other) => compare::run(&bench(quick)?, other.as_ref(), &only),
        None => run(quick, flags.contains(&"--write"), &only),
    }
}

/// Measures all tables, or those with these words in their names; prints them, and with `write`
/// puts them into `docs/explanation/performance.md`.
fn run(quick: bool, write: bool, only: &[&str]) -> Result<()> {
    let bench = bench(quick)?;
    if !bench.uftrace {
        eprintln!("\nNO UFTRACE HERE (apt-get install uftrace): nothing is compared with it\n");
    }
    let mut text = head(&bench);
    type Part = fn(&Bench) -> Result<String>;
    let parts: [(&str, Part); 12] = [
        ("cost of a call", calls::table),
        ("many threads", threads::table),
        ("cost when off", off::table),
        ("mcount, NOPs, tracing", overhead::table),
        ("reading traces", reading::table),
        ("start-up and memory", start::table),
        ("switching a running program", live::table),
        ("stops", stops::table),
        ("control directory", directory::table),
        ("patch-modes", patch_modes::table),
        ("unmodified functions", unmodified::table),
        ("calls of Python functions", python::table),
    ];
    println!("{text}");
    if write && !only.is_empty() {
        bail!("--write is for all parts together");
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|word| name.contains(word));
    for (name, part) in parts.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("measuring: {name}");
        let table = part(&bench).with_context(|| format!("measuring {name}"))?;
        println!("{table}");
        text += "\n";
        text += &table;
    }
    if write { replace(&text) } else { Ok(()) }
}

fn bench(quick: bool) -> Result<Bench> {
    let calltap = shell::build_calltap()?;
    let place = shell::target().join("bench");
    fs::create_dir_all(&place)?;
    let uftrace = shell::have("uftrace");
    Ok(Bench { calltap, place, uftrace, rounds: if quick { 3 } else { 7 }, quick })
}

fn head(bench: &Bench) -> String {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = line("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = line("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let warning = if load.parse::<f64>().unwrap_or(0.0) > 0.7 {
        " (NOT QUIET: the figures are worth little)"
    } else {
        ""
    };
    format!(
        "{processors} processors, {}, Linux {}; load at the start {load}{warning}; {} rounds, medians.\n",
        model.trim_start_matches(['\t', ' ', ':']),
        line("/proc/sys/kernel/osrelease").trim(),
        bench.rounds,
    )
}

fn replace(text: &str) -> Result<()> {
    let path = shell::root().join("docs/explanation/performance.md");
    let old = fs::read_to_string(&path).unwrap_or_else(|_| format!("# Performance\n\n{BEGIN}\n{END}\n"));
    let (before, rest) =
        old.split_once(BEGIN).with_context(|| format!("{} has no line {BEGIN}", path.display()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{} has no line {END}", path.display()))?;
    fs::write(&path, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?;
    eprintln!("written: {}", path.display());
    Ok(())
}
