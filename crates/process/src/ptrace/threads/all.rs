//! Stops all threads of a process, and keeps some of them stopped between two stops.

use super::helper_tracer::{HelperTracer, SHARED_THREADS};
use super::stop::LONG_PATIENCE;
use super::{NotHeld, SHORT_PATIENCE, StoppedThread, has_children, has_ended, interrupt, seize};
use crate::proc;
use crate::ptrace::sharing;
use crate::ptrace::tracees::{self, Reaper};
use crate::ptrace::urgent::{Urgent, is_background};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All threads of a process, stopped. Dropping this releases them as if they had never been
/// stopped.
#[derive(Debug)]
pub struct Stopped {
    held: Vec<StoppedThread>,
    /// Threads that had [children](has_children) before they were stopped.
    parents: HashSet<u32>,
}

impl Deref for Stopped {
    type Target = [StoppedThread];

    fn deref(&self) -> &[StoppedThread] {
        &self.held
    }
}

impl DerefMut for Stopped {
    fn deref_mut(&mut self) -> &mut [StoppedThread] {
        &mut self.held
    }
}

impl Stopped {
    /// Releases the threads. Returns how long the one that was stopped first stood still or worked
    /// for calltap.
    pub fn release(self) -> Duration {
        // At its usual priority, calltap may wait for a processor before it reads the clock.
        let (_urgent, first) = (Urgent::now(), self.iter().map(|held| held.since).min());
        drop(self);
        first.map_or(Duration::ZERO, |first| first.elapsed())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let mut own = std::mem::take(&mut self.held);
        // The end of a child would interrupt waits of running threads while the thread that started
        // it stands still. With many threads, another look at each would take long.
        let are_few = own.len() < SHARED_THREADS;
        let has_begun = |held: &StoppedThread| are_few && has_children(held.process, held.tid);
        own.extract_if(.., |held| self.parents.contains(&held.tid) || has_begun(held)).for_each(drop);
        let Some(second) = HelperTracer::known().filter(|_| own.len() >= SHARED_THREADS) else { return };
        // A thread that this one keeps cannot be released by the second one.
        let is_others = |held: &StoppedThread| held.is_seconds && !tracees::stays(held.tid);
        let others: Vec<StoppedThread> = own.extract_if(.., |held| is_others(held)).collect();
        let done = second.begin(move || drop(others));
        drop(own);
        let _ = done.recv();
    }
}

impl StoppedThread {
    /// Stops all threads of a process.
    pub fn take_all(process: u32) -> Result<Stopped, NotHeld> {
        if let Some(other) = sharing::lasting(process, SHORT_PATIENCE) {
            return Err(NotHeld::Shared(other));
        }
        let _reaper = Reaper::start();
        let parents = proc::threads(process).into_iter().filter(|tid| has_children(process, *tid)).collect();
        let _urgent = Urgent::now();
        let mut held = Stopped { held: take_back(process, None), parents };
        loop {
            let known: HashSet<u32> = held.iter().map(|thread| thread.tid).collect();
            let new = proc::threads_except(process, &known);
            let before = held.len();
            // Each thread stops only once it has a processor. The others run on until those have
            // stopped that may not have one for long.
            let (background, others): (Vec<u32>, Vec<u32>) =
                new.into_iter().partition(|tid| is_background(*tid));
            for tids in [background, others].into_iter().filter(|tids| !tids.is_empty()) {
                let Part { held: new, failed } = stop_threads(process, tids)?;
                // The program as a whole stands still only from now on.
                held.held.iter_mut().for_each(|thread| thread.since = Instant::now());
                held.held.extend(new);
                if let Some(failed) = failed {
                    return Err(failed);
                }
            }
            // Threads that were running may have started others. If all are held, counting suffices
            // and costs no time of a stop. With tasks of the kernel, which are counted too, another
            // round finds none.
            if held.len() == before || proc::count_threads(process) == Some(held.len()) {
                return Ok(held);
            }
        }
    }

