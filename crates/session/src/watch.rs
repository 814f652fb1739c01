//! Watches a process or a program interval by interval, without a trace file: `calltap top` and the
//! answers.

use crate::controller::Controls;
use crate::error::Error;
use crate::options::Options;
use crate::outcome::SessionOutcome;
use crate::ready::Ready;
use crate::requests::Mailbox;
use crate::run::RunOptions;
use calltap_collect::collector::Due;
use calltap_collect::output::Consumer;
use calltap_collect::subtree::SubtreeFilter;
use calltap_trace::Record;
use std::time::Duration;

/// Options of watching.
pub struct Watch<'a> {
    /// Consumer of the events. It first gets [`Record::Session`]. The first flush is when
    /// everything is enabled, then there is one at the end of every interval, and the last before
    /// detaching, which is not watched.
    pub consumer: &'a mut dyn Consumer,
    /// Length of an interval.
    pub interval: Duration,
    /// Whether the consumer needs the duration of a tick before the first event.
    pub settled: bool,
    /// Whether to detach; called every few milliseconds.
    pub over: &'a (dyn Fn() -> bool + Sync),
    /// Called every few milliseconds before detaching.
    pub meanwhile: &'a mut (dyn FnMut(&mut Controls<'_, '_>) + Send),
    /// Requests of the watcher.
    pub mailbox: Option<&'a Mailbox>,
    /// Requests events before the interval ends.
    pub due: Option<&'a Due>,
}

/// Watches the process of `options` for its duration, or until it ends, calltap gets SIGINT,
/// SIGTERM or SIGHUP, or `over` returns true. A program is started, and watched to its end
/// regardless of `over`.
pub fn watch(options: &Options, watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let Watch { consumer, interval, settled, over, meanwhile, mailbox, due } = watch;
    let mut filter = SubtreeFilter::new(consumer, options.kept.subtree.as_ref());
    watch_all(options, Watch { consumer: &mut filter, interval, settled, over, meanwhile, mailbox, due })
}

fn watch_all(options: &Options, watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let ready = Ready::new(options)?;
    watch.consumer.record(&Record::Session(ready.session().clone()))?;
    options.kept.subtree.iter().try_for_each(|subtree| watch.consumer.record(&subtree.record(None)))?;
    ready.run(RunOptions {
        consumer: watch.consumer,
        interval: Some(watch.interval),
        settled: watch.settled,
        accepted: &|| {},
        over: watch.over,
        meanwhile: watch.meanwhile,
        mailbox: watch.mailbox,
        due: watch.due,
    })
}
