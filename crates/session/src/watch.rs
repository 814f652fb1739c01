//! `calltap top`: watching a running process, interval by interval, without a trace file.

use crate::Error;
use crate::collector::Due;
use crate::output::Consumer;
use crate::record::{Options, Subject};
use crate::requests::Mailbox;
use crate::visit::{Controls, Stay, Visit, Visited};
use calltap_trace::Record;
use std::io;
use std::time::Duration;

/// How a process is watched.
pub struct Watch<'a> {
    /// Where its events go. First comes [`Record::Session`]; the first flush is when everything is switched on, then there is one at the end of every
    /// interval, and the last is when it is over: what happens while we leave is not watched.
    pub consumer: &'a mut dyn Consumer,
    /// Length of an interval.
    pub interval: Duration,
    /// Is it time to leave? Asked every few milliseconds.
    pub over: &'a (dyn Fn() -> bool + Sync),
    /// Called again and again until then.
    pub meanwhile: &'a mut dyn FnMut(&mut Controls<'_, '_>),
    /// Requests of the watcher.
    pub mailbox: Option<&'a Mailbox>,
    /// Asks for what has happened before the interval ends.
    pub due: Option<&'a Due>,
}

/// Watches the process of `options` ([`Subject::Process`]) for its duration, or until it ends, we are told to end (SIGINT, SIGTERM, SIGHUP), or it is
/// over.
pub fn watch(options: &Options, watch: Watch<'_>) -> Result<Visited, Error> {
    let Subject::Process { pid, duration, max_overhead } = options.subject else {
        let source = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(Error::System { what: "watching a program that does not run yet", source });
    };
    let mut visit = Visit::new(options, pid)?;
    watch.consumer.record(&Record::Session(visit.session.clone()))?;
    visit.stay(Stay {
        consumer: watch.consumer,
        interval: Some(watch.interval),
        max_overhead,
        arrived: &|| {},
        duration,
        over: watch.over,
        meanwhile: watch.meanwhile,
        mailbox: watch.mailbox,
        due: watch.due,
    })
}
