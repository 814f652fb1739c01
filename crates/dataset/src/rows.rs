//! Turns calls into rows, and sends rows to their files.

use crate::day;
use crate::file::{DatasetFile, Failed};
use crate::place::{Destination, Part};
use crate::row::{Common, Row};
use crate::texts::Texts;
use calltap_analysis::incidents_of_calls::{IncidentsOfCalls, counts};
use calltap_analysis::{Call, Ending, Enter, Source, Visitor, values_as_json};
use calltap_trace::{SiteId, ThreadId};
use std::io;
use std::sync::Arc;

/// Number of files open at a time, those of the newest days of a process: a call may end on another
/// day than it began.
const OPEN: usize = 3;

/// Receives the calls of a trace, thread after thread.
pub(crate) struct RowWriter<'a> {
    source: &'a dyn Source,
    place: &'a Destination,
    texts: Arc<Texts>,
    /// Offset from CLOCK_MONOTONIC to nanoseconds since 1970.
    shift: i64,
    /// The day on which the recording began.
    first_day: i64,
    /// The process whose files are open.
    process: &'a str,
    /// The thread of the newest row.
    thread: Option<ThreadId>,
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

impl<'a> RowWriter<'a> {
    /// Makes an empty writer of rows.
    pub(crate) fn new(source: &'a dyn Source, place: &'a Destination, texts: Arc<Texts>) -> RowWriter<'a> {
        let session = source.meta().session.as_ref();
        let began = session.map_or(0, |session| session.start_realtime_ns as i64);
        let shift = session.map_or(0, |session| began.wrapping_sub(session.start_monotonic_ns as i64));
        RowWriter {
            source,
            place,
            texts,
            shift,
            first_day: began.div_euclid(day::NS),
            process: "",
            thread: None,
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
    pub(crate) fn finish(mut self) -> (Vec<Part>, Option<Failed>) {
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

    /// Makes the row of a call about which no more is known.
    #[inline(always)]
    fn row(&self, thread: ThreadId, ticks: u64) -> Row {
        let start = self.at(ticks);
        let common = Common {
            thread,
            ending: None,
            is_lost: false,
            calls: 1,
            has_start: start.is_some(),
            is_timed: false,
            off: None,
            incidents: [None; 4],
            has_arguments: false,
            has_results: false,
        };
        let start = start.unwrap_or_default();
        Row {
            common,
            site: None,
            caller: None,
            start,
            times: [0; 2],
            cpu: 0,
            depth: 0,
            arguments: None,
            results: None,
        }
    }

    #[inline(always)]
    fn add(&mut self, mut row: Row) {
        row.common.has_arguments = row.arguments.is_some();
        row.common.has_results = row.results.is_some();
        if self.failed.is_none() {
            self.failed = self.try_add(&mut row).err();
        }
    }

    fn try_add(&mut self, row: &mut Row) -> Result<(), Failed> {
        if self.thread != Some(row.common.thread) {
            self.begin_thread(row.common.thread);
        }
        let day = if row.common.has_start { row.start.div_euclid(day::NS) } else { self.first_day };
        // Nearly always the file is the last one.
        match self.open.iter().rposition(|(own, _)| *own == day) {
            Some(at) if at + 1 == self.open.len() => {}
            Some(at) => self.open[at..].rotate_left(1),
            None => {
                if self.open.len() == OPEN {
                    let (_, oldest) = self.open.remove(0);
                    self.written.push(oldest.finish()?);
                }
                let part = self.place.part(self.process, day, self.number);
                self.number += 1;
                self.open.push((day, DatasetFile::create(part, self.texts.clone())?));
            }
        }
        let Some((_, file)) = self.open.last_mut() else { return Ok(()) };
        file.push(row)?;
        if file.is_full()
            && let Some((_, full)) = self.open.pop()
        {
            self.written.push(full.finish()?);
        }
        Ok(())
    }

    /// Closes the files of another process.
    fn begin_thread(&mut self, thread: ThreadId) {
        let meta = self.source.meta();
        let process = meta.threads.get(thread.0 as usize).map(|thread| thread.process as usize);
        let described = process.and_then(|process| meta.processes.get(process));
        let process = described.map_or("", |process| process.comm.as_str());
        if process != self.process {
            self.close_all();
            self.process = process;
        }
        self.thread = Some(thread);
    }

    fn close_all(&mut self) {
        for (_, file) in std::mem::take(&mut self.open) {
            match file.finish() {
                Ok(part) => self.written.push(part),
                Err(error) => drop(self.failed.get_or_insert(error)),
            }
        }
    }
}

impl Visitor for RowWriter<'_> {
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
        let off = [call.off.runnable, call.off.blocked, call.off.tracing];
        let mut row = self.row(thread, call.start);
        row.common.ending = Some(call.ending);
        row.common.is_timed = is_timed;
        row.common.off = cpu.map(|_| off.map(|ticks| self.duration(ticks)));
        row.common.incidents = incidents;
        let arguments = arguments.map(|(_, values)| values);
        self.add(Row {
            site: Some(call.site),
            caller: call.caller,
            times,
            cpu: cpu.map_or(0, |cpu| if cpu == call.total { total } else { self.duration(cpu) }),
            depth: call.depth,
            arguments,
            results,
            ..row
        });
    }

    fn mark(&mut self, thread: ThreadId, enter: &Enter) {
        let (site, depth, arguments) = (Some(enter.site), enter.depth, self.next.take());
        self.add(Row { site, depth, arguments, ..self.row(thread, enter.ticks) });
    }

    fn lost(&mut self, thread: ThreadId, ticks: u64, entries: u32, _: u32) {
        if entries > 0 {
            let mut row = self.row(thread, ticks);
            (row.common.calls, row.common.is_lost) = (entries, true);
            self.add(row);
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        // `finish` returns the error itself.
        if self.failed.is_some() { Err(io::Error::other("a file could not be written")) } else { Ok(()) }
    }
}
