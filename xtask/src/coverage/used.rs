//! `cargo xtask coverage --used`: scripts use programs of a distribution, alone and with all
//! functions traced: the program's, those of its libraries, and those of the programs that it
//! starts. Output and exit status are compared; calls are counted, and functions by file.

use super::listed::{Listed, list};
use super::{globs, page};
use crate::shell;
use crate::suites::everyday::{self, Use};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MARK: &str = "<!-- cargo xtask coverage --used --write -->";

/// The comparison of a traced run with a run alone.
enum Outcome {
    Same,
    /// Two runs alone differ as well.
    DiffersAlone,
    /// The first line that differs.
    Different(String),
}

/// The result of a program's script.
struct Used {
    name: &'static str,
    files: usize,
    functions: u64,
    calls: u64,
    lost: u64,
    outcome: Outcome,
}

/// A file that a traced process had mapped.
#[derive(Default)]
struct Mapped {
    /// Maximum number of functions traced in one run.
    traced: u64,
}

/// Runs these programs, or all that are installed; with `write`, puts the tables into the page.
pub fn run(calltap: &Path, only: &[&str], write: bool) -> Result<()> {
    let place = shell::target().join("used");
    let mut lists = Lists { calltap, known: BTreeMap::new() };
    let (mut uses, mut mapped) = (Vec::new(), BTreeMap::new());
    for program in everyday::uses(only) {
        let used = run_program(&program, &place, &mut lists, &mut mapped)
            .with_context(|| program.name.to_owned())?;
        println!("{}", used.line());
        uses.push(used);
    }
    let text = format!("{}\n{}", table_of_uses(&uses), table_of_files(&mapped, &mut lists)?);
    print!("\n{text}");
    if write {
        page::write(MARK, &text)?;
    }
    let different: Vec<&str> = uses.iter().filter(|used| used.is_different()).map(|used| used.name).collect();
    match different.is_empty() {
        true => Ok(()),
        false => bail!("other outcomes where traced: {}", different.join(", ")),
    }
}

/// The functions of files, each file listed once.
struct Lists<'c> {
    calltap: &'c Path,
    known: BTreeMap<PathBuf, Listed>,
}

impl Lists<'_> {
    fn of(&mut self, path: &Path) -> Result<&Listed> {
        if !self.known.contains_key(path) {
            self.known.insert(path.to_owned(), list(self.calltap, path)?);
        }
        self.known.get(path).context("the file was listed")
    }
}

fn run_program(
    program: &Use,
    place: &Path,
    lists: &mut Lists<'_>,
    mapped: &mut BTreeMap<PathBuf, Mapped>,
) -> Result<Used> {
    let own: BTreeSet<String> = lists.of(&fs::canonicalize(&program.path)?)?.all_names().collect();
    let mut filters = BTreeSet::new();
    for library in libraries(&program.path)? {
        filters.extend(lists.of(&library)?.names.iter().filter_map(|names| globs::outside(&own, names)));
    }
    let traces = place.join("traces");
    let _ = fs::remove_dir_all(&traces);
    fs::create_dir_all(&traces)?;
    let filters: Vec<String> = filters.iter().map(|glob| format!("-F {}", shell::quote(glob))).collect();
    let record = format!(
        "{} record -q --follow --later --max-wait 60s -F '?*' {} -o {}/$$ --",
        lists.calltap.display(),
        filters.join(" "),
        traces.display()
    );
    let alone = program.run(place, "alone", "")?;
    let traced = program.run(place, "traced", &record)?;
    let outcome = if alone == traced {
        Outcome::Same
    } else if program.run(place, "alone", "")? != alone {
        Outcome::DiffersAlone
    } else {
        Outcome::Different(everyday::difference(&alone, &traced))
    };
    let mut used = Used { name: program.name, files: 0, functions: 0, calls: 0, lost: 0, outcome };
    let mut traced = BTreeMap::new();
    for trace in fs::read_dir(&traces)?.flatten() {
        used.add(&info(lists.calltap, &trace.path())?, &mut traced);
    }
    fs::remove_dir_all(&traces)?;
    used.files = traced.len();
    used.functions = traced.values().sum();
    for (path, count) in traced {
        let entry: &mut Mapped = mapped.entry(path).or_default();
        entry.traced = entry.traced.max(count);
    }
    Ok(used)
}

