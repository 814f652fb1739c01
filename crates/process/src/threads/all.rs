//! All threads of a process are stopped, and some of them kept so between two stops.

use super::{Held, LONG_PATIENCE, NotHeld, SHORT_PATIENCE, has_children, has_ended, interrupt, seize};
use crate::traced::{self, Reaper};
use crate::urgent::Urgent;
use crate::{proc, sharing};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Held {
    /// Stops all threads of a process.
    pub fn take_all(process: u32) -> Result<Vec<Held>, NotHeld> {
        if let Some(other) = sharing::lasting(process, SHORT_PATIENCE) {
            return Err(NotHeld::Shared(other));
        }
        let _reaper = Reaper::start();
        let _urgent = Urgent::now();
        let mut held = take_back(process, None);
        loop {
            let known: HashSet<u32> = held.iter().map(|thread| thread.tid).collect();
            let new = proc::threads(process).into_iter().filter(|tid| !known.contains(tid));
            let mut seized = Vec::new();
            for tid in new {
                match seize(tid) {
                    Ok(()) => seized.push(tid),
                    Err(NotHeld::Gone) => {}
                    Err(other) => return Err(other),
                }
            }
            // All are told before any is waited for.
            for tid in &seized {
                let _ = interrupt(*tid);
            }
            let before = held.len();
            let mut failed = None;
            for tid in &seized {
                // After a failure the others are waited for all the same: they have been told, and must be let go as if nothing had been.
                match Held::stop(process, *tid, SHORT_PATIENCE) {
                    Ok(thread) => held.push(thread),
                    Err(NotHeld::Gone) => {}
                    Err(other) => failed = Some(other),
                }
            }
            if let Some(failed) = failed {
                return Err(failed);
            }
            // Those that were running may have started others meanwhile. Counting is enough where all are held, and takes no time of a stop.
            if held.len() == before || proc::count_threads(process) == Some(held.len()) {
                return Ok(held);
            }
        }
    }

    /// Stops all threads of a process: none, if it has ended. Tries again for so long where one of them cannot be stopped, or another process shares their memory.
    pub fn take_all_patiently(process: u32, patience: Duration) -> Result<Vec<Held>, NotHeld> {
        let start = Instant::now();
        loop {
            match Held::take_all(process) {
                Err(NotHeld::Stuck | NotHeld::Shared(_)) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Are these all threads of a process?
    pub fn are_all(process: u32, held: &[Held]) -> bool {
        let known: HashSet<u32> = held.iter().map(|thread| thread.tid).collect();
        proc::threads(process).into_iter().all(|tid| known.contains(&tid) || has_ended(tid))
    }
}

thread_local! {
    /// Threads that stay stopped after this thread's stops. None: it keeps none.
    static KEPT: RefCell<Option<Vec<Held>>> = const { RefCell::new(None) };
}

/// While this exists, threads that have asked for a change stay stopped between the stops that this thread makes. Such a thread waits for its answer in the
/// kernel, where it cannot be stopped: it is answered as soon as a stop waits for it, and would see the change half done between that stop and the next.
#[derive(Debug)]
pub struct Keep(());

impl Keep {
    /// Begins to keep them.
    pub fn begin() -> Keep {
        KEPT.set(Some(Vec::new()));
        Keep(())
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        // Nothing keeps what is let go now.
        drop(KEPT.take());
    }
}

/// Keeps a thread that is about to be let go, if it has to stay. Whether it does.
pub(super) fn keep(held: &Held) -> bool {
    KEPT.with_borrow_mut(|kept| {
        let Some(kept) = kept.as_mut().filter(|_| traced::stays(held.tid) && held.stands()) else {
            return false;
        };
        let Held { tid, regs, system_call, stopped, process, since, running, .. } = *held;
        let _urgent = Arc::clone(&held._urgent);
        kept.push(Held { tid, regs, system_call, stopped, process, since, running, _urgent });
        true
    })
}

/// The threads of a process that are kept, all or this one, as if they had been stopped now.
pub(super) fn take_back(process: u32, tid: Option<u32>) -> Vec<Held> {
    let is_wanted = |held: &Held| held.process == process && tid.is_none_or(|tid| held.tid == tid);
    let mut back: Vec<Held> = KEPT.with_borrow_mut(|kept| {
        kept.as_mut().map_or(Vec::new(), |kept| kept.extract_if(.., |held| is_wanted(held)).collect())
    });
    // Some may have been killed meanwhile.
    back.retain(Held::stands);
    back.iter_mut().for_each(|held| held.since = Instant::now());
    back
}

/// Does something while all threads of a process stand still, and says for how long they did. In a thread that ends: the kernel then lets go of
/// whatever is still held. What this thread [keeps](Keep) no other can stop, nor keep for it.
pub fn stop_machine<T: Send>(
    process: u32,
    work: impl FnOnce() -> T + Send,
) -> Result<(T, Duration), NotHeld> {
    let work = || {
        let parents: HashSet<u32> =
            proc::threads(process).into_iter().filter(|tid| has_children(process, *tid)).collect();
        let mut held = Held::take_all_patiently(process, LONG_PATIENCE)?;
        let since = held.iter().map(|thread| thread.since).min();
        let done = work();
        // The end of a child would end waits of threads that run again, while the one that began it stands still.
        held.sort_by_key(|thread| !parents.contains(&thread.tid));
        drop(held);
        Ok((done, since.map(|since| since.elapsed()).unwrap_or_default()))
    };
    if KEPT.with_borrow(Option::is_some) {
        return work();
    }
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or(Err(NotHeld::Gone))
}
