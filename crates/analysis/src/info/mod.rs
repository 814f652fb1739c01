//! Describes a recording: session, clock, processes, threads, modules, losses, and how it ended.

mod json;
mod text;

use crate::error::Error;
use crate::sources::source::{Damage, Source};
use crate::tree::Totals;
use calltap_trace::{Loss, ThreadId};
use std::collections::HashMap;
use std::io::Write;

/// Scope and form of the description.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether to list the functions that were enabled.
    pub sites: bool,
    /// Whether to write JSON instead of text.
    pub json: bool,
    /// Whether to keep linker names.
    pub linker_names: bool,
}

/// Describes the recording. Decodes no events, but checks that the file has them undamaged.
pub fn write(source: &dyn Source, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    if options.json { json::write(source, options, out) } else { text::write(source, options, out) }?;
    Ok(())
}

/// Entries of a thread: `entered` is the sum of recorded, lost and dropped.
#[derive(Clone, Copy, Default, serde::Serialize)]
struct Entered {
    entered: u64,
    recorded: u64,
    lost: u64,
    /// Entries left out on purpose.
    dropped: u64,
    exits_recorded: u64,
    exits_lost: u64,
    exits_dropped: u64,
}

impl Entered {
    /// Returns the newest totals of each thread. A truncated trace lacks those of some threads.
    fn by_thread(source: &dyn Source) -> HashMap<ThreadId, Self> {
        source.meta().loss.iter().map(|loss| (loss.thread, Self::of(loss))).collect()
    }

    fn of(loss: &Loss) -> Self {
        Self {
            entered: loss.entries.saturating_add(loss.lost_entries).saturating_add(loss.dropped_entries),
            recorded: loss.entries,
            lost: loss.lost_entries,
            dropped: loss.dropped_entries,
            exits_recorded: loss.exits,
            exits_lost: loss.lost_exits,
            exits_dropped: loss.dropped_exits,
        }
    }

    fn sum(all: &HashMap<ThreadId, Self>) -> Self {
        all.values().fold(Self::default(), |sum, one| Self {
            entered: sum.entered.saturating_add(one.entered),
            recorded: sum.recorded.saturating_add(one.recorded),
            lost: sum.lost.saturating_add(one.lost),
            dropped: sum.dropped.saturating_add(one.dropped),
            exits_recorded: sum.exits_recorded.saturating_add(one.exits_recorded),
            exits_lost: sum.exits_lost.saturating_add(one.exits_lost),
            exits_dropped: sum.exits_dropped.saturating_add(one.exits_dropped),
        })
    }

    /// Number of events of a whole recording that the recorder added as marks; `self` is the sum of
    /// all threads.
    fn marks(&self, source: &dyn Source) -> u64 {
        let recorded = self.recorded.saturating_add(self.exits_recorded);
        let is_whole = source.meta().end.is_some() && recorded > 0;
        if is_whole { source.event_count().saturating_sub(recorded) } else { 0 }
    }
}

/// Sums the damage of a recording, as views of its events tell it.
fn damage(source: &dyn Source) -> (u64, Totals) {
    let (mut damage, mut totals) = (Damage::default(), Totals::default());
    for error in source.unreadable() {
        damage.add(&error);
    }
    let events = damage.events;
    damage.report(&mut totals);
    (events, totals)
}

/// Nanoseconds of CLOCK_MONOTONIC from a thread's first to its last event.
fn active_ns(source: &dyn Source, thread: ThreadId) -> Option<u64> {
    let (first, last) = source.thread_span(thread)?;
    source.has_time().then(|| source.duration_ns(last.saturating_sub(first)))
}

/// Number of sites of each module.
fn sites_by_module(source: &dyn Source) -> Vec<u64> {
    let mut counts = vec![0; source.meta().modules.len()];
    for site in &source.meta().sites {
        if let Some(count) = counts.get_mut(site.module as usize) {
            *count += 1;
        }
    }
    counts
}
