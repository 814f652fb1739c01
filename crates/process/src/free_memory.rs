//! Memory that a process can use without swapping: the machine's, within the limits of the
//! process's control group and of that group's ancestors.

use crate::error::Error;
use crate::proc;
use crate::reason::Reason;
use crate::target::Target;
use std::path::Path;
use std::{fs, io};

/// Bytes that calltap takes while it records, with the first ring memory.
const RECORDER: u64 = 24 << 20;
/// Bytes of an attached process's own group that the agent takes at first.
const AGENT: u64 = 4 << 20;
const OWN: &str = "/proc/self";

/// A version of control groups: mount point of its memory controller, its line of
/// `/proc/PID/cgroup`, its files, and its words for the pages of files.
struct Version {
    mount: &'static str,
    line: fn(&str) -> Option<&str>,
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
    active: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        mount: "",
        line: |line| line.strip_prefix("0::"),
        limit: "memory.max",
        used: "memory.current",
        inactive: "inactive_file ",
        active: "active_file ",
    },
    Version {
        mount: "memory",
        line: |line| line.split_once(":memory:").map(|(_, path)| path),
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        inactive: "total_inactive_file ",
        active: "total_active_file ",
    },
];

/// Returns the bytes available to this process, according to the kernel; `u64::MAX` where it does
/// not tell.
pub fn available() -> u64 {
    available_to(Path::new(OWN))
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
    let available = available_to(&proc::place(target.pid));
    if available >= AGENT { Ok(()) } else { Err(Reason::NoFreeMemory { megabytes: available >> 20 }) }
}

fn available_to(process: &Path) -> u64 {
    available_in(process, Path::new("/proc/meminfo"), Path::new("/sys/fs/cgroup"))
}

fn available_in(process: &Path, meminfo: &Path, groups: &Path) -> u64 {
    let machine = number_behind(meminfo, "MemAvailable:").map(|kilobytes| kilobytes << 10);
    let own = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let groups = VERSIONS.iter().filter_map(|version| {
        let path = own.lines().find_map(version.line)?.trim_start_matches('/');
        Path::new(path)
            .ancestors()
            .filter_map(|path| version.room(&groups.join(version.mount).join(path)))
            .min()
    });
    groups.chain(machine).min().unwrap_or(u64::MAX)
}

impl Version {
    /// Returns the bytes that a group may still use; `None` if it has no limit. As in MemAvailable,
    /// half of the pages of files that are in use count as needed.
    fn room(&self, group: &Path) -> Option<u64> {
        let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, used) = (number(self.limit)?, number(self.used)?);
        let pages = |word| number_behind(&group.join("memory.stat"), word).unwrap_or(0);
        let cached = pages(self.inactive) + pages(self.active) / 2;
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
        let [process, meminfo, groups] =
            ["proc/self", "proc/meminfo", "groups"].map(|name| root.path().join(name));
        assert_eq!(available_in(&process, &meminfo, &groups), expected, "{files:?}");
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
