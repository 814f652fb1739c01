//! Merges several recordings of one machine into one trace: calltap's, and imported ones of the
//! kernel.
//!
//! `clocks` relates their times, `tables` assigns common ids to their processes, threads, modules
//! and sites, `lane` merges the events of a thread, and `logs` writes the kernel's other records of
//! it.

mod clocks;
mod lane;
mod logs;
mod refused;
mod system_calls;
mod tables;

pub use refused::Refused;

use crate::writer::PROCESS;
use calltap_trace::{
    Busy, ClockMap, Detaching, End, Kept, KernelEvents, Loss, Meta, Record, Scheduling, Session, ThreadId,
    TraceReader, TraceWriter,
};
use clocks::Timeline;
use lane::{Counts, MergedThread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::path::Path;
use system_calls::{HIDDEN, Shown};
use tables::Tables;

/// Treatment of threads in the kernel's recordings that no recording of a program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// Such threads are threads of the trace.
    Kept,
    /// Such threads are left out, and so are the kernel's events before the first call of a program
    /// and after the last.
    LeftOut,
}

/// A recording to merge.
pub struct Recording {
    /// The user's name of the recording; empty if the user knows no such file.
    pub name: String,
    /// Reader of the recording.
    pub reader: TraceReader,
}

impl Recording {
    /// Whether the recording was imported from another tracer, which knows threads but not their
    /// processes.
    fn is_imported(&self) -> bool {
        let [process] = &self.reader.meta().processes[..] else { return false };
        (process.pid, &*process.comm) == PROCESS
    }
}

/// Counts of a merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Joined {
    /// Number of events.
    pub events: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of threads of the program in whose calls the kernel's calls are nested.
    pub nested: u64,
    /// Number of calls of the kernel in threads of the program, within or outside of its calls.
    pub of_kernel: u64,
    /// Number of calls of the kernel that were open when the thread ran the program's code: they
    /// end there without a return.
    pub cut: u64,
    /// Number of unreadable parts of the recordings.
    pub damaged: u64,
}

impl Joined {
    /// Returns notes for the user, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.cut > 0 {
            all.push(format!("{} calls of the kernel end without a return: their threads ran code of the program before it", self.cut));
        }
        if self.damaged > 0 {
            all.push(format!(
                "{} parts of the recordings could not be read: calls that were open there are cut",
                self.damaged
            ));
        }
        all
    }
}

/// Maximum number of events of a thread written before the next thread is chosen.
const TURN: usize = 1024;

/// Writes one trace of all recordings to `output`, which is created or truncated once their times
/// are known to be comparable.
pub fn join(recordings: &[Recording], others: Others, output: &Path) -> Result<Joined, Refused> {
    let timeline = Timeline::of(recordings)?;
    let tables = Tables::of(recordings, others, &timeline);
    let mut trace = TraceWriter::create(output, session(recordings, &timeline, &tables))?;
    tables.write(&mut trace)?;
    timeline.pairs.iter().try_for_each(|pair| trace.record(&Record::Clock(*pair)))?;
    let mut joined = Joined { threads: tables.threads.len() as u64, ..Joined::default() };
    let nested = events(recordings, &timeline, &tables, &mut trace, &mut joined)?;
    logs::write(recordings, &timeline, &tables, &mut trace)?;
    facts(recordings, &timeline, &tables, &nested, &mut trace)?;
    for text in notes(recordings).into_iter().chain(joined.sentences()) {
        trace.record(&Record::Note { text })?;
    }
    trace.finish(end(recordings, &timeline))?;
    Ok(joined)
}

fn session(recordings: &[Recording], timeline: &Timeline, tables: &Tables) -> Session {
    let sessions = || recordings.iter().filter_map(|recording| recording.reader.meta().session.as_ref());
    // A recording of the kernel has no command.
    let programs = recordings.iter().filter(|recording| !recording.is_imported());
    let first = programs.filter_map(|recording| recording.reader.meta().session.as_ref()).next();
    let Some(first) = first.or_else(|| sessions().next()) else { unreachable!("their clocks are known") };
    let start = timeline.start(recordings);
    let since = first.start_realtime_ns.wrapping_sub(first.start_monotonic_ns);
    Session {
        start_realtime_ns: if first.start_realtime_ns == 0 { 0 } else { start.wrapping_add(since) },
        start_monotonic_ns: start,
        clock: timeline.kind,
        clock_note: timeline.note.clone(),
        tracers: tables.tracers.clone(),
        conditions: recordings
            .iter()
            .flat_map(|recording| recording.reader.meta().conditions.clone())
            .collect(),
        ..first.clone()
    }
}

