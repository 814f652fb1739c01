//! Watches a process or a program interval by interval, without a trace file: `calltap top` and the
//! answers.

use crate::attach_session::AttachSession;
use crate::controller::Controls;
use crate::error::Error;
use crate::options::{Options, Subject};
use crate::prepared::{Prepared, RunCallbacks, RunOutcome};
use crate::requests::Mailbox;
use crate::run::{RunOptions, SessionOutcome};
use calltap_collect::collector::{Due, Live};
use calltap_collect::output::Consumer;
use calltap_collect::subtree::SubtreeFilter;
use calltap_process::launch;
use calltap_trace::Record;
use nix::sys::resource::UsageWho;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
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
    let mut filter = SubtreeFilter::new(consumer, options.subtree.as_ref());
    watch_all(options, Watch { consumer: &mut filter, interval, settled, over, meanwhile, mailbox, due })
}

fn watch_all(options: &Options, watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let (pid, duration, max_overhead) = match &options.subject {
        Subject::Program(command) => return watch_program(options, command, watch),
        Subject::Process { pid, duration, max_overhead } => (*pid, *duration, *max_overhead),
    };
    let mut attach_session = AttachSession::new(options, pid)?;
    watch.consumer.record(&Record::Session(attach_session.session.clone()))?;
    attach_session.run(RunOptions {
        consumer: watch.consumer,
        interval: Some(watch.interval),
        settled: watch.settled,
        max_overhead,
        arrived: &|| {},
        duration,
        over: watch.over,
        meanwhile: watch.meanwhile,
        mailbox: watch.mailbox,
        due: watch.due,
    })
}

fn watch_program(options: &Options, command: &[OsString], watch: Watch<'_>) -> Result<SessionOutcome, Error> {
    let prepared = Prepared::new(options, command)?;
    watch.consumer.record(&Record::Session(prepared.session.clone()))?;
    let on = AtomicBool::new(true);
    let RunOutcome { status, totals, sites, notes, failed, code_is_in } = prepared.run(RunCallbacks {
        consumer: watch.consumer,
        live: Some(Live { interval: watch.interval, on: &on, due: watch.due }),
        settled: watch.settled,
        accepted: &|| {},
        meanwhile: watch.meanwhile,
    })?;
    Ok(SessionOutcome {
        whole: true,
        status: Some(status),
        stops: Default::default(),
        disabled_by_limit: Vec::new(),
        totals,
        sites,
        code_is_in,
        notes,
        failed,
        ended: true,
        cpu: Duration::from_nanos(launch::cpu_ns(UsageWho::RUSAGE_CHILDREN)),
    })
}
