//! A recording with the states of goroutines as those of threads.
//!
//! The kernel's context switches are those of threads. This source derives switches of goroutines
//! from them and from the runtime's own calls, so that views show processor time, waits and
//! unknown times of goroutines in the same columns.

use super::knows_waits;
use crate::error::Error;
use crate::sources::source::{BatchStream, SharedSource, Source};
use crate::tree::{Enter, Visitor};
use crate::why::chain::Chains;
use crate::why::lane::{Segment, State, Wait};
use crate::why::parks::PARK;
use calltap_trace::{
    GoroutineRun, Incident, KernelLog, Meta, RunState, Switch, SystemCall, ThreadId, Waking,
};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Switches by goroutine.
type Switches = HashMap<ThreadId, Vec<Switch>>;

/// A recording with the states of its goroutines, which are derived when they are first needed.
pub struct Scheduled<'s> {
    source: &'s dyn SharedSource,
    /// `None` if they are not known.
    switches: OnceLock<Option<Switches>>,
}

impl<'s> Scheduled<'s> {
    /// Makes the source. `source` is a whole recording.
    pub fn new(source: &'s dyn SharedSource) -> Scheduled<'s> {
        Scheduled { source, switches: OnceLock::new() }
    }

    fn switches_of(&self, goroutine: ThreadId) -> Option<Vec<Switch>> {
        // States that cannot be read are unknown; the views report damage by themselves.
        let switches = self.switches.get_or_init(|| derive(self.source).ok().flatten());
        switches.as_ref()?.get(&goroutine).cloned()
    }
}

/// Whether a call of the function that parks goroutines has no return.
struct Parking<'m> {
    meta: &'m Meta,
    has_marks: bool,
}

impl Visitor for Parking<'_> {
    fn mark(&mut self, _: ThreadId, enter: &Enter) {
        let site = self.meta.sites.get(enter.site.0 as usize);
        self.has_marks |= site.is_some_and(|site| site.name == PARK);
    }
}

/// Derives the switches of goroutines; `None` if waits or runs were not recorded.
fn derive(source: &dyn Source) -> Result<Option<Switches>, Error> {
    let mut chains = Chains::new(source);
    if !knows_waits(source) || !chains.knows_runs()? {
        return Ok(None);
    }
    let meta = source.meta();
    let all = meta.threads.iter().filter(|thread| thread.goroutine.is_some());
    let all: Vec<ThreadId> = all.map(|thread| thread.id).collect();
    let mut parking = Parking { meta, has_marks: false };
    crate::sources::drive::run_threads(source, &all, &mut parking, None)?;
    if parking.has_marks {
        return Ok(None);
    }
    let mut switches = Switches::new();
    for goroutine in all {
        if let Some((first, last)) = source.thread_span(goroutine) {
            // The last event may have the time of a state's beginning.
            let segments = chains.segments(goroutine, first, last + 1)?;
            switches.insert(goroutine, switches_at(&segments, last + 1));
        }
    }
    Ok(Some(switches))
}

/// Returns the switches between states; from `end` on the state is unknown.
fn switches_at(segments: &[Segment], end: u64) -> Vec<Switch> {
    let switch = |segment: &Segment| {
        let to = match &segment.state {
            State::Ran => RunState::Running,
            State::Runnable => RunState::Runnable,
            State::Blocked(Wait { is_tracing: true, .. }) => RunState::Tracing,
            State::Blocked(_) => RunState::Blocked,
            State::Unknown => RunState::Unknown,
        };
        Switch { at: segment.start, to }
    };
    segments.iter().map(switch).chain([Switch { at: end, to: RunState::Unknown }]).collect()
}

impl Source for Scheduled<'_> {
    fn meta(&self) -> &Meta {
        self.source.meta()
    }

    fn part(&self) -> Option<&str> {
        self.source.part()
    }

    fn complaints(&self) -> &[String] {
        self.source.complaints()
    }

    fn event_count(&self) -> u64 {
        self.source.event_count()
    }

    fn has_time(&self) -> bool {
        self.source.has_time()
    }

    fn to_ns(&self, ticks: u64) -> u64 {
        self.source.to_ns(ticks)
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        self.source.duration_ns(ticks)
    }

    fn batches(&self) -> Box<dyn BatchStream + '_> {
        self.source.batches()
    }

    fn thread_batches(&self, thread: ThreadId) -> Box<dyn BatchStream + '_> {
        self.source.thread_batches(thread)
    }

    fn batches_of(&self, threads: &[ThreadId]) -> Box<dyn BatchStream + '_> {
        self.source.batches_of(threads)
    }

    fn has_switches(&self) -> bool {
        self.source.has_switches()
    }

    fn switches(&self, thread: ThreadId) -> Result<Option<Vec<Switch>>, Error> {
        let meta = self.source.meta();
        let is_goroutine =
            meta.threads.get(thread.0 as usize).is_some_and(|thread| thread.goroutine.is_some());
        match is_goroutine && self.source.has_switches() {
            true => Ok(self.switches_of(thread)),
            false => self.source.switches(thread),
        }
    }

    fn wakings(&self, thread: ThreadId) -> Result<KernelLog<Waking>, Error> {
        self.source.wakings(thread)
    }

    fn system_calls(&self, thread: ThreadId) -> Result<KernelLog<SystemCall>, Error> {
        self.source.system_calls(thread)
    }

    fn incidents(&self, thread: ThreadId) -> Result<KernelLog<Incident>, Error> {
        self.source.incidents(thread)
    }

    fn goroutine_runs(&self, goroutine: ThreadId) -> Result<Vec<GoroutineRun>, Error> {
        self.source.goroutine_runs(goroutine)
    }

    fn thread_span(&self, thread: ThreadId) -> Option<(u64, u64)> {
        self.source.thread_span(thread)
    }

    fn shared(&self) -> Option<&dyn SharedSource> {
        Some(self)
    }
}

impl SharedSource for Scheduled<'_> {
    fn events_of(&self, thread: ThreadId) -> u64 {
        self.source.events_of(thread)
    }
}
