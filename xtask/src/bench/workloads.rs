//! The workloads: two loops that only make calls, and two real programs.

use super::Bench;
use crate::programs::{Build, Origin, Program, Variant, build_all, compile};
use crate::shell;
use anyhow::Result;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in four builds, with its input.
pub struct Workload {
    /// Name in tables.
    pub name: &'static str,
    /// The build without room for tracing.
    pub bare: PathBuf,
    /// The build with NOPs.
    pub nop: PathBuf,
    /// The build with calls of mcount.
    pub pg: PathBuf,
    /// The build with calls of a function that only returns.
    pub returns: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    input: Option<PathBuf>,
}

impl Workload {
    /// Adds arguments and input to a command that ends with one of the builds.
    pub fn finish(&self, command: &mut Command) -> Result<()> {
        command.args(&self.arguments);
        match &self.input {
            Some(path) => command.stdin(File::open(path)?),
            None => command.stdin(std::process::Stdio::null()),
        };
        Ok(())
    }
}

const WAYS: [Variant; 4] = [Variant::Bare, Variant::Nop, Variant::Pg, Variant::Returns];

/// Returns a workload of the benchmark's own programs.
pub fn ours(file: &str, name: &'static str, arguments: &[String]) -> Result<Workload> {
    let source = shell::root().join("benches").join(file);
    let [bare, nop, pg, returns] = WAYS.map(|way| compile(&source, Build::gcc(way), &["-O2"]));
    let (arguments, input) = (arguments.to_vec(), None);
    Ok(Workload { name, bare: bare?, nop: nop?, pg: pg?, returns: returns?, arguments, input })
}

fn real(program: Program, arguments: Vec<String>, input: Option<PathBuf>) -> Result<Workload> {
    let mut built = build_all(&WAYS.map(|way| (program, Build::gcc(way))), Origin::Any)?.into_iter();
    let mut next = || built.next().unwrap_or_default();
    Ok(Workload {
        name: program.name(),
        bare: next(),
        nop: next(),
        pg: next(),
        returns: next(),
        arguments,
        input,
    })
}

/// Returns the real programs, lua and sqlite3.
pub fn programs(bench: &Bench) -> Result<Vec<Workload>> {
    let script = shell::root().join("benches/mix.lua").display().to_string();
    let rounds = if bench.quick { "10" } else { "30" };
    let lua = real(Program::Lua, vec![script, rounds.to_owned()], None)?;
    let sql = sql(&bench.place, if bench.quick { 15_000 } else { 45_000 })?;
    Ok(vec![lua, real(Program::Sqlite, Vec::new(), Some(sql))?])
}

/// Returns the loops that only make calls.
pub fn calls_only(bench: &Bench) -> Result<Vec<Workload>> {
    let (n, count) = if bench.quick { ("31", "2000000") } else { ("34", "8000000") };
    Ok(vec![ours("fib.c", "fib", &[n.to_owned()])?, ours("leaf.c", "leaf", &[count.to_owned()])?])
}

/// Returns all four workloads.
pub fn all(bench: &Bench) -> Result<Vec<Workload>> {
    let mut all = calls_only(bench)?;
    all.extend(programs(bench)?);
    Ok(all)
}

fn sql(place: &Path, rows: usize) -> Result<PathBuf> {
    let text = fs::read_to_string(shell::root().join("benches/mix.sql"))?;
    let path = place.join("mix.sql");
    let statements = text.lines().filter(|line| !line.starts_with("--"));
    fs::write(&path, statements.collect::<Vec<_>>().join("\n").replace("ROWS", &rows.to_string()))?;
    Ok(path)
}

/// Returns a workload without arguments, from three builds.
pub fn single(name: &'static str, [bare, nop, pg]: [PathBuf; 3]) -> Workload {
    let returns = pg.clone();
    Workload { name, bare, nop, pg, returns, arguments: Vec::new(), input: None }
}
