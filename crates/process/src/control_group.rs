//! The control groups of a process, and where their files are.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    One,
    Two,
}

/// A control group: one of the second version, or of the first with a certain controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) version: Version,
    controller: &'a str,
    /// Path below the hierarchy's root.
    path: &'a str,
}

impl<'a> Group<'a> {
    /// Parses a line of `/proc/PID/cgroup`: `0::/a/b` or `7:freezer:/a/b`. None for other
    /// controllers.
    pub(crate) fn parse(line: &'a str, controller: &'a str) -> Option<Group<'a>> {
        let mut words = line.splitn(3, ':').skip(1);
        let (controllers, path) = (words.next()?, words.next()?);
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|one| one == controller) => Version::One,
            _ => return None,
        };
        Some(Group { version, controller, path })
    }

    /// Whether this is the root of its hierarchy.
    pub(crate) fn is_root(&self) -> bool {
        self.path == "/"
    }

    /// Returns the group's directory, and those of its ancestors as far as they are mounted.
    /// `mounts`: the text of `/proc/self/mountinfo`.
    pub(crate) fn directories(&self, mounts: &'a str) -> impl Iterator<Item = PathBuf> + use<'a> {
        let place = mounts.lines().find_map(|line| self.place(line));
        place.into_iter().flat_map(|(point, below)| below.ancestors().map(|below| point.join(below)))
    }

    /// Returns the mount point in a line of mountinfo, and the group's path below it.
    fn place(&self, line: &'a str) -> Option<(&'a Path, &'a Path)> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let fits = match self.version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == self.controller),
            Version::Two => kind == "cgroup2",
        };
        let below = Path::new(self.path).strip_prefix(root).ok().filter(|_| fits)?;
        Some((Path::new(point), below))
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
        let directory = Group::parse(line, "freezer").and_then(|group| group.directories(MOUNTS).next());
        assert_eq!(directory, expected.map(PathBuf::from), "{line}");
    }

    #[test]
    fn the_directory_of_a_group_is_found() {
        check("7:freezer:/a/b", Some("/sys/fs/cgroup/freezer/a/b"));
        check("0::/box/a:b", Some("/sys/fs/cgroup/unified/a:b"));
        check("0::/elsewhere", None);
        check("0::/boxes/a", None);
        check("0::/", None);
        check("3:cpu:/a", None);
    }

    #[test]
    fn ancestors_are_found_up_to_the_mount_point() {
        let group = Group::parse("2:cpu,freezer:/a/b", "freezer").unwrap();
        let expected =
            ["/a/b", "/a", ""].map(|below| PathBuf::from(format!("/sys/fs/cgroup/freezer{below}")));
        assert_eq!(Vec::from_iter(group.directories(MOUNTS)), expected);
        assert!(!group.is_root() && Group::parse("0::/", "freezer").unwrap().is_root());
    }
}
