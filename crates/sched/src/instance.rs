//! An instance of tracefs that only calltap reads.
//!
//! The instance is named after its maker, `calltap-PID-STARTTIME-NUMBER`: a later calltap
//! recognizes a killed maker by that, and removes the instance. Its events and filters end with it.
//! A [`Guard`] does so at once when the maker is killed.

use crate::guard::Guard;
use crate::order::Taken;
use crate::records::Item;
use crate::stream::Rings;
use crate::tracefs::Tracefs;
use calltap_process::proc::start_time;
use calltap_ringbuffer::PageLayout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Prefix of an instance's name.
const PREFIX: &str = "calltap-";
/// Number of instances that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);
/// Maximum number of listings of a process's threads: a thread that was not listed yet may have
/// started others meanwhile.
const ROUNDS: u32 = 20;
/// Fill level of a processor's buffer, per cent, that makes it readable for poll.
const FILLING: &str = "25";

/// A directory in `instances`, removed on drop.
pub(crate) struct Instance {
    instances: OwnedFd,
    directory: OwnedFd,
    name: String,
    /// Removes the instance when this process is killed; `None` if no process could be started.
    _guard: Option<Guard>,
}

impl Instance {
    /// Makes an instance with a clock of the kernel, and with a buffer of `kilobytes` for each
    /// processor.
    pub(crate) fn create(tracefs: &Tracefs, clock: &str, kilobytes: u32) -> io::Result<Instance> {
        let instances = tracefs.open_directory("instances")?;
        let own = std::process::id();
        let started = start_time(own).ok_or(io::ErrorKind::NotFound)?;
        let name = format!("{PREFIX}{own}-{started}-{}", MADE.fetch_add(1, Relaxed));
        let _guard = Guard::start(&instances, &name).ok();
        mkdirat(&instances, &name, Mode::RWXU)?;
        let directory = openat(&instances, &name, directory_flags(), Mode::empty());
        let directory = directory.inspect_err(|_| remove(&instances, &name))?;
        let instance = Instance { instances, directory, name, _guard };
        instance.write("trace_clock", clock)?;
        instance.write("buffer_size_kb", &kilobytes.to_string())?;
        // Kernels before 6.0 wake readers at each event or at half of the buffer instead.
        let _ = instance.write("buffer_percent", FILLING);
        Ok(instance)
    }

    /// Makes the kernel keep the events that concern threads of a process, or threads that those
    /// start. Returns the threads that existed.
    pub(crate) fn only(&self, pid: u32) -> io::Result<BTreeSet<u32>> {
        self.list_threads(pid, "options/event-fork", "set_event_pid")
    }

    /// Writes the threads of a process to a list; `option` makes the kernel add those that they
    /// start. Returns them.
    pub(crate) fn list_threads(&self, pid: u32, option: &str, list: &str) -> io::Result<BTreeSet<u32>> {
        self.write(option, "1")?;
        let mut known = BTreeSet::new();
        for _ in 0..ROUNDS {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
            let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            let new: Vec<u32> = threads.filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            // Writing to the file appends to its list. Each write waits for a grace period of the
            // kernel's RCU: tens of milliseconds on a busy machine.
            let new: Vec<String> = new.iter().map(u32::to_string).collect();
            self.write(list, &new.join(" "))?;
        }
        Ok(known)
    }

    /// Enables an event, named as in `sched/sched_waking`.
    pub(crate) fn enable(&self, event: &str) -> io::Result<()> {
        self.write(&format!("events/{event}/enable"), "1")
    }