/// Returns the libraries that the dynamic linker loads for a program.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let said = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(|path| fs::canonicalize(path).with_context(|| path.to_owned())).collect()
}

/// Returns the output of `calltap info` for a trace.
fn info(calltap: &Path, trace: &Path) -> Result<Value> {
    let said = shell::output(Command::new(calltap).args(["info", "--format", "json", "-i"]).arg(trace))?;
    Ok(serde_json::from_slice(&said.stdout)?)
}

impl Used {
    /// Adds the calls of a trace, and the number of functions traced in each file.
    fn add(&mut self, info: &Value, traced: &mut BTreeMap<PathBuf, u64>) {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        self.calls += number(&info["calls"]["entered"]);
        self.lost += number(&info["calls"]["lost"]);
        for module in info["modules"].as_array().into_iter().flatten() {
            let count = number(&module["functions"]);
            if let Some(path) = module["path"].as_str().filter(|_| count > 0) {
                let most = traced.entry(PathBuf::from(path)).or_default();
                *most = count.max(*most);
            }
        }
    }

    fn is_different(&self) -> bool {
        matches!(self.outcome, Outcome::Different(_))
    }

    fn line(&self) -> String {
        let Used { name, files, functions, calls, lost, outcome } = self;
        let outcome = match outcome {
            Outcome::Same => "same".to_owned(),
            Outcome::DiffersAlone => "differs alone, too".to_owned(),
            Outcome::Different(how) => format!("different: {how}"),
        };
        format!("{name}: {files} files, {functions} functions, {calls} calls, {lost} lost, {outcome}")
    }
}

fn table_of_uses(uses: &[Used]) -> String {
    let mut text =
        "| program | files | functions traced | calls | lost | output and end |\n|---|--:|--:|--:|--:|---|\n"
            .to_owned();
    for Used { name, files, functions, calls, lost, outcome } in uses {
        let outcome = match outcome {
            Outcome::Same => "same",
            Outcome::DiffersAlone => "differ alone, too",
            Outcome::Different(_) => "**different**",
        };
        let _ = writeln!(text, "| {name} | {files} | {functions} | {calls} | {lost} | {outcome} |");
    }
    let sum = |of: fn(&Used) -> u64| uses.iter().map(of).sum::<u64>();
    let same = uses.iter().filter(|used| matches!(used.outcome, Outcome::Same)).count();
    let _ = writeln!(
        text,
        "| all {} | | {} | {} | {} | {same} same |",
        uses.len(),
        sum(|used| used.functions),
        sum(|used| used.calls),
        sum(|used| used.lost)
    );
    text
}

fn table_of_files(mapped: &BTreeMap<PathBuf, Mapped>, lists: &mut Lists<'_>) -> Result<String> {
    let mut text =
        "| file | functions | traceable | traced | refused, by reason |\n|---|--:|--:|--:|---|\n".to_owned();
    let mut sums = [0, 0, 0];
    for (path, mapped) in mapped {
        // A program that the script has built is not one of the distribution, and no longer exists.
        if !path.exists() {
            continue;
        }
        let listed = lists.of(path)?;
        let refused: Vec<String> =
            listed.refused.iter().map(|(code, count)| format!("{count} {code}")).collect();
        let counts = [listed.functions as u64, listed.traceable as u64, mapped.traced];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let [functions, traceable, traced] = counts;
        let refused = refused.join(", ");
        let _ = writeln!(text, "| {name} | {functions} | {traceable} | {traced} | {refused} |");
    }
    let [functions, traceable, traced] = sums;
    let _ = writeln!(text, "| all {} | {functions} | {traceable} | {traced} | |", mapped.len());
    Ok(text)
}
