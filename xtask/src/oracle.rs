//! The oracle: callgrind simulates every instruction of a program and counts its calls. calltap
//! must count the same, function by function, and neither may change the program's output.

mod callgrind;
mod names;

use anyhow::{Context, Result, bail, ensure};
use calltap_e2e::{calltap, skipped};
use names::Aliases;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program and how to run it.
pub struct Case<'a> {
    /// Path of the program.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: &'a [&'a str],
    /// The program's input.
    pub input: &'a str,
    /// Minimum number of functions that must have been called, so that the comparison is not empty.
    pub functions: usize,
    /// Minimum number of calls that must have been made.
    pub calls: u64,
}

impl Case<'_> {
    /// Runs the program alone, under callgrind and under calltap, and compares.
    pub fn check(&self) -> Result<()> {
        let place = tempfile::tempdir()?;
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let alone = self.run(Command::new(&self.program), place.path())?;
        let profile = place.path().join("callgrind.out");
        let mut valgrind = Command::new("sh");
        // Valgrind may deliver the last of gprof's timer signals after the handler is removed.
        valgrind.args(["-c", "trap '' PROF; exec \"$@\"", "sh", "valgrind"]);
        valgrind.args(["--tool=callgrind", "--quiet", "--demangle=no"]);
        valgrind.arg(format!("--callgrind-out-file={}", profile.display())).arg(&self.program);
        let simulated = self.run(valgrind, place.path())?;
        ensure!(
            simulated.stdout == alone.stdout,
            "{name} prints something else under valgrind: it cannot be compared"
        );

        let data = place.path().join("calltap.data");
        let mut record = Command::new(calltap());
        record.args(["record", "--quiet", "-o"]).arg(&data).arg("--").arg(&self.program);
        let traced = self.run(record, place.path())?;
        ensure!(traced.stdout == alone.stdout, "{name} prints something else when traced");
        ensure!(
            traced.stderr == alone.stderr,
            "{name} says something else when traced: {}",
            text(&traced.stderr)
        );

        let profile = fs::read_to_string(&profile).context("reading callgrind's profile")?;
        let differences = self.compare(&profile, &data, &name)?;
        ensure!(differences.is_empty(), "{name}: call counts differ\n{}", differences.join("\n"));
        Ok(())
    }

    /// Returns a line for every function whose counts differ.
    fn compare(&self, profile: &str, data: &Path, name: &str) -> Result<Vec<String>> {
        let aliases = Aliases::read(&self.program)?;
        let path = self.program.canonicalize()?;
        let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
        for (function, calls) in
            callgrind::parse(profile).remove(&*path.to_string_lossy()).unwrap_or_default()
        {
            *theirs.entry(aliases.one(&function)).or_default() += calls;
        }
        let mut ours: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows(
            Command::new(calltap()).args(["report", "--format", "json", "--linker-names", "-i"]).arg(data),
        )? {
            ensure!(
                row["module"] == name,
                "{} in module {}: only {name} was compiled for tracing",
                row["function"],
                row["module"]
            );
            *ours.entry(aliases.one(row["function"].as_str().unwrap_or_default())).or_default() +=
                row["calls"].as_u64().unwrap_or(0);
        }
        let info = Command::new(calltap()).args(["info", "--format", "json", "-i"]).arg(data).output()?;
        let info: serde_json::Value = serde_json::from_slice(&info.stdout)?;
        let lost = info["calls"]["lost"].as_u64().context("info has no calls.lost")?;
        ensure!(lost == 0, "{name}: {lost} calls lost");

        let sites = rows(
            Command::new(calltap()).args(["sites", "--format", "json", "--linker-names"]).arg(&self.program),
        )?;
        // Callgrind has no names for functions without a size, which the linker adds around a
        // program's beginning and end.
        let (sized, sizeless): (Vec<_>, Vec<_>) = sites.iter().partition(|row| row["size"] != 0);
        for row in sizeless {
            ours.remove(&aliases.one(row["function"].as_str().unwrap_or_default()));
        }
        let traceable = sized.iter().filter(|row| row["traceable"] == true && row["on_demand"] == false);
        let all: BTreeSet<String> =
            traceable.map(|row| aliases.one(row["function"].as_str().unwrap_or_default())).collect();
        if let Some(stranger) = ours.keys().find(|function| !all.contains(*function)) {
            bail!("{name}: {stranger} is in the trace, but not among the traceable functions");
        }
        let (called, calls) = (ours.len(), ours.values().sum::<u64>());
        eprintln!("{name}: {called} of {} functions called, {calls} calls", all.len());
        ensure!(called >= self.functions, "{name}: only {called} functions were called");
        ensure!(calls >= self.calls, "{name}: only {calls} calls were made");
        let count =
            |from: &BTreeMap<String, u64>, function: &String| from.get(function).copied().unwrap_or(0);
        let differ = all.iter().filter(|function| count(&ours, function) != count(&theirs, function));
        Ok(differ
            .map(|function| {
                format!(
                    "  {function}: callgrind {}, calltap {}",
                    count(&theirs, function),
                    count(&ours, function)
                )
            })
            .collect())
    }

    fn run(&self, mut command: Command, directory: &Path) -> Result<Output> {
        command.args(self.arguments).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let (mut input, given) = (child.stdin.take().context("piped")?, self.input.to_owned());
        let writer = std::thread::spawn(move || input.write_all(given.as_bytes()));
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
        let _ = writer.join();
        Ok(output)
    }
}

fn rows(command: &mut Command) -> Result<Vec<serde_json::Value>> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    let mut table: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    // A report is an object, a list of sites is not.
    let rows = table.get_mut("functions").map(serde_json::Value::take).unwrap_or(table);
    Ok(serde_json::from_value(rows)?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether callgrind is installed; reports the comparison as skipped if not.
pub fn have_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        skipped("call counts were not compared with callgrind's: no valgrind here");
    }
    found
}
