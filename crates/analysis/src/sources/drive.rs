//! Runs the engine over a source, thread after thread or in file order.

use crate::error::Error;
use crate::sources::source::{BatchStream, Damage, Source, next_readable, threads_with_events};
use crate::tree::{Stack, Totals, Visitor};
use calltap_trace::{Batch, Event, EventKind, SiteId, ThreadId};

/// A callback that receives the number of processed events from time to time.
pub type Progress<'a> = Option<&'a mut dyn FnMut(u64)>;

/// Calls `progress`, if there is one.
pub(crate) fn tell(progress: &mut Progress<'_>, events: u64) {
    if let Some(progress) = progress {
        progress(events);
    }
}

/// Maps all undescribed sites to the number after the last described one.
pub(crate) fn checked_site(site: SiteId, sites: u32) -> SiteId {
    SiteId(site.0.min(sites))
}

/// Returns an empty call stack for a thread, with its context switches if recorded.
pub(crate) fn stack_of(source: &dyn Source, thread: ThreadId) -> Result<Stack, Error> {
    Ok(source.switches(thread)?.map_or_else(Stack::default, |switches| Stack::switching(&switches)))
}

/// Feeds all events of one thread, then of the next. Only one thread's state is live at a time, so
/// a view needs its per-thread state once.
///
/// Unreadable batches are counted and left out. The visitor sees site ids up to and including
/// `meta.sites.len()`, which stands for every undescribed site.
pub fn run_by_thread<V: Visitor>(
    source: &dyn Source,
    visitor: &mut V,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    run_threads(source, &threads_with_events(source), visitor, progress)
}

/// Feeds all events of `threads`, in this order, as [`run_by_thread`] does.
pub fn run_threads<V: Visitor>(
    source: &dyn Source,
    threads: &[ThreadId],
    visitor: &mut V,
    mut progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (mut totals, mut damage) = (Totals::default(), Damage::default());
    let mut batch = Batch::default();
    let mut stream = source.batches_of(threads);
    for &thread in threads {
        let of = (source, thread, &mut *stream);
        run_thread(of, &mut batch, visitor, (&mut totals, &mut damage), &mut |events| {
            tell(&mut progress, events);
        })?;
    }
    damage.report(&mut totals);
    Ok(totals)
}

/// Feeds all events of the thread that is next in the stream. `told` receives the number of events
/// so far, including those of former threads.
pub(crate) fn run_thread<V: Visitor>(
    (source, thread, stream): (&dyn Source, ThreadId, &mut (dyn BatchStream + '_)),
    batch: &mut Batch,
    visitor: &mut V,
    (totals, damage): (&mut Totals, &mut Damage),
    told: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    totals.threads += 1;
    let sites = source.meta().sites.len() as u32;
    let mut stack = stack_of(source, thread)?;
    loop {
        let before = damage.events;
        let more = next_readable(stream, batch, damage);
        if damage.events > before {
            visitor.unreadable(thread, damage.events - before);
        }
        if !more {
            break;
        }
        feed_batch(&mut stack, thread, batch, sites, visitor, totals);
        visitor.batch_end()?;
        told(totals.events);
    }
    stack.finish(thread, source.meta().open_at_end(), visitor, totals);
    Ok(visitor.thread_end(thread)?)
}

/// Feeds batches in file order, so that threads are interleaved roughly by time. See
/// [`run_by_thread`] for the site ids. Batches of undescribed threads are counted and left out.
pub fn run_in_file_order<V: Visitor>(
    source: &dyn Source,
    visitor: &mut V,
    mut progress: Progress<'_>,
) -> Result<Totals, Error> {
    let (mut totals, mut damage) = (Totals::default(), Damage::default());
    let mut stacks: Vec<Option<Stack>> = Vec::new();
    stacks.resize_with(source.meta().threads.len(), || None);
    let mut batch = Batch::default();
    let sites = source.meta().sites.len() as u32;
    let mut stream = source.batches();
    while next_readable(&mut *stream, &mut batch, &mut damage) {
        let Some(slot) = stacks.get_mut(batch.thread.0 as usize) else {
            totals.unknown_threads += batch.events.len() as u64;
            continue;
        };
        totals.threads += u64::from(slot.is_none());
        let stack = match slot {
            Some(stack) => stack,
            None => slot.insert(stack_of(source, batch.thread)?),
        };
        feed_batch(stack, batch.thread, &batch, sites, visitor, &mut totals);
        visitor.batch_end()?;
        tell(&mut progress, totals.events);
    }
    for (index, stack) in stacks.iter_mut().enumerate() {
        if let Some(stack) = stack {
            let thread = ThreadId(index as u32);
            stack.finish(thread, source.meta().open_at_end(), visitor, &mut totals);
            visitor.thread_end(thread)?;
        }
    }
    damage.report(&mut totals);
    Ok(totals)
}

/// Feeds the events of one batch. Undescribed sites become the one after the last.
pub(crate) fn feed_batch<V: Visitor>(
    stack: &mut Stack,
    thread: ThreadId,
    batch: &Batch,
    sites: u32,
    visitor: &mut V,
    totals: &mut Totals,
) {
    totals.events += batch.events.len() as u64;
    // Three loops, so that batches without values or switches skip these checks.
    let events = batch.events.iter().copied();
    match (batch.values.is_empty(), stack.is_switching()) {
        (true, false) => {
            events.for_each(|event| feed::<false, V>(stack, thread, event, sites, visitor, totals))
        }
        (true, true) => {
            events.for_each(|event| feed::<true, V>(stack, thread, event, sites, visitor, totals))
        }
        (false, _) => events.enumerate().for_each(|(place, event)| {
            let bytes = batch.values.of(place);
            if !bytes.is_empty() {
                visitor.values(thread, event.site, matches!(event.kind, EventKind::Exit { .. }), bytes);
            }
            feed::<true, V>(stack, thread, event, sites, visitor, totals);
        }),
    }
}

#[inline(always)]
fn feed<const SWITCHING: bool, V: Visitor>(
    stack: &mut Stack,
    thread: ThreadId,
    mut event: Event,
    sites: u32,
    visitor: &mut V,
    totals: &mut Totals,
) {
    if event.site.0 >= sites {
        // Losses belong to no function, whatever their site field holds.
        totals.unknown_sites += u64::from(!matches!(event.kind, EventKind::Lost { .. }));
        event.site = checked_site(event.site, sites);
    }
    stack.feed_as::<SWITCHING, V>(thread, &event, visitor, totals);
}
