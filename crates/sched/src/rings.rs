//! Opens events for the threads of a process on all processors, and a ring for each processor.

use crate::perf::{self, Heirs, PerfEvent, Ring, Scope};
use crate::refused::Cause;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// Smallest ring. A ring is halved down to this size if the user may lock less memory.
const SMALLEST_RING: usize = 8 << 10;
/// Maximum number of listings of a process's threads: a thread without an event may have started
/// others meanwhile.
const ROUNDS: u32 = 20;
/// Number of descriptors that are left for other uses.
const SPARE_DESCRIPTORS: u64 = 256;

/// The events and rings opened so far.
pub(crate) struct Opening {
    pub(crate) rings: Vec<(u32, Ring)>,
    pub(crate) events: Vec<OwnedFd>,
    pub(crate) threads: BTreeSet<u32>,
    heirs: Heirs,
    /// Bytes of a ring.
    ring: usize,
}

impl Opening {
    pub(crate) fn new(ring: usize) -> Opening {
        let (rings, events, threads) = (Vec::new(), Vec::new(), BTreeSet::new());
        Opening { rings, events, threads, heirs: Heirs::UntilExec, ring }
    }

    /// Opens events for all threads of a process on all processors; with `follow`, also for
    /// programs that its processes execute.
    pub(crate) fn open_threads(&mut self, pid: u32, follow: bool, kinds: &[PerfEvent]) -> Result<(), Cause> {
        self.heirs = if follow { Heirs::All } else { Heirs::UntilExec };
        let processors = processors();
        for _ in 0..ROUNDS {
            let new: Vec<u32> =
                threads_of(pid).into_iter().filter(|tid| !self.threads.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            self.threads.extend(new.iter().copied());
            make_room(self.threads.len(), processors.len() * kinds.len())?;
            for tid in new {
                for cpu in &processors {
                    kinds.iter().try_for_each(|kind| self.open_thread(*kind, tid, *cpu))?;
                }
            }
        }
        if self.rings.is_empty() { Err(Cause::Gone) } else { Ok(()) }
    }

    fn open_thread(&mut self, kind: PerfEvent, tid: u32, cpu: u32) -> Result<(), Cause> {
        match perf::open(kind, Scope::Thread(tid, self.heirs), cpu) {
            // Kernels before 5.13 cannot remove events on execve.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && self.heirs == Heirs::UntilExec => {
                self.heirs = Heirs::All;
                self.open_thread(kind, tid, cpu)
            }
            // The thread has ended, or the processor is offline.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => Ok(()),
            event => self.keep(event.map_err(Cause::new)?, cpu),
        }
    }

    /// Opens an event for everything on a processor.
    pub(crate) fn open_all(&mut self, kind: PerfEvent, cpu: u32) -> Result<(), Cause> {
        let event = perf::open(kind, Scope::All, cpu).map_err(Cause::new)?;
        self.keep(event, cpu)
    }

    fn keep(&mut self, event: OwnedFd, cpu: u32) -> Result<(), Cause> {
        if let Some((_, ring)) = self.rings.iter().find(|(of, _)| *of == cpu) {
            ring.share(&event).map_err(Cause::new)?;
            self.events.push(event);
        } else {
            self.rings.push((cpu, ring_for(event, self.ring).map_err(Cause::of_ring)?));
        }
        Ok(())
    }
}

fn ring_for(mut event: OwnedFd, mut bytes: usize) -> io::Result<Ring> {
    loop {
        match Ring::map(event, bytes) {
            Ok(ring) => return Ok(ring),
            Err((_, error)) if bytes <= SMALLEST_RING => return Err(error),
            Err((again, _)) => (event, bytes) = (again, bytes / 2),
        }
    }
}

/// Raises this process's limit of descriptors to what the events need.
fn make_room(threads: usize, events: usize) -> Result<(), Cause> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    let needed = (threads * events) as u64 + open + SPARE_DESCRIPTORS;
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let refused = |limit| Cause::Descriptors { threads, events, spare: SPARE_DESCRIPTORS, limit };
    if let Some(limit) = maximum.filter(|maximum| *maximum < needed) {
        return Err(refused(limit));
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum });
    raised.map_err(|_| refused(current.unwrap_or(0)))
}

fn threads_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the processors that are online, as `/sys` lists them: `0-3,8`.
pub(crate) fn processors() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let listed = parse_processors(&text);
    let counted = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    if listed.is_empty() { (0..counted()).collect() } else { listed }
}

fn parse_processors(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_processors("0-2,5,8-9\n"), [0, 1, 2, 5, 8, 9]);
        assert_eq!(parse_processors(""), [] as [u32; 0]);
    }
}
