//! Several recordings of one machine as one trace: calltap's, and those of the kernel that were imported.
//!
//! `clocks` relates their times, `tables` gives their processes, threads, modules and sites ids of one file, `lane` puts the events of a thread into
//! one order, and `logs` what the kernel tells of it besides.

mod clocks;
mod lane;
mod logs;
mod refused;
mod tables;

pub use refused::Refused;

use crate::writer::PROCESS;
use calltap_trace::{
    ClockMap, End, KernelEvents, Loss, Meta, Record, Scheduling, Session, ThreadId, TraceReader, TraceWriter,
};
use clocks::Timeline;
use lane::{Counts, Lane};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::path::Path;
use tables::Tables;

/// What becomes of threads of the kernel's recordings that no recording of a program has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// They are threads of the trace.
    Kept,
    /// They are left out, and so is what happened before the first call of a program, and after the last.
    LeftOut,
}

/// A recording.
pub struct Recording {
    /// How the user calls it; empty if the user knows no such file.
    pub name: String,
    /// What is in it.
    pub reader: TraceReader,
}

impl Recording {
    /// It was made of a file of another tracer, which knows threads and not their processes.
    fn is_imported(&self) -> bool {
        let [process] = &self.reader.meta().processes[..] else { return false };
        (process.pid, &*process.comm) == PROCESS
    }
}

/// What became of the recordings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Joined {
    /// Events.
    pub events: u64,
    /// Threads.
    pub threads: u64,
    /// Threads of the program whose calls have those of the kernel in them.
    pub nested: u64,
    /// Calls of the kernel within those of the program, or of its threads outside of calls.
    pub of_kernel: u64,
    /// Calls of the kernel that were open where the thread ran the program's code: they end there without a return.
    pub cut: u64,
    /// Parts of the recordings that could not be read.
    pub damaged: u64,
}

impl Joined {
    /// What the user should know, a sentence each.
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

/// Events of a thread that are written before it is looked which thread is next.
const TURN: usize = 1024;

/// Writes one trace of all recordings to `output`, which is made or emptied once it is known that their times can be related.
pub fn join(recordings: &[Recording], others: Others, output: &Path) -> Result<Joined, Refused> {
    let timeline = Timeline::of(recordings)?;
    let tables = Tables::of(recordings, others, &timeline);
    let mut trace = TraceWriter::create(output, session(recordings, &timeline, &tables))?;
    tables.write(&mut trace)?;
    timeline.pairs.iter().try_for_each(|pair| trace.record(&Record::Clock(*pair)))?;
    let mut joined = Joined { threads: tables.threads.len() as u64, ..Joined::default() };
    let nested = events(recordings, &timeline, &tables, &mut trace, &mut joined)?;
    logs::write(recordings, &timeline, &tables, &mut trace)?;
    facts(recordings, &tables, &nested, &mut trace)?;
    for text in notes(recordings).into_iter().chain(joined.sentences()) {
        trace.record(&Record::Note { text })?;
    }
    trace.finish(end(recordings, &timeline))?;
    Ok(joined)
}

fn session(recordings: &[Recording], timeline: &Timeline, tables: &Tables) -> Session {
    let sessions = || recordings.iter().filter_map(|recording| recording.reader.meta().session.as_ref());
    // A recording of the kernel knows no command.
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
    let mut lanes: Vec<Lane<'_>> =
        (0..tables.threads.len()).map(|thread| Lane::new(recordings, timeline, tables, thread)).collect();
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

/// Everything that is known of recordings as a whole, and of threads when they have ended.
fn facts(
    recordings: &[Recording],
    tables: &Tables,
    nested: &HashMap<ThreadId, Counts>,
    trace: &mut TraceWriter,
) -> Result<(), Refused> {
    let mut losses = BTreeMap::new();
    for (place, recording) in recordings.iter().enumerate() {
        let ids = &tables.ids[place];
        let Meta { loss, profile, slow, limited, addresses, .. } = recording.reader.meta();
        for own in loss {
            let Some(thread) = ids.thread(own.thread) else { continue };
            let all = losses.entry(thread).or_insert(Loss { thread, ..Loss::default() });
            // Not all of the kernel's calls may have become part of the thread.
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
        let functions = limited.iter().map(|one| calltap_trace::Limited { site: ids.site(one.site), ..*one });
        let addresses = addresses
            .iter()
            .cloned()
            .map(|address| calltap_trace::Address { process: ids.process(address.process), ..address });
        let records = [
            (!profile.is_empty()).then(|| Record::Profile { rows: rows.collect() }),
            (!limited.is_empty()).then(|| Record::Limited { functions: functions.collect() }),
            (addresses.len() > 0).then(|| Record::Addresses { addresses: addresses.collect() }),
            (!slow.is_empty()).then(|| Record::Slow { rules: slow.clone() }),
        ];
        records.iter().flatten().try_for_each(|record| trace.record(record))?;
    }
    losses.into_values().try_for_each(|loss| trace.record(&Record::Loss(loss)))?;
    let metas = || recordings.iter().map(|recording| recording.reader.meta());
    if metas().any(|meta| meta.scheduling.is_some()) {
        let all = metas().filter_map(|meta| meta.scheduling.as_ref());
        let is_refused = all.clone().all(|scheduling| scheduling.refused.is_some());
        let refused = all.clone().find_map(|scheduling| scheduling.refused.clone()).filter(|_| is_refused);
        let lost = all.map(|scheduling| scheduling.lost).sum();
        trace.record(&Record::Scheduling(Scheduling { refused, lost }))?;
    }
    if metas().any(|meta| meta.kernel_events.is_some()) {
        let all = metas().filter_map(|meta| meta.kernel_events.as_ref());
        let mut told = KernelEvents::default();
        for events in all {
            told.wakings |= events.wakings;
            told.system_calls |= events.system_calls;
            told.incidents |= events.incidents;
            told.signals |= events.signals;
            told.refused.extend(events.refused.iter().cloned());
            told.lost += events.lost;
            told.recorder = if told.recorder == 0 { events.recorder } else { told.recorder };
        }
        trace.record(&Record::KernelEvents(told))?;
    }
    Ok(())
}

/// Where the trace comes from, and what its parts say of themselves.
fn notes(recordings: &[Recording]) -> Vec<String> {
    let names = recordings.iter().map(|recording| &*recording.name).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.collect();
    let merged = (!names.is_empty()).then(|| format!("merged of {}", names.join(", ")));
    let mut notes: Vec<String> = merged.into_iter().collect();
    for Recording { name, reader } in recordings {
        let own = reader.meta().notes.iter().map(String::as_str);
        // The file has one clock: what is wrong with that, its reader says.
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
        // A program runs before its first call, and after its last.
        wall_ns: ends().map(|end| end.wall_ns).fold(span, u64::max),
        cpu_ns: ends().map(|end| end.cpu_ns).sum(),
        recorder_cpu_ns: ends().map(|end| end.recorder_cpu_ns).sum(),
    }
}
