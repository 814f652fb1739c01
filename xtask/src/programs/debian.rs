//! Debian's source packages, fetched with an apt configuration of its own; the system's is not
//! changed.

use super::directory;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetches a source package and unpacks its original sources into `into/upstream`.
pub fn source(package: &str, into: &Path) -> Result<()> {
    let apt = Apt::prepare()?;
    fs::create_dir_all(into)?;
    shell::output(apt.command().args(["source", "--download-only", package]).current_dir(into))?;
    let archive = fs::read_dir(into)?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".orig.tar.") && !name.ends_with(".asc")
    });
    let archive = archive.with_context(|| format!("{package} has no .orig.tar"))?;
    let upstream = into.join("upstream");
    if upstream.exists() {
        fs::remove_dir_all(&upstream)?;
    }
    fs::create_dir_all(&upstream)?;
    let mut tar = Command::new("tar");
    tar.arg("xf").arg(&archive).args(["--strip-components=1", "-C"]).arg(&upstream);
    shell::output(&mut tar).map(drop)
}

/// Makes sqlite's amalgamation: `sqlite3.c` and `shell.c`.
pub fn amalgamate(directory: &Path) -> Result<()> {
    for tool in ["tclsh", "make"] {
        if !shell::have(tool) {
            bail!("no {tool} here, which makes sqlite3.c out of its parts");
        }
    }
    shell::output(
        Command::new("sh")
            .args(["./configure", "--disable-tcl", "--disable-readline"])
            .current_dir(directory),
    )?;
    shell::output(Command::new("make").args(["sqlite3.c", "shell.c"]).current_dir(directory)).map(drop)
}

struct Apt {
    place: PathBuf,
}

impl Apt {
    fn prepare() -> Result<Apt> {
        if !shell::have("apt-get") {
            bail!("no apt-get here");
        }
        let release = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
        let field = |name: &str| {
            release.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_matches('"'))
        };
        let (Some("debian"), Some(codename)) = (field("ID="), field("VERSION_CODENAME=")) else {
            bail!("not a released Debian");
        };
        let apt = Apt { place: directory().join("apt") };
        for inside in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(apt.place.join(inside))?;
        }
        let list = apt.place.join("sources.list");
        let line = format!("deb-src http://deb.debian.org/debian {codename} main\n");
        if fs::read_to_string(&list).ok().as_ref() != Some(&line) || !apt.place.join("updated").is_file() {
            fs::write(&list, line)?;
            shell::output(apt.command().args(["--error-on=any", "update"]))?;
            fs::write(apt.place.join("updated"), "")?;
        }
        Ok(apt)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        let place = self.place.display();
        for option in [
            format!("Dir::Etc::SourceList={place}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State::Lists={place}/lists"),
            format!("Dir::Cache={place}"),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::http::Timeout=15".to_owned(),
            "Acquire::Retries=1".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command.arg("--quiet");
        command
    }
}
