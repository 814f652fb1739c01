//! Compilers, the variants of room for tracing, and the cache of built programs.

use super::directory;
use super::sources::{Origin, Program, Sources};
use crate::shell;
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// A compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compiler {
    /// The system's gcc.
    Gcc,
    /// clang 16.
    Clang,
}

impl Compiler {
    /// Returns the commands for C and for C++.
    pub fn tools(self) -> [&'static str; 2] {
        match self {
            Compiler::Gcc => ["gcc", "g++"],
            Compiler::Clang => ["clang-16", "clang++-16"],
        }
    }
}

/// A variant of room for tracing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// No room.
    Bare,
    /// NOPs: `-fpatchable-function-entry=5`.
    Nop,
    /// A call of mcount after the prologue: `-pg`.
    Pg,
    /// A call of `__fentry__` before the prologue: `-pg -mfentry`.
    Fentry,
    /// A call of `__fentry__` before the prologue, and a `__fentry__` that only returns.
    Returns,
}

impl Variant {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Variant::Bare => &[],
            Variant::Nop => &["-fpatchable-function-entry=5"],
            Variant::Pg => &["-pg"],
            Variant::Fentry | Variant::Returns => &["-pg", "-mfentry"],
        }
    }

    /// Returns a source that is linked to the program.
    fn more(self) -> Option<PathBuf> {
        (self == Variant::Returns).then(|| shell::root().join("benches/returns.S"))
    }

    fn name(self) -> &'static str {
        match self {
            Variant::Bare => "bare",
            Variant::Nop => "nop",
            Variant::Pg => "pg",
            Variant::Fentry => "fentry",
            Variant::Returns => "returns",
        }
    }
}

/// A compiler and a variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The compiler.
    pub compiler: Compiler,
    /// The variant.
    pub variant: Variant,
}

impl Build {
    /// Returns the build of a variant by gcc.
    pub fn gcc(variant: Variant) -> Build {
        Build { compiler: Compiler::Gcc, variant }
    }

    /// Returns the name for files: `gcc-nop`.
    pub fn name(self) -> String {
        let compiler = if self.compiler == Compiler::Gcc { "gcc" } else { "clang" };
        format!("{compiler}-{}", self.variant.name())
    }
}

/// Builds a program, unless it exists already, and returns its path.
pub fn build(program: Program, build: Build) -> Result<PathBuf> {
    Ok(build_all(&[(program, build)], Origin::Any)?.remove(0))
}

/// Builds several programs in parallel, as many at a time as there are processors.
pub fn build_all(wanted: &[(Program, Build)], origin: Origin) -> Result<Vec<PathBuf>> {
    let _lock = lock()?;
    let mut jobs = Vec::new();
    for (program, build) in wanted {
        let sources = program.sources(origin)?;
        let path = directory().join(format!("{}-{}-{}", program.name(), sources.origin, build.name()));
        jobs.push((path, *program, *build, sources));
    }
    let queue = Mutex::new(jobs.iter());
    let worker = || -> Result<()> {
        loop {
            let next = queue.lock().map_or(None, |mut queue| queue.next());
            let Some((path, program, build, sources)) = next else { return Ok(()) };
            link(path, *program, *build, sources)?;
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a compilation panicked")))
    })?;
    Ok(jobs.into_iter().map(|(path, ..)| path).collect())
}

/// Builds the smallest lua: static, with musl. `None` without a compiler for musl.
pub fn smallest_lua() -> Result<Option<PathBuf>> {
    if !shell::have("musl-gcc") {
        return Ok(None);
    }
    let _lock = lock()?;
    let sources = Program::Lua.sources(Origin::Any)?;
    let path = directory().join("lua-musl");
    let mut command = Command::new("musl-gcc");
    command.args(["-Os", "-static", "-w", "-I"]).arg(&sources.include).args(Program::Lua.flags());
    shell::output(command.args(&sources.files).arg("-o").arg(&path).arg("-lm"))?;
    Ok(Some(path))
}

fn link(path: &Path, program: Program, build: Build, sources: &Sources) -> Result<()> {
    let mut flags = vec!["-O2".to_owned(), "-I".to_owned(), sources.include.display().to_string()];
    flags.extend(program.flags().iter().map(|flag| (*flag).to_owned()));
    once(path, build, &sources.files, &flags)
}

/// Compiles one of the project's programs (C, or C++ by its name) with flags into the directory of
/// programs, unless it exists already.
pub fn compile(source: &Path, build: Build, flags: &[&str]) -> Result<PathBuf> {
    let _lock = lock()?;
    let stem = source.file_stem().context("a source file has a name")?.to_string_lossy();
    let path = directory().join(format!("{stem}-{}", build.name()));
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    once(&path, build, &[source.to_path_buf()], &flags)?;
    Ok(path)
}

/// Compiles, unless the same command made the file before and no source is newer.
fn once(path: &Path, build: Build, files: &[PathBuf], flags: &[String]) -> Result<()> {
    let is_cpp = files.iter().any(|file| file.extension().is_some_and(|extension| extension == "cpp"));
    let tool = build.compiler.tools()[usize::from(is_cpp)];
    if !shell::have(tool) {
        bail!("no {tool} here: it compiles {}", path.display());
    }
    let part = path.with_extension("part");
    let mut command = Command::new(tool);
    command.args(flags).args(build.variant.flags()).arg("-w").arg("-o").arg(&part);
    command.args(files).args(build.variant.more()).args(["-pthread", "-lm"]);
    let (stamp, text) = (path.with_extension("stamp"), shell::line(&command));
    let built = path.metadata().and_then(|meta| meta.modified()).ok();
    let newest = files.iter().filter_map(|file| file.metadata().and_then(|meta| meta.modified()).ok()).max();
    if built.is_some() && built >= newest && fs::read_to_string(&stamp).is_ok_and(|old| old == text) {
        return Ok(());
    }
    shell::output(&mut command)?;
    fs::rename(&part, path)?;
    fs::write(stamp, text)?;
    Ok(())
}

/// Locks the directory of programs against other processes, as tests build the programs that they
/// need.
fn lock() -> Result<File> {
    fs::create_dir_all(directory())?;
    let file = File::create(directory().join(".lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
