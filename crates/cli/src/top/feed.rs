//! Where events go: added up, and passed on when an interval ends.

use super::intervals::Came;
use super::switches::Switches;
use calltap_analysis::live::Live;
use calltap_session::Consumer;
use calltap_trace::{ClockPair, Error, Record, ThreadEncoder, ThreadId, Unpacker};
use std::sync::mpsc::Sender;

/// Makes intervals of events.
pub struct Feed<'a> {
    live: Live,
    unpacker: Unpacker,
    /// With the place of the process in the list.
    intervals: (usize, &'a Sender<(usize, Came)>),
    switches: &'a Switches,
}

impl<'a> Feed<'a> {
    /// Passes intervals on to `intervals`.
    pub fn new(intervals: (usize, &'a Sender<(usize, Came)>), switches: &'a Switches) -> Feed<'a> {
        Feed { live: Live::default(), unpacker: Unpacker::default(), intervals, switches }
    }
}

impl Consumer for Feed<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Process(process) if process.id == 0 => self.switches.set_name(&process.comm),
            _ => self.live.record(record),
        }
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        self.unpacker.events(encoder, |batch| self.live.events(batch));
        Ok(())
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.live.end(thread);
        Ok(())
    }

    fn interval_ends(&mut self, at: ClockPair) {
        self.live.interval_ends(at);
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        // The reader may be gone.
        let (place, sender) = self.intervals;
        let interval = self.switches.marked(self.live.interval(at));
        let _ = sender.send((place, Came::Interval(interval)));
        Ok(())
    }
}
