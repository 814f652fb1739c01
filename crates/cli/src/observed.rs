//! The observed state of a watched process, for views that ask for it at any time: the last
//! interval, and the newest events.

use crate::top::switches::Switches;
use anyhow::Result;
use calltap_analysis::explore::Explorer;
use calltap_analysis::intervals::{Interval, Live};
use calltap_analysis::timeline::Limits;
use calltap_analysis::{Recent, Snapshot};
use calltap_session::{Consumer, Options, SessionOutcome, Watch, watch};
use calltap_trace::{ClockPair, Error, Record, ThreadEncoder, ThreadId, Unpacker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of events that are kept: some 40 MB.
const EVENTS: usize = 1 << 20;

struct Content {
    live: Live,
    recent: Recent,
    /// The last interval, and the number of intervals. The first only reports that all functions
    /// are switched on.
    interval: Option<Interval>,
    intervals: u64,
}

/// The newest events as an explorer, with the number of the interval up to which it was made.
type Read = Option<(u64, Arc<Explorer<Snapshot>>)>;

/// The observed state of a process.
pub struct ObservedProcess {
    /// The switches of functions, and their states.
    pub switches: Switches,
    content: Mutex<Content>,
    read: Mutex<Read>,
}

impl ObservedProcess {
    /// Returns the state of a process before anything was observed.
    pub fn new(pid: u32) -> ObservedProcess {
        let (live, recent) = (Live::default(), Recent::new(EVENTS));
        let content = Content { live, recent, interval: None, intervals: 0 };
        ObservedProcess { switches: Switches::new(pid), content: Mutex::new(content), read: Mutex::new(None) }
    }

    /// Watches the process until it ends or the views have ended.
    pub fn watch(&self, options: &Options, interval: Duration) -> Result<SessionOutcome> {
        let mut feed = Feed { seen: self, unpacker: Unpacker::default() };
        let outcome = watch(
            options,
            Watch {
                consumer: &mut feed,
                interval,
                settled: false,
                over: &|| self.switches.is_over(),
                meanwhile: &mut |controls| self.switches.serve(controls),
                mailbox: None,
                due: None,
            },
        );
        Ok(outcome?)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // A thread that panicked leaves no half-changed value behind.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of intervals; 0 before all functions are switched on.
    pub fn intervals(&self) -> u64 {
        self.content().intervals
    }

    /// Returns the last interval.
    pub fn interval(&self) -> Option<Interval> {
        self.content().interval.clone()
    }

    /// Returns the newest events up to the last interval; without `fresh`, possibly the events of
    /// an earlier request.
    pub fn explorer(&self, fresh: bool) -> Result<Arc<Explorer<Snapshot>>> {
        // The lock is held throughout, so that no two threads read the same events.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (intervals, snapshot) = {
            let content = self.content();
            if let Some((intervals, explorer)) = &*read
                && (*intervals == content.intervals || !fresh)
            {
                return Ok(explorer.clone());
            }
            (content.intervals, content.recent.snapshot())
        };
        let explorer = Arc::new(Explorer::new(snapshot, Limits::default(), None)?);
        *read = Some((intervals, explorer.clone()));
        Ok(explorer)
    }
}

struct Feed<'a> {
    seen: &'a ObservedProcess,
    unpacker: Unpacker,
}

impl Consumer for Feed<'_> {
    fn record(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Process(process) if process.id == 0 => self.seen.switches.set_name(&process.comm),
            Record::Kept(kept) => self.seen.switches.set_kept(kept.calls.clone()),
            _ => {}
        }
        let mut content = self.seen.content();
        content.live.record(record);
        content.recent.record(record);
        Ok(())
    }

    fn events(&mut self, encoder: &mut ThreadEncoder) -> Result<(), Error> {
        let mut content = self.seen.content();
        self.unpacker.events(encoder, |batch| {
            content.live.events(batch);
            content.recent.events(batch);
        });
        Ok(())
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), Error> {
        self.seen.content().live.end(thread);
        Ok(())
    }

    fn interval_ends(&mut self, at: ClockPair) {
        self.seen.content().live.interval_ends(at);
    }

    fn flush(&mut self, at: ClockPair) -> Result<(), Error> {
        let mut content = self.seen.content();
        content.recent.moment(at);
        content.interval = self.seen.switches.marked(content.live.interval(at));
        content.intervals += 1;
        Ok(())
    }
}
