//! Imports a file as a trace.

use crate::bytes::Bytes;
use crate::decode::{Decoder, Event};
use crate::error::Error;
use crate::head::{Buffer, Head};
use crate::merge::Merged;
use crate::stream::Stream;
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::writer::{FileFacts, Writer};
use calltap_names::printable;
use calltap_trace::{ClockKind, ClockMap, ClockPair, Session, TracerInfo, TracerKind};
use std::collections::HashMap;
use std::path::Path;

/// Maximum number of kinds of events named in an error.
const NAMED: usize = 4;

/// Names of the file and the version of calltap in the trace.
#[derive(Clone, Copy, Debug)]
pub struct Named<'n> {
    /// The imported file.
    pub file: &'n str,
    /// The version of calltap.
    pub calltap: &'n str,
}

/// Writes the trace of a `trace.dat` to `output`, which is created or truncated once the file is
/// known to hold events.
pub fn import(file: &dyn Bytes, named: Named<'_>, output: &Path) -> Result<Summary, Error> {
    let head = Head::read(file)?;
    let mut from = format!("imported from {}", named.file);
    if !head.options.writer.is_empty() {
        from += &format!(", written by {}", printable(&head.options.writer));
    }
    import_head(file, &head, named, from, output)
}

/// Writes the trace of pages with a known head; the note `from` in the trace says where it comes
/// from.
pub(crate) fn import_head(
    file: &dyn Bytes,
    head: &Head,
    named: Named<'_>,
    from: String,
    output: &Path,
) -> Result<Summary, Error> {
    let mut buffers = head.buffers.iter();
    // The buffer of the top directory comes first if it has events.
    let buffer = buffers.next().ok_or(Error::Empty)?;
    let is_own = head.options.writer.starts_with("calltap ");
    let survey = Survey::of(file, head, buffer, is_own)?;
    let clock = Clock::of(head, buffer, &survey);
    let names = names(&head.cmdlines, survey.names);
    let session = session(head, named, &clock, &survey.tracers, survey.first);
    let known = FileFacts {
        is_own,
        first: survey.first,
        last: survey.last,
        gaps: survey.gaps,
        names,
        symbols: Symbols::parse(&head.kallsyms, is_own),
        clock: ClockMap::new(clock.kind, &clock.pairs).0,
    };
    let mut writer = Writer::new(output, session, &clock.pairs, known)?;
    let mut decoder = Decoder::new(&head.formats);
    let mut merged = Merged::new(streams(file, head, buffer)?, &mut decoder)?;
    while let Some(item) = merged.take(&mut decoder)? {
        writer.take(item)?;
    }
    let [shown, not_shown] = decoder.counts();
    let other_buffers = buffers.map(|buffer| printable(&buffer.name).into_owned()).collect();
    writer.finish(from, Summary { shown, not_shown, other_buffers, ..Summary::default() })
}

fn streams<'f>(file: &'f dyn Bytes, head: &Head, buffer: &Buffer) -> Result<Vec<Stream<'f>>, Error> {
    buffer.places.iter().map(|place| Stream::new(file, head.layout, buffer, place)).collect()
}

/// Facts collected in a first pass over the whole file.
#[derive(Default)]
struct Survey {
    first: u64,
    last: u64,
    /// Intervals in which events are missing, in order, without overlaps.
    gaps: Vec<(u64, u64)>,
    /// Newest names of tasks.
    names: HashMap<u32, String>,
    tracers: Vec<TracerKind>,
}

impl Survey {
    fn of(file: &dyn Bytes, head: &Head, buffer: &Buffer, is_own: bool) -> Result<Survey, Error> {
        let mut decoder = Decoder::new(&head.formats);
        let mut survey = Survey { first: u64::MAX, ..Survey::default() };
        let (mut has_calls, mut has_graph) = (false, false);
        for mut stream in streams(file, head, buffer)? {
            let mut before = 0;
            while let Some(time) = stream.time(&mut decoder)? {
                let Some(item) = stream.take() else { break };
                match item.event {
                    // In files written by calltap, a loss belongs to one thread.
                    Event::Missed(_) if !is_own => survey.gaps.push((before, time)),
                    Event::Call { .. } => has_calls = true,
                    Event::Entry { .. } | Event::Exit { .. } => has_graph = true,
                    Event::Switch { prev, next, .. } => {
                        survey.names.extend([prev, next].map(|task| (task.tid, task.comm)));
                    }
                    Event::Waking { woken, .. } => {
                        survey.names.insert(woken.tid, woken.comm);
                    }
                    _ => {}
                }
                before = time;
                (survey.first, survey.last) = (survey.first.min(time), survey.last.max(time));
            }
        }
        if survey.first > survey.last {
            let [_, others] = decoder.counts();
            let others: Vec<String> =
                others.into_iter().take(NAMED).map(|(name, count)| format!("{name} {count}")).collect();
            return Err(if others.is_empty() { Error::Empty } else { Error::OtherKinds(others.join(", ")) });
        }
        survey.gaps = joined(survey.gaps);
        let tracers = [(has_calls, TracerKind::Function), (has_graph, TracerKind::FunctionGraph)];
        survey.tracers = tracers.into_iter().filter_map(|(has, kind)| has.then_some(kind)).collect();
        Ok(survey)
    }
}

