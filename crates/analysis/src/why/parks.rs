//! Waits of goroutines: calls of the Go runtime's function that parks one.
//!
//! The kernel reports threads only. A goroutine that has to wait calls `runtime.gopark`, which
//! returns when the goroutine runs again. The reason of the wait follows from the runtime's
//! function that called it: either each call of that function has one reason, or it passes on the
//! reason of its own caller.

use super::lane::{GoWaitReason, Readied, Segment, State, Wait, Within};
use crate::sources::drive::checked_site;
use crate::sources::source::{Damage, Source, next_readable};
use crate::tree::{Call, Ending, Enter, Stack, Totals, Visitor};
use calltap_trace::{Batch, Meta, SiteId, ThreadId};

/// The function that parks a goroutine.
pub(crate) const PARK: &str = "runtime.gopark";
/// Functions that pass on the reason of their caller.
const PASSING: [&str; 2] = ["runtime.goparkunlock", "runtime.semacquire1"];

/// Function that waits for both kinds of mutexes before Go 1.20, and its reason if its caller,
/// which may be inlined, has none. Later versions have further functions for the second kind.
const MUTEXES: (&str, GoWaitReason) =
    ("sync.runtime_SemacquireMutex", GoWaitReason("sync.Mutex or sync.RWMutex"));

/// Reasons by the function that calls [`PARK`], or a function that passes a reason on.
const REASONS: [(&str, GoWaitReason); 33] = [
    ("runtime.chanrecv", GoWaitReason("chan receive")),
    ("runtime.chansend", GoWaitReason("chan send")),
    ("runtime.selectgo", GoWaitReason("select")),
    ("runtime.block", GoWaitReason("select (no cases)")),
    ("runtime.netpollblock", GoWaitReason("IO wait")),
    ("time.Sleep", GoWaitReason("sleep")),
    ("runtime.timeSleep", GoWaitReason("sleep")),
    ("internal/sync.runtime_SemacquireMutex", GoWaitReason("sync.Mutex.Lock")),
    ("sync.(*Mutex).lockSlow", GoWaitReason("sync.Mutex.Lock")),
    ("internal/sync.(*Mutex).lockSlow", GoWaitReason("sync.Mutex.Lock")),
    ("sync.runtime_SemacquireRWMutexR", GoWaitReason("sync.RWMutex.RLock")),
    ("sync.(*RWMutex).RLock", GoWaitReason("sync.RWMutex.RLock")),
    ("sync.runtime_SemacquireRWMutex", GoWaitReason("sync.RWMutex.Lock")),
    ("sync.runtime_SemacquireWaitGroup", GoWaitReason("sync.WaitGroup.Wait")),
    ("sync.(*WaitGroup).Wait", GoWaitReason("sync.WaitGroup.Wait")),
    ("sync.runtime_notifyListWait", GoWaitReason("sync.Cond.Wait")),
    ("runtime.notifyListWait", GoWaitReason("sync.Cond.Wait")),
    ("sync.runtime_Semacquire", GoWaitReason("semacquire")),
    ("internal/poll.runtime_Semacquire", GoWaitReason("semacquire (of a file that another goroutine uses)")),
    ("runtime.semacquire", GoWaitReason("semacquire")),
    ("runtime.gcParkAssist", GoWaitReason("GC assist wait")),
    ("runtime.gcWaitOnMark", GoWaitReason("wait for GC cycle")),
    ("runtime.gcBgMarkWorker", GoWaitReason("GC worker (idle)")),
    ("runtime.bgsweep", GoWaitReason("GC sweep wait")),
    ("runtime.bgscavenge", GoWaitReason("GC scavenge wait")),
    ("runtime.(*scavengerState).park", GoWaitReason("GC scavenge wait")),
    ("runtime.(*scavengerState).sleep", GoWaitReason("sleep")),
    ("runtime.runfinq", GoWaitReason("finalizer wait")),
    ("runtime.runFinalizers", GoWaitReason("finalizer wait")),
    ("runtime.runCleanups", GoWaitReason("cleanup wait")),
    ("runtime.forcegchelper", GoWaitReason("force gc (idle)")),
    ("runtime.updateMaxProcsGoroutine", GoWaitReason("GOMAXPROCS updater (idle)")),
    ("runtime.main", GoWaitReason("panicwait")),
];

/// The part of a function in the reason of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    Parks,
    Passes,
    Names(GoWaitReason),
    /// The reason if the function's caller has no reason of its own.
    NamesByDefault(GoWaitReason),
    Other,
}

/// The part of each function of a trace, by site.
#[derive(Default)]
pub(crate) struct Callers(Vec<Caller>);

impl Callers {
    pub(crate) fn new(meta: &Meta) -> Callers {
        if meta.threads.iter().all(|thread| thread.goroutine.is_none()) {
            return Callers::default();
        }
        let named = |name: &str| match REASONS.iter().find(|(known, _)| *known == name) {
            Some((_, reason)) => Caller::Names(*reason),
            None if name == PARK => Caller::Parks,
            None if name == MUTEXES.0 => Caller::NamesByDefault(MUTEXES.1),
            None if PASSING.contains(&name) => Caller::Passes,
            None => Caller::Other,
        };
        Callers(meta.sites.iter().map(|site| named(&site.name)).collect())
    }

