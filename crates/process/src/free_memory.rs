//! Memory that a process can use without swapping: the machine's, within the limits of the
//! process's control group and of that group's ancestors.

use crate::control_group::{Group, Version};
use crate::error::Error;
use crate::proc;
use crate::reason::Reason;
use crate::target::Target;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

/// Bytes that calltap takes while it records, with the first ring memory.
const RECORDER: u64 = 24 << 20;
/// Bytes of an attached process's own group that the agent takes at first.
const AGENT: u64 = 4 << 20;
const MEMINFO: &str = "/proc/meminfo";

/// Names in the memory controller of a version of control groups: files, and lines of
/// `memory.stat` about the pages of files.
struct Names {
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
    active: &'static str,
}

const ONE: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file ",
    active: "total_active_file ",
};
const TWO: Names =
    Names { limit: "memory.max", used: "memory.current", inactive: "inactive_file ", active: "active_file " };

/// Directory of a group that may limit memory.
struct Limit {
    names: &'static Names,
    directory: PathBuf,
}

/// Returns the bytes available to this process, according to the kernel; `u64::MAX` where it does
/// not tell.
pub fn available() -> u64 {
    // Found once: recording asks often, and a machine may have thousands of mounts.
    static OWN: OnceLock<Vec<Limit>> = OnceLock::new();
    available_in(OWN.get_or_init(|| limits_of(Path::new("/proc/self"))), Path::new(MEMINFO))
}

/// Fails if this process has too little memory for recording. Else the kernel would soon end it,
/// or the program, if both are in one group.
pub fn check() -> Result<(), Error> {
    let available = available();
    if available >= RECORDER {
        return Ok(());
    }
    let why = format!(
        "{} MB of memory are available to calltap, which needs {} MB: raise the limit of its control group, or run calltap in another one",
        available >> 20,
        RECORDER >> 20
    );
    Err(Error::System { what: "recording", source: io::Error::other(why) })
}

/// Fails if the agent's memory could exceed what is available to a process.
pub fn check_target(target: &Target) -> Result<(), Reason> {
    let available = available_in(&limits_of(&proc::place(target.pid)), Path::new(MEMINFO));
    if available >= AGENT { Ok(()) } else { Err(Reason::NoFreeMemory { megabytes: available >> 20 }) }
}

/// Returns the groups of a process and their ancestors.
fn limits_of(process: &Path) -> Vec<Limit> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    limits_in(&read(&process.join("cgroup")), &read(Path::new("/proc/self/mountinfo")))
}

/// `groups`, `mounts`: texts of `/proc/PID/cgroup` and mountinfo.
fn limits_in(groups: &str, mounts: &str) -> Vec<Limit> {
    let groups = groups.lines().filter_map(|line| Group::parse(line, "memory"));
    let all = groups.flat_map(|group| {
        let names = match group.version {
            Version::One => &ONE,
            Version::Two => &TWO,
        };
        group.directories(mounts).map(move |directory| Limit { names, directory })
    });
    all.collect()
}

fn available_in(limits: &[Limit], meminfo: &Path) -> u64 {
    let machine = number_behind(meminfo, "MemAvailable:").map(|kilobytes| kilobytes << 10);
    limits.iter().filter_map(Limit::room).chain(machine).min().unwrap_or(u64::MAX)
}

impl Limit {
    /// Returns the bytes that the group may still use; `None` if it has no limit. As in
    /// MemAvailable, half of the pages of files that are in use count as needed.
    fn room(&self) -> Option<u64> {
        let Limit { names, directory } = self;
        let number = |name| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(names.limit)?, number(names.used)?);
        let pages = |word| number_behind(&directory.join("memory.stat"), word).unwrap_or(0);
        let cached = pages(names.inactive) + pages(names.active) / 2;
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// Returns the number in the line of a file that begins with a word.
fn number_behind(file: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(word))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the bytes available where these are the files.
    fn check(files: &[(&str, &str)], expected: u64) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let [groups, meminfo, mounted] =
            ["proc/self/cgroup", "proc/meminfo", "groups"].map(|name| root.path().join(name));
        let mounted = mounted.display();
        let mounts = format!(
            "32 25 0:28 / {mounted} rw - cgroup2 cgroup2 rw\n33 25 0:29 / {mounted}/memory rw - cgroup cgroup rw,memory\n"
        );
        let limits = limits_in(&fs::read_to_string(groups).unwrap_or_default(), &mounts);
        assert_eq!(available_in(&limits, &meminfo), expected, "{files:?}");
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");

    #[test]
    fn machine_without_cgroups_has_memory_of_meminfo() {
        check(&[MACHINE], 4000 << 10);
        check(&[], u64::MAX);
        check(&[MACHINE, ("proc/self/cgroup", "0::/\n")], 4000 << 10);
    }

    #[test]
    fn the_tightest_group_counts() {
        let groups = [
            MACHINE,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("groups/a/memory.max", "1000000\n"),
            ("groups/a/memory.current", "900000\n"),
            ("groups/a/memory.stat", "anon 100\ninactive_file 200000\nactive_file 100000\n"),
            ("groups/a/b/memory.max", "max\n"),
            ("groups/a/b/memory.current", "5\n"),
        ];
        check(&groups, 350_000);
    }

    #[test]
    fn a_group_over_its_limit_has_nothing() {
        let groups = [
            MACHINE,
            ("proc/self/cgroup", "0::/\n"),
            ("groups/memory.max", "5\n"),
            ("groups/memory.current", "9\n"),
        ];
        check(&groups, 0);
    }

    #[test]
    fn groups_of_the_first_version_count() {
        let groups = [
            MACHINE,
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/box\n0::/\n"),
            ("groups/memory/box/memory.limit_in_bytes", "2000000\n"),
            ("groups/memory/box/memory.usage_in_bytes", "1500000\n"),
            ("groups/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n"),
        ];
        check(&groups, 700_000);
    }
}
