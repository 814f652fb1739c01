//! Wakings: which threads wake the threads of a process.
//!
//! An instance of tracefs reports all wakings. Perf events, used if the kernel allows no instance,
//! omit some wakings by timers.

use crate::events::Events;
use crate::instance::{self, Instance, Pages};
use crate::names::Names;
use crate::order::Taken;
use crate::perf::PerfEvent;
use crate::records::{self, Item, Sample, Task};
use crate::refused::{Cause, Refused, Subject};
use crate::rings::{self, Opening};
use crate::stream::{Rings, Stream};
use crate::tracefs::{Tracefs, Tracepoint};
use calltap_trace::Waking;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Inode of the first pid namespace, whose ids wakings report.
const FIRST_NAMESPACE: u64 = 0xeffffffc;
/// Bits in a record's `common_flags`: an interrupt's code ran, not the thread's.
const INTERRUPT: i64 = 0x08 | 0x10 | 0x40;
/// Kilobytes of a processor's ring: enough for some ten thousand wakings.
const RING: u32 = 1 << 10;
/// Bytes of a processor's ring of process names.
const NAMES_RING: usize = 256 << 10;
/// Maximum bytes of a record.
const RECORD: usize = 128;
/// Name of the event.
const WAKING: &str = "sched/sched_waking";

/// The wakings of threads, and the names of the wakers.
pub struct Wakings {
    /// The wakings. The name of the waker's process is empty.
    pub stream: Stream<Waking>,
    /// Names of the wakers' processes.
    pub names: Names,
}

/// Records the wakings of a process's threads, and of those of the processes that it starts; if the
/// kernel allows no instance, the wakings of all threads of the machine.
pub fn wakings(pid: u32) -> Result<Wakings, Refused> {
    let refused = |cause| Refused::of(Subject::Wakings, cause);
    if !is_first_namespace() {
        return Err(refused(Cause::Namespace));
    }
    let tracefs = Tracefs::open().map_err(|error| refused(Cause::of_tracefs(error)))?;
    // For a process that has ended, the instance fails: it has no threads to list.
    of_instance(&tracefs, pid).or_else(|_| of_machine(&tracefs).map_err(refused))
}

/// Removes instances that a killed recorder has left.
pub fn remove_left() {
    // In another pid namespace, this process cannot see the makers of instances, whose names have
    // ids of the first one.
    if is_first_namespace()
        && let Ok(tracefs) = Tracefs::open()
    {
        let _ = instance::remove_left(&tracefs);
    }
}

pub(crate) fn is_first_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST_NAMESPACE)
}

fn of_instance(tracefs: &Tracefs, pid: u32) -> io::Result<Wakings> {
    let (waking, layout) = (tracefs.tracepoint(WAKING)?, tracefs.page_layout()?);
    let instance = Instance::create(tracefs, "mono", RING)?;
    let mut opening = Opening::new(NAMES_RING);
    // Without these records, a process has its current name when its wakings are read.
    let has_names =
        rings::processors().into_iter().try_for_each(|cpu| opening.open_all(PerfEvent::Processes, cpu));
    let names = if has_names.is_ok() { Names::of_now() } else { Names::default() };
    let told = names.clone();
    let take_tasks = move |bytes: &[u8], _: &mut dyn FnMut(Item<()>)| {
        records::read_tasks(bytes, &mut |at, task| told.take(at, task));
    };
    let mut tasks = Events::new(opening, RECORD, Box::new(take_tasks));
    let of = names.clone();
    let decode = move |at, raw: &[u8]| {
        let tid = u32::try_from(waking.number(raw, "common_pid")?).ok()?;
        woken(&waking, Sample { at, pid: of.process_of(tid, at), tid, raw })
    };
    let threads = instance.only(pid)?;
    // One of them may have ended when a wait is read that it has ended.
    threads.iter().for_each(|tid| names.take(0, Task::ThreadBegun { tid: *tid, pid }));
    instance.enable(WAKING)?;
    let read = move || {
        let _: Vec<Taken<()>> = tasks.take();
    };
    let pages = Pages::new(instance, layout, Box::new(decode), Box::new(read))?;
    Ok(Wakings { stream: Stream::new(Box::new(pages), threads), names })
}

/// Records the wakings of the whole machine by perf events.
///
/// A list of ids could restrict the kernel to some threads, but a thread that starts would be
/// missing in it for some time, and no record would show that.
fn of_machine(tracefs: &Tracefs) -> Result<Wakings, Cause> {
    let waking = tracefs.tracepoint(WAKING).map_err(Cause::of_tracefs)?;
    let mut opening = Opening::new(RING as usize * 1024);
    for cpu in rings::processors() {
        opening.open_all(PerfEvent::Tracepoint(waking.id), cpu)?;
    }
    let names = Names::of_now();
    let told = names.clone();
    let decode = move |bytes: &[u8], take: &mut dyn FnMut(Item<Waking>)| {
        records::read_tasks(bytes, &mut |at, task| told.take(at, task));
        records::read_samples(bytes, &mut |sample| woken(&waking, sample), take);
    };
    let threads = std::mem::take(&mut opening.threads);
    let events = Events::new(opening, RECORD, Box::new(decode));
    Ok(Wakings { stream: Stream::new(Box::new(events), threads), names })
}

