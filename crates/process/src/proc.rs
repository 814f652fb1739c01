//! State of processes and threads as `/proc` shows it, except for their
//! [mappings](crate::memory::maps).

use crate::error::Error;
use crate::status::Status;
use calltap_abi::ProcessEntry;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use std::{fs, io};

/// Returns the words of a stat file from the state on, which follows the name. A name may contain
/// any characters.
fn words(stat: &str) -> Option<std::str::Split<'_, char>> {
    Some(stat.rsplit_once(") ")?.1.split(' '))
}

/// Returns the state in a stat file, as one letter.
pub fn state_of(stat: &str) -> Option<char> {
    words(stat)?.next()?.chars().next()
}

/// Returns the state of a thread.
pub fn state(tid: u32) -> Option<char> {
    state_of(&fs::read_to_string(format!("/proc/{tid}/stat")).ok()?)
}

/// Returns the start time of a process, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    words(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.nth(19)?.parse().ok()
}

/// Returns the address above all frames of a process's first thread, if the kernel shows it.
pub fn first_stack(pid: u32) -> Option<u64> {
    let top = words(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.nth(25)?.parse().ok();
    top.filter(|top| *top > 1)
}

/// Returns for how long a process's first thread has been runnable and waited for a processor, if
/// the kernel counts it.
pub(crate) fn wait_for_processor(pid: u32) -> Option<Duration> {
    let schedstat = fs::read_to_string(place(pid).join("schedstat")).ok()?;
    schedstat.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Facts about a process that are known until its parent has waited for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Name of the process: that of the program that it executed last, unless the program changed
    /// it.
    pub name: String,
    /// Whether the process has waited for children that ran.
    pub had_children: bool,
}

/// Returns the facts about a process, which should have ended.
pub fn ended(pid: u32) -> Option<Ended> {
    // The kernel does not check the encoding of a name.
    ended_in(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Returns the name of a process, as [`Ended`] has it.
pub fn name(pid: u32) -> Option<String> {
    ended(pid).map(|state| state.name)
}

fn ended_in(stat: &str) -> Option<Ended> {
    /// Index of the page faults of children that were waited for. A process that runs has some.
    const FAULTS_OF_CHILDREN: usize = 8;
    let name = stat.split_once('(')?.1.rsplit_once(") ")?.0.to_owned();
    let faults: u64 = words(stat)?.nth(FAULTS_OF_CHILDREN)?.parse().ok()?;
    Some(Ended { name, had_children: faults > 0 })
}

/// Counts the tasks of a process: its threads, and those that the kernel has created in it.
pub fn count_threads(pid: u32) -> Option<usize> {
    // The kernel adds the number of threads to the links of an empty directory. For a stat file it
    // would walk all threads.
    fs::metadata(format!("/proc/{pid}/task")).ok()?.nlink().checked_sub(2).map(|count| count as usize)
}

/// Whether a process has one thread. Tasks of the kernel do not count.
pub fn has_one_thread(pid: u32) -> bool {
    threads(pid).len() == 1
}

/// Milliseconds of a clock tick, the unit of times in stat files: USER_HZ is 100 on x86-64.
const TICK_MS: u64 = 10;

/// Returns the user and system time of a thread, rounded down to clock ticks.
pub fn cpu_of_thread(pid: u32, tid: u32) -> Option<Duration> {
    cpu_in(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?, OWN_CPU)
}

/// Returns the processor time of the children of a process that have ended and for which it has
/// waited, with that of theirs.
pub fn cpu_of_ended_children(pid: u32) -> Option<Duration> {
    cpu_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, CHILDREN_CPU)
}

/// Indices in the words of a stat file of the user's part of a time; the system's follows.
const OWN_CPU: usize = 11;
const CHILDREN_CPU: usize = 13;

fn cpu_in(stat: &str, first: usize) -> Option<Duration> {
    let mut times = words(stat)?.skip(first).map(|word| word.parse::<u64>().ok());
    let ticks = times.next()??.checked_add(times.next()??)?;
    Some(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

/// Index in the words of a stat file of the kernel's flags.
const FLAGS: usize = 6;
/// Index of the signals that are pending for the thread alone.
const PENDING: usize = 28;
/// Flag: the kernel is taking the thread down.
const PF_EXITING: u32 = 0x4;
/// Flags of a thread that ends its process: it dumps or has dumped core, or a signal killed it.
const ENDS_PROCESS: u32 = 0x8 | 0x200 | 0x400;

/// Returns the kernel's flags of a process.
fn flags(pid: u32) -> Option<u32> {
    flags_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn flags_in(stat: &str) -> Option<u32> {
    words(stat)?.nth(FLAGS)?.parse().ok()
}

/// Whether a process is a thread of the kernel.
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    flags(pid).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Whether the kernel is taking a process down and it is no zombie yet. Its memory and files may
/// already be gone.
pub fn is_ending(pid: u32) -> bool {
    flags(pid).is_some_and(|flags| flags & PF_EXITING != 0) && state(pid).is_some_and(|state| !is_end(state))
}

/// Whether a process lives on: at least one of its threads is not ending.
pub fn goes_on(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()).any(|stat| is_alive(&stat))
}

/// Whether the thread with this stat file lives on. When a process ends, the kernel sends SIGKILL
/// to each thread but the one that caused the end.
fn is_alive(stat: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let Some(words) = words(stat).map(Iterator::collect::<Vec<_>>) else { return false };
    let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
    state_of(stat).is_some_and(|state| !is_end(state))
        && number(FLAGS).is_some_and(|flags| flags & u64::from(PF_EXITING | ENDS_PROCESS) == 0)
        && number(PENDING).is_some_and(|pending| pending & SIGKILL == 0)
}

/// Returns address and number of a program's headers, from the auxiliary vector.
pub fn program_headers(pid: u32) -> Option<(u64, u64)> {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    let value = auxiliary(pid)?;
    Some((value(AT_PHDR)?, value(AT_PHNUM)?))
}

/// Returns the address of a program's first instruction, after a dynamic linker's.
pub(crate) fn program_entry(pid: u32) -> Option<u64> {
    const AT_ENTRY: u64 = 9;
    auxiliary(pid)?(AT_ENTRY)
}

/// Whether a dynamic linker started the program. A static program may also load libraries,
/// including a second C library.
pub fn has_dynamic_linker(pid: u32) -> bool {
    const AT_BASE: u64 = 7;
    let is_linker = || {
        let program = program(pid).unwrap_or_default();
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
    };
    let told = auxiliary(pid).and_then(|value| value(AT_BASE));
    told.is_none_or(|base| base != 0) || is_linker()
}

/// Returns a lookup in the auxiliary vector of a program, by key.
fn auxiliary(pid: u32) -> Option<impl Fn(u64) -> Option<u64>> {
    let bytes = fs::read(place(pid).join("auxv")).ok()?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
    Some(move |key| words.chunks_exact(2).find(|pair| pair[0] == key).map(|pair| pair[1]))
}

/// Returns the inode of a process's pid namespace; 0 if it cannot be read.
pub fn pid_namespace(pid: u32) -> u64 {
    fs::metadata(place(pid).join("ns/pid")).map_or(0, |meta| meta.ino())
}

/// Checks that `/proc` is mounted and shows this process's pid namespace.
pub fn check() -> Result<(), Error> {
    let error = |why: &str| Error::System { what: "cannot trace", source: io::Error::other(why.to_owned()) };
    let own = fs::read_link("/proc/self")
        .map_err(|_| error("there is no /proc here: mount it first (mount -t proc proc /proc)"))?;
    if own.to_str().and_then(|own| own.parse().ok()) == Some(std::process::id()) {
        return Ok(());
    }
    Err(error(
        "/proc shows the processes of another PID namespace: mount that of this one first (mount -t proc proc /proc)",
    ))
}

/// Reads the status of a process, through another thread if the first one has ended.
pub fn status(pid: u32) -> io::Result<Status> {
    Status::read(place(pid).join("status"))
}

/// Whether a thread is the first of its process. None if it does not exist.
pub(crate) fn is_first_thread(tid: u32) -> Option<bool> {
    Some(Status::of(tid).ok()?.number("Tgid")? == tid)
}

/// Whether a thread's system calls go through seccomp filters.
pub fn is_filtered(tid: u32) -> bool {
    Status::of(tid).is_ok_and(|status| status.is_filtered())
}

/// Whether a process has a handler for a signal.
pub fn handles_signal(pid: u32, signal: i32) -> bool {
    let handled = status(pid).ok().and_then(|status| status.signals("SigCgt"));
    handled.is_some_and(|handled| handled & 1 << (signal - 1) != 0)
}

/// Returns the id that a thread has in its own pid namespace.
pub fn inner_id(pid: u32, tid: u32) -> Option<u32> {
    Status::of_thread(pid, tid).ok()?.field("NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// Whether XRay's own runtime will patch the process's sleds as soon as it starts.
pub fn takes_its_sleds(pid: u32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let options = variables.find_map(|variable| Some(variable.strip_prefix("XRAY_OPTIONS=")?.to_owned()));
    let on = ["patch_premain=true", "patch_premain=1", "patch_premain=yes"];
    options.is_some_and(|options| on.iter().any(|on| options.contains(on)))
}

/// Whether a state is that of an ended thread.
pub fn is_end(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// Name of the link to a process's program.
const PROGRAM: &str = "exe";

/// Returns the directory in `/proc` of a process: that of its first thread or, if it has ended, of
/// a living one. Does not block, as it only reads links.
pub fn place(pid: u32) -> PathBuf {
    let first = PathBuf::from(format!("/proc/{pid}"));
    let has_program = |place: &Path| fs::read_link(place.join(PROGRAM)).is_ok();
    if has_program(&first) {
        return first;
    }
    let tasks = fs::read_dir(first.join("task")).into_iter().flatten().flatten();
    tasks.map(|task| task.path()).find(|task| has_program(task)).unwrap_or(first)
}

/// Returns the link in `/proc` that opens a process's program, even if its file is gone.
pub fn program_link(pid: u32) -> PathBuf {
    place(pid).join(PROGRAM)
}

/// Returns the path of a process's program; ` (deleted)` stands behind that of a file that is gone.
/// Does not block.
pub fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(program_link(pid)).ok()
}

/// Identity of a session: its directory's name and its control file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionId {
    /// Name of the session directory.
    pub name: OsString,
    /// Inode of the control file.
    pub control: u64,
}

/// Returns the other processes that run the program of one of these, or `also`.
pub(crate) fn of_same_programs(known: &[u32], also: Option<&Path>) -> impl Iterator<Item = u32> {
    // A program that was replaced meanwhile has another name.
    let program = |pid: u32| Some(without_deleted(&program(pid)?).to_owned());
    let programs = known.iter().filter_map(|pid| program(*pid)).chain(also.map(Path::to_owned));
    let programs: HashSet<PathBuf> = programs.collect();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    others.filter(move |pid| {
        !known.contains(pid) && program(*pid).is_some_and(|program| programs.contains(&program))
    })
}

/// Removes the words by which the kernel marks the path of a removed file.
pub fn without_deleted(path: &Path) -> &Path {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(former) => Path::new(OsStr::from_bytes(former)),
        None => path,
    }
}

/// Returns the current threads of a process that run its program: those of the kernel are left out.
pub fn threads(process: u32) -> Vec<u32> {
    threads_except(process, &HashSet::new())
}

/// Returns the threads that are not among `known`, of which nothing is read.
pub(crate) fn threads_except(process: u32, known: &HashSet<u32>) -> Vec<u32> {
    let mut tids = tasks(process);
    tids.retain(|tid| !known.contains(tid) && !is_worker(process, *tid));
    tids
}

/// Whether the kernel has created a thread in a process for its own work: of io_uring, vhost or
/// KVM. Such a thread never runs the program. ptrace stops it, but its registers mean nothing.
fn is_worker(process: u32, tid: u32) -> bool {
    // The file of the thread, not /proc/TID/stat: there the kernel adds up all threads.
    let flags = || flags_in(&fs::read_to_string(format!("/proc/{process}/task/{tid}/stat")).ok()?);
    tid != process && worker_flags() != 0 && flags().is_some_and(|flags| flags & worker_flags() != 0)
}

/// Returns the kernel's flags of such threads. Older kernels use the same bits for ordinary ones.
fn worker_flags() -> u32 {
    const PF_IO_WORKER: u32 = 0x10;
    const PF_USER_WORKER: u32 = 0x4000;
    static FLAGS: OnceLock<u32> = OnceLock::new();
    *FLAGS.get_or_init(|| {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
        match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
            (0..5, _) | (5, 0..12) => 0,
            (5, _) | (6, 0..4) => PF_IO_WORKER,
            _ => PF_IO_WORKER | PF_USER_WORKER,
        }
    })
}

/// Returns the tasks of a process: its threads, and those that the kernel has created in it.
pub fn tasks(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process of this id exists.
pub fn exists(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok()
}

/// Returns the recorder's id of a process of a session.
pub fn pid_of(entry: &ProcessEntry) -> u32 {
    Ids::default().pid_of(entry)
}

/// Returns the recorder's id of a process of a session, if it is known: this process may not see
/// that of the other pid namespace.
pub fn find_pid(entry: &ProcessEntry) -> Option<u32> {
    Ids::default().find(entry)
}

/// Recorder's ids of processes in other pid namespaces. `/proc` is searched once, at the first
/// lookup of such a process.
#[derive(Default)]
pub struct Ids {
    /// Ids by namespace and the id there.
    others: OnceCell<HashMap<(u64, u32), u32>>,
}

impl Ids {
    /// Returns the recorder's id of a process of a session.
    pub fn pid_of(&self, entry: &ProcessEntry) -> u32 {
        self.find(entry).unwrap_or_else(|| entry.pid.load(Acquire))
    }

    fn find(&self, entry: &ProcessEntry) -> Option<u32> {
        let (pid, namespace) = (entry.pid.load(Acquire), entry.pid_namespace.load(Relaxed));
        if namespace == 0 || namespace == namespace_of("self") {
            return Some(pid);
        }
        self.others.get_or_init(ids_in_other_namespaces).get(&(namespace, pid)).copied()
    }
}

/// Returns the inode of a process's pid namespace.
fn namespace_of(pid: &str) -> u64 {
    fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |meta| meta.ino())
}

/// Maps namespace and inner id of the processes in other pid namespaces to their ids here.
fn ids_in_other_namespaces() -> HashMap<(u64, u32), u32> {
    let own = namespace_of("self");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .map(|host| (namespace_of(&host.to_string()), host))
        .filter(|(space, _)| *space != own)
        .filter_map(|(space, host)| Some(((space, inner_id(host, host)?), host)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything_and_faults_of_children_are_theirs() {
        let stat = |name: &str, faults| {
            format!("7 ({name}) Z 1 7 7 0 -1 4194564 120 {faults} 0 0 0 0 0 0 20 0 1 0 9 0 0")
        };
        let ended = |name: &str, had_children| Some(Ended { name: name.into(), had_children });
        assert_eq!(ended_in(&stat("a) Z 1 (b", 0)), ended("a) Z 1 (b", false));
        assert_eq!(ended_in(&stat("sh", 31)), ended("sh", true));
        assert_eq!(ended_in("7 (sh) Z 1"), None);
    }
}
