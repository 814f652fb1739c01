//! Hands events and records to a consumer, until it fails.

use crate::kept::keeping::Change;
use crate::python::Introductions;
use crate::shm::Shared;
use calltap_trace::{
    ClockPair, Error, GoroutineRun, Incident, Record, Switch, SystemCall, ThreadEncoder, ThreadId,
    TraceWriter, Waking,
};

/// Receiver of collected data, in order: a trace file, or a live view. It is called for thousands
/// of events at a time.
pub trait Consumer: Send {
    /// Takes a record, which explains later events.
    fn record(&mut self, record: &Record) -> Result<(), Error>;

    /// Takes the events of one thread, and leaves the encoder empty.
    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error>;

    /// Takes context switches of a thread, times in nanoseconds of CLOCK_MONOTONIC: it made no
    /// others before `until`. They may come later than the events of that time.
    fn switches(&mut self, _thread: ThreadId, _switches: &[Switch], _until: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Takes wakings of a thread with their wakers, times in nanoseconds of CLOCK_MONOTONIC: there
    /// were no others from `from` to `until`.
    fn wakings(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _wakings: &[Waking],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Takes incidents of a thread, with times and bounds like those of wakings.
    fn incidents(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _incidents: &[Incident],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the threads that have run a goroutine, oldest first and behind those taken before.
    fn goroutine_runs(
        &mut self,
        _goroutine: ThreadId,
        _goroutine_runs: &[GoroutineRun],
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Takes system calls of a thread, with times and bounds like those of wakings.
    fn system_calls(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _calls: &[SystemCall],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Changes which calls are kept from now on, in consumers that leave some out.
    fn change(&mut self, _change: &Change) -> Result<(), Error> {
        Ok(())
    }

    /// Notes that the recording ends: calls that are open now were open until `at`. The rest of the
    /// events is handed over after this.
    fn over(&mut self, _at: ClockPair) {}

    /// Notes that the thread has no more events.
    fn end(&mut self, _thread: ThreadId) -> Result<(), Error> {
        Ok(())
    }

    /// Notes that an interval ends at `at`. Its events are handed over between this and the flush
    /// that has the same `at`, and some later ones as well.
    fn interval_ends(&mut self, _at: ClockPair) {}

    /// Notes that all events from before `at` were handed over. `at` is in ticks of the trace's
    /// clock, or in nanoseconds of CLOCK_MONOTONIC if that is not the time stamp counter.
    fn flush(&mut self, at: ClockPair) -> Result<(), Error>;
}

impl Consumer for TraceWriter {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        TraceWriter::record(self, record)
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        TraceWriter::events(self, encoder)
    }

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        TraceWriter::switches(self, thread, switches, until)
    }

    fn wakings(&mut self, thread: ThreadId, from: u64, wakings: &[Waking], until: u64) -> Result<(), Error> {
        TraceWriter::wakings(self, thread, from, wakings, until)
    }

    fn system_calls(
        &mut self,
        thread: ThreadId,
        from: u64,
        calls: &[SystemCall],
        until: u64,
    ) -> Result<(), Error> {
        TraceWriter::system_calls(self, thread, from, calls, until)
    }

    fn incidents(&mut self, thread: ThreadId, from: u64, all: &[Incident], until: u64) -> Result<(), Error> {
        TraceWriter::incidents(self, thread, from, all, until)
    }

    fn goroutine_runs(&mut self, goroutine: ThreadId, goroutine_runs: &[GoroutineRun]) -> Result<(), Error> {
        TraceWriter::goroutine_runs(self, goroutine, goroutine_runs)
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        TraceWriter::end(self, thread)
    }

    fn flush(&mut self, _: ClockPair) -> Result<(), Error> {
        TraceWriter::flush(self)
    }
}

impl<C: Consumer + ?Sized> Consumer for &mut C {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        (**self).record(record)
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        (**self).events(encoder)
    }

    fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) -> Result<(), Error> {
        (**self).switches(thread, switches, until)
    }

    fn wakings(&mut self, thread: ThreadId, from: u64, wakings: &[Waking], until: u64) -> Result<(), Error> {
        (**self).wakings(thread, from, wakings, until)
    }

    fn system_calls(
        &mut self,
        thread: ThreadId,
        from: u64,
        calls: &[SystemCall],
        until: u64,
    ) -> Result<(), Error> {
        (**self).system_calls(thread, from, calls, until)
    }

    fn incidents(&mut self, thread: ThreadId, from: u64, all: &[Incident], until: u64) -> Result<(), Error> {
        (**self).incidents(thread, from, all, until)
    }

    fn goroutine_runs(&mut self, goroutine: ThreadId, goroutine_runs: &[GoroutineRun]) -> Result<(), Error> {
        (**self).goroutine_runs(goroutine, goroutine_runs)
    }

    fn change(&mut self, change: &Change) -> Result<(), Error> {
        (**self).change(change)
    }

    fn over(&mut self, at: ClockPair) {
        (**self).over(at);
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        (**self).end(thread)
    }

    fn interval_ends(&mut self, at: ClockPair) {
        (**self).interval_ends(at);
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        (**self).flush(at)
    }
}

/// Hands data to a consumer until it fails, and keeps the error: the program runs on in any case.
pub struct Output<'a> {
    consumer: &'a mut dyn Consumer,
    /// The first error.
    pub failed: Option<Error>,
    /// Python functions that events may be of.
    introductions: Option<Introductions<'a>>,
}