    /// Writes to a file of the instance. Lists keep their entries.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        File::from(openat(&self.directory, file, flags, Mode::empty())?).write_all(text.as_bytes())
    }

    /// Reads a file of the instance.
    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        let mut text = String::new();
        File::from(openat(&self.directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            .read_to_string(&mut text)?;
        Ok(text)
    }

    /// Opens the buffers of all processors, with the processors' numbers.
    pub(crate) fn buffers(&self) -> io::Result<Vec<(u32, File)>> {
        let processors = openat(&self.directory, "per_cpu", directory_flags(), Mode::empty())?;
        let mut buffers = Vec::new();
        for entry in Dir::read_from(&processors)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse) {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let path = format!("{name}/trace_pipe_raw");
                buffers.push((cpu, File::from(openat(&processors, path, flags, Mode::empty())?)));
            }
        }
        Ok(buffers)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.instances, &self.name);
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Removes an instance with its enabled events. If this fails, the next calltap tries again.
fn remove(instances: &OwnedFd, name: &str) {
    let _ = unlinkat(instances, name, AtFlags::REMOVEDIR);
}

/// Returns the process that made an instance, and that process's start time.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    let maker = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next()?.parse::<u32>().ok()?;
    numbers.next().is_none().then_some(maker)
}

/// Removes the instances of processes that have ended without removing them.
pub(crate) fn remove_left(tracefs: &Tracefs) -> io::Result<()> {
    let instances = tracefs.open_directory("instances")?;
    for entry in Dir::read_from(&instances)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if maker(&name).is_some_and(|(pid, started)| start_time(pid) != Some(started)) {
            remove(&instances, &name);
        }
    }
    Ok(())
}

/// Decoder of a record with its time.
type Decode<T> = dyn Fn(u64, &[u8]) -> Option<Item<T>> + Send;

/// The buffers of an instance.
pub(crate) struct Pages<T> {
    /// Buffers by processor. They are closed before the instance is removed: the kernel refuses
    /// that otherwise.
    buffers: Vec<Buffer>,
    layout: PageLayout,
    page: Vec<u8>,
    decode: Box<Decode<T>>,
    /// Called when the buffers have been read, before their contents are decoded.
    read: Box<dyn FnMut() + Send>,
    _instance: Instance,
}

struct Buffer {
    file: File,
    /// Time of its newest record.
    newest: u64,
}

impl<T> Pages<T> {
    pub(crate) fn new(
        instance: Instance,
        layout: PageLayout,
        decode: Box<Decode<T>>,
        read: Box<dyn FnMut() + Send>,
    ) -> io::Result<Pages<T>> {
        let buffers = instance.buffers()?.into_iter().map(|(_, file)| Buffer { file, newest: 0 }).collect();
        let page = vec![0; rustix::param::page_size()];
        Ok(Pages { buffers, layout, page, decode, read, _instance: instance })
    }
}

impl<T> Rings<T> for Pages<T> {
    fn is_filling(&self) -> bool {
        let files = self.buffers.iter().map(|buffer| PollFd::new(&buffer.file, PollFlags::IN));
        let mut files: Vec<PollFd<'_>> = files.collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut files, Some(&at_once)).is_ok_and(|filling| filling > 0)
    }

    fn take(&mut self) -> Vec<Taken<T>> {
        let Self { buffers, layout, page, decode, read, .. } = self;
        let mut pages = |buffer: &mut Buffer| {
            let mut pages = Vec::new();
            // An empty buffer has no page.
            while let Ok(length @ 1..) = buffer.file.read(page) {
                pages.push(page[..length].to_vec());
            }
            pages
        };
        let all: Vec<Vec<Vec<u8>>> = buffers.iter_mut().map(&mut pages).collect();
        read();
        let understand = |(buffer, pages): (&mut Buffer, Vec<Vec<u8>>)| {
            let mut items = Vec::new();
            for page in pages {
                understand(&page, layout, &mut buffer.newest, &*decode, &mut items);
            }
            // The kernel overwrites the oldest records, and reports that in the next page that is
            // read.
            Taken { items, was_full: false }
        };
        buffers.iter_mut().zip(all).map(understand).collect()
    }
}

