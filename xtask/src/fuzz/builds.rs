//! Compilers and flags of generated programs.

use super::random::Random;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The language of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    C,
    Cpp,
    Rust,
    Go,
}

/// Flags of every program.
const COMMON: [&str; 4] = ["-lm", "-ldl", "-pthread", "-w"];
/// Flags of Rust programs: sums wrap, as in the other languages.
const RUST: [&str; 4] = ["--edition=2024", "-Coverflow-checks=off", "-Awarnings", "--crate-name=program"];
/// Flag with which the compiler uses the profile of an earlier run, and notes that in the program.
const TRAINED: &str = "-fprofile-use";

/// The compiler and flags of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Build {
    compiler: String,
    flags: Vec<String>,
}

impl Build {
    /// Draws a build with an installed compiler.
    pub fn choose(random: &mut Random) -> Build {
        let (c, others) = (["gcc", "g++", "clang-16", "clang++-16"], ["rustc", "go"]);
        let compilers: Vec<&str> =
            c.into_iter().chain(c).chain(others).filter(|compiler| shell::have(compiler)).collect();
        let compiler = random.one(&compilers);
        let mut flags = Vec::new();
        match compiler {
            "rustc" => choose_rust(random, &mut flags),
            "go" => choose_go(random, &mut flags),
            _ => choose_c(random, compiler.starts_with("clang"), &mut flags),
        }
        Build { compiler: compiler.to_owned(), flags: flags.into_iter().map(str::to_owned).collect() }
    }

    /// Returns a build by a compiler with one flag.
    pub fn plain(compiler: &str, flag: &str) -> Build {
        Build { compiler: compiler.to_owned(), flags: vec![flag.to_owned()] }
    }

    /// Parses the text of [`Self::line`].
    pub fn parse(line: &str) -> Option<Build> {
        let (compiler, flags) = line.split_once(' ').unwrap_or((line, ""));
        let flags = flags.split(' ').filter(|flag| !flag.is_empty()).map(str::to_owned).collect();
        (!compiler.is_empty()).then(|| Build { compiler: compiler.to_owned(), flags })
    }

    /// Returns compiler and flags as text.
    pub fn line(&self) -> String {
        std::iter::once(&self.compiler).chain(&self.flags).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Whether the compiler is installed.
    pub fn is_installed(&self) -> bool {
        shell::have(&self.compiler)
    }

    /// Returns the language that the compiler compiles.
    pub fn language(&self) -> Language {
        match &*self.compiler {
            "rustc" => Language::Rust,
            "go" => Language::Go,
            compiler if compiler.contains("++") => Language::Cpp,
            _ => Language::C,
        }
    }

    /// Returns the name of the source file.
    pub fn source(&self) -> &'static str {
        match self.language() {
            Language::C => "program.c",
            Language::Cpp => "program.cpp",
            Language::Rust => "program.rs",
            Language::Go => "program.go",
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Whether blocks have sections of their own, so that differences of labels cannot be
    /// represented.
    pub fn has_sections(&self) -> bool {
        self.has("-fbasic-block-sections=all")
    }

    /// Whether the program is static.
    pub fn is_static(&self) -> bool {
        self.has("-static") || self.has("-Ctarget-feature=+crt-static")
    }

    /// Whether recorded calls can be compared by name.
    pub fn has_names(&self) -> bool {
        self.language() != Language::Go
            && !self.has("-s")
            && !self.has("-Cstrip=symbols")
            && !self.is_static()
    }

    /// Compiles the source file to `program`.
    pub fn compile(&self, directory: &Path) -> Result<()> {
        if self.has(TRAINED) {
            self.call(directory, &["-fprofile-generate", "-fprofile-update=single"])?;
            let trained = Command::new("./program").arg("2").current_dir(directory).output();
            trained.context("cannot run the program for its profile")?;
            return self.call(directory, &[TRAINED, "-fprofile-partial-training"]);
        }
        self.call(directory, &[])
    }

    fn call(&self, directory: &Path, more: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.compiler);
        let flags = self.flags.iter().filter(|flag| *flag != TRAINED);
        match self.language() {
            Language::Go => command
                .arg("build")
                .args(flags)
                .args(["-o", "program", self.source()])
                .env("GO111MODULE", "off"),
            Language::Rust => command.args(flags).args(RUST).args([self.source(), "-o", "program"]),
            _ => command.args(flags).args(more).args([self.source(), "-o", "program"]).args(COMMON),
        };
        let output = command.current_dir(directory).output().context("cannot start the compiler")?;
        if !output.status.success() {
            bail!("{}: {}", shell::line(&command), String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

fn choose_c(random: &mut Random, is_clang: bool, flags: &mut Vec<&str>) {
    flags.push(random.one(&["-O0", "-O1", "-O2", "-O2", "-O3", "-Os", "-Og"]));
    let mut perhaps = |flag: &[&'static str], of: u64| {
        if random.below(of) == 0 {
            flags.extend(flag);
        }
    };
    perhaps(&["-fno-pie", "-no-pie"], 3);
    perhaps(&["-fcf-protection"], 5);
    perhaps(&["-fno-omit-frame-pointer"], 5);
    perhaps(&["-fno-jump-tables"], 8);
    perhaps(&["-fpatchable-function-entry=5"], 6);
    perhaps(&["-ffunction-sections", "-Wl,--gc-sections"], 6);
    perhaps(&["-fno-plt"], 6);
    perhaps(&["-s"], 4);
    match is_clang {
        true => perhaps(&["-fbasic-block-sections=all"], 5),
        false => perhaps(&["-fno-asynchronous-unwind-tables"], 12),
    }
    perhaps(&["-static"], 10);
    if !is_clang {
        perhaps(&[TRAINED], 4);
    }
    // calltap refuses a static program without symbols, as it cannot register unwinding information
    // there.
    if flags.contains(&"-static") {
        flags.retain(|flag| *flag != "-s");
    }
}

fn choose_rust(random: &mut Random, flags: &mut Vec<&str>) {
    flags.push(random.one(&["-Copt-level=0", "-Copt-level=2", "-Copt-level=3", "-Copt-level=s"]));
    const PERHAPS: [(&str, u64); 5] = [
        ("-Crelocation-model=static", 4),
        ("-Cforce-frame-pointers=yes", 4),
        ("-Ccodegen-units=1", 3),
        ("-Cstrip=symbols", 4),
        ("-Cprefer-dynamic", 6),
    ];
    choose_some(random, flags, &PERHAPS);
}

fn choose_go(random: &mut Random, flags: &mut Vec<&str>) {
    choose_some(random, flags, &[("-buildmode=pie", 3), ("-ldflags=-w", 3), ("-gcflags=-N", 4)]);
}

/// Adds each flag with a probability of one in the given number.
fn choose_some<'f>(random: &mut Random, flags: &mut Vec<&'f str>, perhaps: &[(&'f str, u64)]) {
    for (flag, of) in perhaps {
        if random.below(*of) == 0 {
            flags.push(flag);
        }
    }
}
