//! Maps the times of all recordings to one timeline.

use super::{Recording, Refused};
use calltap_trace::{ClockKind, ClockMap, ClockPair, Session, ThreadId};

/// Maximum difference of the start of two recordings' clocks that adjustments of the time of day
/// explain.
const SAME_START_NS: u64 = 10_000_000_000;

/// Meaning of the ticks of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ticks {
    /// The processor's counter, with clock pairs that relate it to CLOCK_MONOTONIC.
    Compared,
    /// The processor's counter, without clock pairs.
    Bare,
    /// Nanoseconds of CLOCK_MONOTONIC.
    Monotonic,
}

/// The common timeline.
pub(super) struct Timeline {
    /// The clock of its ticks.
    pub(super) kind: ClockKind,
    pub(super) note: Option<String>,
    /// Clock pairs that relate its ticks to CLOCK_MONOTONIC.
    pub(super) pairs: Vec<ClockPair>,
    clock: ClockMap,
    /// For each recording, the map from its ticks to CLOCK_MONOTONIC, if the timeline has other
    /// ticks.
    maps: Vec<Option<ClockMap>>,
    /// For each recording, whether every event has an exact time of the processor's counter.
    is_exact: Vec<bool>,
}

impl Timeline {
    pub(super) fn of(recordings: &[Recording]) -> Result<Timeline, Refused> {
        let mut sessions = Vec::new();
        for recording in recordings {
            let session = recording.reader.meta().session.as_ref();
            sessions.push(session.ok_or_else(|| Refused::NoSession(recording.name.clone()))?);
        }
        let mut all = Vec::new();
        for (recording, session) in recordings.iter().zip(&sessions) {
            all.push(ticks(recording, session)?);
            same_machine(&recordings[0], sessions[0], recording, session)?;
        }
        let compared = all.iter().position(|ticks| *ticks == Ticks::Compared);
        let is_exact = sessions.iter().map(|session| session.clock == ClockKind::Tsc).collect::<Vec<bool>>();
        if all.iter().all(|ticks| *ticks != Ticks::Monotonic) {
            let place = compared.unwrap_or(0);
            let pairs = recordings[place].reader.meta().clock.clone();
            let kind = if is_exact.iter().all(|exact| *exact) { ClockKind::Tsc } else { ClockKind::Sparse };
            let clock = recordings[place].reader.clock().clone();
            let note = sessions[place].clock_note.clone().filter(|_| compared.is_none());
            let maps = vec![None; all.len()];
            return Ok(Timeline { kind, note, pairs, clock, maps, is_exact });
        }
        let mut maps = Vec::new();
        for ((place, recording), ticks) in recordings.iter().enumerate().zip(&all) {
            let by = match ticks {
                Ticks::Bare => compared.ok_or_else(|| Refused::Ticks(recording.name.clone()))?,
                Ticks::Compared | Ticks::Monotonic => place,
            };
            maps.push(Some(recordings[by].reader.clock().clone()));
        }
        let kind = ClockKind::Monotonic;
        let (clock, _) = ClockMap::new(kind, &[]);
        Ok(Timeline { kind, note: None, pairs: Vec::new(), clock, maps, is_exact })
    }

    /// Converts the time of a recording's event to ticks of the timeline.
    pub(super) fn ticks(&self, recording: usize, ticks: u64) -> u64 {
        self.maps[recording].as_ref().map_or(ticks, |map| map.to_ns(ticks))
    }

    /// Converts the time of a recording's event to nanoseconds of CLOCK_MONOTONIC.
    pub(super) fn ns(&self, recording: usize, ticks: u64) -> u64 {
        self.clock.to_ns(self.ticks(recording, ticks))
    }

    /// Whether the events of two recordings are in the order in which they happened: both read the
    /// same counter at each event.
    pub(super) fn are_in_order(&self, a: usize, b: usize) -> bool {
        self.maps[a].is_none() && self.maps[b].is_none() && self.is_exact[a] && self.is_exact[b]
    }

    /// Returns the beginning of the first recording.
    pub(super) fn start(&self, recordings: &[Recording]) -> u64 {
        self.spans(recordings).map(|(first, _)| first).min().unwrap_or(0)
    }

    /// Returns the time of the last event.
    pub(super) fn end(&self, recordings: &[Recording]) -> u64 {
        self.spans(recordings).map(|(_, last)| last).max().unwrap_or(0)
    }

    fn spans<'a>(&'a self, recordings: &'a [Recording]) -> impl Iterator<Item = (u64, u64)> + 'a {
        recordings.iter().enumerate().flat_map(move |(place, recording)| {
            let threads = (0..recording.reader.meta().threads.len() as u32).map(ThreadId);
            let spans = threads.filter_map(|thread| recording.reader.thread_span(thread));
            spans.map(move |(first, last)| (self.ns(place, first), self.ns(place, last)))
        })
    }
}

fn ticks(recording: &Recording, session: &Session) -> Result<Ticks, Refused> {
    let name = || recording.name.clone();
    Ok(match session.clock {
        // The clock note of an imported recording says why its clock pairs are not CLOCK_MONOTONIC.
        ClockKind::Tsc | ClockKind::Sparse
            if session.clock_note.is_none() && recording.reader.meta().clock.len() > 1 =>
        {
            Ticks::Compared
        }
        ClockKind::Tsc | ClockKind::Sparse => Ticks::Bare,
        ClockKind::Coarse | ClockKind::Monotonic => Ticks::Monotonic,
        ClockKind::Counter => return Err(Refused::Counter(name())),
        ClockKind::Kernel => {
            let clock = session.clock_note.clone().unwrap_or_else(|| "a clock of the kernel's".to_owned());
            return Err(Refused::Clock { name: name(), clock });
        }
    })
}

fn same_machine(
    first: &Recording,
    first_session: &Session,
    other: &Recording,
    session: &Session,
) -> Result<(), Refused> {
    let hosts = [&first_session.host, &session.host];
    if hosts[0] != hosts[1] && hosts.iter().all(|host| !host.is_empty()) {
        return Err(Refused::Machines {
            name: other.name.clone(),
            host: session.host.clone(),
            first: first.name.clone(),
            first_host: first_session.host.clone(),
        });
    }
    // An unknown time of day proves no difference.
    let start = |session: &Session| {
        let since = session.start_realtime_ns.checked_sub(session.start_monotonic_ns);
        since.filter(|_| session.start_realtime_ns != 0 && session.clock_note.is_none())
    };
    match (start(first_session), start(session)) {
        (Some(a), Some(b)) if a.abs_diff(b) > SAME_START_NS => {
            Err(Refused::Starts { name: other.name.clone(), first: first.name.clone() })
        }
        _ => Ok(()),
    }
}