fn woken(point: &Tracepoint, sample: Sample<'_>) -> Option<Item<Waking>> {
    let Sample { at, pid, tid, raw } = sample;
    let woken = u32::try_from(point.number(raw, "pid")?).ok()?;
    let interrupt = point.number(raw, "common_flags")? & INTERRUPT != 0;
    // The idle task wakes no thread by itself: it carries out a waking that another processor has
    // queued. Who that was is not known.
    let is_idle = tid == 0 && !interrupt;
    (!is_idle).then(|| Item::Of(woken, Waking { at, interrupt, pid, tid, comm: String::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Change;
    use crate::stream::SETTLE;
    use crate::tracefs::tests::{WAKING, point};
    use std::io::Write;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn wakeup_has_waker_and_interrupt_context() {
        let waking = point("317", WAKING);
        let mut raw = [0; 36];
        raw[24] = 9;
        let woken_by = |flags: u8, raw: &mut [u8; 36]| {
            raw[2] = flags;
            woken(&waking, Sample { at: 5, pid: 3, tid: 4, raw: &raw[..] })
        };
        let expect =
            |interrupt| Some(Item::Of(9, Waking { at: 5, interrupt, pid: 3, tid: 4, comm: String::new() }));
        assert_eq!(woken_by(0x01, &mut raw), expect(false));
        assert_eq!((woken_by(0x08, &mut raw), woken_by(0x10, &mut raw)), (expect(true), expect(true)));
        assert_eq!(woken(&waking, Sample { at: 5, pid: 3, tid: 4, raw: &raw[..20] }), None);
    }

    const TIMES: usize = 200;

    /// Returns the wakings that are recorded of a thread which starts later and runs `sleeps`.
    fn told_of(wakings: Wakings, sleeps: impl FnOnce() + Send + 'static) -> Vec<Waking> {
        let Wakings { mut stream, .. } = wakings;
        let sleeper = std::thread::spawn(|| {
            sleeps();
            rustix::thread::gettid().as_raw_nonzero().get() as u32
        });
        let mut all = Vec::new();
        let mut read = || {
            std::thread::sleep(SETTLE);
            stream.read(&mut |change| {
                if let Change::Of(of, waking) = change {
                    all.push((of, waking));
                }
            });
        };
        while !sleeper.is_finished() {
            read();
        }
        read();
        let tid = sleeper.join().unwrap();
        all.into_iter().filter(|(of, _)| *of == tid).map(|(_, waking)| waking).collect()
    }

    /// Sleeps several times; a timer ends each sleep.
    fn nap() {
        (0..TIMES).for_each(|_| std::thread::sleep(Duration::from_millis(2)));
    }

    /// Waits several times; another thread ends each wait after some time.
    fn wait_for_another() {
        let (ask, asked) = mpsc::sync_channel::<()>(0);
        let (answer, answered) = mpsc::channel();
        let waking = std::thread::spawn(move || {
            asked.iter().for_each(|()| {
                std::thread::sleep(Duration::from_millis(1));
                let _ = answer.send(());
            });
        });
        (0..TIMES).for_each(|_| {
            let _ = ask.send(());
            let _ = answered.recv();
        });
        drop(ask);
        let _ = waking.join();
    }

    #[test]
    fn an_instance_tells_all_wakings() {
        let own = std::process::id();
        match Tracefs::open().and_then(|tracefs| of_instance(&tracefs, own)) {
            Ok(wakings) => {
                let by_timers = told_of(wakings, nap).into_iter().filter(|waking| waking.interrupt);
                assert!(by_timers.count() >= TIMES);
            }
            Err(error) => {
                // The test harness does not capture this, unlike printed text.
                let _ = writeln!(io::stderr(), "SKIPPED: no instance of tracefs: {error}");
            }
        }
    }

    #[test]
    fn without_an_instance_the_machine_is_asked() {
        match Tracefs::open().map_err(Cause::of_tracefs).and_then(|tracefs| of_machine(&tracefs)) {
            // Perf events may omit all wakings by timers of a processor, as if another record were
            // being written there.
            Ok(wakings) => {
                let by_threads =
                    told_of(wakings, wait_for_another).into_iter().filter(|waking| !waking.interrupt);
                assert!(by_threads.count() >= TIMES / 2);
            }
            Err(cause) => {
                // The test harness does not capture this, unlike printed text.
                let _ = writeln!(io::stderr(), "SKIPPED: {}", Refused::of(Subject::Wakings, cause));
            }
        }
    }
}
