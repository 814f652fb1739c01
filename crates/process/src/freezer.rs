//! Whether a process is frozen by a control group: its threads then run for no tracer either.

use std::fs;
use std::path::PathBuf;

/// Whether a control group of the process is frozen or being frozen.
pub fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut groups = groups.lines().filter_map(Group::parse).peekable();
    if groups.peek().is_none() {
        return false;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    groups.any(|group| group.is_frozen(&mounts))
}

/// A control group that can freeze a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group<'a> {
    version: Version,
    /// Path below the hierarchy's root.
    path: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl<'a> Group<'a> {
    /// Parses a line of `/proc/PID/cgroup`: `0::/a/b` or `7:freezer:/a/b`. None for a root group,
    /// which cannot be frozen, and for other controllers.
    fn parse(line: &'a str) -> Option<Group<'a>> {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|controller| controller == "freezer") => Version::One,
            _ => return None,
        };
        (path != "/").then_some(Group { version, path })
    }

    /// Returns the group's directory. `mounts`: the text of `/proc/self/mountinfo`.
    fn directory(&self, mounts: &str) -> Option<PathBuf> {
        mounts.lines().find_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next()?, mount.next()?);
            let mut kind = kind.split(' ');
            let (kind, options) = (kind.next()?, kind.nth(1)?);
            let fits = match self.version {
                Version::One => kind == "cgroup" && options.split(',').any(|option| option == "freezer"),
                Version::Two => kind == "cgroup2",
            };
            let below = self.path.strip_prefix(root).filter(|_| fits)?;
            Some(PathBuf::from(point).join(below.trim_start_matches('/')))
        })
    }

    fn is_frozen(&self, mounts: &str) -> bool {
        let Some(directory) = self.directory(mounts) else { return false };
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        match self.version {
            Version::One => matches!(read("freezer.state").trim(), "FROZEN" | "FREEZING"),
            Version::Two => read("cgroup.events").lines().any(|line| line == "frozen 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
31 25 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 25 0:28 /box /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    fn check(line: &str, expected: Option<&str>) {
        let directory = Group::parse(line).and_then(|group| group.directory(MOUNTS));
        assert_eq!(directory, expected.map(PathBuf::from), "{line}");
    }

    #[test]
    fn the_directory_of_a_group_is_found() {
        check("7:freezer:/a/b", Some("/sys/fs/cgroup/freezer/a/b"));
        check("0::/box/a:b", Some("/sys/fs/cgroup/unified/a:b"));
        check("0::/elsewhere", None);
        check("0::/", None);
        check("3:cpu:/a", None);
    }
}