fn events(
    recordings: &[Recording],
    timeline: &Timeline,
    tables: &Tables,
    trace: &mut TraceWriter,
    joined: &mut Joined,
) -> Result<HashMap<ThreadId, Counts>, Refused> {
    let mut lanes: Vec<MergedThread<'_>> = (0..tables.threads.len())
        .map(|thread| MergedThread::new(recordings, timeline, tables, thread))
        .collect();
    let mut next = BinaryHeap::new();
    for (place, lane) in lanes.iter_mut().enumerate() {
        next.extend(lane.time()?.map(|time| Reverse((time, place))));
    }
    while let Some(Reverse((_, place))) = next.pop() {
        let until = next.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let Some(lane) = lanes.get_mut(place) else { break };
        for _ in 0..TURN {
            lane.step()?;
            if lane.time()?.is_none_or(|time| time > until) {
                break;
            }
        }
        lane.relieve(trace)?;
        next.extend(lane.time()?.map(|time| Reverse((time, place))));
    }
    let mut nested = HashMap::new();
    for (lane, row) in lanes.iter_mut().zip(&tables.threads) {
        let counts = lane.finish(trace, joined)?;
        nested.extend(counts.map(|counts| (row.thread.id, counts)));
    }
    Ok(nested)
}

/// Writes the facts about recordings as a whole, and about threads at their ends.
fn facts(
    recordings: &[Recording],
    timeline: &Timeline,
    tables: &Tables,
    nested: &HashMap<ThreadId, Counts>,
    trace: &mut TraceWriter,
) -> Result<(), Refused> {
    let mut losses = BTreeMap::new();
    for (place, recording) in recordings.iter().enumerate() {
        let ids = &tables.ids[place];
        let Meta { loss, profile, slow, kept, busy, detaching, disabled_by_limit, addresses, .. } =
            recording.reader.meta();
        for own in loss {
            let Some(thread) = ids.thread(own.thread) else { continue };
            let all = losses.entry(thread).or_insert(Loss { thread, ..Loss::default() });
            // Some of the kernel's calls may not be part of the thread.
            let counts = Counts { entries: own.entries, exits: own.exits };
            let counts = nested.get(&thread).filter(|_| recording.is_imported()).copied().unwrap_or(counts);
            all.entries += counts.entries;
            all.exits += counts.exits;
            all.lost_entries += own.lost_entries;
            all.lost_exits += own.lost_exits;
            all.dropped_entries += own.dropped_entries;
            all.dropped_exits += own.dropped_exits;
        }
        let rows = profile.iter().map(|row| calltap_trace::Profile {
            process: ids.process(row.process),
            site: ids.site(row.site),
            ..*row
        });
        let functions = disabled_by_limit
            .iter()
            .map(|one| calltap_trace::DisabledByLimit { site: ids.site(one.site), ..*one });
        let addresses = addresses
            .iter()
            .cloned()
            .map(|address| calltap_trace::Address { process: ids.process(address.process), ..address });
        let records = [
            (!profile.is_empty()).then(|| Record::Profile { rows: rows.collect() }),
            (!disabled_by_limit.is_empty())
                .then(|| Record::DisabledByLimit { functions: functions.collect() }),
            (addresses.len() > 0).then(|| Record::Addresses { addresses: addresses.collect() }),
            (!slow.is_empty()).then(|| Record::Slow { rules: slow.clone() }),
        ];
        let kept = kept.iter().cloned().map(|kept| {
            let from = kept.from.map(|from| timeline.ticks(place, from));
            Record::Kept(Kept { from, ..kept })
        });
        let busy = busy.iter().cloned().map(|busy| {
            let until = busy.until.map(|until| timeline.ticks(place, until));
            Record::Busy(Busy { until, ..busy })
        });
        let detaching = detaching.iter().map(|Detaching { process, at }| {
            let (process, at) = (ids.process(*process), timeline.ticks(place, *at));
            Record::Detaching(Detaching { process, at })
        });
        let mut records = records.into_iter().flatten().chain(kept).chain(busy).chain(detaching);
        records.try_for_each(|record| trace.record(&record))?;
    }
    losses.into_values().try_for_each(|loss| trace.record(&Record::Loss(loss)))?;
    kernel_facts(recordings, tables, nested, trace)
}

