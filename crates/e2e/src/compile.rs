//! Builds the programs under `programs/` with compilers and flags that users have.

use crate::compiled::compile_once;
use crate::files::source;
use crate::run::calltap;
use crate::skipped::{found_or_skipped, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A way to compile a program.
pub struct Build {
    /// Name for messages.
    pub name: &'static str,
    /// Compilers for C and C++.
    pub compilers: [&'static str; 2],
    /// Flags of the compiler.
    pub flags: &'static [&'static str],
}

const GNU: [&str; 2] = ["gcc", "g++"];
/// The compiler for musl, which has no C++.
const MUSL: [&str; 2] = ["musl-gcc"; 2];

/// The usual build.
pub const GCC: &Build = &BUILDS[0];

/// The usual build by clang.
pub const CLANG: &Build = &BUILDS[3];

/// A build with the sleds of XRay, at entries and exits.
pub const XRAY: &Build = &BUILDS[6];

/// All builds with room for tracing.
pub const BUILDS: &[Build] = &[
    Build { name: "gcc", compilers: GNU, flags: &["-O2", "-fpatchable-function-entry=5"] },
    Build { name: "gcc mcount", compilers: GNU, flags: &["-O2", "-pg"] },
    Build { name: "gcc fentry", compilers: GNU, flags: &["-O2", "-pg", "-mfentry"] },
    Build {
        name: "clang",
        compilers: ["clang-16", "clang++-16"],
        flags: &["-O2", "-fpatchable-function-entry=5"],
    },
    Build {
        name: "no-pie",
        compilers: GNU,
        flags: &["-O2", "-fno-pie", "-no-pie", "-fpatchable-function-entry=5"],
    },
    Build { name: "-O0", compilers: GNU, flags: &["-O0", "-fpatchable-function-entry=5"] },
    Build {
        name: "xray",
        compilers: ["clang-16", "clang++-16"],
        flags: &["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "-fnoxray-link-deps"],
    },
];

/// Builds without a dynamic linker that could load the agent.
pub const PLACED: &[Build] = &[
    Build { name: "static", compilers: GNU, flags: &["-O2", "-static", "-fpatchable-function-entry=5"] },
    Build {
        name: "static-pie",
        compilers: GNU,
        flags: &["-O2", "-static-pie", "-fpatchable-function-entry=5"],
    },
    Build { name: "musl", compilers: MUSL, flags: &["-O2", "-fpatchable-function-entry=5"] },
    Build {
        name: "musl static",
        compilers: MUSL,
        flags: &["-O2", "-static", "-fpatchable-function-entry=5"],
    },
];

/// Builds without room for tracing.
pub const BARE: &[Build] = &[
    Build { name: "bare gcc", compilers: GNU, flags: &["-O2"] },
    Build { name: "bare -Os", compilers: GNU, flags: &["-Os"] },
    Build { name: "bare clang", compilers: ["clang-16", "clang++-16"], flags: &["-O2"] },
    Build { name: "bare -O3, with endbr64", compilers: GNU, flags: &["-O3", "-fcf-protection"] },
    Build { name: "bare no-pie", compilers: GNU, flags: &["-O2", "-fno-pie", "-no-pie"] },
    Build { name: "bare -O0", compilers: GNU, flags: &["-O0"] },
    Build { name: "bare and stripped", compilers: GNU, flags: &["-O2", "-s"] },
];

/// Builds without room for tracing and without a dynamic linker that could load the agent.
pub const BARE_PLACED: &[Build] = &[
    Build { name: "bare static", compilers: GNU, flags: &["-O2", "-static"] },
    Build { name: "bare static-pie", compilers: GNU, flags: &["-O2", "-static-pie"] },
    Build { name: "bare musl", compilers: MUSL, flags: &["-O2"] },
    Build { name: "bare musl static", compilers: MUSL, flags: &["-O2", "-static"] },
];

/// Returns the builds for which this machine has compilers, numbered.
pub fn matrix() -> impl Iterator<Item = (usize, &'static Build)> {
    installed(BUILDS).enumerate()
}

/// Returns those of the builds for which this machine has compilers.
pub fn installed(builds: &'static [Build]) -> impl Iterator<Item = &'static Build> {
    builds.iter().filter(|build| have(build.compilers[0]))
}

/// Whether a tool is installed; reports a skipped test if not.
pub fn have(tool: &str) -> bool {
    found_or_skipped(Command::new(tool).arg("--version").output().is_ok(), &format!("no {tool} here"))
}

/// A compiled program in a directory of its own, in which it also runs.
pub struct Program {
    /// Path of the executable.
    pub path: PathBuf,
    /// Name for messages.
    pub name: String,
    pub(crate) directory: TempDir,
}

impl Program {
    /// Copies a program that others have built into a directory of its own.
    pub fn copied(from: &Path, name: &str) -> Program {
        let directory = TempDir::new().expect("a temporary directory");
        let path = directory.path().join(from.file_name().expect("a file's name"));
        std::fs::copy(from, &path).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        Program { path, name: name.to_owned(), directory }
    }

    /// Returns the directory of the program.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a program that exists already.
    pub fn existing(path: &str) -> Program {
        Program {
            path: path.into(),
            name: path.into(),
            directory: TempDir::new().expect("a temporary directory"),
        }
    }

    /// Compiles one more file, such as a shared object, into the directory.
    pub fn add(&self, build: &Build, sources: &[&str], output: &str, flags: &[&str]) -> PathBuf {
        let path = self.directory().join(output);
        run_compiler(build, sources, &path, flags);
        path
    }
}

fn run_compiler(build: &Build, sources: &[&str], output: &Path, flags: &[&str]) {
    let is_cpp = sources.iter().any(|source| source.ends_with(".cpp"));
    let mut command = Command::new(build.compilers[usize::from(is_cpp)]);
    command.args(build.flags).args(["-g", "-pthread", "-Wall"]);
    command.arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/programs"));
    let sources: Vec<PathBuf> = sources.iter().map(|name| source(name)).collect();
    command.args(&sources).args(flags).arg("-lm").arg("-ldl");
    compile_once(command, &sources, output);
}

/// Compiles a C or C++ program.
pub fn compile(build: &Build, sources: &[&str], flags: &[&str]) -> Program {
    let directory = TempDir::new().expect("a temporary directory");
    let stem = sources[0].split('.').next().unwrap_or("program");
    let path = directory.path().join(stem);
    run_compiler(build, sources, &path, flags);
    Program { path, name: format!("{stem} ({})", build.name), directory }
}

/// Compiles a Rust program with room for tracing.
pub fn compile_rust(name: &str, flags: &[&str]) -> Program {
    compile_rust_as_it_is(name, &[&["-Z", "patchable-function-entry=5"], flags].concat())
}

/// Compiles a Rust program.
pub fn compile_rust_as_it_is(name: &str, flags: &[&str]) -> Program {
    let directory = TempDir::new().expect("a temporary directory");
    let stem = name.trim_end_matches(".rs");
    let path = directory.path().join(stem);
    let mut command = Command::new("rustc");
    command.env("RUSTC_BOOTSTRAP", "1").args(["--edition", "2021", "-g"]);
    let source = source(name);
    command.arg(&source).args(flags);
    compile_once(command, &[source], &path);
    Program { path, name: format!("{stem} (rustc)"), directory }
}

/// Builds a Rust program with dependencies, with these flags of cargo and rustc, or reports why
/// that is not possible. The dependencies are built once.
pub fn compile_cargo(name: &str, flags: &[&str], rustflags: &str) -> Option<Program> {
    let at = source(name);
    let own = calltap().with_file_name("e2e-programs");
    let target = own.join(format!("{name}{}", flags.concat() + rustflags).replace([' ', '/'], ""));
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(at.join("Cargo.toml"));
    command.args(flags).arg("--target-dir").arg(&target).env("RUSTFLAGS", rustflags);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("download") || errors.contains("registry"), "{command:?}:\n{errors}");
        skipped(&format!("{name}: what it depends on cannot be fetched here"));
        return None;
    }
    let profile = if flags.contains(&"--release") { "release" } else { "debug" };
    let path = target.join(profile).join(name);
    let directory = TempDir::new().expect("a temporary directory");
    Some(Program { path, name: format!("{name} ({} {rustflags})", flags.join(" ")), directory })
}

/// Returns the output of a tool, or `None` if it is not installed.
pub fn output_of(tool: &str, arguments: &[&str]) -> Option<String> {
    if !have(tool) {
        return None;
    }
    let output = Command::new(tool).args(arguments).output().expect("just found");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds a program that is linked with a traced library, and another library for it to open.
/// Returns the program and that library's path.
pub fn with_libraries(build: &Build) -> (Program, String) {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("libraries");
    let program = Program { path, name: format!("libraries ({})", build.name), directory };
    let library = |name: &str| {
        let define = format!("-DNAME={name}");
        program
            .add(build, &["library.c"], &format!("lib{name}.so"), &["-shared", "-fPIC", &define])
            .display()
            .to_string()
    };
    let (one, two) = (library("one"), library("two"));
    let rpath = format!("-Wl,-rpath,{}", program.directory().display());
    program.add(build, &["libraries.c"], "libraries", &[&two, &rpath, "-rdynamic"]);
    (program, one)
}