impl<'a> Output<'a> {
    /// Creates an output to a consumer that has not failed.
    pub fn new(consumer: &'a mut dyn Consumer) -> Output<'a> {
        Output { consumer, failed: None, introductions: None }
    }

    /// Describes Python functions before their events.
    pub(crate) fn introducing(self, shared: &'a Shared) -> Output<'a> {
        Output { introductions: Some(Introductions::new(shared)), ..self }
    }

    /// Adds a record.
    pub fn record(&mut self, record: &Record) {
        self.attempt(|consumer| consumer.record(record));
    }

    /// Empties the encoder, whether the consumer takes its events or not.
    pub fn events(&mut self, encoder: &mut ThreadEncoder) {
        if let Some(record) = self.introductions.as_mut().and_then(Introductions::describe_new) {
            self.record(&record);
        }
        self.attempt(|consumer| consumer.events(encoder));
        if self.failed.is_some() {
            *encoder = ThreadEncoder::new(encoder.thread());
        }
    }

    /// Hands over context switches of a thread.
    pub fn switches(&mut self, thread: ThreadId, switches: &[Switch], until: u64) {
        self.attempt(|consumer| consumer.switches(thread, switches, until));
    }

    /// Hands over wakings of a thread.
    pub fn wakings(&mut self, thread: ThreadId, from: u64, wakings: &[Waking], until: u64) {
        self.attempt(|consumer| consumer.wakings(thread, from, wakings, until));
    }

    /// Hands over system calls of a thread.
    pub fn system_calls(&mut self, thread: ThreadId, from: u64, calls: &[SystemCall], until: u64) {
        self.attempt(|consumer| consumer.system_calls(thread, from, calls, until));
    }

    /// Hands over incidents of a thread.
    pub fn incidents(&mut self, thread: ThreadId, from: u64, incidents: &[Incident], until: u64) {
        self.attempt(|consumer| consumer.incidents(thread, from, incidents, until));
    }

    /// Hands over the threads that have run a goroutine.
    pub fn goroutine_runs(&mut self, goroutine: ThreadId, goroutine_runs: &[GoroutineRun]) {
        self.attempt(|consumer| consumer.goroutine_runs(goroutine, goroutine_runs));
    }

    /// Changes which calls are kept from now on.
    pub fn change(&mut self, change: &Change) {
        self.attempt(|consumer| consumer.change(change));
    }

    /// Notes that a thread has no more events.
    pub fn end(&mut self, thread: ThreadId) {
        self.attempt(|consumer| consumer.end(thread));
    }

    /// Notes that the recording ends.
    pub fn over(&mut self, at: ClockPair) {
        self.consumer.over(at);
    }

    /// Notes that an interval ends; its events follow.
    pub fn interval_ends(&mut self, at: ClockPair) {
        self.consumer.interval_ends(at);
    }

    /// Notes that all events from before `at` were handed over.
    pub fn flush(&mut self, at: ClockPair) {
        self.attempt(|consumer| consumer.flush(at));
    }

    fn attempt(&mut self, act: impl FnOnce(&mut dyn Consumer) -> Result<(), Error>) {
        if self.failed.is_none() {
            self.failed = act(self.consumer).err();
        }
    }
}
