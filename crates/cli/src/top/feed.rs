//! The collector's consumer for `top`: sums up events, and passes on an interval when it ends.

use super::intervals::Message;
use super::switches::Switches;
use calltap_analysis::intervals::Live;
use calltap_session::Consumer;
use calltap_trace::{ClockPair, Error, Record, ThreadEncoder, ThreadId, Unpacker};
use std::sync::mpsc::Sender;

/// Sums up events into intervals.
pub struct Feed<'a> {
    live: Live,
    unpacker: Unpacker,
    /// The index of the process in the list, and the channel for its intervals.
    intervals: (usize, &'a Sender<(usize, Message)>),
    switches: &'a Switches,
}

impl<'a> Feed<'a> {
    /// Returns a feed that passes its intervals on to `intervals`.
    pub fn new(intervals: (usize, &'a Sender<(usize, Message)>), switches: &'a Switches) -> Feed<'a> {
        Feed { live: Live::default(), unpacker: Unpacker::default(), intervals, switches }
    }
}

impl Consumer for Feed<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Process(process) if process.id == 0 => self.switches.set_name(&process.comm),
            Record::Kept(kept) => self.switches.set_kept(kept.calls.clone()),
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
        // The receiving thread may have ended.
        let (place, sender) = self.intervals;
        let interval = self.switches.marked(self.live.interval(at));
        let _ = sender.send((place, Message::Interval(interval)));
        Ok(())
    }
}
