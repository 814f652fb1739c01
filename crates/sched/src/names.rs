//! History of the names of processes, and of the processes of threads: names a waker that has since
//! ended or executed another program.
//!
//! The kernel records new names, new processes and ended ones in the rings of the wakings. Existing
//! processes are listed once.

use crate::records::Task;
use calltap_names::printable_bytes;
use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of a process, each with the time of its start, oldest first.
#[derive(Debug)]
struct History {
    names: Vec<(u64, String)>,
    ended: Option<u64>,
}

/// Membership of a thread in a process from a time on.
#[derive(Debug)]
struct Member {
    since: u64,
    pid: u32,
    ended: Option<u64>,
}

#[derive(Debug, Default)]
struct NameHistories {
    processes: HashMap<u32, History>,
    /// Threads that started later, by their ids, which are reused; oldest first.
    threads: HashMap<u32, Vec<Member>>,
    /// Ends of threads, by their ids, whose starts were not read yet.
    ends: HashMap<u32, Vec<u64>>,
}

/// The names of all processes of the machine, by time. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<NameHistories>>);

impl Names {
    /// Lists the existing processes with their current names.
    pub(crate) fn of_now() -> Names {
        let names = Names::default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.for_each(|pid| names.name(pid, 0, name_of(pid)));
        names
    }

    fn lock(&self) -> MutexGuard<'_, NameHistories> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, pid: u32, at: u64, name: String) {
        let mut all = self.lock();
        let history = all.processes.entry(pid).or_insert_with(|| History { names: Vec::new(), ended: None });
        // Records of one processor are read before those of another, so times may go back.
        let place = history.names.partition_point(|(from, _)| *from <= at);
        history.names.insert(place, (at, name));
        history.ended = history.ended.filter(|ended| *ended > at);
    }

    /// Adds a record of the kernel about a process or thread.
    pub(crate) fn take(&self, at: u64, task: Task<'_>) {
        match task {
            Task::Named { pid, name } | Task::Executed { pid, name } => {
                self.name(pid, at, printable_bytes(name));
            }
            // Wakers are named by their processes.
            Task::ThreadNamed { .. } => {}
            Task::Begun { pid, parent } => self.name(pid, at, self.of(parent, at)),
            Task::Ended { pid } => {
                if let Some(history) = self.lock().processes.get_mut(&pid) {
                    history.ended = Some(at);
                }
            }
            Task::ThreadBegun { tid, pid } => {
                let mut all = self.lock();
                let NameHistories { threads, ends, .. } = &mut *all;
                let members = threads.entry(tid).or_default();
                let place = members.partition_point(|member| member.since <= at);
                let next = members.get(place).map_or(u64::MAX, |next| next.since);
                let is_own = |end: &mut u64| (at..next).contains(end);
                let ended = ends.get_mut(&tid).and_then(|ends| ends.extract_if(.., is_own).min());
                members.insert(place, Member { since: at, pid, ended });
            }
            Task::ThreadEnded { tid } => {
                let mut all = self.lock();
                let mut members = all.threads.get_mut(&tid).into_iter().flatten();
                // Records of one processor are read before those of another, so times may go back.
                match members.rfind(|member| member.since <= at) {
                    Some(member) if member.ended.is_none() => member.ended = Some(at),
                    _ => all.ends.entry(tid).or_default().push(at),
                }
            }
        }
    }

    /// Returns the process of a thread at a time; 0 if it is not known.
    pub(crate) fn process_of(&self, tid: u32, at: u64) -> u32 {
        let all = self.lock();
        let mut members = all.threads.get(&tid).into_iter().flatten();
        let member = members.rfind(|member| member.since <= at);
        let has_process = tid == 0 || all.processes.contains_key(&tid);
        match member {
            Some(member) if member.ended.is_none_or(|ended| ended >= at) => member.pid,
            _ if has_process => tid,
            // The kernel records the end of a thread before the thread wakes those that join it.
            Some(member) => member.pid,
            // The thread existed before, or the kernel's record was lost.
            None => process_of_now(tid).unwrap_or(0),
        }
    }

    /// Returns the name of a process at a time, nanoseconds of CLOCK_MONOTONIC; empty if it is not
    /// known.
    pub fn of(&self, pid: u32, at: u64) -> String {
        let known = self.lock().processes.get(&pid).map(|history| {
            let next = history.names.partition_point(|(from, _)| *from <= at);
            next.checked_sub(1).map(|place| history.names[place].1.clone())
        });
        // For a process that is not listed, the kernel's record was lost.
        known.map_or_else(|| name_of(pid), Option::unwrap_or_default)
    }

    /// Forgets entries that are not needed for times from `at` on.
    pub fn forget_before(&self, at: u64) {
        let mut all = self.lock();
        all.threads.retain(|_, members| {
            members.retain(|member| member.ended.is_none_or(|ended| ended >= at));
            !members.is_empty()
        });
        all.ends.retain(|_, ends| {
            ends.retain(|end| *end >= at);
            !ends.is_empty()
        });
        all.processes.retain(|_, history| {
            let current = history.names.partition_point(|(from, _)| *from <= at).saturating_sub(1);
            history.names.drain(..current);
            history.ended.is_none_or(|ended| ended >= at)
        });
    }
}