/// Writes whether the kernel's events were recorded.
fn kernel_facts(
    recordings: &[Recording],
    tables: &Tables,
    nested: &HashMap<ThreadId, Counts>,
    trace: &mut TraceWriter,
) -> Result<(), Refused> {
    let metas = || recordings.iter().map(|recording| recording.reader.meta());
    if metas().any(|meta| meta.scheduling.is_some()) {
        let all = metas().filter_map(|meta| meta.scheduling.as_ref());
        let is_refused = all.clone().all(|scheduling| scheduling.refused.is_some());
        let refused = all.clone().find_map(|scheduling| scheduling.refused.clone()).filter(|_| is_refused);
        let lost = all.map(|scheduling| scheduling.lost).sum();
        trace.record(&Record::Scheduling(Scheduling { refused, lost }))?;
    }
    if metas().any(|meta| meta.kernel_events.is_some()) {
        let mut told = KernelEvents::default();
        for events in metas().filter_map(|meta| meta.kernel_events.as_ref()) {
            told.wakings |= events.wakings;
            told.system_calls |= events.system_calls;
            told.incidents |= events.incidents;
            told.signals |= events.signals;
            told.refused.extend(events.refused.iter().cloned());
            told.lost += events.lost;
            let others = [events.recorder].into_iter().chain(events.other_recorders.iter().copied());
            for recorder in others.filter(|pid| *pid != 0) {
                match told.recorder {
                    0 => told.recorder = recorder,
                    _ if told.is_recorder(recorder) => {}
                    _ => told.other_recorders.push(recorder),
                }
            }
        }
        let Shown { threads, hidden } = Shown::find(recordings, tables, nested)?;
        told.calls_in_events = threads.into_iter().map(|thread| thread.0).collect();
        if told.system_calls && hidden {
            trace.record(&Record::Note { text: HIDDEN.to_owned() })?;
        }
        trace.record(&Record::KernelEvents(told))?;
    }
    Ok(())
}

/// Returns notes about the origin of the trace, and those of its recordings.
fn notes(recordings: &[Recording]) -> Vec<String> {
    let names = recordings.iter().map(|recording| &*recording.name).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    let merged = (!names.is_empty()).then(|| format!("merged of {}", names.join(", ")));
    let mut notes: Vec<String> = merged.into_iter().collect();
    for Recording { name, reader } in recordings {
        let own = reader.meta().notes.iter().map(String::as_str);
        // The reader of the merged file reports problems of its single clock.
        let clock = reader.meta().session.as_ref().map(|session| session.clock);
        let of_clock = clock.map_or_else(Vec::new, |kind| ClockMap::new(kind, &reader.meta().clock).1);
        let complaints = reader.complaints().iter().filter(|complaint| !of_clock.contains(complaint));
        let complaints = complaints.map(String::as_str);
        let cut = reader.meta().end.is_none().then_some("the recording did not end properly");
        let of = if name.is_empty() { String::new() } else { format!("{name}: ") };
        notes.extend(own.chain(complaints).chain(cut).map(|note| format!("{of}{note}")));
    }
    notes
}

fn end(recordings: &[Recording], timeline: &Timeline) -> End {
    let ends = || {
        let programs = recordings.iter().filter(|recording| !recording.is_imported());
        programs.filter_map(|recording| recording.reader.meta().end.as_ref())
    };
    let span = timeline.end(recordings).saturating_sub(timeline.start(recordings));
    End {
        status: ends().next().map_or(End::DETACHED, |end| &end.status).to_owned(),
        // A program runs before its first call and after its last.
        wall_ns: ends().map(|end| end.wall_ns).fold(span, u64::max),
        cpu_ns: ends().map(|end| end.cpu_ns).sum(),
        recorder_cpu_ns: ends().map(|end| end.recorder_cpu_ns).sum(),
    }
}