    /// Stops all threads of a process; none if it has ended. Retries for up to `limit` if a
    /// thread cannot be stopped or another process shares the memory.
    pub fn take_all_within(process: u32, limit: Duration) -> Result<Stopped, NotHeld> {
        let start = Instant::now();
        loop {
            match StoppedThread::take_all(process) {
                Err(NotHeld::Stuck | NotHeld::Shared(_)) if start.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Whether these are all threads of a process.
    pub fn are_all(process: u32, held: &[StoppedThread]) -> bool {
        let known: HashSet<u32> = held.iter().map(|thread| thread.tid).collect();
        proc::threads_except(process, &known).into_iter().all(has_ended)
    }
}

/// Whether some of these threads are no [background threads](is_background). Background threads are
/// not let run while these stand still.
pub fn has_ordinary(all: &[StoppedThread]) -> bool {
    !all.iter().all(|thread| is_background(thread.tid))
}

/// Stops threads of a process, many of them with a second thread. Ended threads are left out. After
/// a failure, the result still holds the threads that were stopped.
fn stop_threads(process: u32, tids: Vec<u32>) -> Result<Part, NotHeld> {
    let second = if tids.len() >= SHARED_THREADS { HelperTracer::get() } else { None };
    let Some(second) = second else { return Ok(Part::stop(process, seize_part(tids)?)) };
    let mut turn = false;
    let mut is_others = |tid: u32| {
        turn = !turn;
        // The first thread's id may pass to another thread by execve, which only this thread
        // handles.
        turn && tid != process && !tracees::is_traced(tid)
    };
    let (others, own): (Vec<u32>, Vec<u32>) = tids.into_iter().partition(|tid| is_others(*tid));
    // All are seized before any is asked to stop, and all are asked before any is waited for.
    let others = second.begin(move || seize_part(others));
    let own = seize_part(own);
    let (others, own) = (others.recv().unwrap_or(Err(NotHeld::Stuck))?, own?);
    let others = second.begin(move || Part::stop(process, others));
    let mut all = Part::stop(process, own);
    let mut others = others.recv().map_err(|_| NotHeld::Stuck)?;
    others.held.iter_mut().for_each(|held| held.is_seconds = true);
    all.held.extend(others.held);
    all.failed = all.failed.or(others.failed);
    Ok(all)
}

/// Makes this thread the tracer of others. Returns those that have not ended.
fn seize_part(mut tids: Vec<u32>) -> Result<Vec<u32>, NotHeld> {
    let mut failed = None;
    tids.retain(|tid| match seize(*tid) {
        Ok(()) => true,
        Err(NotHeld::Gone) => false,
        Err(other) => {
            failed = Some(other);
            false
        }
    });
    failed.map_or(Ok(tids), Err)
}

/// Threads that were stopped together.
struct Part {
    held: Vec<StoppedThread>,
    /// Why another thread could not be stopped.
    failed: Option<NotHeld>,
}

impl Part {
    /// Stops threads that the calling thread traces.
    fn stop(process: u32, tids: Vec<u32>) -> Part {
        let _urgent = Urgent::now();
        let since = Instant::now();
        for tid in &tids {
            let _ = interrupt(*tid);
        }
        let mut part = Part { held: Vec::with_capacity(tids.len()), failed: None };
        for tid in tids {
            // After a failure the other threads are waited for all the same: they were asked to
            // stop, and must be released as if they had not been.
            match StoppedThread::stop(process, tid, since, SHORT_PATIENCE) {
                Ok(thread) => part.held.push(thread),
                Err(NotHeld::Gone) => {}
                Err(other) => part.failed = Some(other),
            }
        }
        part
    }
}

thread_local! {
    /// Threads that stay stopped after this thread's stops. None if it keeps none.
    static KEPT: RefCell<Option<Vec<StoppedThread>>> = const { RefCell::new(None) };
}

/// A guard: while it exists, threads that requested a change stay stopped between the stops that
/// this thread makes.
///
/// Such a thread waits for its answer in the kernel, where it cannot be stopped. It is answered as
/// soon as a stop waits for it, and would see the change half done between that stop and the next.
#[derive(Debug)]
pub struct Keep(());

impl Keep {
    /// Starts to keep such threads.
    pub fn begin() -> Keep {
        KEPT.set(Some(Vec::new()));
        Keep(())
    }

    /// Whether any thread stays stopped now.
    pub fn keeps_any(&self) -> bool {
        KEPT.with_borrow(|kept| kept.as_ref().is_some_and(|kept| !kept.is_empty()))
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // With KEPT empty, dropping the threads releases them.
        drop(KEPT.take());
    }
}

/// Keeps a thread that is about to be released, if it has to stay. Returns whether it does.
pub(super) fn keep(held: &StoppedThread) -> bool {
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept.as_mut().filter(|_| tracees::stays(held.tid) && held.stands()) else {
            return false;
        };
        kept.push(StoppedThread { _urgent: Arc::clone(&held._urgent), ..*held });
        true
    })
}

/// Returns the kept threads of a process, all or only `tid`, with their stop times set to now.
pub(super) fn take_back(process: u32, tid: Option<u32>) -> Vec<StoppedThread> {
    let is_wanted = |held: &StoppedThread| held.process == process && tid.is_none_or(|tid| held.tid == tid);
    let mut back: Vec<StoppedThread> = KEPT.with_borrow_mut(|kept| {
        kept.as_mut().map_or(Vec::new(), |kept| kept.extract_if(.., |held| is_wanted(held)).collect())
    });
    // Some may have been killed meanwhile.
    back.retain(StoppedThread::stands);
    back.iter_mut().for_each(|held| held.since = Instant::now());
    back
}

/// Runs `work` while all threads of a process stand still. Returns its result, and how long they
/// stood still.
///
/// Runs in a thread of its own, at whose end the kernel releases all threads that are still held;
/// but in the calling thread if that one [keeps](Keep) threads, which no other thread could stop or
/// keep for it.
pub fn stop_machine<T: Send>(
    process: u32,
    work: impl FnOnce() -> T + Send,
) -> Result<(T, Duration), NotHeld> {
    let work = || {
        let held = StoppedThread::take_all_within(process, LONG_PATIENCE)?;
        let done = work();
        Ok((done, held.release()))
    };
    if KEPT.with_borrow(Option::is_some) {
        return work();
    }
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
