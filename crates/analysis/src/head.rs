//! The lines above a text view that say what it was made from and what is missing.

pub mod disabled;
pub(crate) mod facts;
pub mod left_out;
pub mod untraceable;

use crate::sources::source::Source;
use crate::tree::Totals;
use crate::units::{counted, percent};
use calltap_trace::ClockKind;
use std::collections::HashSet;

/// Number of lost entries and exits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Entries.
    pub entries: u64,
    /// Exits.
    pub exits: u64,
}

impl Lost {
    /// Sums the losses in the threads' totals.
    pub(crate) fn of_threads(source: &dyn Source) -> Self {
        source.meta().loss.iter().fold(Self::default(), |sum, loss| Self {
            entries: sum.entries.saturating_add(loss.lost_entries),
            exits: sum.exits.saturating_add(loss.lost_exits),
        })
    }

    /// Returns the larger of the losses in the threads' totals and in the events, as either can be
    /// missing from a truncated file.
    pub fn of(source: &dyn Source, totals: &Totals) -> Self {
        let threads = Self::of_threads(source);
        Self {
            entries: threads.entries.max(totals.lost_entries),
            exits: threads.exits.max(totals.lost_exits),
        }
    }
}

/// Returns the head: calls left out while recording, the part that is read,
/// `# 8 events and 1 mark, 2 threads`, and what is missing. Each line ends with a newline.
pub fn head(source: &dyn Source, totals: &Totals) -> String {
    let mut text = left_out::lines(source);
    text += &part(source);
    let events = events_and_marks(totals.events, totals.marks);
    text += &format!("# {events}, {}", counted(totals.threads, "thread"));
    let lost = Lost::of(source, totals);
    if lost != Lost::default() {
        let entered = totals.calls.saturating_add(lost.entries);
        text += &format!(
            "; LOST {} ({:.1} % of entries) and {}",
            counted(lost.entries, "call"),
            percent(lost.entries, entered),
            counted(lost.exits, "return"),
        );
    }
    text.push('\n');
    text += &of_kernel(source);
    let mut notes = Vec::new();
    if totals.unfinished > 0 {
        let calls = counted(totals.unfinished, "call");
        notes.push(format!("{calls} unfinished"));
    }
    if totals.left > 0 {
        notes.push(format!("{} left without returning", counted(totals.left, "call")));
    }
    if totals.thread_ended > 0 {
        notes.push(format!("{} ended with their threads", counted(totals.thread_ended, "call")));
    }
    if totals.outside > 0 {
        notes.push(format!(
            "{} cut: begun before the part, or going on after it",
            counted(totals.outside, "call")
        ));
    }
    if totals.cut > 0 {
        notes.push(format!(
            "{} cut by lost events or by switching functions off",
            counted(totals.cut, "call")
        ));
    }
    if totals.orphans > 0 {
        notes.push(format!("{} without an entry", counted(totals.orphans, "return")));
    }
    if totals.too_deep > 0 {
        notes.push(format!("{} too deep to be timed", counted(totals.too_deep, "call")));
    }
    let unknown = totals.unknown_sites + totals.unknown_threads;
    if unknown > 0 {
        notes.push(format!(
            "{} of functions or threads the trace does not describe",
            counted(unknown, "event")
        ));
    }
    if !notes.is_empty() {
        text += &format!("# {}\n", notes.join(", "));
    }
    text += clock(source);
    text += &forked(source);
    text += &damage(totals);
    for complaint in source.complaints() {
        text += &format!("# {}\n", crate::units::one_line(complaint));
    }
    text
}

/// Returns the head of a view or an export of call paths: their times have the known part of calls
/// that are cut, which [`report`](crate::report) leaves out of its sums.
pub fn head_of_paths(source: &dyn Source, totals: &Totals) -> String {
    let mut text = head(source, totals);
    if totals.unfinished + totals.left + totals.thread_ended + totals.outside + totals.cut > 0 {
        text += "# calls without a known end count until they were last known to run\n";
    }
    text
}

/// Formats `8 events and 1 mark`: of `all` events read, those that the program recorded, as
/// `calltap record` counts them, and the marks that the recorder added.
pub(crate) fn events_and_marks(all: u64, marks: u64) -> String {
    let events = counted(all.saturating_sub(marks), "event");
    match marks {
        0 => events,
        _ => format!("{events} and {}", counted(marks, "mark")),
    }
}

/// Returns a line about the part of the trace that is read, if it is not the whole trace.
pub fn part(source: &dyn Source) -> String {
    source
        .part()
        .map(|part| format!("# part of the trace: {}\n", crate::units::one_line(part)))
        .unwrap_or_default()
}

/// Returns a line about what the trace's clock does not tell, if there is such a thing.
pub fn clock(source: &dyn Source) -> &'static str {
    match source.meta().session.as_ref().map(|session| session.clock) {
        Some(ClockKind::Sparse) => {
            "# sparse clock: times between its readings are interpolated, and how long a call ran or waited is not exact\n\
             # sparse clock: calls that an exception or longjmp left stay open, with later calls beneath them, \
             until an outer call returns\n"
        }
        Some(ClockKind::Coarse) => {
            "# coarse clock: times are those of a 1 ms tick, and how long a call ran or waited is not exact\n"
        }
        _ => "",
    }
}

/// Counts the forked processes whose calls are recorded, but not their callers from before the
/// fork.
pub(crate) fn forked_processes(source: &dyn Source) -> usize {
    let meta = source.meta();
    let is_forked = |process: u32| {
        meta.processes.get(process as usize).is_some_and(|process| process.forked && !process.resumed)
    };
    let forked: HashSet<u32> =
        meta.threads.iter().map(|thread| thread.process).filter(|process| is_forked(*process)).collect();
    forked.len()
}

/// Returns a line about these processes, if there are any.
pub(crate) fn forked(source: &dyn Source) -> String {
    match forked_processes(source) {
        0 => String::new(),
        n => format!(
            "# callers from before the fork are not known in {}: first calls are drawn at depth 0\n",
            counted(n as u64, "forked process")
        ),
    }
}

/// Returns lines about records that the kernel lost, if there are any.
fn of_kernel(source: &dyn Source) -> String {
    let meta = source.meta();
    let line = |lost: u64, of: &str, therefore: &str| match lost {
        0 => String::new(),
        lost => format!("# LOST {} of {of}: {therefore}\n", counted(lost, "record")),
    };
    let switches = meta.scheduling.as_ref().map_or(0, |scheduling| scheduling.lost);
    let events = meta.kernel_events.as_ref().map_or(0, |events| events.lost);
    line(switches, "context switches", "whether threads ran or waited around them is unknown")
        + &line(events, "the kernel", "system calls and wakeups are missing")
}

/// Returns a line about parts of the file that could not be read, if there are any.
pub(crate) fn damage(totals: &Totals) -> String {
    match &totals.first_damage {
        Some(first) => {
            let parts = counted(totals.damaged, "part");
            format!("# {parts} of the file unreadable and left out: {}\n", crate::units::one_line(first))
        }
        None => String::new(),
    }
}
