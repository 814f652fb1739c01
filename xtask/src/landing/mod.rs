//! `cargo xtask landing`: compares the targets of all jumps of a run, as callgrind records them,
//! with what the decoder knows of the files.
//!
//! No jump may land behind the first byte of the bytes that a site overwrites; a resolved jump may
//! lead only to known targets; and an instruction that counts as an exit must leave its function.

mod taken;

use crate::suites::everyday;
use crate::{fuzz, shell};
use anyhow::{Context, Result, bail, ensure};
use calltap_sites::{Binary, Contradiction, Landings};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use taken::Transfer;

/// Time limit in seconds, longer than any program runs under callgrind.
const TIME_LIMIT_S: &str = "600";
const CALLGRIND: [&str; 8] = [
    "valgrind",
    "--tool=callgrind",
    "-q",
    "--dump-instr=yes",
    "--compress-pos=no",
    "--compress-strings=no",
    "--collect-jumps=yes",
    "--log-file=/dev/null",
];

const COMPILERS: [&str; 4] = ["gcc", "g++", "clang-16", "clang++-16"];
const LEVELS: [&str; 6] = ["-O0", "-O1", "-O2", "-O3", "-Os", "-Oz"];
/// Number of programs for each compiler and level.
const SEEDS: u64 = 5;

/// The programs to run.
pub enum Programs<'a> {
    /// Generated programs, with seeds from this one on, for a time.
    Generated {
        /// Duration in seconds.
        seconds: u64,
        /// The first seed.
        seed: u64,
    },
    /// Generated programs in C and C++, each by every compiler of `COMPILERS` at every level.
    Levels {
        /// The first of `SEEDS` seeds.
        seed: u64,
    },
    /// These installed programs of the distribution, or all.
    Installed(&'a [&'a str]),
}

/// Compares the jumps of the programs.
pub fn run(programs: &Programs<'_>) -> Result<()> {
    ensure!(shell::have("valgrind"), "landing needs valgrind: apt-get install valgrind");
    let place = shell::target().join("landing");
    fs::create_dir_all(&place)?;
    let mut sum = Sum::default();
    match programs {
        Programs::Generated { seconds, seed } => generated(&place, *seconds, *seed, &mut sum)?,
        Programs::Levels { seed } => levels(&place, *seed, &mut sum)?,
        Programs::Installed(only) => installed(&place, only, &mut sum)?,
    }
    println!("{}", sum.text());
    match sum.wrong.is_empty() {
        true => Ok(()),
        false => bail!("{} jumps contradict what is known of their files", sum.wrong.len()),
    }
}

fn generated(place: &Path, seconds: u64, seed: u64, sum: &mut Sum) -> Result<()> {
    let begin = Instant::now();
    let mut seeds = seed..;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let Some(seed) = seeds.next() else { break };
        let directory = place.join(seed.to_string());
        let line = fuzz::build(seed, &directory)?;
        if !run_generated(&directory, sum)? {
            println!("seed {seed}: {line}");
        }
    }
    Ok(())
}

fn levels(place: &Path, seed: u64, sum: &mut Sum) -> Result<()> {
    for compiler in COMPILERS {
        ensure!(shell::have(compiler), "landing --levels needs {compiler}");
        for level in LEVELS {
            let before = sum.counts();
            for seed in seed..seed + SEEDS {
                let directory = place.join(format!("{compiler}{level}-{seed}"));
                fuzz::build_by(compiler, level, seed, &directory)?;
                if !run_generated(&directory, sum)? {
                    println!("seed {seed}: {compiler} {level}");
                }
            }
            let [programs, jumps, places, unresolved, wrong] = sum.counts();
            println!(
                "{compiler} {level}: {} programs, {} indirect jumps to {} places, {} unresolved, {} contradictions",
                programs - before[0],
                jumps - before[1],
                places - before[2],
                unresolved - before[3],
                wrong - before[4]
            );
        }
    }
    Ok(())
}

/// Compares the jumps of the program in a directory. False, and the directory is kept, if one
/// contradicts the decoder.
fn run_generated(directory: &Path, sum: &mut Sum) -> Result<bool> {
    let profile = directory.join("profile");
    let mut run = Command::new("timeout");
    run.arg(TIME_LIMIT_S).args(CALLGRIND).arg(format!("--callgrind-out-file={}", profile.display()));
    // Generated programs end with any status.
    run.args(["./program", "3"]).current_dir(directory).output().context("cannot start valgrind")?;
    let wrong = sum.wrong.len();
    sum.add(&fs::read_to_string(&profile).with_context(|| shell::line(&run))?)?;
    let is_right = sum.wrong.len() == wrong;
    if is_right {
        fs::remove_dir_all(directory)?;
    }
    // The next program has another path.
    sum.files.retain(|path, _| !path.starts_with(directory));
    Ok(is_right)
}

