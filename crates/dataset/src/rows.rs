//! Turns calls into rows, and sends rows to their files.

use crate::day;
use crate::file::{DatasetFile, Failed};
use crate::place::{Destination, Part};
use crate::row::Row;
use crate::texts::Texts;
use calltap_analysis::incidents_of_calls::{IncidentsOfCalls, counts};
use calltap_analysis::{Call, Ending, Enter, Source, Visitor, values_as_json};
use calltap_trace::{SiteId, ThreadId};
use std::io;

/// Number of files open at a time, those of the newest days of a process: a call may end on another
/// day than it began.
const OPEN: usize = 3;

/// Receives the calls of a trace, thread after thread.
pub struct Rows<'a> {
    source: &'a dyn Source,
    place: &'a Destination,
    texts: &'a Texts,
    /// Offset from CLOCK_MONOTONIC to nanoseconds since 1970.
    shift: i64,
    /// The day on which the recording began.
    first_day: i64,
    /// The process whose files are open.
    process: &'a str,
    open: Vec<(i64, DatasetFile)>,
    written: Vec<Part>,
    number: u32,
    failed: Option<Failed>,
    /// Values captured with the next event, as JSON.
    next: Option<Box<str>>,
    /// Arguments of open calls, with their depths.
    arguments: Vec<(u32, Box<str>)>,
    incidents: Option<IncidentsOfCalls<'a>>,
}

impl<'a> Rows<'a> {
    /// Makes an empty writer of rows.
    pub fn new(source: &'a dyn Source, place: &'a Destination, texts: &'a Texts) -> Rows<'a> {
        let session = source.meta().session.as_ref();
        let began = session.map_or(0, |session| session.start_realtime_ns as i64);
        let shift = session.map_or(0, |session| began.wrapping_sub(session.start_monotonic_ns as i64));
        Rows {
            source,
            place,
            texts,
            shift,
            first_day: began.div_euclid(day::NS),
            process: "",
            open: Vec::new(),
            written: Vec::new(),
            number: 0,
            failed: None,
            next: None,
            arguments: Vec::new(),
            incidents: IncidentsOfCalls::new(source),
        }
    }

    /// Closes all files; returns them, and the first error.
    pub fn finish(mut self) -> (Vec<Part>, Option<Failed>) {
        self.close_all();
        (self.written, self.failed)
    }

    fn at(&self, ticks: u64) -> Option<i64> {
        self.source.has_time().then(|| (self.source.to_ns(ticks) as i64).wrapping_add(self.shift))
    }

    /// Converts a duration to nanoseconds, with a shortcut for 0: most calls are never off the
    /// processor.
    fn duration(&self, ticks: u64) -> u64 {
        if ticks == 0 { 0 } else { self.source.duration_ns(ticks) }
    }

    fn row(&self, thread: ThreadId, ticks: u64) -> Row {
        Row {
            thread,
            site: None,
            caller: None,
            start: self.at(ticks),
            times: None,
            states: None,
            incidents: [None; 4],
            depth: 0,
            ending: None,
            calls: 1,
            arguments: None,
            results: None,
        }
    }

    fn add(&mut self, row: Row) {
        if self.failed.is_none() {
            self.failed = self.try_add(row).err();
        }
    }

    fn try_add(&mut self, row: Row) -> Result<(), Failed> {
        let meta = self.source.meta();
        let process = meta.threads.get(row.thread.0 as usize).map(|thread| thread.process as usize);
        let described = process.and_then(|process| meta.processes.get(process));
        let process = described.map_or("", |process| process.comm.as_str());
        if process != self.process {
            self.close_all();
            self.process = process;
        }
        let day = row.start.map_or(self.first_day, |start| start.div_euclid(day::NS));
        // Nearly always the file is the last one.
        match self.open.iter().rposition(|(own, _)| *own == day) {
            Some(at) if at + 1 == self.open.len() => {}
            Some(at) => self.open[at..].rotate_left(1),
            None => {
                if self.open.len() == OPEN {
                    let (_, oldest) = self.open.remove(0);
                    self.written.push(oldest.finish(self.texts)?);
                }
                let part = self.place.part(process, day, self.number);
                self.number += 1;
                self.open.push((day, DatasetFile::create(part)?));
            }
        }
        let Some((_, file)) = self.open.last_mut() else { return Ok(()) };
        file.push(row, self.texts)?;
        if file.is_full()
            && let Some((_, full)) = self.open.pop()
        {
            self.written.push(full.finish(self.texts)?);
        }
        Ok(())
    }

    fn close_all(&mut self) {
        for (_, file) in std::mem::take(&mut self.open) {
            match file.finish(self.texts) {
                Ok(part) => self.written.push(part),
                Err(error) => drop(self.failed.get_or_insert(error)),
            }
        }
    }
}

impl Visitor for Rows<'_> {
    fn values(&mut self, _: ThreadId, site: SiteId, returns: bool, bytes: &[u8]) {
        self.next = values_as_json(self.source, site, returns, bytes).map(String::into_boxed_str);
    }

    fn enter(&mut self, thread: ThreadId, enter: &Enter) {
        if let Some(incidents) = &mut self.incidents {
            incidents.enter(thread, enter.ticks, enter.depth);
        }
        self.arguments.extend(self.next.take().map(|values| (enter.depth, values)));
    }

    fn close(&mut self, thread: ThreadId, call: &Call) {
        let arguments = self.arguments.pop_if(|(depth, _)| *depth >= call.depth);
        let incidents = self.incidents.as_mut();
        let incidents = counts(incidents.and_then(|of| of.close(thread, call.end, call.depth)));
        if !call.ending.is_of_call() {
            return;
        }
        let results = self.next.take().filter(|_| call.ending == Ending::Returned);
        let total = self.duration(call.total);
        // Most calls make no calls, so that both times are equal.
        let times =
            [total, if call.self_ticks == call.total { total } else { self.duration(call.self_ticks) }];
        let is_timed = self.source.has_time() && !call.ending.is_cut();
        let cpu = call.off.cpu(call.total).filter(|_| is_timed && self.source.has_switches());
        let states = cpu.map(|cpu| [cpu, call.off.runnable, call.off.blocked, call.off.tracing]);
        self.add(Row {
            site: Some(call.site),
            caller: call.caller,
            states: states.map(|states| states.map(|ticks| self.duration(ticks))),
            times: Some(times).filter(|_| is_timed),
            incidents,
            depth: call.depth,
            ending: Some(call.ending),
            arguments: arguments.map(|(_, values)| values),
            results,
            ..self.row(thread, call.start)
        });
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let (site, depth, arguments) = (Some(enter.site), enter.depth, self.next.take());
        self.add(Row { site, depth, arguments, ..self.row(thread, enter.ticks) });
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, entries: u32, _: u32) {
        if entries > 0 {
            self.add(Row { calls: entries, ..self.row(thread, ticks) });
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        // `finish` returns the error itself.
        if self.failed.is_some() { Err(io::Error::other("a file could not be written")) } else { Ok(()) }
    }
}
