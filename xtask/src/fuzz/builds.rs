//! Compilers and flags.

use super::random::Random;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// How a program is compiled.
#[derive(Clone, Debug)]
pub struct Build {
    compiler: &'static str,
    flags: Vec<&'static str>,
    /// Its layout follows a profile of an earlier run.
    is_trained: bool,
}

impl Build {
    /// One that this machine has.
    pub fn choose(random: &mut Random) -> Build {
        let compilers = ["gcc", "g++", "clang-16", "clang++-16"];
        let compilers: Vec<&str> = compilers.into_iter().filter(|compiler| shell::have(compiler)).collect();
        let compiler = random.one(&compilers);
        let is_clang = compiler.starts_with("clang");
        let mut flags = vec![random.one(&["-O0", "-O1", "-O2", "-O2", "-O3", "-Os"])];
        let mut perhaps = |flag: &[&'static str], of: u64| {
            if random.below(of) == 0 {
                flags.extend(flag);
            }
        };
        perhaps(&["-fno-pie", "-no-pie"], 3);
        perhaps(&["-fcf-protection"], 5);
        perhaps(&["-fno-omit-frame-pointer"], 5);
        perhaps(&["-fpatchable-function-entry=5"], 6);
        perhaps(&["-ffunction-sections", "-Wl,--gc-sections"], 6);
        perhaps(&["-fno-plt"], 6);
        perhaps(&["-s"], 4);
        match is_clang {
            true => perhaps(&["-fbasic-block-sections=all"], 5),
            false => perhaps(&["-fno-asynchronous-unwind-tables"], 12),
        }
        perhaps(&["-static"], 10);
        // (Of a static program without symbols, the unwinder cannot be told of frames: it is refused.)
        if flags.contains(&"-static") {
            flags.retain(|flag| *flag != "-s");
        }
        Build { compiler, flags, is_trained: !is_clang && random.below(4) == 0 }
    }

    /// Are its programs C++?
    pub fn is_cpp(&self) -> bool {
        self.compiler.contains("++")
    }

    /// Have blocks sections of their own, so that differences of labels cannot be represented?
    pub fn has_sections(&self) -> bool {
        self.flags.contains(&"-fbasic-block-sections=all")
    }

    /// Without a dynamic linker?
    pub fn is_static(&self) -> bool {
        self.flags.contains(&"-static")
    }

    /// Can what is recorded be compared by name?
    pub fn has_names(&self) -> bool {
        !self.flags.contains(&"-s") && !self.flags.contains(&"-static")
    }

    /// The command.
    pub fn line(&self, source: &str) -> String {
        let trained = if self.is_trained { " -fprofile-use (of a run with -fprofile-generate)" } else { "" };
        format!(
            "{} {} {source} -o program -lm -ldl -pthread -w{trained}",
            self.compiler,
            self.flags.join(" ")
        )
    }

    /// Compiles a source file to `program`.
    pub fn compile(&self, directory: &Path, source: &str) -> Result<()> {
        if self.is_trained {
            self.call(directory, source, &["-fprofile-generate", "-fprofile-update=single"])?;
            let trained = Command::new("./program").arg("2").current_dir(directory).output();
            trained.context("cannot run the program for its profile")?;
            return self.call(directory, source, &["-fprofile-use", "-fprofile-partial-training"]);
        }
        self.call(directory, source, &[])
    }

    fn call(&self, directory: &Path, source: &str, more: &[&str]) -> Result<()> {
        let mut command = Command::new(self.compiler);
        command.args(&self.flags).args(more).args([source, "-o", "program", "-lm", "-ldl", "-pthread", "-w"]);
        let output = command.current_dir(directory).output().context("cannot start the compiler")?;
        if !output.status.success() {
            bail!("{}: {}", shell::line(&command), String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
