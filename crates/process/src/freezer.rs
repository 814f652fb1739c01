//! Whether a process is frozen by a control group: its threads then run for no tracer either.

use crate::control_group::{Group, Version};
use std::fs;

/// Whether a control group of the process is frozen or being frozen. A root group cannot be.
pub fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| Group::parse(line, "freezer"));
    let mut groups = groups.filter(|group| !group.is_root()).peekable();
    if groups.peek().is_none() {
        return false;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    groups.any(|group| is_group_frozen(&group, &mounts))
}

fn is_group_frozen(group: &Group<'_>, mounts: &str) -> bool {
    let Some(directory) = group.directories(mounts).next() else { return false };
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    match group.version {
        Version::One => matches!(read("freezer.state").trim(), "FROZEN" | "FREEZING"),
        Version::Two => read("cgroup.events").lines().any(|line| line == "frozen 1"),
    }
}
