//! Where events go: to a consumer, until it can take no more.

use crate::kept::keeping::Change;
use crate::python::Introductions;
use crate::shm::Shared;
use calltap_trace::{
    ClockPair, Error, Incident, Record, Switch, SystemCall, ThreadEncoder, ThreadId, TraceWriter, Waking,
};

/// Takes what is collected, in order: a trace file, or a live view. Called for thousands of events at a time.
pub trait Consumer: Send {
    /// Takes a record; it explains events that come later.
    fn record(&mut self, record: &Record) -> Result<(), Error>;

    /// Takes the events of one thread, and leaves the encoder empty.
    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error>;

    /// Takes context switches of a thread, times in nanoseconds of CLOCK_MONOTONIC: it made no others before `until`. They may come later than
    /// the events of that time.
    fn switches(&mut self, _thread: ThreadId, _switches: &[Switch], _until: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Takes who woke a thread, times as above: nothing else did from `from` to `until`.
    fn wakings(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _wakings: &[Waking],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Takes what happened to a thread, likewise.
    fn incidents(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _incidents: &[Incident],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Takes system calls of a thread, likewise.
    fn system_calls(
        &mut self,
        _thread: ThreadId,
        _from: u64,
        _calls: &[SystemCall],
        _until: u64,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Other calls are kept from now on, by consumers that leave some out.
    fn change(&mut self, _change: &Change) -> Result<(), Error> {
        Ok(())
    }

    /// It is over: calls that are open now were open until `at`. What there was is handed over after this.
    fn over(&mut self, _at: ClockPair) {}

    /// The thread has no more events.
    fn end(&mut self, _thread: ThreadId) -> Result<(), Error> {
        Ok(())
    }

    /// An interval ends at `at`. What has happened until then is handed over between this and the flush that has the same `at`; some of what happens
    /// meanwhile is handed over as well.
    fn interval_ends(&mut self, _at: ClockPair) {}

    /// Everything was handed over that has happened until `at`: in ticks of the trace's clock (where that is not the time stamp counter: nanoseconds of
    /// CLOCK_MONOTONIC).
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

/// Hands over until something fails, and remembers what: the program runs on in any case.
pub struct Output<'a> {
    consumer: &'a mut dyn Consumer,
    /// What failed first.
    pub failed: Option<Error>,
    /// Python functions that events may be of.
    introductions: Option<Introductions<'a>>,
}

impl<'a> Output<'a> {
    /// To a consumer that has not failed yet.
    pub fn new(consumer: &'a mut dyn Consumer) -> Output<'a> {
        Output { consumer, failed: None, introductions: None }
    }

    /// The same; Python functions are described before their events.
    pub fn introducing(self, shared: &'a Shared) -> Output<'a> {
        Output { introductions: Some(Introductions::new(shared)), ..self }
    }

    /// Adds a record.
    pub fn record(&mut self, record: &Record) {
        self.attempt(|consumer| consumer.record(record));
    }

    /// Empties the encoder, whatever becomes of its events.
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

    /// Hands over who woke a thread.
    pub fn wakings(&mut self, thread: ThreadId, from: u64, wakings: &[Waking], until: u64) {
        self.attempt(|consumer| consumer.wakings(thread, from, wakings, until));
    }

    /// Hands over system calls of a thread.
    pub fn system_calls(&mut self, thread: ThreadId, from: u64, calls: &[SystemCall], until: u64) {
        self.attempt(|consumer| consumer.system_calls(thread, from, calls, until));
    }

    /// Hands over what happened to a thread.
    pub fn incidents(&mut self, thread: ThreadId, from: u64, incidents: &[Incident], until: u64) {
        self.attempt(|consumer| consumer.incidents(thread, from, incidents, until));
    }

    /// Other calls are kept from now on.
    pub fn change(&mut self, change: &Change) {
        self.attempt(|consumer| consumer.change(change));
    }

    /// A thread has no more events.
    pub fn end(&mut self, thread: ThreadId) {
        self.attempt(|consumer| consumer.end(thread));
    }

    /// It is over.
    pub fn over(&mut self, at: ClockPair) {
        self.consumer.over(at);
    }

    /// An interval ends; what happened in it comes.
    pub fn interval_ends(&mut self, at: ClockPair) {
        self.consumer.interval_ends(at);
    }

    /// Hands everything on that was taken until `at`.
    pub fn flush(&mut self, at: ClockPair) {
        self.attempt(|consumer| consumer.flush(at));
    }

    fn attempt(&mut self, act: impl FnOnce(&mut dyn Consumer) -> Result<(), Error>) {
        if self.failed.is_none() {
            self.failed = act(self.consumer).err();
        }
    }
}
