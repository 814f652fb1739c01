//! The sources of each program.

use super::{crates, debian, directory};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A program to build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// The lua 5.4 interpreter.
    Lua,
    /// The sqlite3 shell.
    Sqlite,
}

/// The origins that sources may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Debian's source packages, or else crates.
    Any,
    /// Crates only: needs nothing but cargo.
    Crates,
}

/// A program's sources.
pub(super) struct Sources {
    /// Name of the origin, for file names: `debian` or `crate`.
    pub origin: &'static str,
    /// The files to compile.
    pub files: Vec<PathBuf>,
    /// Directory of the headers.
    pub include: PathBuf,
}

impl Program {
    /// Returns the name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Program::Lua => "lua",
            Program::Sqlite => "sqlite3",
        }
    }

    /// Returns the flags that all builds share.
    pub(super) fn flags(self) -> &'static [&'static str] {
        match self {
            // The seed of lua's hashes and the pivots of its sort depend on addresses and the time.
            // Fixed, they make all runs the same call for call.
            Program::Lua => &[
                "-DLUA_USE_POSIX",
                "-Dluai_makeseed(L)=0",
                "-Dl_randomizePivot()=0",
                "-DSTRCACHE_N=1",
                "-DSTRCACHE_M=2",
            ],
            Program::Sqlite => &["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"],
        }
    }

    pub(super) fn sources(self, origin: Origin) -> Result<Sources> {
        let (debian, from_crate) = (directory().join(format!("src/{}", self.name())), "ready");
        let fetched = debian.join(from_crate);
        if origin == Origin::Any && (fetched.is_file() || self.fetch(&debian, &fetched)) {
            return self.list(&debian.join("upstream"), "debian");
        }
        let (name, inside) = match self {
            Program::Lua => ("lua-src", "lua-5.4.7"),
            Program::Sqlite => ("libsqlite3-sys", "sqlite3"),
        };
        let directory =
            crates::fetch(name).with_context(|| format!("fetching {} as the crate {name}", self.name()))?;
        self.list(&directory.join(inside), "crate")
    }

    /// Fetches Debian's package, unless that failed before. Reports the error.
    fn fetch(self, into: &Path, mark: &Path) -> bool {
        let failed = into.join("failed");
        if failed.is_file() {
            return false;
        }
        let result = match self {
            Program::Lua => debian::source("lua5.4", into),
            Program::Sqlite => {
                debian::source("sqlite3", into).and_then(|()| debian::amalgamate(&into.join("upstream")))
            }
        };
        let text = result.as_ref().err().map(|error| format!("{error:#}\n")).unwrap_or_default();
        if result.is_err() {
            eprintln!("{}: not from Debian's source package, but from a crate: {}", self.name(), text.trim());
            eprintln!("{}: remove {} to try Debian's again", self.name(), failed.display());
        }
        let written = fs::create_dir_all(into)
            .and_then(|()| fs::write(if result.is_ok() { mark } else { &failed }, text));
        result.is_ok() && written.is_ok()
    }

    fn list(self, directory: &Path, origin: &'static str) -> Result<Sources> {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let (include, main, driver) = match self {
            Program::Lua if origin == "debian" => (directory.join("src"), "lua.c", ours.join("lua.c")),
            Program::Lua => (directory.to_path_buf(), "lua.c", ours.join("lua.c")),
            Program::Sqlite => (directory.to_path_buf(), "shell.c", ours.join("sqlite3.c")),
        };
        let mut files = match self {
            Program::Sqlite => vec![include.join("sqlite3.c")],
            Program::Lua => {
                let all = fs::read_dir(&include).with_context(|| format!("reading {}", include.display()))?;
                let all: Vec<PathBuf> =
                    all.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
                let library = |path: &PathBuf| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    name.ends_with(".c") && !["lua.c", "luac.c"].contains(&&*name)
                };
                all.into_iter().filter(library).collect()
            }
        };
        files.sort();
        let main = include.join(main);
        files.push(if main.is_file() { main } else { driver });
        Ok(Sources { origin, files, include })
    }
}