    fn of(&self, site: SiteId) -> Caller {
        self.0.get(site.0 as usize).copied().unwrap_or(Caller::Other)
    }

    /// Returns the reason of a wait within these calls, outermost first; `None` if the innermost
    /// traced one has no reason.
    fn reason(&self, open: &[SiteId]) -> Option<GoWaitReason> {
        let mut inwards = open.iter().rev().map(|site| self.of(*site));
        match inwards.find(|caller| *caller != Caller::Passes)? {
            Caller::Names(reason) => Some(reason),
            Caller::NamesByDefault(reason) => match inwards.next() {
                Some(Caller::Names(exact)) => Some(exact),
                _ => Some(reason),
            },
            _ => None,
        }
    }
}

/// The waits of a goroutine, oldest first.
#[derive(Default)]
pub(crate) struct Parks {
    all: Vec<Park>,
    /// Whether there were waits whose ends were not recorded.
    misses: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Park {
    start: u64,
    end: u64,
    reason: Option<GoWaitReason>,
    /// Whether the goroutine still waited when recording ended.
    is_open: bool,
}

/// State of the walk through a goroutine's calls.
struct Walk<'c> {
    callers: &'c Callers,
    open: Vec<SiteId>,
    reasons: Vec<Option<GoWaitReason>>,
    parks: Parks,
}

impl Visitor for Walk<'_> {
    fn enter(&mut self, _: ThreadId, enter: &Enter) {
        self.open.truncate(enter.depth as usize);
        if self.callers.of(enter.site) == Caller::Parks {
            self.reasons.push(self.callers.reason(&self.open));
        }
        self.open.push(enter.site);
    }

    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        self.parks.misses |= self.callers.of(enter.site) == Caller::Parks;
    }

    fn close(&mut self, _: ThreadId, call: &Call) {
        self.open.truncate(call.depth as usize);
        if self.callers.of(call.site) == Caller::Parks {
            let reason = self.reasons.pop().flatten();
            let is_open = call.ending.goes_on();
            self.parks.all.push(Park { start: call.start, end: call.end, reason, is_open });
        }
    }
}

impl Parks {
    pub(crate) fn new(source: &dyn Source, thread: ThreadId, callers: &Callers) -> Parks {
        let sites = source.meta().sites.len() as u32;
        let (mut stack, mut totals) = (Stack::default(), Totals::default());
        let (mut batch, mut damage) = (Batch::default(), Damage::default());
        let mut walk = Walk { callers, open: Vec::new(), reasons: Vec::new(), parks: Parks::default() };
        let mut stream = source.thread_batches(thread);
        while next_readable(&mut *stream, &mut batch, &mut damage) {
            for event in &batch.events {
                let mut event = *event;
                event.site = checked_site(event.site, sites);
                stack.feed(thread, &event, &mut walk, &mut totals);
            }
        }
        stack.finish(thread, Ending::Running, &mut walk, &mut totals);
        walk.parks
    }

    /// Returns the time of all waits.
    pub(crate) fn ticks(&self) -> u64 {
        self.all.iter().map(|park| park.end.saturating_sub(park.start)).sum()
    }

    /// Whether the goroutine still waited when recording ended.
    pub(crate) fn is_waiting(&self) -> bool {
        self.all.last().is_some_and(|park| park.is_open)
    }

    /// Returns the states of the goroutine from `from` to `to`, in which no run of it is known,
    /// oldest first. Outside of waits it is unknown whether it ran, unless it was on no thread
    /// (`is_off`): then it was ready to run. `readied` returns the waker of a wait with these
    /// bounds.
    pub(crate) fn segments(
        &self,
        (from, to): (u64, u64),
        is_off: bool,
        readied: &dyn Fn(u64, u64) -> Option<Readied>,
    ) -> Vec<Segment> {
        let (mut segments, mut now) = (Vec::new(), from);
        let first = self.all.partition_point(|park| park.end <= from);
        for park in self.all[first..].iter().take_while(|park| park.start < to) {
            let (start, end) = (park.start.clamp(now, to), park.end.clamp(now, to));
            if start < end {
                if now < start {
                    segments.push(Segment { start: now, end: start, state: State::Unknown });
                }
                let (since, within) = (park.start, Within::Park(park.reason));
                // A wait that is not over has not ended yet.
                let readied =
                    readied(park.start, park.end).filter(|ended| !park.is_open || ended.at().is_some());
                let woken = readied.and_then(Readied::at).unwrap_or(end).clamp(start, end);
                let wait = Wait { since, within, waking: None, readied, is_tracing: false };
                let parts = [(start, woken, State::Blocked(wait)), (woken, end, State::Runnable)];
                let parts = parts.into_iter().filter(|(start, end, _)| start < end);
                segments.extend(parts.map(|(start, end, state)| Segment { start, end, state }));
                now = end;
            }
        }
        if now < to {
            let state = if is_off && now == from && !self.misses { State::Runnable } else { State::Unknown };
            segments.push(Segment { start: now, end: to, state });
        }
        segments
    }
}
