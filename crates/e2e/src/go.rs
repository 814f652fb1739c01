//! Toolchains of Go: the installed one, and newer ones. `CALLTAP_GO` names their directories, as
//! PATH does; .ci/run provides one.

use crate::compile::{Program, output_of};
use crate::compiled::finish;
use crate::files::source;
use crate::skipped::skipped;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A toolchain.
#[derive(Clone, Debug)]
pub struct Go {
    /// Directory of the toolchain; `None` for the installed one.
    root: Option<PathBuf>,
}

impl Go {
    /// Returns the installed toolchain.
    pub fn installed() -> Option<Go> {
        let has_go = output_of("go", &["version"]).is_some();
        if !has_go {
            skipped("no go here");
        }
        has_go.then_some(Go { root: None })
    }

    /// Returns the newer toolchains.
    pub fn newer() -> Vec<Go> {
        let named = std::env::var_os("CALLTAP_GO").unwrap_or_default();
        let roots = std::env::split_paths(&named).filter(|root| root.join("bin/go").exists());
        let all: Vec<Go> = roots.map(|root| Go { root: Some(root) }).collect();
        if all.is_empty() {
            skipped("no newer go here (CALLTAP_GO)");
        }
        all
    }

    /// Returns all toolchains.
    pub fn all() -> Vec<Go> {
        Go::installed().into_iter().chain(Go::newer()).collect()
    }

    fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new("go") };
        let mut command = Command::new(root.join("bin/go"));
        command.env("GOROOT", root).env("GOTOOLCHAIN", "local");
        command
    }

    fn output_of(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("a toolchain");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Builds a program.
    pub fn compile(&self, name: &str, flags: &[&str]) -> Program {
        let stem = name.trim_end_matches(".go");
        self.make(stem, &["build"], &|command| {
            command.args(flags).arg(source(name));
            format!("{stem} (go {})", flags.join(" "))
        })
    }

    /// Builds the tests of a package of the standard library.
    pub fn compile_test(&self, package: &str) -> Program {
        self.make("tests", &["test", "-c"], &|command| {
            command.arg(package);
            format!("tests of {package}")
        })
    }

    fn make(&self, stem: &str, words: &[&str], build: &dyn Fn(&mut Command) -> String) -> Program {
        let directory = TempDir::new().expect("a temporary directory");
        let path = directory.path().join(stem);
        let mut command = self.command();
        command.args(words).arg("-o").arg(&path);
        let name = format!("{} by {}", build(&mut command), self.version());
        finish(command);
        Program { path, name, directory }
    }

    /// Returns the version, such as `go1.19.8`.
    pub fn version(&self) -> String {
        self.output_of(&["env", "GOVERSION"])
    }

    /// Returns the path of one of the toolchain's own programs.
    pub fn tool(&self, name: &str) -> PathBuf {
        Path::new(&self.output_of(&["env", "GOTOOLDIR"])).join(name)
    }
}