/// Sorts gaps, and merges overlapping ones.
fn joined(mut gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    gaps.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in gaps {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Returns the names of threads: those at the end of the recording, and for other threads those in
/// events.
fn names(cmdlines: &[u8], in_events: HashMap<u32, String>) -> HashMap<u32, String> {
    let mut names = in_events;
    for line in String::from_utf8_lossy(cmdlines).lines() {
        if let Some((tid, name)) = line.trim_start().split_once(' ')
            && let (Ok(tid), false) = (tid.parse(), name == "<...>")
        {
            names.insert(tid, printable(name).into_owned());
        }
    }
    names
}

/// The clock of the file's times.
struct Clock {
    kind: ClockKind,
    note: Option<String>,
    pairs: Vec<ClockPair>,
}

impl Clock {
    fn of(head: &Head, buffer: &Buffer, survey: &Survey) -> Clock {
        let of = |kind, note: String| Clock { kind, note: Some(note), pairs: Vec::new() };
        match buffer.clock.as_str() {
            "mono" => Clock { kind: ClockKind::Monotonic, note: None, pairs: Vec::new() },
            name @ ("counter" | "uptime") => {
                of(ClockKind::Counter, format!("the kernel's clock '{name}' has no times of events"))
            }
            "x86-tsc" | "tsc2nsec" => match head.options.tsc_to_ns {
                Some((mult, shift)) => {
                    let to_ns = |ticks| {
                        let ns = (u128::from(ticks) * u128::from(mult)) >> shift;
                        ClockPair { ticks, monotonic_ns: u64::try_from(ns).unwrap_or(u64::MAX) }
                    };
                    // The clock map interpolates between two pairs, so that two points define the
                    // scale.
                    let pairs = vec![
                        to_ns(survey.first),
                        to_ns(survey.last.max(survey.first.saturating_add(1 << 32))),
                    ];
                    let note = "nanoseconds by the kernel's own scale, not by CLOCK_MONOTONIC".to_owned();
                    Clock { kind: ClockKind::Tsc, note: Some(note), pairs }
                }
                None => {
                    of(ClockKind::Tsc, "the file does not say how long a tick is: times are in ticks".into())
                }
            },
            "" => of(ClockKind::Kernel, "the file does not name its clock".into()),
            name => of(ClockKind::Kernel, format!("the kernel's clock '{}'", printable(name))),
        }
    }
}

fn session(head: &Head, named: Named<'_>, clock: &Clock, tracers: &[TracerKind], first: u64) -> Session {
    let tracer = |(id, kind): (u32, &TracerKind)| TracerInfo {
        id,
        name: match kind {
            TracerKind::Function => "function".to_owned(),
            _ => "function_graph".to_owned(),
        },
        kind: *kind,
        filter: Vec::new(),
        notrace: Vec::new(),
    };
    let start = ClockMap::new(clock.kind, &clock.pairs).0.to_ns(first);
    // The text of `uname -a`: Linux, the host's name, the kernel.
    let system = printable(&head.options.system);
    let mut words = system.split_whitespace().skip(1);
    let host = words.next().unwrap_or_default().to_owned();
    let date = head.options.date_us.map(|us| us.wrapping_mul(1000).cast_unsigned());
    Session {
        calltap: named.calltap.to_owned(),
        command: vec![printable(named.file).into_owned()],
        host,
        kernel: words.collect::<Vec<_>>().join(" "),
        start_realtime_ns: date.map_or(0, |date| start.wrapping_add(date)),
        start_monotonic_ns: start,
        clock_note: clock.note.clone(),
        tracers: (0..).zip(tracers).map(tracer).collect(),
        ..Session::of(clock.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn gaps_that_overlap_are_one() {
        assert_eq!(joined(vec![(7, 9), (0, 5), (3, 6), (9, 10)]), [(0, 6), (7, 10)]);
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn names_of_the_end_come_before_those_in_events() {
        let events = HashMap::from([(1, "sh".to_owned()), (2, "b".to_owned())]);
        let names = names(b"1 ls\n 3 a b\n2 <...>\nbroken\n", events);
        let sorted: BTreeMap<u32, String> = names.into_iter().collect();
        let expected = [(1, "ls".to_owned()), (2, "b".to_owned()), (3, "a b".to_owned())];
        assert_eq!(sorted, BTreeMap::from(expected));
    }
}
