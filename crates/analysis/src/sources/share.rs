//! Runs the engine over a source on several threads at once, each over some of the source's threads
//! with a visitor of its own.
//!
//! For views that add up: the sums of the parts, added in order, are those of the whole.

use crate::error::Error;
use crate::sources::drive::{Progress, run_thread, run_threads, tell};
use crate::sources::source::{Damage, SharedSource, Source, threads_with_events};
use crate::tree::{Totals, Visitor};
use calltap_trace::{Batch, ThreadId};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};

/// Maximum number of reading threads: each has sums of its own.
const MAX_THREADS: usize = 4;
/// Traces with fewer events are read by one thread.
const WORTH_SHARING: u64 = 1 << 20;

/// Runs as [`crate::run_by_thread`] does, with one visitor, made by `make`, per reading thread. The
/// first visitor gets the first threads of the source, the next one those after them, each in
/// order.
pub(crate) fn run_shared<V: Visitor + Send>(
    source: &dyn Source,
    make: &(dyn Fn() -> V + Sync),
    progress: Progress<'_>,
) -> Result<(Vec<V>, Totals), Error> {
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let all = threads_with_events(source);
    if let Some(shared) = source.shared()
        && let Some(parts) = parts(shared, &all, processors.min(MAX_THREADS))
    {
        return share(shared, &parts, make, progress);
    }
    let mut visitor = make();
    let totals = run_threads(source, &all, &mut visitor, progress)?;
    Ok((vec![visitor], totals))
}

/// Divides threads into parts of about equal numbers of events. `None` if one reader, with chunks
/// decoded ahead, is as fast: one thread has more events than a part.
fn parts<'t>(
    source: &dyn SharedSource,
    threads: &'t [ThreadId],
    parts: usize,
) -> Option<Vec<&'t [ThreadId]>> {
    let events: Vec<u64> = threads.iter().map(|thread| source.events_of(*thread)).collect();
    let (all, longest) = (events.iter().sum::<u64>(), *events.iter().max()?);
    let of_part = all / parts as u64;
    if parts < 2 || all < WORTH_SHARING || longest > of_part {
        return None;
    }
    let mut before = 0;
    let place = |own: &u64| {
        // A thread belongs to the part that contains its middle.
        let part = (before + own / 2) / (of_part + 1);
        before += own;
        part
    };
    let places: Vec<u64> = events.iter().map(place).collect();
    let mut rest = threads;
    let next = |same: &[u64]| {
        let (part, others) = rest.split_at(same.len());
        rest = others;
        part
    };
    Some(places.chunk_by(|one, other| one == other).map(next).collect())
}

fn share<V: Visitor + Send>(
    source: &dyn SharedSource,
    parts: &[&[ThreadId]],
    make: &(dyn Fn() -> V + Sync),
    mut progress: Progress<'_>,
) -> Result<(Vec<V>, Totals), Error> {
    let done = AtomicU64::new(0);
    let work = |threads: &[ThreadId], told: &mut dyn FnMut()| {
        let (mut visitor, mut batch, mut totals) = (make(), Batch::default(), Totals::default());
        for thread in threads {
            totals.add(run_alone(source, *thread, &mut batch, &mut visitor, &done, told)?);
        }
        Ok((visitor, totals))
    };
    let outcomes: Vec<Result<(V, Totals), Error>> = thread::scope(|scope| {
        let (first, others) = parts.split_first().expect("there is a part where there are events");
        let work = &work;
        let start = |part| {
            let started = thread::Builder::new().spawn_scoped(scope, move || work(part, &mut || ()));
            started.map_err(|_| part)
        };
        let others: Vec<_> = others.iter().map(|part| start(*part)).collect();
        let first = work(first, &mut || tell(&mut progress, done.load(Relaxed)));
        let join = |other: Result<ScopedJoinHandle<'_, _>, &[ThreadId]>| match other {
            Ok(thread) => thread.join().unwrap_or_else(|why| panic::resume_unwind(why)),
            // The thread could not be started.
            Err(part) => work(part, &mut || ()),
        };
        std::iter::once(first).chain(others.into_iter().map(join)).collect()
    });
    let (mut visitors, mut totals) = (Vec::new(), Totals::default());
    for outcome in outcomes {
        let (visitor, own) = outcome?;
        visitors.push(visitor);
        totals.add(own);
    }
    Ok((visitors, totals))
}

fn run_alone<V: Visitor>(
    source: &dyn SharedSource,
    thread: ThreadId,
    batch: &mut Batch,
    visitor: &mut V,
    done: &AtomicU64,
    told: &mut dyn FnMut(),
) -> Result<Totals, Error> {
    let (mut totals, mut damage, mut before) = (Totals::default(), Damage::default(), 0);
    let mut stream = source.thread_batches(thread);
    run_thread((source, thread, &mut *stream), batch, visitor, (&mut totals, &mut damage), &mut |events| {
        done.fetch_add(events - before, Relaxed);
        before = events;
        told();
    })?;
    damage.report(&mut totals);
    Ok(totals)
}

impl Totals {
    /// Adds the totals of threads that follow.
    fn add(&mut self, other: Totals) {
        // All fields are named, so that a new one cannot be forgotten here.
        let Totals {
            events,
            marks,
            threads,
            calls,
            unfinished,
            left,
            thread_ended,
            outside,
            cut,
            orphans,
            lost_entries,
            lost_exits,
            backwards,
            too_deep,
            unknown_sites,
            unknown_threads,
            damaged,
            first_damage,
        } = other;
        let sums = [
            (&mut self.events, events),
            (&mut self.marks, marks),
            (&mut self.threads, threads),
            (&mut self.calls, calls),
            (&mut self.unfinished, unfinished),
            (&mut self.left, left),
            (&mut self.thread_ended, thread_ended),
            (&mut self.outside, outside),
            (&mut self.cut, cut),
            (&mut self.orphans, orphans),
            (&mut self.lost_entries, lost_entries),
            (&mut self.lost_exits, lost_exits),
            (&mut self.backwards, backwards),
            (&mut self.too_deep, too_deep),
            (&mut self.unknown_sites, unknown_sites),
            (&mut self.unknown_threads, unknown_threads),
            (&mut self.damaged, damaged),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum += more);
        self.first_damage = self.first_damage.take().or(first_damage);
    }
}