fn name_of(pid: u32) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable_bytes(comm.trim_ascii_end())
}

/// Returns the process of an existing thread.
fn process_of_now(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has this id: Linux counts to 4,194,304.
    const PID: u32 = 0x7fff_fff0;

    #[test]
    fn a_process_has_the_name_of_its_parent_and_then_its_own() {
        let names = Names::default();
        names.name(PID, 0, "make".to_owned());
        names.take(10, Task::Begun { pid: PID + 1, parent: PID });
        names.take(30, Task::Ended { pid: PID + 1 });
        // Read later, from the ring of another processor.
        names.take(20, Task::Named { pid: PID + 1, name: b"cc1" });
        let of = |pid, at| names.of(pid, at);
        assert_eq!([of(PID + 1, 10), of(PID + 1, 19), of(PID + 1, 20)], ["make", "make", "cc1"]);
        assert_eq!([of(PID + 1, 9), of(PID + 2, 9)], ["", ""]);
        names.forget_before(25);
        assert_eq!([of(PID + 1, 19), of(PID + 1, 25), of(PID, 25)], ["", "cc1", "make"]);
        names.forget_before(31);
        assert_eq!([of(PID + 1, 31), of(PID, 31)], ["", "make"]);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let names = Names::default();
        names.take(10, Task::Named { pid: PID, name: b"first" });
        names.take(20, Task::Ended { pid: PID });
        names.take(30, Task::Named { pid: PID, name: b"second" });
        names.forget_before(40);
        assert_eq!(names.of(PID, 50), "second");
    }

    #[test]
    fn thread_belongs_to_its_process_at_that_time() {
        let names = Names::default();
        names.take(10, Task::ThreadBegun { tid: PID, pid: 7 });
        names.take(20, Task::ThreadEnded { tid: PID });
        names.take(30, Task::ThreadBegun { tid: PID, pid: 8 });
        let of = |at| names.process_of(PID, at);
        assert_eq!([of(9), of(10), of(20), of(25), of(30)], [0, 7, 7, 7, 8]);
        names.forget_before(25);
        assert_eq!([of(15), of(31)], [0, 8]);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(names.process_of(own, 1), std::process::id());
    }

    #[test]
    fn an_end_that_is_read_before_its_start_ends_the_thread() {
        let names = Names::default();
        names.take(20, Task::ThreadEnded { tid: PID });
        names.take(10, Task::ThreadBegun { tid: PID, pid: 7 });
        names.take(25, Task::Named { pid: PID, name: b"other" });
        let of = |at| names.process_of(PID, at);
        assert_eq!([of(15), of(20), of(30)], [7, 7, PID]);
        names.take(60, Task::ThreadEnded { tid: PID });
        assert_eq!(of(30), PID);
        names.take(50, Task::ThreadBegun { tid: PID, pid: 8 });
        assert_eq!([of(15), of(55), of(70)], [7, 8, PID]);
    }

    #[test]
    fn processes_that_exist_are_named() {
        let own = std::process::id();
        assert!(!Names::of_now().of(own, 1).is_empty());
    }
}