/// Decodes a page, and appends its items.
fn understand<T>(
    page: &[u8],
    layout: &PageLayout,
    newest: &mut u64,
    decode: impl Fn(u64, &[u8]) -> Option<Item<T>>,
    items: &mut Vec<Item<T>>,
) {
    let Some(events) = layout.events(page) else {
        items.push(Item::Lost { at: *newest, lost: 1 });
        return;
    };
    let mut missed = events.missed();
    for event in events {
        let Ok((at, record)) = event else {
            items.push(Item::Lost { at: *newest, lost: 1 });
            return;
        };
        if let Some(missed) = missed.take() {
            items.push(Item::Lost { at, lost: missed.events.unwrap_or(1) });
        }
        items.extend(decode(at, record));
        *newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calltap_ringbuffer::{SubBuffer, formats};

    #[test]
    fn an_instance_is_known_by_its_maker() {
        let own = std::process::id();
        let started = start_time(own).unwrap();
        assert_eq!(maker(&format!("calltap-{own}-{started}-0")), Some((own, started)));
        for other in ["calltap-e2e-7", "calltap-1-2", "calltap-1-2-3-4", "other-1-2-3", "calltap-1-x-3"] {
            assert_eq!(maker(other), None, "{other}");
        }
        assert_eq!(start_time(0x7fff_fff0), None);
    }

    #[test]
    fn an_instance_ends_with_its_value_or_after_its_maker() {
        let made = Tracefs::open().and_then(|tracefs| Ok((Instance::create(&tracefs, "mono", 8)?, tracefs)));
        let (instance, tracefs) = match made {
            Ok(made) => made,
            Err(error) => {
                // The test harness does not capture this, unlike printed text.
                let _ = writeln!(io::stderr(), "SKIPPED: no instance of tracefs: {error}");
                return;
            }
        };
        let instances = tracefs.open_directory("instances").unwrap();
        let is_there = |name: &str| openat(&instances, name, directory_flags(), Mode::empty()).is_ok();
        let own = instance.name.clone();
        // Names a former process that had the id of this one and started earlier.
        let left = format!("{PREFIX}{}-1-0", std::process::id());
        mkdirat(&instances, &left, Mode::RWXU).unwrap();
        remove_left(&tracefs).unwrap();
        assert_eq!([is_there(&own), is_there(&left)], [true, false]);
        drop(instance);
        assert!(!is_there(&own));
    }

    #[test]
    fn a_guard_removes_the_instance_of_a_maker_that_cannot() {
        let Ok(instances) = Tracefs::open().and_then(|tracefs| tracefs.open_directory("instances")) else {
            // The test harness does not capture this, unlike printed text.
            let _ = writeln!(io::stderr(), "SKIPPED: no instance of tracefs");
            return;
        };
        let name = format!("{PREFIX}{}-1-1", std::process::id());
        let guard = Guard::start(&instances, &name).unwrap();
        mkdirat(&instances, &name, Mode::RWXU).unwrap();
        let open = || openat(&instances, &name, directory_flags(), Mode::empty());
        let directory = open().unwrap();
        // While a file of it is open, the kernel refuses to remove it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let buffer = openat(&directory, "trace_pipe", flags, Mode::empty()).unwrap();
        drop(guard);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(open().is_ok());
        drop(buffer);
        let start = std::time::Instant::now();
        while open().is_ok() {
            assert!(start.elapsed().as_secs() < 60, "the instance is still there");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn records_have_their_times_behind_losses() {
        let layout = PageLayout::parse(formats::HEADER_PAGE).unwrap();
        let mut page = SubBuffer::new();
        page.miss(7);
        assert!(page.push(100, &[1; 4]) && page.push(130, &[2; 4]));
        let decode: Box<Decode<u8>> =
            Box::new(|at, record| (record[0] != 1).then(|| Item::Of(at as u32, record[0])));
        let (mut items, mut newest) = (Vec::new(), 0);
        understand(page.page(), &layout, &mut newest, &decode, &mut items);
        assert_eq!(items, [Item::Lost { at: 100, lost: 7 }, Item::Of(130, 2)]);
        understand(&[0; 3], &layout, &mut newest, &decode, &mut items);
        assert_eq!((items[2].clone(), newest), (Item::Lost { at: 130, lost: 1 }, 130), "no page");
    }
}
