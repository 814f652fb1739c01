//! Resources of a process that may be exhausted: mappings, open files, locked memory.

use crate::freezer::is_frozen;
use crate::proc;
use crate::reason::Reason;
use crate::target::{Target, tracer_of};
use nix::errno::Errno;
use std::fs;

/// Number of mappings that a process must be able to add: more than the agent, the dynamic linker
/// for it, and the veneers of large programs take, so that the program itself is left many.
const MAPPINGS: usize = 1024;
/// Files that loading the agent has open at a time.
const FILES: u64 = 2;
/// Bytes of address space for the agent's file and its first mappings.
const AGENT: u64 = 64 << 20;
/// KiB of address space that the agent's file takes, which count as locked memory in a process that
/// locks all its mappings.
const LOCKED: u64 = 64 << 10;

/// Returns the exhausted resource that may be the cause of a failure to load the agent, or that the
/// process is frozen or traced, or else the reason given.
pub(crate) fn explain(target: &Target, reason: Reason) -> Reason {
    match reason {
        Reason::NoMemory
        | Reason::AgentNotMapped
        | Reason::AgentNotOpened { .. }
        | Reason::AgentNoMemory
        | Reason::Linker { .. } => exhausted(target).unwrap_or(reason),
        // A thread that is frozen does not end the call that it was to make.
        Reason::Stuck | Reason::Late | Reason::StillRuns | Reason::Inside { .. } if is_frozen(target.pid) => {
            Reason::Frozen
        }
        Reason::NotStoppable { errno: Errno::EPERM } => tracer_of(target.pid).unwrap_or(reason),
        _ => reason,
    }
}

/// Fails if a process has so many mappings that those of calltap could take its last ones.
pub fn check_mappings(target: &Target) -> Result<(), Reason> {
    let maps = fs::read(proc::place(target.pid).join("maps")).unwrap_or_default();
    let count = maps.iter().filter(|byte| **byte == b'\n').count();
    let most = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    match most.trim().parse::<usize>() {
        Ok(most) if count + MAPPINGS > most => Err(Reason::NoMappings { count }),
        _ => Ok(()),
    }
}

/// Memory that a process must be able to map, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Address space.
    pub address_space: u64,
    /// Private and writable memory.
    pub data: u64,
}

/// Fails if the limits of a process leave it less memory than this. It is not changed then: what an
/// attempt has mapped cannot always be unmapped.
pub fn check_memory(target: &Target, wanted: Memory) -> Result<(), Reason> {
    let limits = fs::read_to_string(proc::place(target.pid).join("limits")).unwrap_or_default();
    let status = proc::status(target.pid).unwrap_or_default();
    let is_exceeded = |limit: &str, used: &str, wanted: u64| {
        let used = status.kib(used).unwrap_or(0) << 10;
        soft_limit(&limits, limit).is_some_and(|most| used.saturating_add(wanted) > most)
    };
    if is_exceeded("Max data size", "VmData", wanted.data) {
        return Err(Reason::NoData);
    }
    match is_exceeded("Max address space", "VmSize", wanted.address_space) {
        true => Err(Reason::NoMemory),
        false => Ok(()),
    }
}

/// Whether a process has too few descriptors left for loading the agent.
pub(crate) fn lacks_descriptors(pid: u32) -> bool {
    let place = proc::place(pid);
    let limits = fs::read_to_string(place.join("limits")).unwrap_or_default();
    let most = soft_limit(&limits, "Max open files");
    // The size of the table is known without reading it.
    let table = proc::status(pid).ok().and_then(|status| status.number("FDSize")).map_or(u64::MAX, u64::from);
    let used = || fs::read_dir(place.join("fd")).map_or(0, Iterator::count) as u64;
    most.is_some_and(|most| table.saturating_add(FILES) > most && used() + FILES > most)
}

fn exhausted(target: &Target) -> Option<Reason> {
    if let Err(reason) = check_mappings(target) {
        return Some(reason);
    }
    let place = proc::place(target.pid);
    let read = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
    let limits = read("limits");
    // An opener, which a seccomp filter may forbid, has an empty descriptor table.
    let is_filtered = || proc::threads(target.pid).into_iter().any(proc::is_filtered);
    let may_open = soft_limit(&limits, "Max open files").is_none_or(|most| most >= FILES);
    if !may_open || lacks_descriptors(target.pid) && is_filtered() {
        return Some(Reason::NoFiles);
    }
    // A mapping is as long as the agent's file, or as its memory.
    if let Err(reason) = check_memory(target, Memory { address_space: AGENT, data: AGENT }) {
        return Some(reason);
    }
    let locked = target.locked_memory();
    let most = soft_limit(&limits, "Max locked memory")? >> 10;
    (locked > 0 && locked + LOCKED > most).then_some(Reason::NoLockedMemory)
}

/// Returns a soft limit from the text of `/proc/PID/limits`. None if it is unlimited.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max locked memory         unlimited            unlimited            bytes     
Max open files            1024                 524288               files     
";

    #[test]
    fn a_soft_limit_is_read_and_unlimited_is_none() {
        assert_eq!(soft_limit(LIMITS, "Max open files"), Some(1024));
        assert_eq!(soft_limit(LIMITS, "Max locked memory"), None);
        assert_eq!(soft_limit(LIMITS, "Max processes"), None);
    }
}
