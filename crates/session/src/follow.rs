//! `--follow`: programs that processes of a session execute are recorded as well, and those of
//! their children.
//!
//! One thread is the tracer of the whole tree. It passes all events on but execve: the new program
//! stops before its first instruction, and the agent is added to its LD_PRELOAD. From then on it is
//! a process of the session like any other: the agent joins and asks, and the planner answers. If
//! calltap is killed, the kernel releases all processes.

use crate::plan::directory::Directory;
use crate::plan::reason::NotFollowed;
use calltap_collect::metadata::{Followed, Metadata};
use calltap_patch::{Avma, Text};
use calltap_process::Reason;
use calltap_process::clock;
use calltap_process::injection::preload::{self, Stack};
use calltap_process::launch;
use calltap_process::memory::maps;
use calltap_process::memory::text::ProcessText;
use calltap_process::proc;
use calltap_process::ptrace::followed::{self, Event, Quiet};
use calltap_process::ptrace::threads::StoppedThread;
use calltap_process::ptrace::tracees::{self, Reaper};
use calltap_process::seccomp;
use calltap_process::status::Status;
use calltap_process::target::{self, Target};
use calltap_trace::Record;
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Interval of looks in case a signal, which announces each event, was lost.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Time by when another thread has waited for a child of this process.
const MOMENT: Duration = Duration::from_millis(1);
/// Time limit for the kernel to release all threads.
const RELEASE: Duration = Duration::from_secs(2);

/// The processes to follow.
pub(crate) struct Follow<'a> {
    /// Directory in which new programs find the agent.
    pub directory: &'a Directory,
    /// Receives notes about programs that cannot be followed.
    pub records: Sender<Metadata>,
    /// The first process.
    pub first: u32,
    /// Whether calltap has started it.
    pub started: bool,
    /// True from when all are followed until none is left.
    pub alive: &'a AtomicBool,
    /// Ends the following and releases all processes.
    pub stop: &'a AtomicBool,
}

