//! `calltap tools debuginfo`: fetches debugging files from the servers that DEBUGINFOD_URLS names,
//! by build-id.
//!
//! The files are kept where elfutils and gdb keep theirs,
//! `~/.cache/debuginfod_client/BUILD-ID/debuginfo`, so that each finds what another has fetched.
//! curl does the transfer, with the user's proxies and certificates.

use crate::command_line::arguments::Arguments;
use crate::command_line::processes;
use crate::command_line::values;
use crate::terminal::units::bytes;
use anyhow::{Context, Result, bail};
use calltap_selection::debug_files::{fetched, fetched_files, servers};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Maximum size of all files together: those that were fetched longest ago are removed first.
const KEPT: u64 = 4 << 30;
/// Marker beside a file that calltap has fetched. Files that other programs have fetched are not
/// removed.
const OWN: &str = "fetched-by-calltap";
/// Time limit for connecting to a server.
const CONNECT_S: &str = "5";
/// Time after which a server that sends less than a kilobyte a second is given up.
const STALLS_S: &str = "20";

/// Fetches the debugging files of the named programs and libraries.
pub fn run(arguments: &Arguments) -> Result<()> {
    let servers = servers();
    if servers.is_empty() {
        bail!(
            "DEBUGINFOD_URLS is not set: it names the servers to ask, as in DEBUGINFOD_URLS=https://debuginfod.debian.net"
        );
    }
    let limit = values::size_of(arguments, "max-size")?.unwrap_or_default();
    let mut files: Vec<PathBuf> = arguments.words("operand").into_iter().map(PathBuf::from).collect();
    files.extend(processes::all(arguments)?.iter().map(|pid| calltap_process::proc::program_link(*pid)));
    if files.is_empty() {
        bail!("no program or library named: name a file, or '-p PID'");
    }
    let mut failed = None;
    for file in files {
        let done = fetch_for(&file, &servers, limit).with_context(|| file.display().to_string());
        if let Err(error) = done {
            failed.replace(error).iter().for_each(|error| tell!("calltap: {error:#}"));
        }
    }
    failed.map_or(Ok(()), Err)
}

fn fetch_for(file: &Path, servers: &[String], limit: u64) -> Result<()> {
    let data = calltap_sites::open(file).and_then(|file| calltap_sites::load(&file))?;
    let id = calltap_sites::build_id_of(&data)
        .context("the file has no build-id, by which servers find debugging files")?;
    let to = fetched(&id)
        .context("neither HOME nor XDG_CACHE_HOME is set: calltap has no directory for the file")?;
    let known = fs::read_link(file).unwrap_or_else(|_| file.to_owned());
    if to.exists() {
        tell!("calltap: {}: {} is there already", known.display(), to.display());
        return Ok(());
    }
    let directory = to.parent().unwrap_or(&to);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let new = directory.join(format!("debuginfo.{}", std::process::id()));
    let got = fetch(servers, &id, &new, limit);
    let keep = || File::create(directory.join(OWN)).and_then(|_| fs::rename(&new, &to));
    let size = got.and_then(|size| keep().map(|()| size).context("cannot keep the file"));
    let _ = fs::remove_file(&new);
    if size.is_err() {
        let _ = fs::remove_file(directory.join(OWN));
    }
    // elfutils takes an empty directory as a sign that the file exists on no server.
    let _ = fs::remove_dir(directory);
    fetched_files().iter().for_each(|place| trim(place, &to, KEPT));
    tell!("calltap: {}: {} in {}", known.display(), bytes(size?), to.display());
    Ok(())
}

/// Fetches a file from the first server that has it, and returns its size, or the last server's
/// error.
fn fetch(servers: &[String], id: &str, to: &Path, limit: u64) -> Result<u64> {
    let mut why = None;
    for server in servers {
        let url = format!("{server}/buildid/{id}/debuginfo");
        match transfer(&url, to, limit).and_then(|size| check(to, id).map(|()| size)) {
            Ok(size) => return Ok(size),
            Err(error) => why = Some(error.context(url)),
        }
    }
    Err(why.unwrap_or_else(|| anyhow::anyhow!("DEBUGINFOD_URLS names no server")))
}

fn transfer(url: &str, to: &Path, limit: u64) -> Result<u64> {
    let mut curl = Command::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location", "--proto", "=http,https"])
        .args(["--connect-timeout", CONNECT_S, "--speed-limit", "1024", "--speed-time", STALLS_S, "--", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run curl, which fetches the files (Debian: apt install curl)")?;
    let mut out = curl.stdout.take().context("curl's output")?.take(limit.saturating_add(1));
    let mut file = File::create(to)?;
    let size = io::copy(&mut out, &mut file);
    if size.as_ref().map_or(true, |size| *size > limit) {
        let _ = curl.kill();
    }
    let ended = curl.wait_with_output()?;
    let size = size?;
    if size > limit {
        bail!("the file is larger than {}: raise --max-size", bytes(limit));
    }
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        bail!("{}", said.trim_start_matches("curl: "));
    }
    Ok(size)
}

/// Checks that a fetched file is the debugging file of this build.
fn check(file: &Path, id: &str) -> Result<()> {
    let data = calltap_sites::open(file).and_then(|file| calltap_sites::load(&file));
    let found = calltap_sites::build_id_of(&data.context("the server sent no ELF file")?);
    if found.as_deref() != Some(id) {
        bail!("the server sent a file of another build ({})", found.as_deref().unwrap_or("none"));
    }
    Ok(())
}

/// Removes the files that calltap has fetched longest ago until the rest is below `kept`; never the
/// newest.
fn trim(place: &Path, newest: &Path, kept: u64) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut all: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter(|entry| entry.path().join(OWN).exists())
        .filter_map(|entry| {
            let path = entry.path().join("debuginfo");
            let meta = fs::symlink_metadata(&path).ok()?;
            Some((meta.modified().ok()?, meta.len(), path)).filter(|_| meta.is_file())
        })
        .filter(|(_, _, path)| path != newest)
        .collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let mut sum = fs::metadata(newest).map_or(0, |meta| meta.len());
    for (_, size, path) in all {
        sum += size;
        if sum > kept {
            let directory = path.parent().unwrap_or(place);
            let _ = fs::remove_file(&path).and_then(|()| fs::remove_file(directory.join(OWN)));
            let _ = fs::remove_dir(directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OWN, trim};
    use std::fs::{self, File, FileTimes};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    #[test]
    fn files_fetched_by_other_tools_are_kept() {
        let place = std::env::temp_dir().join(format!("calltap-trim-{}", std::process::id()));
        let file = |name: &str, age: u64, is_own: bool| -> PathBuf {
            let path = place.join(name).join("debuginfo");
            fs::create_dir_all(place.join(name)).unwrap();
            fs::write(&path, [0; 100]).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
            if is_own {
                File::create(place.join(name).join(OWN)).unwrap();
            }
            path
        };
        let (oldest, old) = (file("a", 900, true), file("b", 800, true));
        let (of_gdb, newest) = (file("c", 1000, false), file("d", 0, true));
        trim(&place, &newest, 250);
        let there = [&oldest, &old, &of_gdb, &newest].map(|path| path.exists());
        let is_gone = !place.join("a").exists();
        fs::remove_dir_all(&place).unwrap();
        assert_eq!((there, is_gone), ([false, true, true, true], true));
    }
}
