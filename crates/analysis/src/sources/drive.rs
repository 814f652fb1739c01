//! Runs the engine over a source, thread after thread or in file order.

use crate::error::Error;
use crate::sources::source::{BatchStream, Damage, Source, next_readable, threads_with_events};
use crate::tree::{Stack, Totals, Visitor};
use calltap_trace::{Batch, Event, EventKind, SiteId, ThreadId};

/// Called now and then with the number of events done so far.
pub type Progress<'a> = Option<&'a mut dyn FnMut(u64)>;

/// Tells `progress`, if anyone listens.
pub(crate) fn tell(progress: &mut Progress<'_>, events: u64) {
    if let Some(progress) = progress {
        progress(events);
    }
}

/// Sites the trace does not describe all become the one after the last.
pub(crate) fn checked_site(site: SiteId, sites: u32) -> SiteId {
    SiteId(site.0.min(sites))
}

/// The calls of a thread, and when it ran, if that is known.
pub(crate) fn stack_of(source: &dyn Source, thread: ThreadId) -> Result<Stack, Error> {
    Ok(source.switches(thread)?.map_or_else(Stack::default, |switches| Stack::switching(&switches)))
}

/// Feeds all events of one thread, then of the next. State of one thread at a time: a view that needs per-thread
/// state needs it once, however many threads there are.
///
/// Batches that cannot be read are counted and left out. The visitor sees site ids up to and including `meta.sites.len()`; the last stands for every undescribed site.
pub fn run_by_thread<V: Visitor>(
    source: &dyn Source,
    visitor: &mut V,
    progress: Progress<'_>,
) -> Result<Totals, Error> {
    run_threads(source, &threads_with_events(source), visitor, progress)
}

/// As [`run_by_thread`], these threads in this order.
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

/// Feeds all events of a thread, which its stream has next. `told` is told how many there were until now, those of threads before included.
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

/// Feeds batches as the file has them, so that threads are interleaved roughly by time. See [`run_by_thread`] for
/// the site ids. Batches of threads the metadata does not describe are counted and left out.
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

/// Feeds the events of one batch. Sites the trace does not describe become the one after the last.
pub(crate) fn feed_batch<V: Visitor>(
    stack: &mut Stack,
    thread: ThreadId,
    batch: &Batch,
    sites: u32,
    visitor: &mut V,
    totals: &mut Totals,
) {
    totals.events += batch.events.len() as u64;
    // Three loops: the usual ones have nothing to look for.
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