impl Follow<'_> {
    /// Follows until no process is left or `stop` is set. All events after the return of this
    /// function are seen.
    pub(crate) fn begin<'s>(self, scope: &'s Scope<'s, '_>) -> ScopedJoinHandle<'s, ()>
    where
        Self: 's,
    {
        let (begun, beginning) = mpsc::channel();
        let records = self.records.clone();
        let following = scope.spawn(move || self.run(begun));
        if let Ok(Err(why)) = beginning.recv() {
            let text = format!("nothing is followed: {why}");
            let _ = records.send(Record::Note { text }.into());
        }
        following
    }

    fn run(self, begun: Sender<Result<(), NotFollowed>>) {
        let follow = || self.follow(begun);
        // In a thread that ends: the kernel then releases all threads that are still held.
        let followed = thread::scope(|scope| scope.spawn(follow).join()).unwrap_or_default();
        self.alive.store(false, Release);
        let start = Instant::now();
        let is_held = |tid: &u32| Status::of(*tid).is_ok_and(|status| status.tracer().is_some());
        while followed.iter().any(is_held) && start.elapsed() < RELEASE {
            thread::sleep(MOMENT);
        }
    }

    /// Follows the processes. Returns those that still exist.
    fn follow(&self, begun: Sender<Result<(), NotFollowed>>) -> HashSet<u32> {
        let (mut followed, mut reported) = (HashSet::new(), Vec::new());
        let mut bell = match UnixStream::pair().and_then(|ends| {
            ends.1.set_nonblocking(true)?;
            Ok((launch::ring_for_children(ends.0)?, ends.1))
        }) {
            Ok(((), bell)) => bell,
            Err(error) => {
                let _ = begun.send(Err(error.into()));
                return followed;
            }
        };
        let seized = self.seize_all(&mut followed);
        let failed = seized.is_err();
        self.alive.store(!failed, Release);
        let _ = begun.send(seized);
        let mut quiet = if failed { Quiet::None } else { Quiet::Yet };
        while quiet == Quiet::Yet && !self.stop.load(Acquire) {
            let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&LOOK_INTERVAL));
            let mut rung = [0; 64];
            while bell.read(&mut rung).is_ok_and(|n| n == rung.len()) {}
            let child = self.started.then_some(self.first);
            quiet = loop {
                match followed::next(child) {
                    // The child stays until its parent has waited for it.
                    Ok((_, Event::ChildEnded)) => thread::sleep(MOMENT),
                    Ok((tid, event)) => self.handle(tid, event, &mut followed, &mut reported),
                    Err(quiet) => break quiet,
                }
            };
        }
        followed
    }

    /// Seizes all threads of the first process, including those that they start meanwhile.
    fn seize_all(&self, followed: &mut HashSet<u32>) -> Result<(), NotFollowed> {
        let _reaper = Reaper::start();
        let seized = self.seize_listed(followed);
        followed.iter().copied().for_each(tracees::remove);
        seized
    }

    fn seize_listed(&self, followed: &mut HashSet<u32>) -> Result<(), NotFollowed> {
        loop {
            let new: Vec<u32> =
                proc::threads(self.first).into_iter().filter(|tid| !followed.contains(tid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for tid in new {
                match followed::seize(tid) {
                    Ok(()) => {
                        tracees::add(tid);
                        followed.insert(tid);
                    }
                    // The thread was started by a followed one.
                    Err(nix::errno::Errno::EPERM) if !followed.is_empty() => drop(followed.insert(tid)),
                    // The thread has ended.
                    Err(_) if proc::state(tid).is_none_or(proc::is_end) => drop(followed.insert(tid)),
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }

    /// Handles an event and lets the thread go on.
    fn handle(
        &self,
        tid: u32,
        event: Event,
        followed: &mut HashSet<u32>,
        reported: &mut Vec<(String, NotFollowed)>,
    ) {
        match event {
            Event::Ended => {
                followed.remove(&tid);
                return;
            }
            Event::Exec(former) if former != tid => drop(followed.remove(&former)),
            _ => {}
        }
        followed.insert(tid);
        match event {
            Event::Stop => followed::stay_stopped(tid),
            Event::Signal(signal) => followed::run(tid, signal),
            Event::Exec(_) => {
                let _ = self.records.send(Metadata::Executed { pid: tid, at: clock::monotonic_ns() });
                if let Err(why) = self.preload_agent(tid) {
                    // Reported once: a tree runs the same program many times.
                    let refused = (program(tid), why);
                    if !reported.contains(&refused) {
                        let (name, why) = &refused;
                        let text = format!("not followed: {name} (process {tid}): {why}");
                        let _ = self.records.send(Record::Note { text }.into());
                        reported.push(refused);
                    }
                }
                followed::run(tid, 0);
            }
            _ => followed::run(tid, 0),
        }
    }

    /// Makes a program that is stopped at its first instruction load the agent.
    fn preload_agent(&self, pid: u32) -> Result<(), NotFollowed> {
        if !target::is_64_bit(pid)? {
            return Err(Reason::Bits32.into());
        }
        let target = Target::of_child(pid).ok_or(Reason::Ended)?;
        let mut regs = ptrace::getregs(Pid::from_raw(pid as i32))?;
        let regions = maps::read(pid)?;
        let end = regions.iter().find(|region| (region.start..region.end).contains(&regs.rsp));
        let mut text = ProcessText::open(pid)?;
        let stack = end.and_then(|region| Stack::read(&mut text, regs.rsp, region.end));
        let stack = stack.ok_or(NotFollowed::NoArguments)?;
        if stack.is_secure() {
            return Err(NotFollowed::SetId);
        }
        if !stack.is_dynamic() {
            return Err(NotFollowed::Static);
        }
        let program = std::fs::File::open(proc::program_link(pid));
        let program = program.and_then(|file| calltap_sites::load(&file))?;
        if calltap_sites::is_go_alone(&program) {
            return Err(NotFollowed::GoAlone);
        }
        let libraries = preload::list(&program, &self.directory.agent_to_preload());
        self.directory.is_seen_by(&target)?;
        if proc::is_filtered(pid) {
            let filters = StoppedThread::filters_of(pid);
            match filters.as_deref().map(seccomp::forbids) {
                Ok(None) => {}
                Ok(Some(call)) => return Err(Reason::Seccomp { call }.into()),
                Err(errno) => return Err(Reason::UnreadSeccomp { errno: *errno }.into()),
            }
        }
        let (at, bytes) = stack.with(libraries.as_encoded_bytes()).ok_or(NotFollowed::NoStackRoom)?;
        text.write(Avma(at), &bytes)
            .map_err(|errno| NotFollowed::StackUnwritable { why: errno.to_string() })?;
        let parent = Status::of(pid).ok().and_then(|status| status.number("PPid")).unwrap_or(0);
        let _ = self.records.send(Metadata::Followed(Followed { pid, parent, comm: target.name }));
        // From here on the program has the new LD_PRELOAD; if this fails, it has the stack as it
        // was.
        regs.rsp = at;
        Ok(ptrace::setregs(Pid::from_raw(pid as i32), regs)?)
    }
}

/// Returns the file name of a process's program.
fn program(pid: u32) -> String {
    let path = proc::program(pid).unwrap_or_default();
    let name = path.file_name().unwrap_or_else(|| Path::new("?").as_os_str());
    calltap_names::printable(&name.to_string_lossy()).into_owned()
}