fn installed(place: &Path, only: &[&str], sum: &mut Sum) -> Result<()> {
    let profiles = place.join("profiles");
    fs::create_dir_all(&profiles)?;
    let under = format!("{} --callgrind-out-file={}/%p", CALLGRIND.join(" "), profiles.display());
    everyday::run_under(&under, only, &place.join("work"), |name| {
        let before = (sum.programs, sum.wrong.len());
        for profile in fs::read_dir(&profiles)?.flatten() {
            sum.add(&String::from_utf8_lossy(&fs::read(profile.path())?))?;
            fs::remove_file(profile.path())?;
        }
        ensure!(sum.programs > before.0, "{name}: nothing was run");
        println!("{name}: {} runs, {} contradictions", sum.programs - before.0, sum.wrong.len() - before.1);
        Ok(())
    })
}

/// A file with the decoder's knowledge of its jumps.
struct DecodedFile {
    binary: Binary,
    landings: Landings,
    /// Indirect jumps that were executed.
    executed: BTreeSet<u64>,
    /// Indirect jumps with their targets.
    targets: BTreeSet<(u64, u64)>,
}

/// The results of all comparisons.
#[derive(Default)]
struct Sum {
    programs: usize,
    files: BTreeMap<PathBuf, Option<DecodedFile>>,
    /// Counts over all files.
    all: Counts,
    wrong: BTreeSet<(PathBuf, Contradiction, u64, u64)>,
}

/// Counts of transfers and jumps.
#[derive(Default)]
struct Counts {
    transfers: usize,
    jumps: usize,
    places: usize,
    unresolved: usize,
}

impl Sum {
    /// Compares the transfers of a profile.
    fn add(&mut self, profile: &str) -> Result<()> {
        self.programs += 1;
        for transfer in taken::transfers(profile) {
            self.check(&transfer);
        }
        Ok(())
    }

    fn check(&mut self, transfer: &Transfer<'_>) {
        // callgrind records an iteration of `rep movs` as a jump to itself.
        if transfer.from == transfer.to {
            return;
        }
        let path = Path::new(transfer.to.object);
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), read(path));
        }
        let Some(Some(known)) = self.files.get_mut(path) else { return };
        self.all.transfers += 1;
        let from = (transfer.from.object == transfer.to.object).then_some(transfer.from.address);
        let to = transfer.to.address;
        if let Some(from) = from.filter(|from| known.landings.is_indirect(*from)) {
            self.all.places += usize::from(known.targets.insert((from, to)));
            if known.executed.insert(from) {
                self.all.jumps += 1;
                self.all.unresolved += usize::from(known.landings.is_unresolved(from));
            }
        }
        if let Some(wrong) = known.landings.check(&known.binary, from, to) {
            let from = transfer.from.address;
            if self.wrong.insert((path.to_owned(), wrong, from, to)) {
                println!("{}: the jump at {from:#x} {}: {to:#x}", path.display(), wrong.text());
            }
        }
    }

    /// Returns the numbers of programs, indirect jumps, their targets, unresolved jumps, and
    /// contradictions.
    fn counts(&self) -> [usize; 5] {
        [self.programs, self.all.jumps, self.all.places, self.all.unresolved, self.wrong.len()]
    }

    fn text(&self) -> String {
        let Counts { transfers, jumps, places, unresolved } = self.all;
        format!(
            "{} runs: {transfers} transfers of control; {jumps} indirect jumps were taken, to {places} places; {unresolved} of them are unresolved; \
             {} contradictions",
            self.programs,
            self.wrong.len()
        )
    }
}

/// Decodes a file; `None` if it is no ELF file.
fn read(path: &Path) -> Option<DecodedFile> {
    let data = calltap_sites::load(&calltap_sites::open(path).ok()?).ok()?;
    let mut binary = calltap_sites::read(&data, "module").ok()?;
    let landings = calltap_sites::find_landings(&data, &mut binary).ok()?;
    Some(DecodedFile { binary, landings, executed: BTreeSet::new(), targets: BTreeSet::new() })
}
