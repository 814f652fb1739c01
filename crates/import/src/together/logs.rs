//! Writes the kernel's records of threads other than calls, in the times of the output file.

use super::clocks::Timeline;
use super::tables::{OutputThread, Part, Tables};
use super::{Recording, Refused};
use calltap_trace::{
    Incident, KernelLog, RunState, Switch, SystemCall, ThreadId, TraceReader, TraceWriter, Waking,
};

/// Writes the records of all threads. The records of calltap's own recording of a thread take
/// precedence over those of another.
pub(super) fn write(
    recordings: &[Recording],
    timeline: &Timeline,
    tables: &Tables,
    trace: &mut TraceWriter,
) -> Result<(), Refused> {
    for row in &tables.threads {
        let parts = Parts { recordings, timeline, tables, row };
        parts.switches(trace)?;
        parts.wakings(trace)?;
        parts.system_calls(trace)?;
        parts.incidents(trace)?;
        trace.end(row.thread.id)?;
    }
    Ok(())
}

/// An interval with complete records, and its entries; nanoseconds.
type Piece<T> = (u64, Vec<T>, u64);

/// A thread, and its parts in recordings.
struct Parts<'r> {
    recordings: &'r [Recording],
    timeline: &'r Timeline,
    tables: &'r Tables,
    row: &'r OutputThread,
}

impl Parts<'_> {
    fn thread(&self) -> ThreadId {
        self.row.thread.id
    }

    fn all(&self) -> impl Iterator<Item = Part> + '_ {
        [self.row.own].into_iter().chain(self.row.beside)
    }

    /// Converts a time of a part to ticks of the output file, and to nanoseconds.
    fn time(&self, part: Part, at: u64) -> (u64, u64) {
        (self.timeline.ticks(part.recording, at), self.timeline.ns(part.recording, at))
    }

    fn switches(&self, trace: &mut TraceWriter) -> Result<(), Refused> {
        for part in self.all() {
            let all = self.recordings[part.recording].reader.switches(part.thread)?;
            let mut own: Vec<Switch> = Vec::new();
            let mut before = None;
            for switch in all {
                let (time, at) = self.time(part, switch.at);
                if time >= part.until {
                    own.push(Switch { at, to: RunState::Unknown });
                    break;
                }
                if time >= part.from {
                    own.push(Switch { at, ..switch });
                } else {
                    before = Some(switch.to);
                }
            }
            // The state at the beginning of the part.
            if let (Some(to), true) = (before, part.from > 0) {
                let at = own.first().map_or(0, |first| first.at);
                own.insert(0, Switch { at, to });
            }
            let until = own.last().map_or(0, |last| last.at);
            if own.len() > 1 {
                trace.switches(self.thread(), &own, until)?;
                break;
            }
        }
        Ok(())
    }

    fn wakings(&self, trace: &mut TraceWriter) -> Result<(), Refused> {
        let convert = |waking: &Waking, at: u64| {
            let process = self.tables.process_of(waking.tid).filter(|_| waking.pid == 0 && waking.tid != 0);
            let (pid, comm) =
                process.map_or((waking.pid, &waking.comm), |process| (process.pid, &process.comm));
            Waking { at, pid, comm: comm.clone(), ..*waking }
        };
        let pieces = self.first_pieces(TraceReader::wakings, |waking| waking.at, convert)?;
        for (from, entries, until) in &pieces {
            trace.wakings(self.thread(), *from, entries, *until)?;
        }
        Ok(())
    }

    fn system_calls(&self, trace: &mut TraceWriter) -> Result<(), Refused> {
        let convert = |call: &SystemCall, at: u64| SystemCall { at, ..*call };
        let pieces = self.first_pieces(TraceReader::system_calls, |call| call.at, convert)?;
        for (from, entries, until) in &pieces {
            trace.system_calls(self.thread(), *from, entries, *until)?;
        }
        Ok(())
    }

    fn incidents(&self, trace: &mut TraceWriter) -> Result<(), Refused> {
        let convert = |incident: &Incident, at: u64| Incident { at, ..*incident };
        let pieces = self.first_pieces(TraceReader::incidents, |incident| incident.at, convert)?;
        for (from, entries, until) in &pieces {
            trace.incidents(self.thread(), *from, entries, *until)?;
        }
        Ok(())
    }

    /// Returns the pieces of the first part that has any.
    fn first_pieces<T>(
        &self,
        read: impl Fn(&TraceReader, ThreadId) -> Result<KernelLog<T>, calltap_trace::Error>,
        at: impl Fn(&T) -> u64,
        convert: impl Fn(&T, u64) -> T,
    ) -> Result<Vec<Piece<T>>, Refused> {
        for part in self.all() {
            let log = read(&self.recordings[part.recording].reader, part.thread)?;
            let pieces = self.pieces(part, &log, &at, &convert);
            if !pieces.is_empty() {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    /// Returns all pieces of a part. `convert` sets the time of an entry, nanoseconds.
    fn pieces<T>(
        &self,
        part: Part,
        log: &KernelLog<T>,
        at: impl Fn(&T) -> u64,
        convert: impl Fn(&T, u64) -> T,
    ) -> Vec<Piece<T>> {
        let mut pieces = Vec::new();
        for (from, until) in &log.known {
            let first = log.entries.partition_point(|entry| at(entry) < *from);
            let end = log.entries.partition_point(|entry| at(entry) <= *until);
            let own = |entry: &T| {
                let (time, ns) = self.time(part, at(entry));
                (part.from..part.until).contains(&time).then(|| convert(entry, ns))
            };
            let entries: Vec<T> = log.entries[first..end.max(first)].iter().filter_map(own).collect();
            let [begin, end] = [*from, *until].map(|edge| self.time(part, edge));
            let span = if begin.0 >= part.from && end.0 < part.until {
                Some((begin.1, end.1))
            } else {
                // If the part cuts the interval, only the time between its own entries is complete.
                entries.first().map(&at).zip(entries.last().map(&at))
            };
            pieces.extend(span.map(|(from, until)| (from, entries, until)));
        }
        pieces
    }
}
