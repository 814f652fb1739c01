//! When the threads of a process run, and when they do not: the kernel's context-switch records (`perf_event_open`), for unprivileged users
//! where `kernel.perf_event_paranoid` is at most 2.
//!
//! There is an event for each thread on each processor, which threads that begin later inherit; the events of a processor share a ring. Once
//! opened, nothing is done but to read the rings often enough.

mod order;
mod perf;
mod records;
mod refused;

pub use order::Change;
pub use refused::Refused;

use order::{Order, Taken};
use perf::{Heirs, Ring};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fs, io};

/// What has happened is complete in [`Sched::read`] after this time.
pub const SETTLE: Duration = Duration::from_nanos(2 * order::SETTLED_NS);

/// Bytes of a processor's ring: room for ten thousand switches. Where users may lock less memory it is halved, down to
const RING: usize = 256 << 10;
/// this.
const SMALLEST_RING: usize = 8 << 10;
/// Times that a process's threads are listed: those that begin meanwhile may have been begun by one without an event.
const ROUNDS: u32 = 20;
/// Descriptors that are left for everything else.
const SPARE_DESCRIPTORS: u64 = 256;

/// Records the context switches of a process until it is dropped.
pub struct Sched {
    /// By processor.
    rings: Vec<(u32, Ring)>,
    /// Events that write to another's ring.
    _events: Vec<OwnedFd>,
    order: Order,
    bytes: Vec<u8>,
    /// The threads that were there already,
    threads: BTreeSet<u32>,
    /// and when all of them had their events.
    since: u64,
}

impl Sched {
    /// Begins with all threads of a process, and those they will begin; with `follow`, also the processes they will begin.
    pub fn watch(pid: u32, follow: bool) -> Result<Sched, Refused> {
        let heirs = if follow { Heirs::Processes } else { Heirs::Threads };
        let mut opening = Opening { rings: Vec::new(), events: Vec::new(), heirs };
        let (processors, mut threads) = (processors(), BTreeSet::new());
        for _ in 0..ROUNDS {
            let new: Vec<u32> = threads_of(pid).into_iter().filter(|tid| !threads.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            threads.extend(new.iter().copied());
            make_room(threads.len(), processors.len())?;
            for tid in new {
                processors.iter().try_for_each(|cpu| opening.open(tid, *cpu))?;
            }
        }
        if opening.rings.is_empty() {
            return Err(Refused::Gone);
        }
        let Opening { rings, events, .. } = opening;
        let (order, since) = (Order::default(), now());
        Ok(Sched { rings, _events: events, order, bytes: Vec::new(), threads, since })
    }

    /// The threads that are watched from [`Self::since`] on: what they did before their first change follows from that.
    pub fn take_threads(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.threads)
    }

    /// Since when the threads that were there at first are watched, nanoseconds of CLOCK_MONOTONIC.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Hands out what has happened since this was last done, oldest first. Until when all of it was: about a millisecond ago, nanoseconds of
    /// CLOCK_MONOTONIC.
    pub fn read(&mut self, give: &mut dyn FnMut(Change)) -> u64 {
        let now = now();
        let mut take = |(_, ring): &mut (u32, Ring)| {
            self.bytes.clear();
            let was_full = ring.read(&mut self.bytes, records::SWITCH);
            let mut items = Vec::new();
            records::read(&self.bytes, &mut |item| items.push(item));
            Taken { items, was_full }
        };
        let taken = self.rings.iter_mut().map(&mut take).collect();
        self.order.take(taken, now, give)
    }

    /// Hands out the last changes of a thread that has ended, after [`Self::read`].
    pub fn rest_of(&mut self, tid: u32, give: &mut dyn FnMut(Change)) {
        self.order.rest_of(tid, give);
    }

    /// Records that were lost until now.
    pub fn lost(&self) -> u64 {
        self.order.lost
    }
}

/// Events and rings so far.
struct Opening {
    rings: Vec<(u32, Ring)>,
    events: Vec<OwnedFd>,
    heirs: Heirs,
}

impl Opening {
    fn open(&mut self, tid: u32, cpu: u32) -> Result<(), Refused> {
        let event = match perf::open(tid, cpu, self.heirs) {
            // Kernels before 5.13 pass events on to processes, too.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && self.heirs == Heirs::Threads => {
                self.heirs = Heirs::Processes;
                return self.open(tid, cpu);
            }
            // The thread has ended, or the processor is not there.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => return Ok(()),
            event => event.map_err(Refused::new)?,
        };
        if let Some((_, ring)) = self.rings.iter().find(|(of, _)| *of == cpu) {
            ring.share(&event).map_err(Refused::new)?;
            self.events.push(event);
        } else {
            self.rings.push((cpu, ring_for(event).map_err(Refused::new)?));
        }
        Ok(())
    }
}

fn ring_for(mut event: OwnedFd) -> io::Result<Ring> {
    let mut bytes = RING;
    loop {
        match Ring::map(event, bytes) {
            Ok(ring) => return Ok(ring),
            Err((_, error)) if bytes <= SMALLEST_RING => return Err(error),
            Err((again, _)) => (event, bytes) = (again, bytes / 2),
        }
    }
}

/// Lets this process have so many descriptors more.
fn make_room(threads: usize, processors: usize) -> Result<(), Refused> {
    let needed = (threads * processors) as u64 + SPARE_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let refused = |limit| Refused::Descriptors { threads, processors, limit };
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

/// The processors that are online, as `/sys` lists them: `0-3,8`.
fn processors() -> Vec<u32> {
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

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_trace::RunState;
    use std::io::Write;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_processors("0-2,5,8-9\n"), [0, 1, 2, 5, 8, 9]);
        assert_eq!(parse_processors(""), [] as [u32; 0]);
    }

    /// A thread of this process that begins after the watch sleeps five times: it is seen to block for as long, and to run in between.
    #[test]
    fn sleeps_of_an_inherited_thread_are_seen() {
        let mut sched = match Sched::watch(std::process::id(), false) {
            Ok(sched) => sched,
            Err(refused) => {
                // Not captured, unlike what is printed.
                let _ = writeln!(io::stderr(), "SKIPPED: {refused}");
                return;
            }
        };
        let sleeper = std::thread::spawn(|| {
            (0..5).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
            rustix::thread::gettid().as_raw_nonzero().get() as u32
        });
        let tid = sleeper.join().unwrap();
        let (mut slept, mut since, mut state) = (0, 0, RunState::Unknown);
        let mut see = |change: Change| match change {
            Change::Of(of, switch) if of == tid => {
                if state == RunState::Blocked {
                    slept += switch.at - since;
                }
                assert_ne!(state, switch.to, "a thread that goes on as it was");
                (since, state) = (switch.at, switch.to);
            }
            _ => {}
        };
        sched.read(&mut see);
        sched.rest_of(tid, &mut see);
        assert!(!sched.take_threads().contains(&tid) && sched.lost() == 0);
        assert!(slept >= 100_000_000, "{slept} ns");
    }
}
